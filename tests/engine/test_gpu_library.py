"""How the engine finds, checks, unpacks and loads the GPU library, with a stand-in for the GPU."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from opencoti_build.build.abi import abi_digest
from opencoti_build.pack.variant import GpuLibrary, host_identity, make_variant
from opencoti_build.pack.zipreader import read_zip
from opencoti_build.targets import Target
from opencoti_build.verify.abi import program_digest
from tests.engine.conftest import Built
from tests.lib.gpu import ARCHITECTURES, GTX_1080, H200, NAME, RTX_3090, Libraries, Run, driver
from tests.lib.gpu import list_devices as run
from tests.lib.server import running

OTHER_ABI = "cd" * 32
LARGE = 96 << 20
VERSION = "0.10.3"


@dataclass(frozen=True)
class Files:
    """The bare single file, the one with a library inside, and that library."""

    bare: Path
    full: Path
    library: Path
    libraries: Libraries


@pytest.fixture(scope="module")
def files(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("gpu")
    (recipe,) = [item for item in built.context.targets if item.target is Target.X86_64_LINUX]
    tree = built.pipeline.workspace.path
    libraries = Libraries(tree, built.pipeline.engine(recipe).folder, abi_digest(tree))
    library = libraries.make(folder / NAME)
    embedded = GpuLibrary(NAME, library, ARCHITECTURES, libraries.abi)
    full = make_variant(built.file, folder / "full.llamafile", host_identity(built.file), embedded)
    return Files(built.file, full.path, library, libraries)


@dataclass(frozen=True)
class Place:
    """A folder of its own for one test, with the single file in it, and a home."""

    files: Files
    folder: Path
    env: dict[str, str]

    def file(self, *, full: bool = False) -> Path:
        """The single file, with the library inside if ``full``."""
        path = self.folder / "app" / ("full.llamafile" if full else "bare.llamafile")
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            shutil.copyfile(self.files.full if full else self.files.bare, path)
        return path

    @property
    def beside(self) -> Path:
        return self.folder / "app" / NAME

    @property
    def side(self) -> Path:
        return self.folder / "home" / ".llamafile" / "v" / VERSION / NAME

    def unpacked(self, where: str = "home/.llamafile") -> list[Path]:
        """What an embedded library leaves."""
        folder = self.folder / where / "v" / VERSION
        return sorted(path for path in folder.glob("*/*") if "ggml-cuda" in path.name)

    @property
    def unpacked_name(self) -> Path:
        digest = hashlib.sha256(self.files.library.read_bytes()).hexdigest()
        return Path(digest[:32]) / NAME

    def asked(self) -> int:
        """How often a process asked the driver."""
        trace = self.folder / "trace"
        return len(trace.read_text().splitlines()) if trace.exists() else 0


def _pairs(arguments: list[str]) -> dict[str, str]:
    """The settings of the environment among ``arguments``."""
    found = [word.partition("=") for word in arguments if "LLAMA" in word]
    return {name: value for name, _, value in found}


@pytest.fixture
def place(files: Files, tmp_path: Path) -> Place:
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "LD_LIBRARY_PATH": str(driver()),
        "STANDIN_CARDS": RTX_3090,
        "STANDIN_TRACE": str(tmp_path / "trace"),
    }
    return Place(files, tmp_path, env)


def test_the_engine_has_the_digest_of_its_tree(built: Built, files: Files) -> None:
    (recipe,) = [item for item in built.context.targets if item.target is Target.X86_64_LINUX]
    program = built.pipeline.engine(recipe).folder / "opencoti-engine"
    assert program_digest(program.read_bytes()) == files.libraries.abi


def test_the_nearest_library_is_used(place: Place) -> None:
    """Beside the file, then side-loaded, then embedded; only the last one is unpacked."""
    file = place.file(full=True)
    for path in (place.beside, place.side):
        place.files.libraries.make(path)
    for path, source in ((place.beside, "beside"), (place.side, "side-loaded")):
        found = run(file, place.env)
        assert (found.status, found.used) == (0, (str(path), source))
        assert found.devices == {"CUDA0": "NVIDIA GeForce RTX 3090"}
        assert place.unpacked() == [] and len(found.lines) == 1
        path.unlink()
    found = run(file, place.env)
    expected = place.side.parent / place.unpacked_name
    assert found.used == (str(expected), "embedded")
    assert place.unpacked() == [expected]
    assert expected.read_bytes() == place.files.library.read_bytes()
    before = expected.stat()
    assert run(file, place.env, "--gpu", "nvidia").used == (str(expected), "embedded")
    assert expected.stat() == before


def test_a_home_of_its_own_name(place: Place) -> None:
    place.env["OPENCOTI_HOME"] = str(place.folder / "other")
    place.files.libraries.make(place.side)
    found = run(place.file(full=True), place.env)
    assert found.used is not None and found.used[1] == "embedded"
    assert len(place.unpacked("other")) == 1 and place.unpacked() == []
    side = place.files.libraries.make(place.folder / "other" / "v" / VERSION / NAME)
    assert run(place.file(), place.env).used == (str(side), "side-loaded")


def test_a_library_of_another_engine_is_refused(place: Place) -> None:
    place.file(full=True)
    place.files.libraries.make(place.beside, abi=OTHER_ABI)
    found = run(place.file(full=True), place.env)
    assert found.status == 0 and found.used is not None and found.used[1] == "embedded"
    (line,) = [line for line in found.lines if str(place.beside) in line]
    assert OTHER_ABI in line and place.files.libraries.abi in line
    assert run(place.file(full=True), place.env, "--gpu", "nvidia").status == 0

    alone = run(place.file(), place.env)
    assert (alone.status, alone.devices, alone.used) == (0, {}, None)
    assert len(alone.lines) == 1 and OTHER_ABI in alone.lines[0]
    asked = place.asked()
    named = run(place.file(), place.env, "--gpu", "nvidia")
    assert named.status == 1 and OTHER_ABI in named.err.splitlines()[-1]
    assert place.asked() == asked  # what cannot be used asks no driver


@pytest.mark.parametrize("damage", ["no note", "cut", "text", "empty", "folder", "unreadable"])
def test_what_is_no_library_for_this_engine_is_refused(place: Place, damage: str) -> None:
    file = place.file()
    if damage == "folder":
        place.beside.mkdir()
    elif damage == "unreadable":
        place.beside.symlink_to(place.beside)
    else:
        place.files.libraries.make(place.beside, note=damage != "no note")
        data = place.beside.read_bytes()
        changed = {"cut": data[: len(data) * 3 // 4], "text": b"no library", "empty": b""}
        place.beside.write_bytes(changed.get(damage, data))
    found = run(file, place.env)
    assert (found.status, found.devices) == (0, {})
    assert len(found.lines) == 1 and str(place.beside) in found.lines[0]
    assert run(file, place.env, "--gpu", "nvidia").status == 1
    place.files.libraries.make(place.side)
    found = run(file, place.env)
    assert found.used == (str(place.side), "side-loaded") and len(found.lines) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_library_of_another_user_is_refused(place: Place) -> None:
    file = place.file()
    place.files.libraries.make(place.beside)
    os.chown(place.beside, 12345, 12345)
    found = run(file, place.env)
    assert (found.status, found.devices) == (0, {})
    assert len(found.lines) == 1 and "12345" in found.lines[0]
    os.chown(file, 12345, 12345)  # who gave us the program may give us its library
    assert run(file, place.env).used == (str(place.beside), "beside")


def test_a_card_without_code_is_named(place: Place) -> None:
    place.env["STANDIN_CARDS"] = GTX_1080
    found = run(place.file(full=True), place.env)
    assert (found.status, found.devices) == (0, {})
    (line,) = found.lines
    assert "GTX 1080" in line and "6.1" in line and " ".join(ARCHITECTURES) in line
    assert place.unpacked() == []
    named = run(place.file(full=True), place.env, "--gpu", "nvidia")
    assert named.status == 1 and "GTX 1080" in named.err.splitlines()[-1]


def test_another_library_may_have_the_code(place: Place) -> None:
    file = place.file(full=True)
    place.files.libraries.make(place.beside, architectures=("90", "120f"))
    found = run(file, place.env)
    assert found.used is not None and found.used[1] == "embedded"
    assert str(place.beside) in found.lines[0] and len(found.lines) == 2


@pytest.mark.parametrize("chosen", [None, "2,0,1", "1,2"])
def test_cards_without_code_are_left_out(place: Place, chosen: str | None) -> None:
    place.env["STANDIN_CARDS"] = f"{GTX_1080};{RTX_3090};{H200}"
    if chosen:
        place.env["CUDA_VISIBLE_DEVICES"] = chosen
    found = run(place.file(full=True), place.env)
    assert found.devices == {"CUDA0": "NVIDIA GeForce RTX 3090"}
    left_out = [line for line in found.lines if "RTX 3090" not in line]
    assert len(left_out) == (1 if chosen == "1,2" else 2)
    assert any("H200 (compute capability 9.0)" in line for line in left_out)


def test_an_old_driver_is_named(place: Place) -> None:
    place.env["STANDIN_VERSION"] = "12020"
    found = run(place.file(full=True), place.env)
    assert (found.status, found.devices) == (0, {}) and place.unpacked() == []
    (line,) = found.lines
    assert "13.0" in line and "12.2" in line
    assert run(place.file(full=True), place.env, "--gpu", "nvidia").status == 1
    place.files.libraries.make(place.beside, cuda=12040)
    place.env["STANDIN_VERSION"] = "12040"
    assert run(place.file(full=True), place.env).used == (str(place.beside), "beside")


@pytest.mark.parametrize(
    ("fault", "word"),
    [("crash", "signal 11"), ("hang", "OPENCOTI_GPU_TIMEOUT"), ("exit", "ended"), ("999", "999")],
)
def test_a_driver_that_fails_is_told_in_one_line(place: Place, fault: str, word: str) -> None:
    place.env.update({"STANDIN_FAULT": fault, "OPENCOTI_GPU_TIMEOUT": "1"})
    place.files.libraries.make(place.side)
    found = run(place.file(full=True), place.env)
    assert (found.status, found.devices) == (0, {})
    assert len(found.lines) == 1 and word in found.lines[0]
    assert place.asked() == 1 and place.unpacked() == []
    named = run(place.file(full=True), place.env, "--gpu", "nvidia")
    assert named.status == 1 and word in named.err.splitlines()[-1]


@pytest.mark.parametrize("lacking", ["driver", "card"])
def test_a_machine_without_a_gpu_is_no_news(place: Place, lacking: str) -> None:
    if lacking == "driver":
        del place.env["LD_LIBRARY_PATH"]
    else:
        place.env["STANDIN_CARDS"] = ""
    found = run(place.file(full=True), place.env)
    assert (found.status, found.devices, found.lines) == (0, {}, [])
    assert place.unpacked() == []
    assert run(place.file(full=True), place.env, "--gpu", "nvidia").status == 1


def test_a_driver_that_cannot_be_loaded_is_news(place: Place) -> None:
    (place.folder / "libcuda.so.1").write_text("no library")
    place.env["LD_LIBRARY_PATH"] = str(place.folder)
    found = run(place.file(full=True), place.env)
    assert found.status == 0 and len(found.lines) == 1 and "libcuda.so.1" in found.lines[0]


def test_without_any_library_nothing_is_said_or_asked(place: Place) -> None:
    found = run(place.file(), place.env)
    assert (found.status, found.devices, found.lines) == (0, {}, [])
    assert place.asked() == 0
    assert run(place.file(), place.env, "--gpu", "nvidia").status == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gpu", "disable"], ["--gpu=disable"], ["--device", "none"], ["-dev", "none"],
        ["-ngl", "0"], ["--n-gpu-layers", "0"], ["--gpu_layers", "0"], ["-ngl", "9", "-ngl", "0"],
        ["LLAMA_ARG_N_GPU_LAYERS=0"], ["LLAMA_ARG_DEVICE=none"], ["OPENCOTI_LLAMAFILE_GPU=disable"],
        ["-ngl", "0", "-ngld", "0"],
    ],
)  # fmt: skip
def test_a_run_without_gpu_touches_no_library(place: Place, arguments: list[str]) -> None:
    words = [word for word in arguments if "LLAMA" not in word]
    place.env.update(_pairs(arguments))
    place.files.libraries.make(place.side, abi=OTHER_ABI)
    found = run(place.file(full=True), place.env, *words)
    assert (found.status, found.devices, found.lines) == (0, {}, [])
    assert place.unpacked() == [] and place.asked() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["-ngl", "99"], ["-ngl", "0", "-ngl", "9"], ["-ngl", "0", "-ngld", "99"],
        ["--device", "CUDA0", "-ngl", "0"], ["--gpu", "nvidia", "-ngl", "0"],
        ["LLAMA_ARG_N_GPU_LAYERS=0", "-ngl", "all"], ["OPENCOTI_LLAMAFILE_GPU=nvidia"],
    ],
)  # fmt: skip
def test_a_run_that_asks_for_a_gpu_gets_it(place: Place, arguments: list[str]) -> None:
    words = [word for word in arguments if "LLAMA" not in word]
    place.env.update(_pairs(arguments))
    found = run(place.file(full=True), place.env, *words)
    assert found.devices == {"CUDA0": "NVIDIA GeForce RTX 3090"}


def test_help_is_no_gpu_run(place: Place) -> None:
    done = subprocess.run(
        ["sh", place.file(full=True), "--help"], env=place.env, capture_output=True, timeout=60
    )
    assert done.returncode == 0 and place.asked() == 0 and place.unpacked() == []


@pytest.fixture
def large(place: Place) -> tuple[Path, Path]:
    """A single file with a library that takes a moment to unpack, and where it goes."""
    library = shutil.copyfile(place.files.library, place.folder / "large.so")
    with library.open("r+b") as stream:
        stream.truncate(LARGE)
    embedded = GpuLibrary(NAME, library, ARCHITECTURES, place.files.libraries.abi)
    identity = host_identity(place.files.bare)
    made = make_variant(place.files.bare, place.folder / "large.llamafile", identity, embedded)
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    return made.path, place.side.parent / digest[:32] / NAME


def test_many_first_starts_at_once(place: Place, large: tuple[Path, Path]) -> None:
    file, expected = large
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: run(file, place.env, timeout=240), range(8)))
    assert [item.used for item in found] == [(str(expected), "embedded")] * 8
    assert list(expected.parent.iterdir()) == [expected]
    digest = hashlib.sha256(expected.read_bytes()).hexdigest()
    assert expected.parent.name == digest[:32]


def test_a_start_that_is_killed_leaves_nothing_half(place: Place, large: tuple[Path, Path]) -> None:
    file, expected = large
    process = subprocess.Popen(["sh", file, "--list-devices"], env=place.env)
    try:
        while not (found := list(expected.parent.glob(".*.tmp"))):
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert not expected.exists() and found[0].stat().st_size <= LARGE
    assert run(file, place.env).used == (str(expected), "embedded")
    assert expected.stat().st_size == LARGE


def test_a_home_that_cannot_be_written(place: Place) -> None:
    place.env["OPENCOTI_HOME"] = "/proc/no-such-place"
    found = run(place.file(full=True), place.env)
    assert found.used is not None and found.used[1] == "embedded"
    assert found.used[0].startswith(f"{place.folder}/tmp/opencoti-{os.geteuid()}/v/{VERSION}/")


@pytest.mark.parametrize("options", ["noexec", "size=40m"])
def test_a_home_that_is_noexec_or_full(
    place: Place, large: tuple[Path, Path], options: str
) -> None:
    """The engine fits into 40 MB, the library does not."""
    home = place.folder / "mounted"
    home.mkdir()
    mount = f"mount -t tmpfs -o {options} none {home}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    place.env["OPENCOTI_HOME"] = str(home)
    script = f"{mount} && exec sh {large[0]} --list-devices"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], env=place.env, capture_output=True, text=True
    )
    used = Run(done.returncode, done.stdout, done.stderr).used
    assert used is not None and used[0].startswith(f"{place.folder}/tmp/opencoti-")
    assert list((place.folder / "tmp").glob("*/v/*/*/.*.tmp")) == []


def test_a_place_of_others_is_not_used(place: Place) -> None:
    place.env["OPENCOTI_HOME"] = "/proc/no-such-place"
    open_to_all = place.folder / "tmp" / f"opencoti-{os.geteuid()}"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    place.env["XDG_RUNTIME_DIR"] = str(place.folder / "run")
    (place.folder / "run").mkdir()
    found = run(place.file(full=True), place.env)
    assert found.used is not None and found.used[0].startswith(f"{place.folder}/run/opencoti-")
    assert list(open_to_all.iterdir()) == []


def test_what_a_stopped_start_left_is_replaced(place: Place) -> None:
    target = place.side.parent / place.unpacked_name
    target.parent.mkdir(parents=True)
    target.write_bytes(place.files.library.read_bytes()[:-1])
    stale = target.parent / f".{NAME}.999999999.1.tmp"
    recent = target.parent / f".{NAME}.999999999.2.tmp"
    for path in (stale, recent):
        path.write_bytes(b"half")
    os.utime(stale, (1, 1))
    assert run(place.file(full=True), place.env).used == (str(target), "embedded")
    assert target.read_bytes() == place.files.library.read_bytes()
    assert not stale.exists() and recent.exists()


def test_a_damaged_library_inside_is_not_unpacked(place: Place) -> None:
    file = place.file(full=True)
    with file.open("r+b") as stream:
        entry = read_zip(stream.read()).find(NAME)
        assert entry is not None
        stream.seek(entry.data_offset + entry.size // 2)
        byte = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte[0] ^ 1]))
    found = run(file, place.env)
    assert (found.status, found.devices) == (0, {})
    assert len(found.lines) == 1 and "sha256" in found.lines[0]
    assert place.unpacked() == []
    assert run(file, place.env, "--gpu", "nvidia").status == 1


def test_a_file_replaced_after_the_check_is_not_loaded(place: Place) -> None:
    """The stand-in driver is asked between check and load, and replaces the file then."""
    file = place.file()
    other = place.files.libraries.make(place.folder / "other.so", abi=OTHER_ABI)
    place.files.libraries.make(place.beside)
    done = place.folder / "done"
    place.env["STANDIN_RUN"] = f"[ -e {done} ] || {{ : >{done}; mv {other} {place.beside}; }}"
    found = run(file, place.env)
    assert found.used == (str(place.beside), "beside")
    assert found.devices == {"CUDA0": "NVIDIA GeForce RTX 3090"}
    assert not other.exists()  # it was replaced, and the one that was checked ran
    assert run(file, place.env).used is None


def test_a_file_written_to_after_the_check_is_not_used(place: Place) -> None:
    file = place.file(full=True)
    other = place.files.libraries.make(place.folder / "other.so", abi=OTHER_ABI)
    place.files.libraries.make(place.beside)
    done = place.folder / "done"
    place.env["STANDIN_RUN"] = f"[ -e {done} ] || {{ : >{done}; cat {other} >{place.beside}; }}"
    found = run(file, place.env)
    assert found.used is not None and found.used[1] == "embedded"
    assert str(place.beside) in found.lines[0] and len(found.lines) == 2


def test_a_library_that_finds_no_card(place: Place) -> None:
    place.env["STANDIN_NO_DEVICES"] = "1"
    place.files.libraries.make(place.side)
    found = run(place.file(), place.env)
    assert (found.status, found.devices, len(found.lines)) == (0, {}, 1)
    assert run(place.file(), place.env, "--gpu", "nvidia").status == 1


def test_props_tell_the_library_and_the_devices(place: Place, smollm2: Path) -> None:
    library = place.files.libraries.make(place.side)
    arguments = ["--server", "-m", str(smollm2), "-c", "256", "-np", "1", "-lv", "4"]
    log = place.folder / "log"
    with running(["sh", place.file(), *arguments], log, place.env) as server:
        backend = server.request("/props")[1]["opencoti"]["backend"]
        body = {"prompt": "Once", "n_predict": 4}
        assert server.request("/completion", body)[0] == 200
    assert backend == {
        "name": "CUDA",
        "abi_digest": place.files.libraries.abi,
        "library": {
            "source": "side-loaded",
            "path": str(library),
            "sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
            "abi_digest": place.files.libraries.abi,
            "architectures": list(ARCHITECTURES),
        },
        "devices": [
            {
                "name": "CUDA0",
                "description": "NVIDIA GeForce RTX 3090",
                "compute_capability": "8.6",
                "memory_total": 24576 << 20,
            }
        ],
        "reason": None,
    }
    text = log.read_text(errors="replace")
    assert "using device CUDA0 (NVIDIA GeForce RTX 3090)" in text and "24576 MiB free" in text
    assert str(library) in text and "/proc/self/fd" not in text


def test_props_of_an_embedded_library(place: Place, smollm2: Path) -> None:
    arguments = ["--server", "-m", str(smollm2), "-c", "256", "-np", "1", "--gpu", "nvidia"]
    with running(["sh", place.file(full=True), *arguments], place.folder / "log", place.env) as s:
        backend = s.request("/props")[1]["opencoti"]["backend"]
    assert backend["library"]["source"] == "embedded" and backend["name"] == "CUDA"
    digest = hashlib.sha256(place.files.library.read_bytes()).hexdigest()
    assert backend["library"]["sha256"] == digest


@pytest.mark.parametrize(
    ("arguments", "cards", "reason"),
    [
        (["--gpu", "disable"], RTX_3090, None),
        (["-ngl", "0"], RTX_3090, None),
        ([], GTX_1080, "6.1"),
        ([], "", "NVIDIA"),
    ],
)
def test_props_without_a_gpu(
    place: Place, smollm2: Path, arguments: list[str], cards: str, reason: str | None
) -> None:
    place.env["STANDIN_CARDS"] = cards
    common = ["--server", "-m", str(smollm2), "-c", "256", "-np", "1"]
    log = place.folder / "log"
    with running(["sh", place.file(full=True), *common, *arguments], log, place.env) as server:
        backend = server.request("/props")[1]["opencoti"]["backend"]
    told = backend.pop("reason")
    assert (told is None) if reason is None else reason in told
    assert backend == {
        "name": "CPU",
        "abi_digest": place.files.libraries.abi,
        "library": None,
        "devices": [],
    }
    said = "running on the CPU" in log.read_text(errors="replace")
    assert said is (cards == GTX_1080)
