"""The CUDA library of a small tree: compiled by the real nvcc where there is one."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from opencoti_build.build import cuda, cuda_files
from opencoti_build.build.cuda import CudaBuilder, CudaSpec
from opencoti_build.build.cuda_note import SYMBOL, needed_driver
from opencoti_build.errors import BuildError, SourceError
from opencoti_build.paths import Cache, find_cache, find_project
from opencoti_build.sources.context import FetchContext
from opencoti_build.targets import Target
from opencoti_build.toolchains.nvcc import HostCxx, NvccToolchain
from opencoti_build.toolchains.nvcc_calls import SOURCE_ENV, write_calls
from opencoti_build.toolchains.nvcc_cross import cuda_toolchain
from opencoti_build.toolchains.zig import zig_toolchain
from opencoti_build.verify.gpu import check_library
from tests.lib.single_file import ABI, QUIET, compile_c

ONE = """
#include <cub/block/block_reduce.cuh>
#include <condition_variable>
#include <stdexcept>
#include <string>
extern "C" const char * module_name(void);
__global__ void scale(float * x) { x[threadIdx.x] *= 2; }
static __device__ const float table[3] = { 1, 2, 4 };
static __global__ void twice(float * x, int n) { x[threadIdx.x] *= table[n]; }
template <typename T> static __global__ void sum(float * x) {
    __shared__ typename T::TempStorage storage;
    x[0] = T(storage).Sum(x[threadIdx.x]);
}
extern "C" void ggml_backend_sum(float * x) { sum<cub::BlockReduce<float, 32>><<<1, 32>>>(x); }
extern "C" void ggml_backend_run(float * x) { scale<<<1, 32>>>(x); twice<<<1, 32>>>(x, 2); }
extern "C" int ggml_backend_score(void) {
    try {
        throw std::runtime_error(module_name());
    } catch (const std::exception & e) {
        return (int) std::string(e.what()).size();
    }
}
extern "C" int not_for_others(void) { return 1; }
static int count;
extern "C" int ggml_backend_count(void) { return __sync_val_compare_and_swap(&count, 0, 1); }
"""
HOPPER = """
__global__ void wide() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;");
#endif
}
"""


def toolchain(target: Target = Target.X86_64_LINUX) -> NvccToolchain:
    context = FetchContext(find_cache(), QUIET, offline=True)
    try:
        return cuda_toolchain(target, find_project().vendor, context)
    except (BuildError, SourceError) as error:
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
    return NvccToolchain(
        Path("/cuda"),
        "13.0.88",
        "0" * 32,
        HostCxx(Path("g++"), "12", Path("l"), Path("s"), Path("objcopy")),
    )


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


def module(folder: Path) -> Path:
    """A stand-in for libggml-base."""
    (folder / "base.c").write_text('const char *module_name(void) { return "base"; }\n')
    base = folder / "libggml-base.so.0"
    compile_c(folder, "base.c", "-shared", "-fPIC", f"-Wl,-soname,{base.name}", "-o", base.name)
    return base


def section(path: Path, name: str) -> bytes:
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        data: bytes = ELFFile(stream).get_section_by_name(name).data()
    return data


def test_a_library_is_built_and_only_edits_are_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = toolchain()
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(find_cache().toolchains / "zig-cache"))
    tree(tmp_path / "tree")
    base = module(tmp_path)

    def build(*architectures: str) -> tuple[int, int]:
        made = builder(tmp_path, nvcc, *architectures)
        done = made.build(base, tmp_path, 1, lambda *_: None)
        return done.compiled, done.from_ccache

    assert build("80") == (2, 0)
    assert build("80", "90") == (4, 0)
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

    assert build("80", "90") == (0, 0) and library.read_bytes() == body
    with (tmp_path / "tree" / "ggml/src/ggml-cuda/one.cu").open("a") as stream:
        stream.write('extern "C" int ggml_backend_more(void) { return 2; }\n')
    assert build("80", "90") == (3, 0)
    shutil.rmtree(next((tmp_path / "cache" / "builds").iterdir()))
    assert build("80", "90") == (5, 5)

    (tmp_path / "tree" / "ggml/src/ggml-cuda/one.cu").write_text("int x = y;\n")
    with pytest.raises(BuildError) as caught:
        build("80", "90")
    assert caught.value.reason == "compile-failed"


def test_joined_objects_are_those_of_one_call_in_every_folder(tmp_path: Path) -> None:
    """Device code and host code compiled apart, in two cache folders with the same objects."""
    nvcc = toolchain()
    for root in (tmp_path / "one", tmp_path / "two" / "deeper"):
        tree(root / "cache" / "workspaces" / "tree")
        spec = CudaSpec(
            "0" * 40, ("80", "90"), nvcc, zig_toolchain(Target.X86_64_LINUX, "2.28"), ABI, "0.10.3"
        )
        made = CudaBuilder(spec, root / "cache/workspaces/tree", Cache(root / "cache"), QUIET)
        if root.name == "deeper":
            shutil.copytree(tmp_path / "one/cache/ccache-cuda", root / "cache/ccache-cuda")
        with pytest.raises(BuildError) as caught:
            made.build(tmp_path / "missing", tmp_path, 1, lambda *_: None)
        assert caught.value.reason == "link-failed"
        hits = (made.folder / "build.ccache").read_text().count("direct_cache_hit")
        assert hits == (5 if root.name == "deeper" else 0)
        objects = [made.folder / file.joined for file in made.sources.files()]
        bodies = [section(path, ".nv_fatbin") for path in objects]
        if root.name == "one":
            first = bodies
    assert bodies == first

    # One call of the compiler itself, with the module id that the scripts would make.
    source = made.workspace / "ggml/src/ggml-cuda/one.cu"
    once = tmp_path / "once.o"
    calls = write_calls(nvcc, made.cache)
    subprocess.run(
        [
            calls / "bin" / "nvcc", "-std=c++17", "-O3", "-use_fast_math", "-extended-lambda",
            "-compress-mode=size", "-Xcompiler=-fPIC,-g0", *(f"-D{n}" for n in cuda_files._NAMES),
            "-include",
            made.folder / made.sources.header,
            *(f"--generate-code=arch=compute_{n},code=[sm_{n}]" for n in ("80", "90")),
            "-c", source, "-o", once,
        ],
        check=True,
        env={**os.environ, SOURCE_ENV: str(made.workspace.resolve())},
    )  # fmt: skip
    for name in (".nv_fatbin", ".text", ".data", ".nvFatBinSegment"):
        assert section(once, name) == section(objects[0], name), name


def test_a_library_for_arm_is_cross_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled and linked; where qemu is there, its C++ code runs (device code never)."""
    nvcc = toolchain(Target.AARCH64_LINUX)
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(find_cache().toolchains / "zig-cache"))
    tree(tmp_path / "tree")
    zig = zig_toolchain(Target.AARCH64_LINUX, "2.28")
    compiler = zig.write_wrappers(tmp_path / "wrappers").cc
    base = tmp_path / "libggml-base.so.0"
    (tmp_path / "base.c").write_text('const char *module_name(void) { return "base"; }\n')
    (tmp_path / "main.c").write_text(
        "int ggml_backend_score(void);\nint main(void) { return ggml_backend_score(); }\n"
    )

    def compile_arm(*arguments: object) -> None:
        command = [str(item) for item in (compiler, "-O2", *arguments)]
        subprocess.run(command, check=True, cwd=tmp_path)

    compile_arm("-shared", "-fPIC", f"-Wl,-soname,{base.name}", "base.c", "-o", base)
    spec = CudaSpec("0" * 40, ("110f", "121a"), nvcc, zig, ABI, "0.10.3")
    made = CudaBuilder(spec, tmp_path / "tree", Cache(tmp_path / "cache"), QUIET)
    assert made.build(base, tmp_path, 1, lambda *_: None).compiled == 3
    library = tmp_path / cuda.LIBRARY
    rows = [{"architectures": ["110f", "121a"], "abi_digest": ABI}]
    findings = list(check_library(library.read_bytes(), rows, {Target.AARCH64_LINUX: ABI}))
    assert [finding.reason for finding in findings if finding.reason] == []
    assert any("aarch64" in finding.message.lower() for finding in findings)
    sysroot = Path("/usr/aarch64-linux-gnu")
    if shutil.which("qemu-aarch64") and (sysroot / "lib").is_dir():
        compile_arm("main.c", library, base, "-Wl,-rpath,$ORIGIN", "-o", "main")
        command = ["qemu-aarch64", "-L", str(sysroot), str(tmp_path / "main")]
        assert subprocess.run(command).returncode == 4
