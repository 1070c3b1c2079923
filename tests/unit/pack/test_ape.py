"""Programs of another build as hosts: what is kept, what is written anew, what is refused."""

from __future__ import annotations

import io
import random
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from opencoti_build.errors import PackError
from opencoti_build.pack.ape import pack_ape
from opencoti_build.pack.append import Addition, append_entries, layout_of
from opencoti_build.pack.host import PackedFile
from opencoti_build.pack.variant import GpuLibrary, host_identity, make_variant
from opencoti_build.pack.zipformat import ALIGNMENT
from opencoti_build.ui import Ui
from opencoti_build.verify.single import verify_file
from tests.lib.ape import tiny_ape
from tests.lib.cuda import code_for, cuda_library
from tests.lib.single_file import ABI

QUIET = Ui(quiet=True)
FILES = {"usr/share/x": b"x" * 5000, ".symtab": b"s" * 300, "metal.gguf": b"GGUF"}


def ape(*, year: int = 2026, method: int = zipfile.ZIP_DEFLATED, **more: Any) -> bytes:
    """A program with a zip part as a common tool would write it."""
    out = io.BytesIO()
    out.write(tiny_ape(**more))
    with zipfile.ZipFile(out, "a", method) as made:
        made.writestr("usr/", b"")
        for name, data in FILES.items():
            info = zipfile.ZipInfo(name, (year, 11, 29, 12, 0, 0))
            info.compress_type = method
            info.external_attr = (0o100755 if name == ".symtab" else 0o100600) << 16
            made.writestr(info, data)
    return out.getvalue()


def pack(folder: Path, program: bytes, name: str = "made") -> PackedFile:
    (folder / "program").write_bytes(program)
    return pack_ape(
        program=folder / "program", version="0.10.3", tag="c3",
        meta=[("META/LICENSES/x.txt", b"x\n")], manifest={"patches": []},
        out=folder / name, ui=QUIET,
    )  # fmt: skip


def test_program_and_entries_are_kept(tmp_path: Path) -> None:
    packed = pack(tmp_path, ape())
    data = packed.path.read_bytes()
    assert data.startswith(tiny_ape())
    with zipfile.ZipFile(packed.path) as made:
        assert {name: made.read(name) for name in FILES} == FILES
    layout = layout_of(packed.path)
    assert layout.prologue_size == len(tiny_ape())
    modes = {entry.name: entry.mode for entry in layout.entries}
    assert modes[".symtab"] == 0o755 and modes["usr/share/x"] == 0o644
    model = layout.find("metal.gguf")
    assert model is not None and model.data_offset % ALIGNMENT == 0
    done = subprocess.run(["sh", packed.path, "x"], capture_output=True, text=True, check=True)
    assert done.stdout == "stand-in x\n"


def test_the_same_entries_give_the_same_bytes(tmp_path: Path) -> None:
    """Times and compression of the other build's zip do not reach ours."""
    first = pack(tmp_path, ape(), "first")
    second = pack(tmp_path, ape(year=2001, method=zipfile.ZIP_STORED), "second")
    assert first.sha256 == second.sha256


def _link(program: bytes) -> bytes:
    out = io.BytesIO(program)
    with zipfile.ZipFile(out, "a") as made:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        made.writestr(info, b"target")
    return out.getvalue()


def _twice(program: bytes) -> bytes:
    out = io.BytesIO(program)
    with zipfile.ZipFile(out, "a") as made:
        made.writestr("USR/share/x", b"")
    return out.getvalue()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (b"\x7fELF" + ape(), "pack-not-ape"),
        (tiny_ape(), "pack-bad-ape"),
        (ape().replace(b"usr/share/x", b"usr/share/y", 1), "pack-bad-ape"),
        (_link(ape()), "pack-bad-ape"),
        (_twice(ape()), "zip-duplicate-name"),
    ],
)
def test_refused(tmp_path: Path, program: bytes, reason: str) -> None:
    with pytest.raises(PackError) as caught:
        pack(tmp_path, program)
    assert caught.value.reason == reason
    assert not (tmp_path / "made").exists()


def reasons(path: Path) -> tuple[str, ...]:
    return verify_file(path, None, QUIET).reasons


def test_verify(tmp_path: Path) -> None:
    packed = pack(tmp_path, ape())
    report = verify_file(packed.path, None, QUIET)
    assert report.reasons == ()
    assert {item.check for item in report.findings if item.skipped} == {
        "program macos", "script", "version", "release",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"machines": (62,)}, ("ape-elf-missing",)),
        ({"machines": ()}, ("ape-elf-missing", "ape-elf-missing")),
        ({"load_size": 1 << 20}, ("ape-elf-cut-off", "ape-elf-cut-off")),
        ({"pe_machine": 0x14C}, ("pe-wrong-machine",)),
        ({"image_size": 0x3000}, ("pe-bad-layout",)),
    ],
)
def test_verify_finds(tmp_path: Path, more: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert reasons(pack(tmp_path, ape(**more)).path) == expected


def test_not_for_windows(tmp_path: Path) -> None:
    """The other magic says so: reported, and no failure."""
    report = verify_file(pack(tmp_path, ape(magic=b"jartsr='")).path, None, QUIET)
    assert report.reasons == ()
    assert "ape-not-for-windows" in {item.reason for item in report.findings if item.skipped}


def test_every_byte_of_the_program_counts(tmp_path: Path) -> None:
    packed = pack(tmp_path, ape())
    data = packed.path.read_bytes()
    for at in (9, 0x400, len(tiny_ape()) - 2):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        (tmp_path / "changed").write_bytes(changed)
        assert "start-mismatch" in reasons(tmp_path / "changed")


def test_it_holds_no_engine_of_ours(tmp_path: Path) -> None:
    packed = pack(tmp_path, ape())
    out = tmp_path / "more"
    append_entries(packed.path, out, [Addition("engine/x86_64-linux/x", b"x")])
    assert "entry-misplaced" in reasons(out)


def test_a_gpu_library_goes_in_as_in_any_host(tmp_path: Path) -> None:
    packed = pack(tmp_path, ape())
    library = GpuLibrary("ggml-cuda.so", cuda_library(code_for("80", "90")), ("80", "90"), ABI)
    identity = host_identity(packed.path)
    made = make_variant(packed.path, tmp_path / "v", identity, library)
    assert made.path.read_bytes().startswith(packed.path.read_bytes()[: identity.size])
    assert reasons(made.path) == ()


def test_a_path_of_the_build_is_told(tmp_path: Path) -> None:
    program = ape().replace(
        b"\xc3" * 40, b"/home/someone/llamafile/llamafile.c".ljust(40, b"\0"), 1
    )
    report = verify_file(pack(tmp_path, program).path, None, QUIET)
    assert [item.reason for item in report.findings if item.check == "build paths"] == [
        "ape-path-unclear"
    ]


def test_damaged_programs_are_told_and_raise_nothing(tmp_path: Path) -> None:
    packed = pack(tmp_path, ape())
    data = packed.path.read_bytes()
    chance = random.Random(1)
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(tiny_ape()))] = chance.choice(b"\0\xff'\\7PE\x7f")
        if changed != data:
            (tmp_path / "changed").write_bytes(changed)
            assert "start-mismatch" in reasons(tmp_path / "changed")
    # The same with headers that a loader would find, listed as they are.
    for _ in range(60):
        program = bytearray(ape())
        program[chance.randrange(0xE00, 0x1100)] ^= 1 << chance.randrange(8)
        verify_file(pack(tmp_path, bytes(program)).path, None, QUIET)
