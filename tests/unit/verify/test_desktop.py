"""verify on Windows and macOS programs: good ones pass, each kind of defect has its reason."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from opencoti_build.pack.host import EngineFile
from opencoti_build.targets import Target
from opencoti_build.verify.codesign import signature_problem
from opencoti_build.verify.macho import macho_problems, read_macho
from opencoti_build.verify.pe import pe_problems, read_pe
from opencoti_build.verify.single import verify_file
from tests.lib.desktop import TRIPLES, engine, launcher, pack_desktop
from tests.lib.single_file import QUIET, TARGET, compile_c, pack, parts

WINDOWS, ARM_MAC, X86_MAC = Target.X86_64_WINDOWS, Target.AARCH64_MACOS, Target.X86_64_MACOS


def reasons_of(target: Target, body: bytes, program: bool = True, own: str = "") -> list[str]:
    """What is wrong with a program, by the checks alone."""
    beside = frozenset({own, "ggml-base.dll"})
    if target is WINDOWS:
        facts = read_pe(body)
        assert facts is not None
        return [row[0] for row in pe_problems(facts, body, beside, program)]
    found = read_macho(body)
    assert found is not None
    return [row[0] for row in macho_problems(found, body, target, beside, program)]


def good(target: Target) -> bytes:
    return engine(target)[0].path.read_bytes()


def edit(body: bytes, offset: int, form: str, value: int) -> bytes:
    changed = bytearray(body)
    struct.pack_into(form, changed, offset, value)
    return bytes(changed)


def pe_edit(offset: int, form: str, value: int) -> list[str]:
    """The Windows engine with one field changed, counted from its PE signature."""
    body = good(WINDOWS)
    (at,) = struct.unpack_from("<I", body, 0x3C)
    return reasons_of(WINDOWS, edit(body, at + offset, form, value))


@pytest.mark.parametrize("target", [WINDOWS, ARM_MAC, X86_MAC])
def test_good_programs_pass(target: Target) -> None:
    assert reasons_of(target, good(target)) == []
    assert reasons_of(target, launcher(target).read_bytes()) == []


def test_good_windows_library_passes() -> None:
    body = engine(WINDOWS)[1].path.read_bytes()
    assert reasons_of(WINDOWS, body, program=False) == []
    assert reasons_of(WINDOWS, body)[0] == "pe-wrong-kind"


@pytest.mark.parametrize(
    ("offset", "form", "value", "expected"),
    [
        (24 + 68, "<H", 2, "pe-wrong-subsystem"),
        (24 + 70, "<H", 0x0100, "pe-no-aslr"),
        (24 + 70, "<H", 0x0060, "pe-no-nx"),
        (24 + 112 + 8 * 5, "<I", 0, "pe-no-aslr"),  # the relocation table
        (22, "<H", 0x2022, "pe-wrong-kind"),
        (24 + 72, "<Q", 1 << 33, "pe-bad-layout"),  # stack
        (24 + 16, "<I", 0x10, "pe-bad-layout"),  # entry point
        (24 + 56, "<I", 0x11234, "pe-bad-layout"),  # SizeOfImage
        (24 + 24, "<Q", 0x140001000, "pe-bad-layout"),  # ImageBase
    ],
)
def test_windows_fields(offset: int, form: str, value: int, expected: str) -> None:
    assert expected in pe_edit(offset, form, value)


def test_windows_program_for_another_cpu() -> None:
    body = good(WINDOWS)
    (at,) = struct.unpack_from("<I", body, 0x3C)
    changed = edit(body, at + 4, "<H", 0xAA64)
    facts = read_pe(changed)
    assert facts is None or "pe-wrong-machine" in reasons_of(WINDOWS, changed)


def test_windows_libraries_are_known_ones() -> None:
    body = good(WINDOWS)
    foreign = body.replace(b"ggml-base.dll", b"other-lib.dll")
    assert reasons_of(WINDOWS, foreign) == ["pe-foreign-library"]
    assert reasons_of(WINDOWS, foreign, own="Other-Lib.DLL") == []


def test_build_paths_are_found(tmp_path: Path) -> None:
    text = 'const char *where = "/home/someone/llama.cpp/src/x.cpp";\n'
    text += "int main(int argc, char **argv) { (void)argv; return where[argc]; }\n"
    (tmp_path / "e.c").write_text(text)
    for target, expected in ((WINDOWS, "pe-build-path"), (ARM_MAC, "macho-build-path")):
        compile_c(tmp_path, "e.c", "-o", "e", target=TRIPLES[target])
        assert expected in reasons_of(target, (tmp_path / "e").read_bytes())


# Mach-O: the load commands of a good engine, changed one by one.


def command(body: bytes, kind: int) -> int:
    """The offset of the first load command of a kind."""
    (count,) = struct.unpack_from("<I", body, 16)
    at = 32
    for _ in range(count):
        found, size = struct.unpack_from("<2I", body, at)
        if found == kind:
            return at
        at += size
    raise AssertionError(f"no load command {kind:#x}")


def test_mac_fields() -> None:
    body = good(X86_MAC)  # not signed, so that nothing else is wrong
    assert reasons_of(X86_MAC, edit(body, 12, "<I", 6)) == ["macho-wrong-kind"]
    assert reasons_of(X86_MAC, edit(body, 24, "<I", 0x85)) == ["macho-no-aslr"]
    assert reasons_of(ARM_MAC, body) == ["macho-wrong-machine", "macho-no-signature"]
    version = command(body, 0x32)
    newer = edit(body, version + 12, "<I", 99 << 16)
    assert reasons_of(X86_MAC, newer) == ["macho-min-os-too-new"]
    phone = edit(body, version + 8, "<I", 2)
    assert reasons_of(X86_MAC, phone) == ["macho-min-os-unknown"]
    gone = edit(body, version, "<I", 0x1234)
    assert reasons_of(X86_MAC, gone) == ["macho-min-os-unknown"]
    foreign = body.replace(b"/usr/lib/libSystem.B.dylib", b"/opt/lib/libSystem.B.dylib")
    assert reasons_of(X86_MAC, foreign) == ["macho-foreign-library"]
    own = body.replace(b"/usr/lib/libSystem.B.dylib", b"@rpath/x.dylib".ljust(26, b"\0"))
    assert reasons_of(X86_MAC, own, own="x.dylib") == []
    assert reasons_of(X86_MAC, own) == ["macho-foreign-library"]


def test_mac_signature_covers_every_page() -> None:
    body = good(ARM_MAC)
    facts = read_macho(body)
    assert facts is not None and facts.signature is not None
    assert signature_problem(body, *facts.signature) == ""
    start, chance = facts.signature[0], random.Random(9)
    for _ in range(40):
        at = chance.randrange(0x2000, start)
        changed = edit(body, at, "B", body[at] ^ 1)
        assert signature_problem(changed, *facts.signature).startswith("page ")
    for length in (0, 8, 40, 100):
        assert signature_problem(body[: start + length], *facts.signature)
    assert reasons_of(ARM_MAC, edit(body, start - 1, "B", body[start - 1] ^ 1)) == [
        "macho-bad-signature"
    ]


def test_mac_signature_fields() -> None:
    body = good(ARM_MAC)
    facts = read_macho(body)
    assert facts is not None and facts.signature is not None
    at = body.index(bytes.fromhex("fade0c02"), facts.signature[0])
    for offset, form, value in (
        (0, ">I", 0), (4, ">I", 10), (12, ">I", 0), (16, ">I", 1 << 30), (28, ">I", 1),
        (28, ">I", 1 << 31), (32, ">I", 4096), (36, "B", 20), (37, "B", 1), (39, "B", 3),
    ):  # fmt: skip
        assert signature_problem(edit(body, at + offset, form, value), *facts.signature)


def test_mac_files_of_other_kinds_are_refused() -> None:
    assert read_macho(b"") is None
    assert read_macho(good(TARGET) if TARGET in TRIPLES else parts().engine.read_bytes()) is None
    assert read_macho(bytes.fromhex("cafebabe") + bytes(100)) is None
    assert read_pe(parts().engine.read_bytes()) is None


@pytest.mark.parametrize("target", [WINDOWS, ARM_MAC])
def test_damaged_programs_never_crash_the_checks(target: Target) -> None:
    body, chance = good(target), random.Random(10)
    for _ in range(150):
        changed = bytearray(body)
        for _ in range(chance.choice([1, 3, 30])):
            at = chance.choice([chance.randrange(1024), chance.randrange(len(body))])
            changed[at] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])
        data = bytes(changed)
        if target is WINDOWS:
            if (facts := read_pe(data)) is not None:
                list(pe_problems(facts, data, frozenset(), True))
        elif (found := read_macho(data)) is not None:
            list(macho_problems(found, data, target, frozenset(), True))


def test_reasons_reach_the_report(tmp_path: Path) -> None:
    """Files of one target under the name of another."""
    swapped = {TARGET: parts().files(), ARM_MAC: engine(X86_MAC), X86_MAC: engine(ARM_MAC)}
    packed = pack_desktop(tmp_path / "f", [ARM_MAC, X86_MAC], engines=swapped)
    found = verify_file(packed.path, None, QUIET).reasons
    assert set(found) == {"macho-wrong-machine", "macho-no-signature"}
    (tmp_path / "e").write_bytes(b"MZ opencoti-0.10.3-c3")
    broken = {TARGET: parts().files(), WINDOWS: [EngineFile("e.exe", tmp_path / "e", 0o755)]}
    packed = pack_desktop(tmp_path / "g", [WINDOWS], engines=broken)
    assert verify_file(packed.path, None, QUIET).reasons == ("pe-malformed",)


def test_a_launcher_may_need_the_system_library_only(tmp_path: Path) -> None:
    body = launcher(X86_MAC).read_bytes()
    (tmp_path / "l").write_bytes(body.replace(b"/usr/lib/libSystem.B", b"/usr/lib/libc++ABC.B"))
    launchers = {TARGET: parts().launcher, X86_MAC: tmp_path / "l"}
    engines = {TARGET: parts().files(), X86_MAC: engine(X86_MAC)}
    packed = pack(tmp_path / "f", launchers=launchers, engines=engines)
    assert verify_file(packed.path, None, QUIET).reasons == ("macho-foreign-library",)
