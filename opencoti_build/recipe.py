"""Recipes: what to build, as data."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from opencoti_build.errors import UsageError
from opencoti_build.targets import System, Target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._]{0,31}")
_VERSION = re.compile(r"\d+(\.\d+){1,3}")
_NUMBERS = re.compile(r"\d+\.\d+")
_ARCHITECTURE = re.compile(r"[1-9]\d{1,2}[af]?")
_MINIMUM_KEYS = {System.LINUX: "glibc", System.MACOS: "macos"}
_MINIMUM_NAMES = {"glibc": "glibc", "macos": "macOS"}
# Below these, symbols that the engine needs do not exist.
_OLDEST = {"glibc": (2, 28), "macos": (11, 0)}


class Toolchain(Enum):
    """What builds the programs: zig for each target, or upstream's own build for all at once."""

    ZIG = "zig"
    COSMOCC = "cosmocc"


@dataclass(frozen=True)
class Minimum:
    """The oldest system library or system that is supported: ``glibc 2.28``, ``macOS 11.0``."""

    what: str
    version: str

    def __str__(self) -> str:
        return f"{self.what} {self.version}"


@dataclass(frozen=True)
class TargetRecipe:
    """How the engine for one target is built. The other keys are for zig alone."""

    target: Target
    toolchain: Toolchain
    minimum: Minimum | None
    cpu_variants: tuple[str, ...]

    @property
    def minimum_version(self) -> str | None:
        """The version of ``minimum`` alone, as compilers take it."""
        return self.minimum.version if self.minimum else None


@dataclass(frozen=True)
class CudaRecipe:
    """The CUDA library of one target: the GPU architectures that it has code for."""

    target: Target
    architectures: tuple[str, ...]

    @property
    def component(self) -> str:
        """The name that variants have for it."""
        return f"ggml-cuda {self.target}"


@dataclass(frozen=True)
class ReferenceRecipe:
    """Upstream's own build: the pin of its tree, and the folder of it that the series is for."""

    source: str
    patch_root: str


@dataclass(frozen=True)
class VariantRecipe:
    """One published file: the host under a name.

    ``targets`` are the systems that the name promises (one of them must be in the host; none:
    any host will do). ``windows`` says that the name is one that Windows starts. ``embed`` is the
    GPU library inside, as an entry's name, and ``component`` what builds it. ``max_size`` is the
    budget in bytes that the size gate holds the file to (None: there is none).
    """

    suffix: str
    windows: bool = False
    targets: tuple[Target, ...] = ()
    embed: str | None = None
    component: str | None = None
    max_size: int | None = None

    def fits(self, built: Iterable[Target]) -> bool:
        """Whether a host for the targets ``built`` may have this name."""
        return not self.targets or any(target in self.targets for target in built)


@dataclass(frozen=True)
class Recipe:
    """A parsed recipe file."""

    path: Path
    name: str
    version: str
    base: str
    targets: tuple[TargetRecipe, ...]
    variants: tuple[VariantRecipe, ...]
    reference: ReferenceRecipe | None = None
    cuda: tuple[CudaRecipe, ...] = ()

    def toolchain(self, name: str | None = None) -> Toolchain:
        """The toolchain called ``name``, by default that of the targets.

        Raises UsageError ``toolchain-not-in-recipe``.
        """
        own = self.targets[0].toolchain
        chosen = Toolchain(name) if name else own
        if chosen is Toolchain.COSMOCC and self.reference is None:
            missing = "a table [cosmocc] with source and patch_root"
        elif chosen is not own and chosen is Toolchain.ZIG:
            missing = "what zig needs to know of its targets"
        else:
            return chosen
        raise UsageError(
            "toolchain-not-in-recipe",
            f"the recipe lacks {missing}",
            context={"recipe": self.path, "toolchain": chosen.value},
        )

    def file_name(self, tag: str, variant: VariantRecipe) -> str:
        """The published name of ``variant``, such as ``name-0.10.3-c3-x86_64.llamafile``."""
        return f"{self.name}-{self.version}-{tag}{variant.suffix}"

    def select(self, names: tuple[str, ...]) -> tuple[TargetRecipe, ...]:
        """The targets called ``names`` (all when empty).

        Raises UsageError ``target-not-in-recipe``.
        """
        known = {str(item.target): item for item in self.targets}
        for name in names:
            if name not in known:
                raise UsageError(
                    "target-not-in-recipe",
                    f"the recipe does not build {name}",
                    context={"recipe": self.path, "targets": ", ".join(known)},
                )
        return tuple(known[name] for name in dict.fromkeys(names)) if names else self.targets


def check_tag(tag: str) -> str:
    """``tag`` when it may be part of a file name and of the version string.

    Raises UsageError ``bad-tag``.
    """
    if not _TAG.fullmatch(tag):
        raise UsageError(
            "bad-tag",
            f"{tag!r} cannot be a release tag",
            hint="use up to 32 letters, digits, '.' and '_', starting with a letter or digit",
        )
    return tag


