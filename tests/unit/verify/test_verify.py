"""verify: a good file passes; every change is found, with and without the release manifest."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from opencoti_build.cli.verify import command
from opencoti_build.digest import sha256_file
from opencoti_build.errors import CheckError, UsageError
from opencoti_build.pack import deflate, manifest
from opencoti_build.pack.bundle import add_model
from opencoti_build.pack.header import PROLOGUE_SIZE
from opencoti_build.pack.host import EngineFile, PackedFile
from opencoti_build.pack.inflate import decompress
from opencoti_build.pack.zipreader import read_entry, read_zip
from opencoti_build.verify.elf import elf_problems, read_elf
from opencoti_build.verify.report import Report
from opencoti_build.verify.single import verify_file
from tests.lib.single_file import QUIET, TARGET, compile_c, outer_manifest, pack, parts, write_outer

CHANGES, CUTS, APPENDS = 2000, 120, 60


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedFile:
    return pack(tmp_path_factory.mktemp("verify") / "f.llamafile")


@pytest.fixture
def copy(packed: PackedFile, tmp_path: Path) -> Path:
    return Path(shutil.copy(packed.path, tmp_path / packed.path.name))


def reasons(path: Path, manifest: dict[str, object] | None = None) -> tuple[str, ...]:
    return verify_file(path, manifest, QUIET).reasons


def test_a_good_file_passes(packed: PackedFile) -> None:
    report = verify_file(packed.path, outer_manifest(packed), QUIET)
    assert report.reasons == ()
    assert not [finding for finding in report.findings if finding.skipped]
    assert (report.sha256, report.size) == (packed.sha256, packed.size)


def test_every_random_change_is_found(packed: PackedFile, copy: Path) -> None:
    """Single bytes anywhere; each is found by the release manifest and also without it."""
    data, chance = packed.path.read_bytes(), random.Random(2)
    outer = outer_manifest(packed)
    missed, alone = [], []
    with copy.open("r+b", buffering=0) as stream:
        for count in range(CHANGES):
            at = chance.randrange(len(data))
            new = (data[at] + chance.randrange(1, 256)) & 255
            os.pwrite(stream.fileno(), bytes([new]), at)
            report = verify_file(copy, outer, QUIET)
            if "release-sha256-mismatch" not in report.reasons:
                missed.append((at, new))
            if set(report.reasons) <= {"release-sha256-mismatch", "release-entry-mismatch"}:
                alone.append((at, new))
            os.pwrite(stream.fileno(), data[at : at + 1], at)
            assert count or not missed
    assert missed == [] and alone == []
    assert reasons(copy, outer) == ()


def test_every_byte_that_is_not_data_is_found_without_a_manifest(
    packed: PackedFile, copy: Path
) -> None:
    """Prologue, local headers, directory, end record: each byte, one bit changed."""
    data, chance = packed.path.read_bytes(), random.Random(3)
    layout = read_zip(data)
    places = list(range(layout.directory_offset, len(data)))
    for entry in layout.entries:
        places += range(entry.header_offset, min(entry.data_offset, entry.header_offset + 90))
    missed = []
    with copy.open("r+b", buffering=0) as stream:
        prologue = chance.sample(range(PROLOGUE_SIZE), 200)
        for at in [*prologue, *places]:
            os.pwrite(stream.fileno(), bytes([data[at] ^ 1 << chance.randrange(8)]), at)
            if verify_file(copy, None, QUIET).ok:
                missed.append(at)
            os.pwrite(stream.fileno(), data[at : at + 1], at)
    assert missed == []


def test_every_cut_and_append_is_found(packed: PackedFile, copy: Path) -> None:
    data, chance = packed.path.read_bytes(), random.Random(4)
    outer = outer_manifest(packed)
    cuts = [0, 1, 21, 22, 4096, len(data) - 1, len(data) - 22]
    cuts += [chance.randrange(len(data)) for _ in range(CUTS)]
    for length in cuts:
        copy.write_bytes(data[:length])
        assert "release-size-mismatch" in reasons(copy, outer)
        assert reasons(copy)
    for _ in range(APPENDS):
        tail = bytes(chance.randrange(256) for _ in range(chance.choice([1, 2, 22, 100, 70000])))
        copy.write_bytes(data + tail)
        assert "release-size-mismatch" in reasons(copy, outer)
        assert reasons(copy) == ("zip-trailing-bytes",) or len(tail) > 65000
        copy.write_bytes(tail[:50] + data)
        assert reasons(copy)
    copy.write_bytes(data + data[read_zip(data).directory_offset :])
    assert reasons(copy)


def edited(out: Path, **changes: object) -> Report:
    return verify_file(pack(out, **changes).path, None, QUIET)  # type: ignore[arg-type]


def test_manifest_that_disagrees(tmp_path: Path) -> None:
    row = {"file": "0006-one.patch", "sha256": "0" * 64}
    report = edited(tmp_path / "a", manifest={"patches": [row]})
    assert report.reasons == ("patch-list-mismatch",)
    assert edited(tmp_path / "b", manifest=None).reasons == (
        "manifest-missing", "script-no-version"
    )[:1]  # fmt: skip
    meta = [("META/manifest.json", b"{}")]
    assert edited(tmp_path / "c", manifest=None, meta=meta).reasons[0] == "manifest-malformed"
    inner = {"format": 1, "version": "0.10.3", "tag": "c3"}
    gone = {"name": "META/x", "sha256": "0" * 64, "size": 1}
    for files, expected in (([], "entry-not-listed"), ([gone], "entry-not-listed")):
        meta = [("META/manifest.json", json.dumps({**inner, "files": files}).encode())]
        assert expected in edited(tmp_path / "d", manifest=None, meta=meta).reasons


def test_changed_inside_with_right_crc(tmp_path: Path) -> None:
    """A forger who repacks: the sha256 in the inner manifest and INDEX still disagree."""
    packed = pack(tmp_path / "f")
    text = packed.path.read_bytes()
    at = text.index(b'"sha256": "') + len(b'"sha256": "')
    forged = bytearray(text)
    forged[at] = ord("0") if forged[at] != ord("0") else ord("1")
    layout = read_zip(text)
    entry = layout.find("META/manifest.json")
    assert entry is not None
    crc = zlib.crc32(forged[entry.data_offset : entry.end]).to_bytes(4, "little")
    forged[entry.header_offset + 14 : entry.header_offset + 18] = crc
    central = text.rindex(b"META/manifest.json") - 46
    forged[central + 16 : central + 20] = crc
    (tmp_path / "g").write_bytes(forged)
    found = reasons(tmp_path / "g")
    assert found and set(found) <= {"entry-sha256-mismatch", "patch-list-mismatch"}
    other = verify_file(tmp_path / "g", outer_manifest(packed), QUIET)
    assert "release-not-listed" in other.reasons


def test_bits_after_a_streams_end(tmp_path: Path) -> None:
    """They change nothing of the content: the sum of the stream finds them."""
    for count in range(40):
        (tmp_path / "more").write_bytes(b"more" * 50 + bytes(range(count)))
        packed = pack(tmp_path / "f", EngineFile("more", tmp_path / "more"))
        data = bytearray(packed.path.read_bytes())
        entry = read_zip(bytes(data)).find("engine/x86_64-linux/more")
        assert entry is not None and entry.packed_size is not None
        content = read_entry(bytes(data), entry)
        data[entry.end - 1] ^= 0x80
        if decompress(bytes(data[entry.data_offset : entry.end]), entry.size) == content:
            break
    else:
        raise AssertionError("no stream ends inside a byte")
    packed.path.write_bytes(data)
    assert reasons(packed.path) == ("entry-packed-mismatch",)


BAD_STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "byte after the end": lambda data: good_stream(data) + b"\0",
    "second stream": lambda data: good_stream(data) * 2,
    "cut off": lambda data: good_stream(data)[:-1],
    "too short": lambda data: good_stream(data[:-1]),
    "too long": lambda data: good_stream(data + b"x"),
    "no stream": lambda data: b"\7" * 9,
    "empty": lambda data: b"",
}
good_stream = deflate.compress


@pytest.mark.parametrize("kind", BAD_STREAMS)
def test_streams_of_a_forger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """All sums in headers and manifests are right."""
    monkeypatch.setattr(deflate, "compress", BAD_STREAMS[kind])
    packed = pack(tmp_path / "f")
    for outer in (None, outer_manifest(packed)):
        assert reasons(packed.path, outer)[0] == "entry-stream-damaged"


def test_the_sum_of_the_stream_must_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bare(entry: manifest.Listed) -> dict[str, object]:
        row = manifest_row(entry)
        return {key: value for key, value in row.items() if not key.startswith("packed")}

    manifest_row = manifest.entry_row
    monkeypatch.setattr(manifest, "entry_row", bare)
    assert edited(tmp_path / "f").reasons == ("entry-packed-mismatch",)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = good_stream(bytes(300_000_000))
    monkeypatch.setattr(deflate, "compress", lambda data: bomb)
    (tmp_path / "big").write_bytes(bytes(400_000))
    files = [EngineFile("opencoti-engine", tmp_path / "big", 0o755)]
    packed = pack(tmp_path / "f", engines={TARGET: files})
    tracemalloc.start()
    assert reasons(packed.path)[0] == "entry-stream-damaged"
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-Wl,-rpath,/opt/lib"], "elf-run-path"),
        (["foreign.so"], "elf-foreign-library"),
        (["-DBUILD_PATH"], "elf-build-path"),
    ],
)
def test_bad_programs(tmp_path: Path, flags: list[str], expected: str) -> None:
    source = (
        "#include <stdio.h>\nint main(void) {\n#ifdef BUILD_PATH\n"
        'puts("/home/someone/llama.cpp/src/x.cpp");\n#endif\n'
        'return puts("opencoti-0.10.3-c3"); }\n'
    )
    (tmp_path / "e.c").write_text(source)
    if "foreign.so" in flags:
        (tmp_path / "o.c").write_text("int o(void) { return 1; }\n")
        compile_c(tmp_path, "-shared", "-fPIC", "-Wl,-soname,foreign.so", "-o", "foreign.so", "o.c")
        flags = ["-Wl,--no-as-needed", *flags]
    compile_c(tmp_path, "e.c", *flags, "-o", "e")
    assert engine_reasons(tmp_path, (tmp_path / "e").read_bytes()) == (expected,)


def engine_reasons(folder: Path, body: bytes) -> tuple[str, ...]:
    """What verify says of a file whose engine is the program ``body``."""
    (folder / "engine").write_bytes(body)
    files = [EngineFile("opencoti-engine", folder / "engine", 0o755), *parts().files()[1:]]
    return edited(folder / "f", engines={TARGET: files}).reasons


def dynamic_entry(body: bytes, name: str) -> int:
    """The offset of a dynamic section entry in the ELF file ``body``."""
    from elftools.elf.elffile import ELFFile

    for segment in ELFFile(io.BytesIO(body)).iter_segments("PT_DYNAMIC"):
        for count, tag in enumerate(segment.iter_tags()):
            if tag.entry.d_tag == name:
                return int(segment["p_offset"]) + 16 * count
    raise AssertionError(f"no {name}")


def test_edited_programs(tmp_path: Path) -> None:
    """Headers of a good engine, changed one by one (ELF64: e_machine at 18, p_flags at 4)."""
    good = parts().engine.read_bytes()
    assert engine_reasons(tmp_path, good) == ()
    arm = good[:18] + (183).to_bytes(2, "little") + good[20:]
    assert engine_reasons(tmp_path, arm) == ("elf-wrong-machine",)
    newer = good.replace(b"GLIBC_2.2.5", b"GLIBC_3.2.5")
    assert engine_reasons(tmp_path, newer) == ("elf-glibc-too-new",)
    stack = good.index(bytes.fromhex("51e57464"))
    for flags, expected in ((6, ()), (7, ("elf-executable-stack",))):
        changed = good[: stack + 4] + bytes([flags]) + good[stack + 5 :]
        assert engine_reasons(tmp_path, changed) == expected
    gone = good[:stack] + bytes(4) + good[stack + 4 :]
    assert engine_reasons(tmp_path, gone) == ("elf-executable-stack",)
    run_path = dynamic_entry(good, "DT_RUNPATH")
    textrel = good[:run_path] + (22).to_bytes(8, "little") + good[run_path + 8 :]
    assert engine_reasons(tmp_path, textrel) == ("elf-text-relocations",)
    no_sections = good[:40] + bytes(8) + good[48:60] + bytes(4) + good[64:]
    assert engine_reasons(tmp_path, no_sections) == ("elf-glibc-unknown",)
    for length in (4, 63, 64, 200, len(good) - 1):
        found = engine_reasons(tmp_path, good[:length])
        assert "elf-malformed" in found or "version-string-missing" in found or length > 200


def test_damaged_programs_never_crash_the_checks() -> None:
    good, chance = parts().engine.read_bytes(), random.Random(6)
    for _ in range(300):
        body = bytearray(good)
        for _ in range(chance.choice([1, 3, 30])):
            at = chance.choice([chance.randrange(64), chance.randrange(len(body))])
            body[at] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])
        facts = read_elf(bytes(body))
        if facts is not None:
            list(elf_problems(facts, bytes(body), TARGET, frozenset()))


def test_not_elf_and_wrong_version(tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(b"opencoti-0.10.3-c3")
    files = [EngineFile("opencoti-engine", tmp_path / "e", 0o755)]
    assert edited(tmp_path / "a", engines={TARGET: files}).reasons == ("elf-malformed",)
    assert edited(tmp_path / "b", tag="c4").reasons == ("version-string-missing",)


def test_launcher_must_be_static(tmp_path: Path) -> None:
    report = edited(tmp_path / "a", launchers={TARGET: parts().engine})
    assert "elf-foreign-library" in report.reasons
    assert edited(tmp_path / "b", launchers={}).reasons == ("launcher-missing",)


def test_bundle_passes_and_says_what_is_not_covered(packed: PackedFile, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUFweights")
    bundle = add_model(packed.path, model, tmp_path / "b", "...\n")
    report = verify_file(bundle.path, None, QUIET)
    assert report.ok
    note = next(finding.message for finding in report.findings if finding.check == "entries")
    assert "m.gguf" in note and ".args" in note


def test_large_file_is_hashed_in_parallel(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF" + os.urandom(9 << 20))
    bundle = add_model(pack(tmp_path / "h").path, model, tmp_path / "b")
    report = verify_file(bundle.path, None, QUIET)
    assert report.ok and report.sha256 == sha256_file(bundle.path)
    with bundle.path.open("r+b") as stream:
        stream.seek(5 << 20)
        byte = stream.read(1)
        stream.seek(5 << 20)
        stream.write(bytes([byte[0] ^ 1]))
    assert reasons(bundle.path) == ("entry-crc-mismatch",)


def test_command(packed: PackedFile, copy: Path) -> None:
    write_outer(PackedFile(copy, packed.sha256, packed.size, packed.entries))
    run = CliRunner()
    good = run.invoke(command, [str(copy), "--json", "--quiet"], catch_exceptions=False)
    assert good.exit_code == 0
    assert json.loads(good.stdout)["ok"] is True
    copy.write_bytes(packed.path.read_bytes()[:-1])
    bad = run.invoke(command, [str(copy)])
    assert isinstance(bad.exception, CheckError) and bad.exception.reason == "verify-failed"
    assert "[zip-no-end-record]" in bad.output
    (copy.parent / "MANIFEST.json").write_text("[]")
    broken = run.invoke(command, [str(copy)])
    assert isinstance(broken.exception, UsageError)
    (copy.parent / "MANIFEST.json").write_text('{"artifacts": []}')
    copy.write_bytes(packed.path.read_bytes())
    alone = run.invoke(command, [str(copy)], catch_exceptions=False)
    assert alone.exit_code == 0 and "does not list" in alone.output
