"""Which of the recipe's CPU variants this machine runs, and what it turns on in the build.

The released engine holds several CPU modules and loads the best one. A gate build holds one, with
the same switches: the base then runs the same code, although it cannot leave variants out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from opencoti_build.errors import BuildError

_LIST = Path("ggml/src/CMakeLists.txt")
_VARIANT = re.compile(r"^\s*ggml_add_cpu_backend_variant\((\w+)((?:\s+\w+)*)\s*\)", re.M)

# What the kernel calls the instructions that a switch of ggml's build uses.
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "SSE42": ("sse4_2",),
    "AVX": ("avx",),
    "F16C": ("f16c",),
    "FMA": ("fma",),
    "BMI2": ("bmi2",),
    "AVX2": ("avx2",),
    "AVX_VNNI": ("avx_vnni",),
    "AVX512": ("avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"),
    "AVX512_VBMI": ("avx512vbmi",),
    "AVX512_VNNI": ("avx512_vnni",),
    "AVX512_BF16": ("avx512_bf16",),
    "AMX_TILE": ("amx_tile",),
    "AMX_INT8": ("amx_int8",),
}


def variant_switches(tree: Path) -> dict[str, tuple[str, ...]]:
    """The switches of every x86 variant that the engine tree knows, by its name."""
    text = (tree / _LIST).read_text(encoding="utf-8")
    found = {match[1]: tuple(match[2].split()) for match in _VARIANT.finditer(text)}
    return {name: switches for name, switches in found.items() if set(switches) <= set(_FLAGS)}


def machine_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The CPU flags that the kernel reports; empty where it does not."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def best_variant(
    names: Sequence[str], switches: Mapping[str, Sequence[str]], flags: frozenset[str]
) -> str:
    """The one of ``names`` with the most switches that a machine with ``flags`` can run.

    Raises BuildError ``gate-no-cpu-variant``.
    """
    fitting = [
        name
        for name in names
        if name in switches and all(flags.issuperset(_FLAGS[item]) for item in switches[name])
    ]
    if not fitting:
        raise BuildError(
            "gate-no-cpu-variant",
            "this machine runs none of the recipe's CPU variants",
            context={"variants": ", ".join(names)},
        )
    return max(fitting, key=lambda name: len(switches[name]))


def build_switches(chosen: Sequence[str]) -> dict[str, str]:
    """CMake variables for one CPU module with exactly the switches ``chosen``."""
    return {f"GGML_{name}": "ON" if name in chosen else "OFF" for name in sorted(_FLAGS)}