def load_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises UsageError ``recipe-missing`` or ``recipe-invalid``."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        others = ", ".join(sorted(item.stem for item in path.parent.glob("*.toml")))
        raise UsageError(
            "recipe-missing", f"no recipe {path.name}", context={"recipes": others or "none"}
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _invalid(path, str(error)) from None
    try:
        return _parse(path, data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise _invalid(path, what) from None


def _parse(path: Path, data: Mapping[str, Any]) -> Recipe:
    known = {"format", "name", "version", "base", "targets", "cuda", "variants", "cosmocc"}
    _only(data, known)
    if data["format"] != 1:
        raise ValueError(f"format {data['format']!r} is not 1")
    if not _VERSION.fullmatch(data["version"]):
        raise ValueError(f"version {data['version']!r} is not like 0.10.3")
    targets = tuple(_target(name, table) for name, table in data["targets"].items())
    variants = tuple(_variant(table) for table in data["variants"])
    if not targets or not variants:
        raise ValueError("a recipe needs at least one target and one variant")
    if len({item.suffix for item in variants}) != len(variants):
        raise ValueError("two variants have the same suffix")
    if len({item.toolchain for item in targets}) != 1:
        raise ValueError("one toolchain builds all targets")
    reference = _reference(data["cosmocc"]) if "cosmocc" in data else None
    cuda = tuple(_cuda(name, table) for name, table in data.get("cuda", {}).items())
    name, base = str(data["name"]), str(data["base"])
    return Recipe(path, name, data["version"], base, targets, variants, reference, cuda)


def _reference(table: Mapping[str, Any]) -> ReferenceRecipe:
    _only(table, {"source", "patch_root"})
    source, root = str(table["source"]), table["patch_root"]
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", root) or {".", ".."} & {*root.split("/")}:
        raise ValueError(f"patch_root {root!r} is no folder inside the source")
    return ReferenceRecipe(source, root)


def _target(name: str, table: Mapping[str, Any]) -> TargetRecipe:
    target = Target(name)
    key = _MINIMUM_KEYS.get(target.system)
    if table["toolchain"] not in {item.value for item in Toolchain}:
        known = ", ".join(item.value for item in Toolchain)
        raise ValueError(f"toolchain {table['toolchain']!r} of {name} is unknown; known: {known}")
    toolchain = Toolchain(table["toolchain"])
    if toolchain is Toolchain.COSMOCC:
        _only(table, {"toolchain"})
        return TargetRecipe(target, toolchain, None, ())
    _only(table, {"toolchain", "cpu_variants", *([key] if key else [])})
    minimum = _minimum(name, key, table[key]) if key else None
    variants = tuple(str(item) for item in table["cpu_variants"])
    return TargetRecipe(target, toolchain, minimum, variants)


def _cuda(name: str, table: Mapping[str, Any]) -> CudaRecipe:
    _only(table, {"architectures"})
    architectures = tuple(str(item) for item in table["architectures"])
    return CudaRecipe(Target(name), check_architectures(architectures))


def check_architectures(names: tuple[str, ...]) -> tuple[str, ...]:
    """``names`` of GPU architectures without repeats, by number. Raises ValueError."""
    for name in names:
        if not _ARCHITECTURE.fullmatch(name):
            raise ValueError(f"GPU architecture {name!r} is not like 90 or 120f")
    if not names:
        raise ValueError("a CUDA library needs at least one GPU architecture")
    return tuple(sorted(set(names), key=lambda name: (int(name.rstrip("af")), name)))


def _minimum(name: str, key: str, version: str) -> Minimum:
    """``key`` of a target's table: a version that is not older than what the engine needs."""
    oldest = _OLDEST[key]
    if not _NUMBERS.fullmatch(version) or tuple(map(int, version.split("."))) < oldest:
        wanted = ".".join(map(str, oldest))
        raise ValueError(f"{key} {version!r} of {name} is not {wanted} or newer")
    return Minimum(_MINIMUM_NAMES[key], version)


def _variant(table: Mapping[str, Any]) -> VariantRecipe:
    _only(table, {"suffix", "windows", "targets", "embed", "component", "max_size"})
    suffix, windows = table["suffix"], table.get("windows", False)
    if not re.fullmatch(r"-[A-Za-z0-9._-]+", suffix):
        raise ValueError(f"suffix {suffix!r} is not like -x86_64.llamafile")
    if not isinstance(windows, bool) or windows != suffix.lower().endswith(".exe"):
        raise ValueError(f"suffix {suffix!r} ends in .exe exactly if the variant is for Windows")
    targets = tuple(Target(item) for item in table.get("targets", ()))
    if windows and targets not in ((), (Target.X86_64_WINDOWS,)):
        raise ValueError(f"{suffix!r} is for Windows but names other targets")
    embed, component = table.get("embed"), table.get("component")
    if (embed is None) != (component is None):
        raise ValueError(f"{suffix!r} needs both embed and component, or neither")
    if embed is not None and not re.fullmatch(r"[A-Za-z0-9_-]+\.(so|dll)", embed):
        raise ValueError(f"embed {embed!r} is not like ggml-cuda.so")
    if embed is not None and windows:
        raise ValueError(f"{suffix!r}: Windows starts no file as large as one with a GPU library")
    max_size = table.get("max_size")
    if max_size is not None and (type(max_size) is not int or max_size < 1):
        raise ValueError(f"{suffix!r}: max_size {max_size!r} is not a number of bytes")
    wanted = (Target.X86_64_WINDOWS,) if windows else targets
    return VariantRecipe(suffix, windows, wanted, embed, component, max_size)


def _only(table: Mapping[str, Any], allowed: set[str]) -> None:
    if unknown := sorted(set(table) - allowed):
        raise ValueError(f"unknown key {unknown[0]!r}")


def _invalid(path: Path, what: str) -> UsageError:
    return UsageError("recipe-invalid", f"{path.name}: {what}", context={"recipe": path})
