"""Starts of a single file as a Windows program, under wine: paths, arguments, caches, signals."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opencoti_build.pack.bundle import add_model
from opencoti_build.pack.host import EngineFile
from opencoti_build.pack.zipreader import read_zip
from opencoti_build.targets import Target
from tests.lib.desktop import Wine, engine, launcher, pack_desktop
from tests.lib.single_file import TARGET, VERSION, pack, parts

WINDOWS = Target.X86_64_WINDOWS
pytestmark = pytest.mark.skipif(not shutil.which("wine"), reason="wine is not installed")


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wine]:
    made = Wine(tmp_path_factory.mktemp("windows"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_desktop(tmp_path_factory.mktemp("pe") / "f.exe", [WINDOWS]).path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


Done = subprocess.CompletedProcess[str]


def good(done: Done) -> None:
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "module=ggml-base" in done.stdout


def whole(cache: Path) -> None:
    """The cache holds one engine folder and nothing half-written."""
    (folder,) = (cache / "v" / VERSION).iterdir()
    assert len(folder.name) == 32
    assert sorted(path.name for path in folder.iterdir()) == [
        "ggml-base.dll",
        "opencoti-engine.exe",
    ]


ARGUMENTS = [
    "one two", "", "a\"b", "tail\\", "two words\\", "\\\\server\\x y\\", 'q\\"q', "\\\\\"",
    "*", "?.c", "tab\there", "ünï ço∂é", "日本語", "😀", "--", "%PATH%", "^&|<>", "'", "a=b c",
]  # fmt: skip


def test_arguments_arrive_as_given(wine: Wine, built: Path, home: Path) -> None:
    done = wine.run(built, *ARGUMENTS, OPENCOTI_HOME=wine.path(home))
    good(done)
    line = done.stdout.split("\n", 1)[1]
    assert line == "".join(f"<{item}>" for item in [wine.path(built), *ARGUMENTS]) + "\n"
    assert done.stdout.startswith(f"self={wine.path(built)} ")
    whole(home)


@pytest.mark.parametrize("name", ["a b.exe", "ünï-ço∂é.exe", "日本.exe", "x" * 200 + ".exe"])
def test_names_and_places(wine: Wine, built: Path, home: Path, name: str) -> None:
    folder = home / "a folder (x86) & ü"
    folder.mkdir()
    file = Path(shutil.copy(built, folder / name))
    cache = home / "der Cache ∂"
    done = wine.run(f".\\{name}", "x", cwd=folder, OPENCOTI_HOME=wine.path(cache))
    good(done)
    assert f"{wine.path(file)} module=" in done.stdout  # past 260 characters with \\\\?\\
    whole(cache)


def test_a_long_cache_path(wine: Wine, built: Path, home: Path) -> None:
    """Files are written past 260 characters; an engine there starts where Windows allows it."""
    cache = home
    while len(str(cache)) < 300:
        cache = cache / ("d" * 40)
    done = wine.run(built, "x", OPENCOTI_HOME=wine.path(cache))
    whole(cache)
    good(done)


def test_the_home_of_a_user_with_another_alphabet(wine: Wine, built: Path, home: Path) -> None:
    user = home / "Пользователь ünï"
    user.mkdir()
    # wine sets this variable itself when it starts a program from outside
    good(wine.run("cmd", "/c", f"set USERPROFILE={wine.path(user)}&&{wine.path(built)} x"))
    whole(user / ".llamafile")


def test_the_usual_home(wine: Wine, built: Path) -> None:
    good(wine.run(built))
    (cache,) = wine.users.glob("*/.llamafile")
    whole(cache)
    good(wine.run(built))
    shutil.rmtree(cache)


def test_a_useless_home_falls_back(wine: Wine, built: Path, home: Path) -> None:
    (home / "file").write_text("")
    done = wine.run(built, OPENCOTI_HOME=wine.path(home / "file"))
    good(done)
    (spare,) = wine.users.glob("*/AppData/Local/opencoti-S-1-5-*")
    whole(spare)
    shutil.rmtree(spare)


def test_exit_codes(wine: Wine, built: Path, home: Path) -> None:
    for code in (0, 1, 42, 255):
        done = wine.run(built, "--exit", str(code), OPENCOTI_HOME=wine.path(home))
        assert done.returncode == code
    done = wine.run(built, "--version", OPENCOTI_HOME=wine.path(home))
    assert done.stdout == "opencoti-0.10.3-c3\n"


def test_ctrl_c_is_the_engines_matter(wine: Wine, built: Path, home: Path) -> None:
    """A console's Ctrl-C ends the engine, which says 9; the launcher waits and passes it on."""
    ours, theirs = os.openpty()
    env = {**wine.env, "OPENCOTI_HOME": wine.path(home), "TERM": "xterm"}
    process = subprocess.Popen(
        ["wine", str(built), "--wait"], env=env, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    try:
        os.close(theirs)
        seen = read_until(ours, b"module=ggml-base", 30)
        time.sleep(0.5)
        os.write(ours, b"\x03")
        seen += read_until(ours, b"stopped", 15)
        assert process.wait(15) == 9, seen
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, word: bytes, seconds: float) -> bytes:
    """What a terminal shows until ``word`` appears, without control sequences."""
    seen, end = b"", time.monotonic() + seconds
    while word not in (shown := re.sub(rb"\x1b\[[?0-9;]*[A-Za-z]", b"", seen)):
        if time.monotonic() > end:
            break
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 4096)
    return shown


