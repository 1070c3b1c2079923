"""One file that is a shell script, a Windows program and a zip; launchers of other systems."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest

from opencoti_build.errors import PackError
from opencoti_build.pack.header import PROLOGUE_SIZE, pe_headers, render_prologue
from opencoti_build.pack.pe import PeImage, relocate
from opencoti_build.pack.zipreader import read_zip
from opencoti_build.targets import Target
from opencoti_build.verify.report import Report
from opencoti_build.verify.single import verify_file
from tests.lib.desktop import QEMU, engine, launcher, pack_desktop
from tests.lib.single_file import QUIET, TARGET
from tests.unit.pack.test_header import LARGEST

WINDOWS, ARM = Target.X86_64_WINDOWS, Target.AARCH64_LINUX
SHELLS = ("dash", "bash", "busybox sh", "zsh")


@pytest.fixture(scope="module")
def polyglot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for all five targets."""
    others = [target for target in Target if target is not TARGET]
    return pack_desktop(tmp_path_factory.mktemp("polyglot") / "f.exe", others).path


@pytest.fixture(scope="module")
def image() -> PeImage:
    return relocate(launcher(WINDOWS).read_bytes(), PROLOGUE_SIZE)


def report(path: Path) -> Report:
    return verify_file(path, None, QUIET)


def test_all_five_targets_pass_verify(polyglot: Path) -> None:
    found = report(polyglot)
    assert found.reasons == ()
    checks = {finding.check: finding.message for finding in found.findings}
    for target in Target:
        assert f"engine {target}" in checks and f"launcher {target}" in checks
    assert checks["header"] == "MZ, shell, PE, zip"
    kinds = [checks[f"engine {target}"].split(",")[0] for target in Target]
    assert kinds == ["ELF", "ELF", "PE", "Mach-O", "Mach-O"]


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_a_shell_script(polyglot: Path, tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell.split()[0]):
        pytest.skip(f"{shell} is not installed")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    for command in ([*shell.split(), polyglot, "a b"], [*shell.split(), "-c", f"{polyglot} 'a b'"]):
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"<{polyglot}><a b>" in done.stdout


def test_it_is_a_zip(polyglot: Path) -> None:
    with zipfile.ZipFile(polyglot) as other:
        assert other.testzip() is None
        assert "engine/x86_64-windows/opencoti-engine.exe" in other.namelist()
        assert "bin/launch-x86_64-windows" not in other.namelist()


def test_it_is_a_windows_program_for_other_readers(polyglot: Path) -> None:
    """lief and pefile read the same program as in the launcher alone."""
    lief = pytest.importorskip("lief")
    pefile = pytest.importorskip("pefile")
    data = polyglot.read_bytes()
    start = data[: read_zip(data).prologue_size]
    alone, inside = lief.PE.parse(launcher(WINDOWS).read_bytes()), lief.PE.parse(data)
    assert [s.name for s in inside.sections] == [s.name for s in alone.sections]
    for old, new in zip(alone.sections, inside.sections, strict=True):
        assert bytes(old.content) == bytes(new.content)
        assert old.virtual_address == new.virtual_address
        assert not new.sizeof_raw_data or new.pointerto_raw_data % 512 == 0
    assert {i.name for i in inside.imports} == {i.name for i in alone.imports}
    assert inside.optional_header.sizeof_headers == PROLOGUE_SIZE
    other = pefile.PE(data=start)
    assert other.get_warnings() == []
    assert other.DOS_HEADER.e_lfanew % 8 == 0
    assert other.FILE_HEADER.TimeDateStamp == 0 and other.OPTIONAL_HEADER.CheckSum == 0
    assert other.sections[-1].PointerToRawData + other.sections[-1].SizeOfRawData == len(start)


def test_no_debug_data_and_no_overlay(image: PeImage) -> None:
    assert len(image.headers) < PROLOGUE_SIZE - 3400
    assert len(image.body) % 512 == 0
    assert len(image.body) < 100_000


def test_the_longest_script_and_the_headers_fit(image: PeImage) -> None:
    head = render_prologue("0.10.3", LARGEST, image.headers)
    assert len(head) == PROLOGUE_SIZE
    assert pe_headers(head).rstrip(b"\0") == image.headers.rstrip(b"\0")
    assert head[0x3C] % 8 == 0 and head[0x40:0x42] == b"'\n"
    with pytest.raises(PackError) as caught:
        render_prologue("0.10.3", LARGEST, image.headers + bytes(3000))
    assert caught.value.reason == "pack-script-too-long"


def test_launchers_are_the_same_anywhere(tmp_path: Path) -> None:
    from opencoti_build.pack.launcher_build import build_launcher

    for target in Target:
        again = build_launcher(target, tmp_path / "a folder" / target.value)
        assert again.read_bytes() == launcher(target).read_bytes(), target
        assert again.stat().st_size < 100_000


