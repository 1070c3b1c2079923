"""Models in a single file: the command, default arguments, limits of size, refusals."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from opencoti_build.cli.bundle import command
from opencoti_build.digest import sha256_file
from opencoti_build.errors import PackError
from opencoti_build.pack.append import layout_of
from opencoti_build.pack.bundle import add_model, args_text
from opencoti_build.pack.limits import WINDOWS_LIMIT, check_size
from opencoti_build.pack.zipformat import ALIGNMENT
from opencoti_build.pack.zipreader import read_zip
from tests.lib.single_file import pack


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("host") / "f.llamafile").path


def model_of(folder: Path, size: int, name: str = "m.gguf") -> Path:
    """A sparse model of ``size`` bytes."""
    path = folder / name
    with path.open("wb") as stream:
        stream.write(b"GGUF")
        stream.truncate(size)
    return path


def reason(function: object, *args: object, **options: object) -> str:
    with pytest.raises(PackError) as caught:
        function(*args, **options)  # type: ignore[operator]
    return caught.value.reason


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "...\n"),
        ("-c 4096", "-c\n4096\n...\n"),
        ("-p 'two words' ... --x", "-p\ntwo words\n...\n--x\n"),
        (r'--sys "a \"b\" ü"', '--sys\na "b" ü\n...\n'),
    ],
)
def test_arguments_become_lines(words: str, expected: str) -> None:
    assert args_text(words) == expected


@pytest.mark.parametrize("words", ["'", "''", "' '", "'a\nb'", "... ...", "'a\rb'"])
def test_arguments_that_no_line_can_hold(words: str) -> None:
    assert reason(args_text, words) == "pack-bad-args"


def test_command(host: Path, tmp_path: Path) -> None:
    model, out = model_of(tmp_path, 300_000), tmp_path / "out.llamafile"
    run = CliRunner()
    options = [str(host), "-m", str(model), "-o", str(out), "--args", "-c 512", "--quiet"]
    done = run.invoke(command, [*options, "--json", "--sha256"], catch_exceptions=False)
    facts = json.loads(done.stdout)
    assert (facts["size"], facts["sha256"]) == (out.stat().st_size, sha256_file(out))
    assert out.stat().st_mode & 0o777 == 0o755
    data = out.read_bytes()
    layout = read_zip(data)
    entry, args = layout.find("m.gguf"), layout.find(".args")
    assert entry is not None and args is not None
    assert entry.data_offset % ALIGNMENT == 0
    assert data[entry.data_offset : entry.end] == model.read_bytes()
    assert data[args.data_offset : args.end] == b"-c\n512\n...\n"
    plain = run.invoke(command, [*options[:-1], "--quiet"], catch_exceptions=False)
    assert str(out) in plain.stdout


def test_the_host_is_the_beginning(host: Path, tmp_path: Path) -> None:
    out = add_model(host, model_of(tmp_path, 100), tmp_path / "b").path
    size = layout_of(host).directory_offset
    assert out.read_bytes()[:size] == host.read_bytes()[:size]


def test_refusals(host: Path, tmp_path: Path) -> None:
    model = model_of(tmp_path, 100)
    bundle = add_model(host, model, tmp_path / "b.llamafile").path
    before = sorted(tmp_path.iterdir())
    assert reason(add_model, bundle, model, tmp_path / "c") == "pack-has-model"
    other = model_of(tmp_path, 100, "other.gguf")
    assert reason(add_model, bundle, other, tmp_path / "c") == "pack-has-model"
    (tmp_path / "not.gguf").write_bytes(b"GGML1234")
    assert reason(add_model, host, tmp_path / "not.gguf", tmp_path / "c") == "pack-bad-model"
    shutil.copy(model, tmp_path / "model.bin")
    assert reason(add_model, host, tmp_path / "model.bin", tmp_path / "c") == "pack-bad-model"
    own = Path(shutil.copy(host, tmp_path / "own"))
    assert reason(add_model, own, model, own) == "pack-output-is-input"
    assert reason(add_model, own, model, model) == "pack-output-is-input"
    (tmp_path / "link").symlink_to(own)
    assert reason(add_model, own, model, tmp_path / "link") == "pack-output-is-input"
    cut = tmp_path / "cut"
    cut.write_bytes(host.read_bytes()[:-1])
    assert reason(add_model, cut, model, tmp_path / "c") == "zip-no-end-record"
    made = {path.name for path in set(tmp_path.iterdir()) - set(before)}
    assert made == {"other.gguf", "not.gguf", "model.bin", "own", "link", "cut"}


def test_the_limit_itself() -> None:
    for name in ("a.exe", "b.EXE", "x.llamafile.exe"):
        check_size(name, WINDOWS_LIMIT - 1)
        for size in (WINDOWS_LIMIT, WINDOWS_LIMIT + 1):
            assert reason(check_size, name, size) == "pack-too-large-for-windows"
    check_size("a.llamafile", WINDOWS_LIMIT + 1)


def exact(host: Path, folder: Path, size: int) -> Path:
    """A model with which the bundle has exactly ``size`` bytes."""
    probe = add_model(host, model_of(folder, 1000, "p.gguf"), folder / "probe")
    return model_of(folder, 1000 + size - probe.size, "m.gguf")


@pytest.mark.parametrize("more", [0, 1])
def test_four_gib_and_more_get_no_windows_name(host: Path, tmp_path: Path, more: int) -> None:
    model = exact(host, tmp_path, WINDOWS_LIMIT + more)
    out = tmp_path / "b.llamafile.exe"
    assert reason(add_model, host, model, out) == "pack-too-large-for-windows"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".b", "b"))]


def test_one_byte_less_gets_a_windows_name(host: Path, tmp_path: Path) -> None:
    """The largest that Windows starts. Holes are not copied: the file stays sparse."""
    model = exact(host, tmp_path, WINDOWS_LIMIT - 1)
    bundle = add_model(host, model, tmp_path / "b.exe")
    assert bundle.size == bundle.path.stat().st_size == WINDOWS_LIMIT - 1
    assert bundle.path.stat().st_blocks * 512 < 64 << 20


def test_past_four_gib_it_still_starts(host: Path, tmp_path: Path) -> None:
    """zip64 in writer, reader and launcher: the default arguments lie behind the weights."""
    model = model_of(tmp_path, (4 << 30) + 4096)
    bundle = add_model(host, model, tmp_path / "b.llamafile", "-m\n/zip/m.gguf\n...\n")
    with bundle.path.open("rb") as stream:
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            layout = read_zip(data)
    entry, args = layout.find("m.gguf"), layout.find(".args")
    assert entry is not None and entry.size == (4 << 30) + 4096
    assert args is not None and args.header_offset > 4 << 30
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(["sh", bundle.path, "x"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<-m></zip/m.gguf><x>" in done.stdout
