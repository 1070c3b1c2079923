"""The architectures of a CUDA library: read from the file, and compared with the manifest."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opencoti_build.targets import Target
from opencoti_build.verify.fatbin import (
    FatbinError,
    incomplete,
    promised,
    read_containers,
    read_section,
    read_sizes,
)
from opencoti_build.verify.gpu import check_library
from opencoti_build.verify.gpu_note import NoteError, read_note
from tests.lib.cuda import code_for, container, cuda_library, entry, note_for
from tests.lib.single_file import ABI, parts

ALL = ("75", "80", "86", "89", "90", "120f")


ENGINES = {Target.X86_64_LINUX: ABI}


def reasons(section: bytes, *stated: tuple[str, ...]) -> list[str]:
    rows = [{"architectures": list(names)} for names in stated]
    body = cuda_library(section).read_bytes()
    return [finding.reason for finding in check_library(body, rows, ENGINES) if finding.reason]


def note_reasons(
    note: str | None, engine: str | None = ABI, row: dict[str, Any] | None = None
) -> list[str]:
    """The reasons of a good library with this note, and this engine beside it."""
    body = cuda_library(code_for(*ALL), note=note).read_bytes()
    found = check_library(
        body, [row or {"architectures": list(ALL)}], {Target.X86_64_LINUX: engine}
    )
    return [finding.reason for finding in found if finding.reason]


def test_each_container_is_read() -> None:
    section = code_for(*ALL) + bytes(8) + code_for("90a") + bytes(24) + code_for(*ALL, "compute_80")
    containers = read_containers(section)
    assert [len(found) for found in containers] == [6, 1, 7]
    assert [str(item) for item in sorted(containers[1])] == ["90a"]
    assert promised(containers) == ALL
    assert incomplete(containers) == ("compute_80",)
    assert read_containers(b"") == [] == read_containers(bytes(64))


def test_code_is_counted_by_architecture() -> None:
    section = code_for("80", "90") + bytes(24) + container(entry("90", bytes(800)), entry("90a"))
    assert read_sizes(section) == {"80": 72, "90": 72 + 864, "90a": 72}
    assert read_sizes(b"") == {}
    with pytest.raises(FatbinError):
        read_sizes(section[:-1])


def test_code_for_one_chip_does_not_stand_for_its_number() -> None:
    assert promised(read_containers(code_for("90a") + code_for("121a", "110f"))) == ("110f", "121a")
    assert promised(read_containers(code_for("90", "90a"))) == ("90",)


@pytest.mark.parametrize(
    "section",
    [
        b"\x01" * 64,
        code_for("90")[:-1],
        code_for("90") + b"\x50\xed\x55\xba",
        container(entry("90"), magic=0xBA55ED51),
        container(entry("90"), version=2),
        container(entry("90"), more=1 << 40),
        container(entry("90"), more=-8),
        container(entry("90"), more=-64),
        container(entry("90", header=8)),
        container(entry("90", header=1 << 20)),
        container(entry("90", size=1 << 60)),
        container(entry("90", kind=7)),
        container(entry("90", number=0)),
        container(*[entry("90", b"")] * 257),
    ],
)  # fmt: skip
def test_what_no_compiler_writes_is_refused(section: bytes) -> None:
    with pytest.raises(FatbinError):
        read_containers(section)


def test_damage_never_ends_in_another_error() -> None:
    section, chance = bytearray(code_for(*ALL) + code_for("90a")), random.Random(7)
    for _ in range(5000):
        damaged = bytearray(section[: chance.randrange(len(section) + 1)])
        for _ in range(chance.randrange(1, 4)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            read_containers(bytes(damaged))
        except FatbinError:
            continue


def test_a_library_is_compared_with_what_is_stated() -> None:
    section = code_for(*ALL) + code_for("90a")
    assert reasons(section, ALL, ALL[::-1]) == []
    assert reasons(section) == ["gpu-architectures-unstated"]
    assert reasons(section, ALL, ALL[:-1]) == ["gpu-architectures-mismatch"]
    assert reasons(section, (*ALL, "121a")) == ["gpu-architectures-mismatch"]
    assert reasons(section + code_for("75", "80"), ALL) == ["gpu-code-incomplete"]
    assert reasons(code_for(*ALL)[:-8], ALL) == ["gpu-code-malformed"]


def test_a_library_without_code_for_a_card_is_refused() -> None:
    found = [f.reason for f in check_library(parts().module.read_bytes(), [], {})]
    assert "gpu-code-missing" in found
    assert reasons(bytes(8), ALL) == ["gpu-code-missing"]
    assert [f.reason for f in check_library(b"\x7fELF", [], {})] == ["elf-malformed"]
    assert read_section(b"\x7fELF" + bytes(60)) is None


def test_a_library_that_needs_cuda_to_load_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.c").write_text("int cuInit(int flags) { return flags; }\n")
    arguments = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", "c.c"]
    target = ["-target", "x86_64-linux-gnu.2.28"]
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *target, *arguments], cwd=tmp_path, check=True
    )
    made = cuda_library(
        code_for("90"), "-Wl,--no-as-needed", str(tmp_path / "libcuda.so.1")
    ).read_bytes()
    findings = check_library(made, [{"architectures": ["90"]}], ENGINES)
    found = [finding.reason for finding in findings if finding.reason]
    assert found == ["elf-foreign-library"]


def test_a_library_is_compared_with_the_engine_and_with_what_it_says() -> None:
    section = code_for(*ALL)
    assert note_reasons(note_for(section)) == []
    assert note_reasons(note_for(section), row={"abi_digest": ABI}) == [
        "gpu-architectures-unstated"
    ]
    assert note_reasons(None) == ["gpu-note-missing"]
    assert note_reasons(note_for(section), None) == ["gpu-abi-unproved"]
    assert note_reasons(note_for(section, abi="cd" * 32)) == ["gpu-abi-mismatch"]
    row = {"abi_digest": "cd" * 32, "architectures": list(ALL)}
    assert note_reasons(note_for(section), row=row) == ["gpu-abi-mismatch"]
    assert note_reasons(note_for(section, architectures=ALL[:-1])) == ["gpu-note-mismatch"]


@pytest.mark.parametrize(
    "note",
    [
        "{", "[]", "7", '{"format":1}',
        note_for(b"", abi="AB" * 32), note_for(b"", abi="ab"), note_for(b"", architectures=()),
        note_for(b"", architectures=("sm_90",)), note_for(b"", driver=13),
        note_for(b"").replace("13000", '"13000"'), note_for(b"").replace("13000", "true"),
        note_for(b"").replace('"format":1', '"format":2'), note_for(b"", version=7),
    ],
)  # fmt: skip
def test_a_note_that_is_not_understood(note: str) -> None:
    assert note_reasons(note) == ["gpu-note-malformed"]


def test_damaged_notes_never_end_in_another_error() -> None:
    data, chance = cuda_library(code_for("90")).read_bytes(), random.Random(3)
    good = read_note(data)
    assert good is not None and (good.abi, good.driver) == (ABI, 13000)
    start, seen = data.index(b"opencoti\0"), 0
    for _ in range(1500):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            near = chance.randrange(start - 12, start + 100)
            damaged[chance.choice((near, chance.randrange(1024)))] = chance.choice((0, 1, 127, 255))
        try:
            seen += read_note(bytes(damaged)) is None
        except NoteError:
            seen += 1
    assert seen > 500
