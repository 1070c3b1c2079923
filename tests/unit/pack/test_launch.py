"""First and later starts of a real single file: shells, paths, caches, and bad circumstances."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from opencoti_build.pack.bundle import add_model
from opencoti_build.pack.host import EngineFile
from opencoti_build.pack.zipreader import read_zip
from tests.lib.single_file import VERSION, pack

SHELLS = ("dash", "bash", "busybox sh", "zsh")
BLOB_SIZE = 24 << 20


@dataclass
class Place:
    """A single file, a home and a temporary directory that a test can spoil."""

    file: Path
    home: Path
    tmp: Path
    user: int = field(default_factory=os.geteuid)

    @property
    def cache(self) -> Path:
        return self.home / ".llamafile" / "v" / VERSION

    @property
    def spare(self) -> Path:
        return self.tmp / f"opencoti-{self.user}" / "v" / VERSION

    def env(self, **changes: str | None) -> dict[str, str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.tmp)}
        for key, value in changes.items():
            if value is None:
                env.pop(key, None)
            else:
                env[key] = value
        return env

    def run(
        self, *arguments: str, shell: str = "sh", cwd: Path | None = None, **changes: str | None
    ) -> subprocess.CompletedProcess[str]:
        command = [*shell.split(), str(self.file), *arguments]
        return run(command, self.env(**changes), cwd)


def run(
    command: Sequence[str], env: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("launch") / "f.llamafile").path


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose engine takes a while to unpack."""
    folder = tmp_path_factory.mktemp("big")
    (folder / "blob").write_bytes(os.urandom(1 << 20) * (BLOB_SIZE >> 20))
    return pack(folder / "f", EngineFile("libggml-blob.so", folder / "blob")).path


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Place:
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    return Place(built, tmp_path / "home", tmp_path / "tmp")


def good(done: subprocess.CompletedProcess[str], place: Place) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith(f"self={place.file.resolve()} module=ggml-base")


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("opencoti: ")
    for word in words:
        assert word in done.stderr


def whole(cache: Path) -> None:
    """The cache holds one launcher and one engine folder, and nothing half-written."""
    names = sorted(path.name for path in cache.iterdir())
    assert len(names) == 2 and not names[0].startswith("."), names
    assert names[1].startswith("launch-x86_64-linux-")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not shutil.which(name.split()[0]):
        pytest.skip(f"{name} is not installed")
    return name


AWKWARD = ["plain", "with space", 'it\'s "quoted" $HOME `id` \\ *', "ünï-ço∂é", "new\nline", "-n"]


@pytest.mark.parametrize("name", AWKWARD)
def test_paths_in_all_shells(place: Place, shell: str, name: str) -> None:
    folder = place.home.parent / "a b"
    folder.mkdir()
    place.file = Path(shutil.copy(place.file, folder / name))
    arguments = ["one two", "", "'\"", "*"]
    done = place.run(*arguments, shell=shell)
    good(done, place)
    assert f"<{place.file}><one two><><'\"><*>" in done.stdout
    relative = run([*shell.split(), f"./{name}", "x"], place.env(), folder)
    good(relative, place)
    good(run([*shell.split(), "--", name, "x"], place.env(), folder), place)
    whole(place.cache)


@pytest.mark.parametrize("name", ["plain", "a b"])
def test_started_as_a_program(place: Place, shell: str, name: str) -> None:
    """``./file`` and ``file`` through PATH, from each shell."""
    folder = place.home.parent / "bin"
    folder.mkdir()
    place.file = Path(shutil.copy(place.file, folder / name))
    quoted = shlex.quote(name)
    good(run([*shell.split(), "-c", f"./{quoted} x"], place.env(), folder), place)
    env = place.env(PATH=f"{folder}:{os.environ['PATH']}")
    good(run([*shell.split(), "-c", f"{quoted} x"], env, place.home), place)
    good(run([*shell.split(), name, "x"], place.env(), folder), place)