def field(program: bytes, offset: int, form: str, value: int) -> bytes:
    """The launcher with one field of its PE headers changed; offsets count from the signature."""
    (at,) = struct.unpack_from("<I", program, 0x3C)
    changed = bytearray(program)
    struct.pack_into(form, changed, at + offset, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [
        (0, "<I", 0),  # signature
        (4, "<H", 0xAA64),  # machine
        (6, "<H", 0),  # number of sections
        (6, "<H", 999),
        (20, "<H", 224),  # size of the optional header
        (22, "<H", 0x2022),  # a DLL
        (22, "<H", 0x0020),  # not executable
        (24, "<H", 0x10B),  # PE32
        (24 + 36, "<I", 100),  # FileAlignment
        (24 + 36, "<I", 8192),
        (24 + 32, "<I", 2048),  # SectionAlignment
        (24 + 60, "<I", 0),  # SizeOfHeaders
        (24 + 60, "<I", 8192),
        (24 + 112 + 8 * 4, "<I", 1),  # a signature
        (24 + 240 + 20, "<I", 0x401),  # raw pointer of the first section
        (24 + 240 + 20, "<I", 0x200),
        (24 + 240 + 16, "<I", 0x10000000),  # raw size
        (24 + 240 + 32, "<H", 1),  # COFF relocations
    ],
)
def test_programs_that_cannot_be_embedded(offset: int, form: str, value: int) -> None:
    program = launcher(WINDOWS).read_bytes()
    with pytest.raises(PackError) as caught:
        relocate(field(program, offset, form, value), PROLOGUE_SIZE)
    assert caught.value.reason == "pack-bad-pe"


@pytest.mark.parametrize("length", [0, 2, 63, 64, 200, 600, 5000])
def test_programs_that_are_cut_off(length: int) -> None:
    with pytest.raises(PackError) as caught:
        relocate(launcher(WINDOWS).read_bytes()[:length], PROLOGUE_SIZE)
    assert caught.value.reason == "pack-bad-pe"


def test_every_change_of_the_start_is_found(polyglot: Path, tmp_path: Path) -> None:
    """Script, DOS header, PE headers, Windows image: without a release manifest."""
    import os
    import random

    copy = Path(shutil.copy(polyglot, tmp_path / "f"))
    data, chance = polyglot.read_bytes(), random.Random(8)
    size = read_zip(data).prologue_size
    missed = []
    with copy.open("r+b", buffering=0) as stream:
        for at in [*range(0x3C, 0x42), *(chance.randrange(size) for _ in range(60))]:
            os.pwrite(stream.fileno(), bytes([data[at] ^ 1 << chance.randrange(8)]), at)
            if report(copy).ok:
                missed.append(at)
            os.pwrite(stream.fileno(), data[at : at + 1], at)
    assert missed == []


def test_a_windows_engine_needs_the_image(tmp_path: Path) -> None:
    from tests.lib.single_file import pack, parts

    engines = {TARGET: parts().files(), WINDOWS: engine(WINDOWS)}
    assert "launcher-missing" in report(pack(tmp_path / "f", engines=engines).path).reasons


@pytest.fixture
def as_arm(tmp_path: Path) -> dict[str, str]:
    """An environment whose uname says aarch64 (the launcher itself runs under qemu)."""
    if not shutil.which(QEMU[0]):
        pytest.skip("qemu-user is not installed")
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "uname").write_text("#!/bin/sh\necho Linux aarch64\n")
    (fake / "uname").chmod(0o755)
    (tmp_path / "home").mkdir()
    return {"PATH": f"{fake}:/usr/bin:/bin", "HOME": str(tmp_path / "home")}


def test_the_arm_launcher_runs(polyglot: Path, tmp_path: Path) -> None:
    """qemu gives the launcher's exec to itself only with binfmt; the unpacking is what counts."""
    if not shutil.which(QEMU[0]):
        pytest.skip("qemu-user is not installed")
    home = tmp_path / "home"
    home.mkdir()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": "/nonexistent"}
    run = [*QEMU, str(launcher(ARM))]
    probe = subprocess.run([*run, "--opencoti-probe"], env=env, capture_output=True, text=True)
    assert probe.returncode == 0 and probe.stdout.startswith("opencoti ")
    subprocess.run([*run, str(polyglot), "x"], env=env, capture_output=True, text=True)
    (folder,) = (home / ".llamafile" / "v" / "0.10.3").iterdir()
    (program,) = folder.iterdir()
    assert program.read_bytes() == engine(ARM)[0].path.read_bytes()
    done = subprocess.run([*QEMU, str(program), "--version"], capture_output=True, text=True)
    assert done.stdout == "opencoti-0.10.3-c3\n"


def test_the_script_chooses_the_arm_launcher(polyglot: Path, as_arm: dict[str, str]) -> None:
    """Without binfmt the launcher does not start here, and the script says so."""
    done = subprocess.run(["sh", polyglot], env=as_arm, capture_output=True, text=True)
    if done.returncode == 0:
        assert "module=ggml-base" in done.stdout
    else:
        assert done.returncode == 126 and "cannot run programs" in done.stderr


@pytest.mark.parametrize(
    ("cpu", "lacks"), [("phenom", "SSSE3"), ("core2duo", "SSE4.1"), ("Nehalem", None)]
)
def test_a_cpu_that_is_too_old_is_named(cpu: str, lacks: str | None) -> None:
    """Of a program whose C library is older still; that of Windows is made for x86-64-v2."""
    if not shutil.which("qemu-x86_64"):
        pytest.skip("qemu-user is not installed")
    run = ["qemu-x86_64", "-cpu", cpu, str(launcher(TARGET)), "/nonexistent"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 126
    assert (f"this CPU lacks {lacks}" in done.stderr) == (lacks is not None)
