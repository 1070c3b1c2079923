"""What is compiled again, and what is not: with a stand-in for nvcc, and the real ccache."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opencoti_build.build import cuda, cuda_files, join
from opencoti_build.build.cuda import CudaBuilder, CudaSpec
from opencoti_build.build.cuda_files import CudaFiles
from opencoti_build.build.memory import known_peaks
from opencoti_build.errors import BuildError
from opencoti_build.paths import Cache
from opencoti_build.targets import Target
from opencoti_build.toolchains.nvcc import NvccToolchain
from opencoti_build.toolchains.zig import zig_toolchain
from opencoti_build.ui import Ui
from opencoti_build.verify.fatbin import promised, read_containers
from tests.lib import fake_cuda
from tests.lib.cuda import code_for, container, entry
from tests.lib.single_file import ABI, QUIET

needs_binutils = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("objcopy") is None, reason="no gcc and binutils"
)
SOURCES = {
    "one.cu": '#include "common.cuh"\n__global__ void one() {}\nint ggml_backend_one();\n',
    "two.cu": "__global__ void two() {}\n",
    "template-instances/mmq-a.cu": '#include "../common.cuh"\n__global__ void a() {}\n',
    "opencoti-gemm-sm90.cu": "__global__ void wide() {}\n",
    "common.cuh": "// for several\n",
}


def write_tree(cache: Path) -> Path:
    """A workspace in the cache folder, with a few files."""
    for name, text in SOURCES.items():
        path = cache / "workspaces" / "tree" / cuda_files.FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return cache / "workspaces" / "tree"


class Built:
    """Builds of the stand-in in one cache folder. Linking writes down the objects' names."""

    def __init__(self, cache: Path, nvcc: NvccToolchain, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache, self.nvcc = Cache(cache), nvcc
        self.tree = write_tree(cache)
        self.linked: list[Path] = []
        self.ui = QUIET
        monkeypatch.setattr(CudaBuilder, "_link", lambda _, objects, *rest: self._link(objects))

    def _link(self, objects: list[Path]) -> None:
        self.linked = objects

    def __call__(self, *architectures: str) -> list[str]:
        """Build; return what the compiler was called for."""
        zig = zig_toolchain(Target.X86_64_LINUX, "2.28")
        spec = CudaSpec("0" * 40, architectures, self.nvcc, zig, ABI, "0.10.3")
        builder = CudaBuilder(spec, self.tree, self.cache, self.ui)
        builder.build(Path("base"), Path("out"), 4, lambda *_: None)
        return fake_cuda.calls(self.nvcc.root)

    def edit(self, name: str, text: str) -> None:
        with (self.tree / cuda_files.FOLDER / name).open("a") as stream:
            stream.write(text)

    def section(self, name: str) -> bytes:
        """The device code of an object that was linked."""
        from elftools.elf.elffile import ELFFile

        path = next(path for path in self.linked if path.name == f"{name}.o")
        with path.open("rb") as stream:
            data: bytes = ELFFile(stream).get_section_by_name(".nv_fatbin").data()
        return data


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    return Built(tmp_path / "cache", fake_cuda.install(tmp_path / "cuda"), monkeypatch)


def device(arch: str, *names: str) -> list[str]:
    return [f"device sm_{arch} {name}" for name in names]


def host(*names: str) -> list[str]:
    return [f"host compute_75 {name}" for name in names]


ALL = ("mmq-a.cu", "one.cu", "two.cu")
HOPPER = "opencoti-gemm-sm90.cu"


@needs_binutils
def test_a_further_architecture_compiles_its_own_code_only(built: Built) -> None:
    first = built("90")
    assert first == [*device("90", *ALL), *device("90a", HOPPER), *host(*sorted((*ALL, HOPPER)))]
    assert promised(read_containers(built.section("one.cu"))) == ("90",)
    # Host code knows the list of architectures, device code does not.
    assert built("89", "90") == [*device("89", *ALL), *host(*sorted((*ALL, HOPPER)))]
    assert promised(read_containers(built.section("one.cu"))) == ("89", "90")
    assert [str(a) for found in read_containers(built.section(HOPPER)) for a in found] == ["90a"]
    assert built("90") == [] == built("89", "90")
    shutil.rmtree(built.cache.builds)
    assert built("89", "90") == [] == built("90")


@needs_binutils
def test_the_first_build_says_how_long_it_takes(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    built.ui = Ui(bars=False)
    built("90")
    # Three files for the host and a card, one for a card and the host: 8 calls of 17 s, 4 at once.
    assert "8 compiler calls, about 1 min with 4 jobs" in capsys.readouterr().err
    built.edit("two.cu", "__global__ void more() {}\n")
    built("90")
    assert "compiler calls" not in capsys.readouterr().err


@needs_binutils
def test_an_edit_compiles_its_files_only(built: Built) -> None:
    built("80", "90")
    built.edit("two.cu", "__global__ void more() {}\n")
    assert built("80", "90") == [*device("80", "two.cu"), *device("90", "two.cu"), *host("two.cu")]
    built.edit("common.cuh", "// more\n")
    both = ("mmq-a.cu", "one.cu")
    assert built("80", "90") == [*device("80", *both), *device("90", *both), *host(*both)]


@needs_binutils
def test_a_failed_build_goes_on_where_it_was(built: Built) -> None:
    built.edit("two.cu", "#error\n")
    with pytest.raises(BuildError) as caught:
        built("80")
    assert caught.value.reason == "compile-failed"
    assert fake_cuda.calls(built.nvcc.root) == [*device("80", *ALL[:2]), *host(*ALL[:2])]
    (built.tree / cuda_files.FOLDER / "two.cu").write_text(SOURCES["two.cu"])
    assert built("80") == [*device("80", "two.cu"), *host("two.cu")]


@needs_binutils
def test_another_cache_folder_with_the_same_objects_compiles_nothing(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built("80", "90")
    # Another place of the compiler too, as in another virtual environment.
    other = Built(tmp_path / "elsewhere" / "cache", fake_cuda.install(tmp_path / "b"), monkeypatch)
    shutil.copytree(built.cache.ccache_cuda, other.cache.ccache_cuda)
    assert other("80", "90") == []
    assert other.section("one.cu") == built.section("one.cu")
    other.edit("two.cu", "// other\n")
    assert other("90") == [*device("90", "two.cu"), *host(*sorted((*ALL, HOPPER)))]


@needs_binutils
def test_parts_of_the_cache_may_be_links(built: Built, tmp_path: Path) -> None:
    built("80")
    (tmp_path / "far" / "away" / "builds").mkdir(parents=True)
    shutil.rmtree(built.cache.builds)
    built.cache.builds.symlink_to(tmp_path / "far" / "away" / "builds")
    assert built("80") != []  # other names, but it finds its files
    built.cache.builds.unlink()
    shutil.move(built.cache.toolchains, tmp_path / "far" / "toolchains")
    built.cache.toolchains.symlink_to(tmp_path / "far" / "toolchains")
    assert built("80") == []


@needs_binutils
def test_code_that_does_not_fit_together_is_refused(built: Built) -> None:
    built("80")
    built.edit("one.cu", "// other names\n")
    with pytest.raises(BuildError) as caught:
        built("80")
    assert caught.value.reason == "cuda-names-differ"


@needs_binutils
def test_memory_is_learned_and_limits_the_jobs(
    built: Built, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built("80")
    peaks = known_peaks(built.cache)
    assert sorted(peaks) == sorted(f"{kind}/{name}" for kind, name in (
        *(("host", f"{path}.o") for path in ("one.cu", "two.cu", "template-instances/mmq-a.cu")),
        *(("sm_80", f"{path}.fatbin") for path in ("one.cu", "two.cu",
                                                  "template-instances/mmq-a.cu")),
    ))  # fmt: skip
    assert all(1 << 20 < peak < 1 << 30 for peak in peaks.values())
    text = (built.cache.builds / "tree-cuda-x86_64-linux" / "build.ninja").read_text()
    assert "pool = heavy" in text  # nothing was known yet
    built("80")
    text = (built.cache.builds / "tree-cuda-x86_64-linux" / "build.ninja").read_text()
    assert "pool = heavy" not in text
    monkeypatch.setattr(cuda, "machine_memory", lambda: 2 * max(peaks.values()))
    spec = CudaSpec(
        "0" * 40, ("80",), built.nvcc, zig_toolchain(Target.X86_64_LINUX, "2.28"), ABI, "0.10.3"
    )
    builder = CudaBuilder(spec, built.tree, built.cache, QUIET)
    assert builder.write_ninja_file(builder.sources.files(), 4) == 1


def test_host_code_is_told_of_every_architecture(tmp_path: Path) -> None:
    files = CudaFiles(write_tree(tmp_path), ("80", "90", "120f"))
    assert "800,900,1200" in files.header_text() and "SM90" in files.header_text()
    assert [list(file.device) for file in files.files()] == [
        ["80", "90", "120f"], ["90a"], ["80", "90", "120f"], ["80", "90", "120f"]
    ]  # fmt: skip
    assert "SM90" not in CudaFiles(files.workspace, ("75",)).header_text()


def test_containers_are_merged_or_refused() -> None:
    both = join.merge([code_for("80"), code_for("90a")])
    assert both == code_for("80", "90a")
    good = code_for("80")
    bad = (b"", good[:15], good[:-1], good + b"\0", container(entry("80"), magic=1))
    for data in (*bad, container(entry("80"), version=2)):
        with pytest.raises(ValueError):
            join.merge([good, data])