def test_script_found_by_the_shell_alone(place: Place) -> None:
    """bash looks for a script in PATH and then says only its name in $0."""
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    folder = place.home.parent / "a bin"
    folder.mkdir()
    place.file = Path(shutil.copy(place.file, folder / "my file"))
    env = place.env(PATH=f"{folder}:{os.environ['PATH']}")
    good(run(["bash", "my file", "x"], env, place.home), place)


def test_symlinks(place: Place) -> None:
    link = place.home.parent / "link"
    link.symlink_to(place.file)
    second = place.home.parent / "second"
    second.symlink_to("link")
    done = run(["sh", str(second)], place.env())
    good(done, place)


def test_exit_code_and_signal(place: Place) -> None:
    assert place.run("--exit", "42").returncode == 42
    assert place.run("--version").stdout == "opencoti-0.10.3-c3\n"


def test_other_systems_are_refused(place: Place) -> None:
    fake = place.home / "bin"
    fake.mkdir()
    (fake / "uname").write_text("#!/bin/sh\necho Plan9 mips\n")
    (fake / "uname").chmod(0o755)
    done = place.run(PATH=f"{fake}:{os.environ['PATH']}")
    refused(done, 126, "x86_64-linux", "Plan9 mips")


def test_home_unset_or_useless(place: Place, shell: str) -> None:
    # zsh looks HOME up in the password file when it is unset
    good(place.run(shell=shell, HOME="" if shell == "zsh" else None), place)
    whole(place.spare)
    assert (place.tmp / f"opencoti-{os.geteuid()}").stat().st_mode & 0o777 == 0o700
    shutil.rmtree(place.spare)
    good(place.run(shell=shell, HOME="/proc/nothing"), place)
    good(place.run(shell=shell, HOME=str(place.home / "absent")), place)
    assert list(place.home.iterdir()) == []
    good(place.run(shell=shell, HOME=""), place)
    whole(place.spare)


def test_opencoti_home(place: Place) -> None:
    other = place.home / "x y"
    good(place.run(OPENCOTI_HOME=str(other)), place)
    whole(other / "v" / VERSION)
    good(place.run(cwd=place.home, OPENCOTI_HOME="relative"), place)
    whole(place.home / "relative" / "v" / VERSION)


@pytest.mark.parametrize("how", ["open", "link", "owner"])
def test_shared_folders_of_others_are_not_used(place: Place, how: str) -> None:
    """Somebody else may have made opencoti-<uid> in a shared temporary directory."""
    trap = place.tmp / f"opencoti-{os.geteuid()}"
    other = place.home / "other"
    other.mkdir(mode=0o700)
    if how == "link":
        trap.symlink_to(other)
    else:
        trap.mkdir(mode=0o700)
        if how == "open":
            trap.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(trap, 65534, 65534)
        else:
            pytest.skip("only root can make a folder of another user")
    runtime = place.home / "run"
    runtime.mkdir()
    (runtime / f"opencoti-{os.geteuid()}").symlink_to(other)
    good(place.run(HOME=None, XDG_RUNTIME_DIR=str(runtime)), place)
    assert list(other.iterdir()) == []
    assert how == "link" or list(trap.iterdir()) == []


def test_damaged_caches_are_repaired(place: Place) -> None:
    good(place.run(), place)
    folder, launcher = sorted(place.cache.iterdir())
    engine = folder / "opencoti-engine"

    def truncate(path: Path) -> None:
        os.truncate(path, 100)

    def zero(path: Path) -> None:
        path.write_bytes(bytes(path.stat().st_size))

    def locked(path: Path) -> None:
        path.chmod(0o644)

    for path, spoils in (
        (engine, (truncate, Path.unlink, locked)),
        (launcher, (truncate, zero, Path.unlink, locked)),
        (folder / "libggml-base.so", (truncate, Path.unlink)),
    ):
        for spoil in spoils:
            spoil(path)
            good(place.run(), place)
            whole(place.cache)
    os.truncate(launcher, 0)
    good(place.run(), place)
    shutil.rmtree(folder)
    folder.write_text("a file where the folder should be")
    good(place.run(), place)
    whole(place.cache)


