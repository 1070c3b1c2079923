"""The choice of one CPU variant for a gate build."""

from __future__ import annotations

from pathlib import Path

import pytest

from opencoti_build.errors import BuildError
from opencoti_build.gates.cpu import best_variant, build_switches, machine_flags, variant_switches

LIST = """\
    ggml_add_cpu_backend_variant(x64)
        ggml_add_cpu_backend_variant(haswell            SSE42 AVX F16C FMA AVX2 BMI2)
        ggml_add_cpu_backend_variant(skylakex           SSE42 AVX F16C FMA AVX2 BMI2 AVX512)
            ggml_add_cpu_backend_variant(armv8.2_1    DOTPROD)
            ggml_add_cpu_backend_variant(z15    Z15 VXE2)
function(ggml_add_cpu_backend_variant tag_name)
"""
AVX2 = frozenset(["sse4_2", "avx", "f16c", "fma", "bmi2", "avx2"])


@pytest.fixture
def switches(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    path = tmp_path / "ggml/src/CMakeLists.txt"
    path.parent.mkdir(parents=True)
    path.write_text(LIST)
    return variant_switches(tmp_path)


def test_variants_are_read_from_the_tree(switches: dict[str, tuple[str, ...]]) -> None:
    assert set(switches) == {"x64", "haswell", "skylakex"}
    assert switches["haswell"] == ("SSE42", "AVX", "F16C", "FMA", "AVX2", "BMI2")


def test_the_best_variant_that_the_machine_runs(switches: dict[str, tuple[str, ...]]) -> None:
    names = ("x64", "haswell", "skylakex")
    assert best_variant(names, switches, AVX2) == "haswell"
    assert best_variant(names, switches, AVX2 - {"avx2"}) == "x64"
    wide = AVX2 | {"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"}
    assert best_variant(names, switches, wide) == "skylakex"
    with pytest.raises(BuildError) as caught:
        best_variant(("haswell",), switches, frozenset())
    assert caught.value.reason == "gate-no-cpu-variant"


def test_switches_that_are_not_chosen_are_off() -> None:
    options = build_switches(("SSE42", "AVX"))
    assert {name for name, value in options.items() if value == "ON"} == {"GGML_SSE42", "GGML_AVX"}
    assert "GGML_AVX512" in options


def test_flags_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("model name : x\nflags\t\t: fpu avx avx2\nflags : other\n")
    assert machine_flags(tmp_path / "cpuinfo") == {"fpu", "avx", "avx2"}
    assert machine_flags(tmp_path / "missing") == frozenset()
