"""The CUDA library of a small tree: compiled by the real nvcc where there is one."""

from __future__ import annotations

import ctypes
import json
import shutil
from pathlib import Path

import pytest

from opencoti_build.build import cuda
from opencoti_build.build.cuda import CudaBuilder, CudaSpec
from opencoti_build.build.cuda_note import SYMBOL, needed_driver
from opencoti_build.errors import BuildError
from opencoti_build.paths import Cache, find_cache
from opencoti_build.targets import Target
from opencoti_build.toolchains.nvcc import HostCxx, NvccToolchain, find_nvcc
from opencoti_build.toolchains.zig import zig_toolchain
from opencoti_build.verify.gpu import check_library
from tests.lib.single_file import ABI, QUIET, compile_c

ONE = """
#include <condition_variable>
#include <stdexcept>
#include <string>
extern "C" const char * module_name(void);
__global__ void scale(float * x) { x[threadIdx.x] *= 2; }
extern "C" void ggml_backend_run(float * x) { scale<<<1, 32>>>(x); }
extern "C" int ggml_backend_score(void) {
    try {
        throw std::runtime_error(module_name());
    } catch (const std::exception & e) {
        return (int) std::string(e.what()).size();
    }
}
extern "C" int not_for_others(void) { return 1; }
"""
HOPPER = """
__global__ void wide() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;");
#endif
}
"""


def toolchain() -> NvccToolchain:
    try:
        return find_nvcc()
    except BuildError as error:
        pytest.skip(error.message)


def tree(folder: Path) -> Path:
    sources = folder / "ggml" / "src" / "ggml-cuda"
    sources.mkdir(parents=True)
    (sources / "one.cu").write_text(ONE)
    (sources / "opencoti-gemm-sm90.cu").write_text(HOPPER)
    return folder


def builder(folder: Path, nvcc: NvccToolchain, *architectures: str) -> CudaBuilder:
    zig = zig_toolchain(Target.X86_64_LINUX, "2.28")
    spec = CudaSpec("0" * 40, architectures, nvcc, zig, ABI, "0.10.3")
    return CudaBuilder(spec, folder / "tree", Cache(folder / "cache"), QUIET)


def fake() -> NvccToolchain:
    return NvccToolchain(Path("/cuda"), "13.0.88", "0" * 32, HostCxx(Path("g++"), "12", Path("l")))


def test_each_file_is_compiled_for_its_architectures(tmp_path: Path) -> None:
    tree(tmp_path / "tree")
    text, objects = builder(tmp_path, fake(), "80", "90", "120f").ninja_file()
    assert objects == ["one.cu.o", "opencoti-gemm-sm90.cu.o"]
    rows = [line.split() for line in text.splitlines() if line.startswith("  arch")]
    assert [row[2:] for row in rows] == [
        [f"--generate-code=arch=compute_{n},code=[sm_{n}]" for n in names]
        for names in (("80", "90", "120f"), ("90a",))
    ]
    assert "-DOPENCOTI_GEMM_SM90" in text
    text, objects = builder(tmp_path, fake(), "75").ninja_file()
    assert objects == ["one.cu.o"] and "SM90" not in text


def test_objects_that_no_library_can_hold_are_refused_before_linking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "LINK_LIMIT", 100)
    big = tmp_path / "big.o"
    big.write_bytes(bytes(100))
    with pytest.raises(BuildError) as caught:
        builder(tmp_path, fake(), "90")._link([big], big, tmp_path / "ggml-cuda.so")
    assert caught.value.reason == "cuda-too-large"
    assert list(tmp_path.iterdir()) == [big]


def test_a_library_is_built_and_only_edits_are_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = toolchain()
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(find_cache().toolchains / "zig-cache"))
    tree(tmp_path / "tree")
    (tmp_path / "base.c").write_text('const char *module_name(void) { return "base"; }\n')
    base = tmp_path / "libggml-base.so.0"
    compile_c(tmp_path, "base.c", "-shared", "-fPIC", f"-Wl,-soname,{base.name}", "-o", base.name)

    def build() -> tuple[int, int]:
        done = builder(tmp_path, nvcc, "80", "90").build(base, tmp_path, 1, lambda *_: None)
        return done.compiled, done.from_ccache

    assert build() == (2, 0)
    library = tmp_path / cuda.LIBRARY
    body = library.read_bytes()
    row = {"architectures": ["80", "90"], "abi_digest": ABI}
    findings = check_library(body, [row], {Target.X86_64_LINUX: ABI})
    assert [finding.reason for finding in findings if finding.reason] == []
    loaded = ctypes.CDLL(str(library))
    assert loaded.ggml_backend_score() == 4
    assert not hasattr(loaded, "not_for_others") and not hasattr(loaded, "cudaMalloc")
    text = json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(loaded, SYMBOL))))
    assert text["abi"] == ABI and text["driver"] == needed_driver(nvcc.version)

    assert build() == (0, 0) and library.read_bytes() == body
    with (tmp_path / "tree" / "ggml/src/ggml-cuda/one.cu").open("a") as stream:
        stream.write('extern "C" int ggml_backend_more(void) { return 2; }\n')
    assert build() == (1, 0)
    shutil.rmtree(next((tmp_path / "cache" / "builds").iterdir()))
    assert build() == (2, 2)

    (tmp_path / "tree" / "ggml/src/ggml-cuda/one.cu").write_text("int x = y;\n")
    with pytest.raises(BuildError) as caught:
        build()
    assert caught.value.reason == "compile-failed"