def test_two_files_never_share_an_engine(place: Place, tmp_path: Path) -> None:
    good(place.run(), place)
    (tmp_path / "m").write_bytes(b"another module")
    other = pack(tmp_path / "other", EngineFile("libggml-more.so", tmp_path / "m"))
    place.file = other.path
    good(place.run(), place)
    assert len(list(place.cache.iterdir())) == 3


def test_broken_files_are_refused(place: Place, tmp_path: Path) -> None:
    good(place.run(), place)
    data = place.file.read_bytes()
    place.file = tmp_path / "broken"
    for body in (data[:-1], data + b"x", data[: len(data) - 5000], data[: len(data) // 2]):
        place.file.write_bytes(body)
        refused(place.run(), 65, "broken")
    whole(place.cache)


def test_args_inside(place: Place, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    host, count = place.file, 0

    def start(text: str, *arguments: str) -> str:
        nonlocal count
        count += 1
        place.file = add_model(host, model, tmp_path / f"b{count}", text).path
        done = place.run(*arguments)
        good(done, place)
        return done.stdout.split(f"<{place.file}>")[1].strip()

    assert start("-m\n/zip/m.gguf\n...\n-x", "u v") == "<-m></zip/m.gguf><u v><-x>"
    assert start("-m\r\n\r\n\n/zip/m.gguf\n") == "<-m></zip/m.gguf>"
    assert start("-m\n/zip/m.gguf\n", "user") == "<user>"
    assert start("...\n...\na", "1", "2") == "<1><2><a>"
    assert start("") == "" and start("", "x") == "<x>" and start("...") == ""


def test_sixteen_first_starts_at_once(big: Path, place: Place) -> None:
    place.file = big
    with ThreadPoolExecutor(16) as pool:
        for done in pool.map(lambda n: place.run(str(n)), range(16)):
            good(done, place)
    whole(place.cache)


def test_killed_first_starts(big: Path, place: Place) -> None:
    """kill -9 at any moment leaves nothing that a later start would take for finished."""
    place.file = big
    chance = random.Random(5)
    for _ in range(12):
        process = subprocess.Popen(
            ["sh", str(big)], env=place.env(), stdout=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(chance.uniform(0, 0.12))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if chance.random() < 0.3:
            shutil.rmtree(place.cache, ignore_errors=True)
    good(place.run(), place)
    folders = [path for path in place.cache.iterdir() if path.name[0] != "."]
    assert len(folders) == 2
    # What the killed ones left goes away with the first unpacking ten minutes later.
    old = time.time() - 3600
    for path in place.cache.iterdir():
        if path.name[0] == ".":
            os.utime(path, (old, old))
        elif path.is_dir():
            shutil.rmtree(path)
    (place.cache / f".{'0' * 32}.{os.getpid()}.00000000.tmp").mkdir()
    (place.cache / ".keep").touch()
    good(place.run(), place)
    left = [path.name for path in place.cache.iterdir() if path.name[0] == "."]
    assert sorted(left) == [f".{'0' * 32}.{os.getpid()}.00000000.tmp", ".keep"]


# Mounts: each start runs in a mount namespace of its own, so nothing stays mounted.


def mounts_work() -> bool:
    done = subprocess.run(
        [*unshare(), "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True
    )
    return done.returncode == 0


def unshare() -> list[str]:
    return ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]


@pytest.fixture
def mounted(place: Place) -> Place:
    if not shutil.which("unshare") or not mounts_work():
        pytest.skip("this machine lets no test mount a file system")
    place.user = 0  # in the namespace, every user is root
    return place


def with_mounts(
    place: Place, mounts: dict[str, str], *then: str
) -> subprocess.CompletedProcess[str]:
    """Start the file with tmpfs mounts (folder -> options); ``then`` are shell lines after it.

    The system's other shared folders are mounted noexec, so that only the test's places count.
    """
    others = {"/var/tmp": "noexec", "/dev/shm": "noexec"}
    lines = [
        f"mount -t tmpfs -o {options} tmpfs {shlex.quote(folder)} || exit 99"
        for folder, options in {**others, **mounts}.items()
    ]
    lines += [f"sh {shlex.quote(str(place.file))} x; code=$?", *then, "exit $code"]
    return run([*unshare(), "sh", "-c", "\n".join(lines)], place.env())


def test_read_only_home(mounted: Place) -> None:
    good(with_mounts(mounted, {str(mounted.home): "ro"}), mounted)
    whole(mounted.spare)


def test_noexec_home(mounted: Place) -> None:
    good(with_mounts(mounted, {str(mounted.home): "noexec"}), mounted)
    whole(mounted.spare)


def test_noexec_temp_is_no_matter(mounted: Place) -> None:
    good(with_mounts(mounted, {str(mounted.tmp): "noexec"}), mounted)
    whole(mounted.cache)


def test_noexec_everywhere(mounted: Place) -> None:
    done = with_mounts(mounted, {str(mounted.tmp): "noexec", str(mounted.home): "noexec"})
    refused(done, 126, "cannot run programs", "OPENCOTI_HOME")


def test_home_that_becomes_noexec_later(mounted: Place) -> None:
    good(mounted.run(), mounted)
    script = (
        f"mount --bind {shlex.quote(str(mounted.home))} {shlex.quote(str(mounted.home))} && "
        f"mount -o remount,bind,noexec {shlex.quote(str(mounted.home))} || exit 99\n"
        f"exec sh {shlex.quote(str(mounted.file))} x"
    )
    good(run([*unshare(), "sh", "-c", script], mounted.env()), mounted)
    whole(mounted.spare)


def test_full_home_falls_back(mounted: Place, big: Path) -> None:
    mounted.file = big
    done = with_mounts(
        mounted, {str(mounted.home): "size=4m"}, f"ls -A {mounted.cache} | grep -v ^launch"
    )
    good(done, mounted)
    assert done.stdout.count("\n") == 2, "something was left on the full disk"
    # The launcher itself fitted into the home; only the engine went elsewhere.
    assert [len(path.name) for path in mounted.spare.iterdir()] == [32]


def test_full_everywhere(mounted: Place, big: Path) -> None:
    mounted.file = big
    done = with_mounts(
        mounted,
        {str(mounted.home): "size=4m", str(mounted.tmp): "size=4m"},
        f"find {mounted.home} {mounted.tmp} -name '.*.tmp' | grep . && exit 98",
    )
    refused(done, 74, "No space left on device", "noexec")


def test_no_room_for_the_launcher(mounted: Place) -> None:
    done = with_mounts(mounted, {str(mounted.home): "size=16k", str(mounted.tmp): "size=16k"})
    refused(done, 126, "OPENCOTI_HOME")


def test_as_another_user_with_a_locked_home(place: Place) -> None:
    """Permissions instead of mounts: works on machines where nothing can be mounted."""
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("setpriv is not installed")
        as_user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        user = 65534
    else:
        as_user, user = [], os.geteuid()
    for folder in [place.file, *place.file.parents, *place.home.parents]:
        if folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)
    place.home.chmod(0o555)
    place.tmp.chmod(0o1777)
    done = run([*as_user, "sh", str(place.file)], place.env())
    good(done, place)
    whole(place.tmp / f"opencoti-{user}" / "v" / VERSION)


def test_launcher_reads_the_file_that_the_script_found(place: Place) -> None:
    """The launcher's digest in the script is that of the entry."""
    data = place.file.read_bytes()
    entry = read_zip(data).entries[0]
    assert f"o={entry.data_offset} c={entry.size} h=".encode() in data[:4096]


def test_warm_start_is_fast(place: Place) -> None:
    """A generous limit; benchmarks/warm_start.py measures."""
    good(place.run(), place)
    best = min(timed(place) for _ in range(7))
    assert best < 0.05, f"a warm start takes {best * 1000:.1f} ms"


def timed(place: Place) -> float:
    start = time.perf_counter()
    subprocess.run(["sh", str(place.file)], env=place.env(), stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if sys.platform != "linux":
    pytest.skip("these files start on Linux", allow_module_level=True)
