"""Numbers about patches: how much they add, and how much of upstream they touch."""

from __future__ import annotations

from dataclasses import dataclass

from opencoti_build.series.series import Series


@dataclass(frozen=True)
class PatchStat:
    """``upstream_lines`` are lines changed in files of the base, ``own_lines`` in our files."""

    number: int
    files: int
    own_files: int
    own_lines: int
    upstream_lines: int

    @property
    def lines(self) -> int:
        return self.own_lines + self.upstream_lines


def series_stats(series: Series) -> tuple[PatchStat, ...]:
    """One entry a patch. A file is ours from the patch on that creates it."""
    ours: set[str] = set()
    stats: list[PatchStat] = []
    for patch in series.patches:
        ours.update(file.path for file in patch.files if file.is_new)
        own = [file for file in patch.files if file.path in ours]
        lines = sum(file.added + file.deleted for file in patch.files)
        own_lines = sum(file.added + file.deleted for file in own)
        stats.append(
            PatchStat(patch.number, len(patch.files), len(own), own_lines, lines - own_lines)
        )
    return tuple(stats)


@dataclass(frozen=True)
class FeatureStat:
    """All patches of one feature."""

    feature: str
    numbers: tuple[int, ...]
    own_lines: int
    upstream_lines: int


def feature_stats(series: Series) -> tuple[FeatureStat, ...]:
    """One entry a feature, in the order of their first patches."""
    rows: dict[str, list[PatchStat]] = {}
    for patch, stat in zip(series.patches, series_stats(series), strict=True):
        rows.setdefault(patch.feature, []).append(stat)
    return tuple(
        FeatureStat(
            feature,
            tuple(stat.number for stat in stats),
            sum(stat.own_lines for stat in stats),
            sum(stat.upstream_lines for stat in stats),
        )
        for feature, stats in rows.items()
    )


def build_order(series: Series) -> tuple[tuple[int, ...], ...]:
    """The patches in layers: each needs only patches of the layers before it."""
    layer: dict[int, int] = {}
    for patch in series.patches:
        layer[patch.number] = 1 + max((layer[number] for number in patch.depends), default=-1)
    layers = range(max(layer.values(), default=-1) + 1)
    return tuple(tuple(n for n, level in layer.items() if level == wanted) for wanted in layers)
