"""Time the series on a real base: check, first apply, no-op, and one edited patch.

usage: python benchmarks/series_apply.py OBJECTS TREE [PATCHES]

OBJECTS is a bare git store that holds TREE. A synthetic series of up to 127 patches (all numbers
that there are) changes real source files and adds new ones; more PATCHES are spread over the
numbers by giving each patch more files.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from opencoti_build.series.apply import apply_series
from opencoti_build.series.check import check_series
from opencoti_build.series.export import export_commits
from opencoti_build.series.git import Git
from opencoti_build.series.series import Series, load_series
from opencoti_build.ui import Ui
from tests.lib.series import PatchMaker


def synthetic(objects: Path, tree: str, folder: Path, count: int) -> None:
    """Write ``count`` patches: each edits three upstream sources and adds one file."""
    git = Git(objects)
    paths = [
        path
        for path in git.fields("ls-tree", "-r", "-z", "--name-only", tree)
        if path.endswith((".cpp", ".h", ".cu", ".c")) and path.isascii()
    ]
    maker = PatchMaker(objects, tree, folder)
    for step in range(count):
        edits: dict[str, bytes | None] = {f"src/opencoti/part-{step}.h": b"// new\n" * 200}
        for other in range(3):
            path = paths[(step * 7 + other * 131) % len(paths)]
            lines = maker.read(path).split(b"\n")
            middle = (len(lines) // 2 + step) % len(lines)
            lines.insert(middle, b"// hook %d %d" % (step, other))
            edits[path] = b"\n".join(lines)
        maker.add(6 + step, f"synthetic-{step}", edits)


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.monotonic()
    result = call()
    return time.monotonic() - start, result


def main() -> None:
    objects, tree = Path(sys.argv[1]).resolve(), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 128
    ui = Ui(quiet=True)
    rows: list[tuple[str, float, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="opencoti-bench-") as name:
        folder = Path(name) / "patches"
        synthetic(objects, tree, folder, count)
        space = Path(name) / "space"

        def apply(series: Series) -> tuple[float, object]:
            return timed(lambda: apply_series(series, tree, objects, space, ui))

        spent, series = timed(lambda: load_series(folder))
        assert isinstance(series, Series)
        rows.append((f"load {count} patches", spent, "", ""))
        spent, statuses = timed(lambda: check_series(series, tree, objects, ui))
        rows.append(("check", spent, "10", f"{len(statuses)} patches"))  # type: ignore[arg-type]
        empty = Series(folder, ())
        spent, done = apply(empty)
        rows.append(("first apply, no patch", spent, "", f"{done.rewritten_files} files"))  # type: ignore[attr-defined]
        spent, done = apply(series)
        rows.append(("all patches on it", spent, "", f"{done.rewritten_files} files"))  # type: ignore[attr-defined]
        space = Path(name) / "space2"
        spent, done = apply(series)
        rows.append(("first apply, all patches", spent, "20", f"{done.rewritten_files} files"))  # type: ignore[attr-defined]
        spent, done = apply(series)
        rows.append(("no-op apply", spent, "0.5", f"{done.rewritten_files} files"))  # type: ignore[attr-defined]
        shorter = Series(folder, series.patches[:-1])
        spent, done = apply(shorter)
        rows.append(("last patch dropped", spent, "", f"{done.rewritten_files} files"))  # type: ignore[attr-defined]
        apply(series)
        base = done.base_commit  # type: ignore[attr-defined]
        spent, out = timed(lambda: export_commits(space, base, folder, ui))
        rows.append(("export", spent, "", f"{len(out.written)} files changed"))  # type: ignore[attr-defined]
    print(f"{'step':28}{'seconds':>9}{'budget':>8}  result")
    for label, spent, budget, result in rows:
        print(f"{label:28}{spent:9.2f}{budget:>8}  {result}")
    if any(budget and spent > float(budget) for _, spent, budget, _ in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