def test_damaged_caches_are_repaired(wine: Wine, built: Path, home: Path) -> None:
    env = {"OPENCOTI_HOME": wine.path(home)}
    good(wine.run(built, **env))
    (folder,) = (home / "v" / VERSION).iterdir()
    os.truncate(folder / "opencoti-engine.exe", 100)
    (folder / "ggml-base.dll").unlink()
    good(wine.run(built, **env))
    whole(home)
    shutil.rmtree(folder)
    folder.write_text("a file where the folder should be")
    good(wine.run(built, **env))
    whole(home)


def refused(done: Done, code: int, *words: str) -> None:
    assert done.returncode == code, done
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("opencoti: ")
    for word in words:
        assert word in done.stderr


def test_broken_files_are_refused(wine: Wine, built: Path, home: Path) -> None:
    data = built.read_bytes()
    entry = read_zip(data).find(f"engine/{WINDOWS.value}/{engine(WINDOWS)[0].name}")
    assert entry is not None and entry.packed_size is not None
    at = entry.data_offset + entry.packed_size // 2
    for count, body in enumerate((data[:-1], data + b"x", data[:at])):
        file = home / f"broken{count}.exe"
        file.write_bytes(body)
        refused(wine.run(file, OPENCOTI_HOME=wine.path(home / "c")), 65, file.name)
    (home / "b.exe").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    refused(wine.run(home / "b.exe", OPENCOTI_HOME=wine.path(home / "c")), 65, "damaged")
    assert list((home / "c" / "v" / VERSION).iterdir()) == []


def test_a_file_without_an_engine_for_windows(wine: Wine, home: Path) -> None:
    launchers = {TARGET: parts().launcher, WINDOWS: launcher(WINDOWS)}
    file = pack(home / "f.exe", launchers=launchers).path
    refused(wine.run(file), 65, "no engine for x86_64-windows")


def test_args_inside(wine: Wine, built: Path, home: Path) -> None:
    model = home / "ünï.gguf"
    model.write_bytes(b"GGUF")
    file = add_model(built, model, home / "b.exe", "-m\n/zip/ünï.gguf\n...\n").path
    done = wine.run(file, "u v", OPENCOTI_HOME=wine.path(home / "c"))
    good(done)
    assert "<-m></zip/ünï.gguf><u v>" in done.stdout


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose engine takes a while to unpack."""
    folder = tmp_path_factory.mktemp("big")
    (folder / "blob").write_bytes(os.urandom(1 << 20) * 24)
    files = [*engine(WINDOWS), EngineFile("blob.dll", folder / "blob")]
    return pack(
        folder / "f.exe",
        launchers={TARGET: parts().launcher, WINDOWS: launcher(WINDOWS)},
        engines={TARGET: parts().files(), WINDOWS: files},
    ).path


def test_eight_first_starts_at_once(wine: Wine, big: Path, home: Path) -> None:
    def start(n: int) -> Done:
        return wine.run(big, str(n), OPENCOTI_HOME=wine.path(home))

    with ThreadPoolExecutor(8) as pool:
        for done in pool.map(start, range(8)):
            good(done)
    assert len(list((home / "v" / VERSION).iterdir())) == 1


def test_killed_first_starts(wine: Wine, big: Path, home: Path) -> None:
    env = {**wine.env, "OPENCOTI_HOME": wine.path(home)}
    for moment in (0.3, 0.6, 0.9, 1.2):
        process = subprocess.Popen(
            ["wine", str(big)], env=env, stdout=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(moment)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wine.stop()
        wine.start()
    good(wine.run(big, OPENCOTI_HOME=wine.path(home)))
    cache = home / "v" / VERSION
    assert len([path for path in cache.iterdir() if path.name[0] != "."]) == 1
    old = time.time() - 3600
    for path in cache.iterdir():
        if path.name[0] == ".":
            os.utime(path, (old, old))
        else:
            shutil.rmtree(path)
    (cache / f".{'0' * 32}.4294.00000000.tmp").mkdir()
    os.utime(cache / f".{'0' * 32}.4294.00000000.tmp", (old, old))
    good(wine.run(big, OPENCOTI_HOME=wine.path(home)))
    assert [path.name for path in cache.iterdir() if path.name[0] == "."] == []


def test_a_full_disk(wine: Wine, big: Path, home: Path, request: pytest.FixtureRequest) -> None:
    """Home on a small file system: the engine goes to the user's local data, nothing stays."""
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if (
        not shutil.which("unshare")
        or subprocess.run(
            [*alone, "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True
        ).returncode
    ):
        pytest.skip("this machine lets no test mount a file system")
    wine.stop()  # the server that serves files must live in the new mount namespace
    request.addfinalizer(wine.start)
    env = {**wine.env, "OPENCOTI_HOME": wine.path(home)}
    lines = [
        f"mount -t tmpfs -o size=4m tmpfs '{home}' || exit 99",
        f"wine '{big}' x; code=$?; find '{home}' -name '*.tmp'; wineserver -w; exit $code",
    ]
    command = [*alone, "sh", "-c", "\n".join(lines)]
    done = subprocess.run(command, env=env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert b"module=ggml-base" in done.stdout and b".tmp" not in done.stdout
    (spare,) = wine.users.glob("*/AppData/Local/opencoti-S-1-5-*")
    shutil.rmtree(spare)
