"""The reference toolchain from pins to a verified release, on a stand-in for upstream."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opencoti_build.cli.main import main
from opencoti_build.pack.bundle import add_model
from opencoti_build.paths import find_project
from opencoti_build.ui import Ui
from opencoti_build.verify.outer import load_outer
from opencoti_build.verify.single import verify_file
from tests.lib.ape import tiny_ape
from tests.lib.file_server import serving
from tests.lib.source_archives import git
from tests.lib.upstream import BASE, MAKEFILE, StandIn, environment, toolchain_zip

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
SCHEMA = find_project(Path(__file__)).root / "manifests" / "schema"
QUIET = Ui(quiet=True)
ARTIFACT = ("artifact", "--tag", "c3", "--quiet", "-j", "2")
BUILD = ("build", "engine", "--tag", "c3", "--quiet", "--json")

Run = Callable[..., int]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving() as server:
        yield StandIn(tmp_path, server)


@pytest.fixture
def run(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the program in this process; the exit status."""

    def go(*arguments: str, cache: str = "cache") -> int:
        for name, value in environment(stand_in, stand_in.folder / cache).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as stop:
            main(list(arguments))
        return int(stop.value.code or 0)

    return go


def write_series(stand_in: StandIn, new: bytes = b"new\n") -> None:
    """Two patches: a changed line with a new file beside it, and a file that is no part of it."""
    maker = stand_in.series()
    text = BASE["src/llama.cpp"].replace(b"line 3\n", b"line 3, patched\n")
    maker.add(6, "one", {"src/llama.cpp": text, "src/opencoti-new.cpp": new})
    maker.add(7, "two", {"opencoti/main.cpp": b"another main\n", "src/other.h": b"h\n"})


def test_from_pins_to_a_verified_release(
    stand_in: StandIn, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write(SCHEMA)
    write_series(stand_in)
    dist = tmp_path / "dist"
    assert run(*ARTIFACT, "--out", str(dist)) == 0
    linux, windows = (
        dist / f"opencoti-llamafile-0.10.3-c3{end}"
        for end in ("-x86_64.llamafile", "-win-x86_64.llamafile.exe")
    )
    assert linux.read_bytes() == windows.read_bytes()
    done = subprocess.run(["sh", linux, "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "stand-in a b\n"

    with zipfile.ZipFile(linux) as made:
        sources = {n: made.read(n) for n in made.namelist() if n.startswith("sources/")}
        licenses = {n for n in made.namelist() if n.startswith("META/LICENSES/")}
        inner = json.loads(made.read("META/manifest.json"))
    assert b"line 3, patched\n" in sources["sources/llama.cpp.o"]
    assert sources["sources/llama.cpp.o"].endswith(b"upstream was here\n")
    assert sources["sources/opencoti-new.cpp.o"] == b"new\n"
    assert sources["sources/other.cpp.o"] == b"newer\n"
    base_tree = inner["base"]["tree"]
    assert sources["sources/build-info"].decode() == f"number 0 commit {base_tree[:9]}\n"
    assert len(sources) == 4
    names = ("cosmocc-gcc", "llama.cpp", "llamafile", "opencoti")
    assert licenses == {f"META/LICENSES/{name}.txt" for name in names}
    assert inner["start"]["kind"] == "ape" and inner["base"]["patch_root"] == "llama.cpp"

    checkout = tmp_path / "cache" / "builds" / "llamafile-cosmocc" / "llamafile"
    listed = git(checkout, "ls-tree", "-r", "--name-only", inner["workspace_tree"]).splitlines()
    assert {"llama.cpp/BUILD.mk", "llama.cpp/opencoti/main.cpp", "Makefile"} < set(listed)
    assert "llama.cpp/Makefile" not in listed
    assert not [name for name in listed if name.startswith(("o/", ".cosmocc"))]

    manifest = load_outer(dist / "MANIFEST.json")
    assert manifest["host"]["kind"] == "ape" and manifest["toolchains"][0]["name"] == "cosmocc"
    assert manifest["targets"]["x86_64-linux"] == {
        "minimum": None,
        "cpu_variants": [],
        "abi_digest": None,
        "files": [],
    }
    sums = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=dist, capture_output=True)
    assert sums.returncode == 0 and sums.stdout.count(b": OK") == 6
    for path in (linux, windows):
        report = verify_file(path, manifest, QUIET)
        assert report.reasons == ()
        found = {item.check: item.reason for item in report.findings if item.skipped}
        assert found == {
            "program macos": "ape-macos-not-examined",
            "script": "ape-script-not-compared",
            "version": "ape-version-not-named",
        }
        checks = {item.check for item in report.findings}
        assert {
            f"program {t}" for t in ("x86_64-linux", "aarch64-linux", "x86_64-windows")
        } < checks
    assert "After `make setup`" in (dist / "BUILD_INFO.md").read_text()

    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF" + bytes(100))
    bundle = add_model(linux, model, tmp_path / "bundle.llamafile", "-m\nm.gguf\n...\n")
    report = verify_file(bundle.path, None, QUIET)
    assert report.reasons == ()

    capsys.readouterr()
    assert run("plan", "--tag", "c3", "--quiet") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"source     tree {base_tree}",
        f"program cosmocc  {_key(capsys, run)}  cached",
    ]


def _key(capsys: pytest.CaptureFixture[str], run: Run) -> str:
    assert run("plan", "--tag", "c3", "--quiet", "--json") == 0
    return str(json.loads(capsys.readouterr().out)["steps"][0]["key"])[:12]


def test_two_builds_give_the_same_bytes(stand_in: StandIn, run: Run, tmp_path: Path) -> None:
    """In other folders, at another time, whatever the zip that upstream's linker makes says."""
    stand_in.write(SCHEMA)
    write_series(stand_in)
    for name in ("one", "another cache"):
        assert run(*ARTIFACT, "--out", str(tmp_path / f"dist {name}"), cache=name) == 0
    first, second = (
        {p.relative_to(d): p.read_bytes() for p in d.rglob("*") if p.is_file()}
        for d in (tmp_path / "dist one", tmp_path / "dist another cache")
    )
    assert first == second and len(first) == 7


def test_build_engine_copies_the_program(
    stand_in: StandIn, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write(SCHEMA)
    write_series(stand_in)
    out = tmp_path / "out"
    assert run(*BUILD, "--toolchain", "cosmocc", "--out", str(out)) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["target"] == "all" and row["size"] == (out / "llamafile").stat().st_size
    assert (out / "llamafile").read_bytes().startswith(tiny_ape())


def fails(run: Run, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    """The exit status and stderr of a build that fails."""
    code = run(*ARTIFACT, *more)
    return code, capsys.readouterr().err


def _broken_makefile(stand_in: StandIn, old: str, new: str) -> None:
    assert old in MAKEFILE
    stand_in.files["Makefile"] = MAKEFILE.replace(old, new).encode()


def _no_setup(stand_in: StandIn) -> None:
    _broken_makefile(stand_in, "\nsetup:", "\nprepare:")
    stand_in.files["Makefile"] = stand_in.files["Makefile"].replace(b".PHONY: setup\n", b"")


def _no_program(stand_in: StandIn) -> None:
    _broken_makefile(stand_in, "all: o/$(MODE)/llamafile/llamafile\n", "all:\n\techo nothing\n")


def _dirty(stand_in: StandIn) -> None:
    stand_in.files["patches/apply.sh"] = b"touch llama.cpp/x\n" + stand_in.files["patches/apply.sh"]


def _no_base(stand_in: StandIn) -> None:
    stand_in.files["patches/apply.sh"] = b"mv llama.cpp elsewhere\n"


def _unlocked(stand_in: StandIn) -> None:
    stand_in.locked = False


def _other_copy(stand_in: StandIn) -> None:
    stand_in.copy["src/llama.cpp"] = b"something else\n"


def _no_make(stand_in: StandIn) -> None:
    stand_in.toolchain = toolchain_zip(without="bin/make")


def _no_ape(stand_in: StandIn) -> None:
    stand_in.toolchain = toolchain_zip(program=b"\x7fELF".ljust(4096, b"\0"))


def _bad_zip(stand_in: StandIn) -> None:
    _broken_makefile(stand_in, " $^ o/build-info\n", ' $^\n\t: > $@; printf %s "MZqFpD=\'" > $@\n')


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (_unlocked, 3, "pin-not-locked"),
        (_no_make, 5, "toolchain-incomplete"),
        (_no_setup, 5, "make-target-missing"),
        (_dirty, 5, "setup-failed"),
        (_no_base, 4, "patch-root-missing"),
        (_other_copy, 4, "series-does-not-apply"),
        (_no_program, 5, "output-missing"),
        (_no_ape, 6, "pack-not-ape"),
        (_bad_zip, 6, "pack-bad-ape"),
    ],
)
def test_failures(
    stand_in: StandIn, run: Run, capsys: pytest.CaptureFixture[str],
    change: Callable[[StandIn], None], code: int, reason: str,
) -> None:  # fmt: skip
    change(stand_in)
    stand_in.write(SCHEMA)
    write_series(stand_in)
    status, err = fails(run, capsys)
    assert (status, f"[{reason}]" in err) == (code, True), err


def test_a_compiler_error_names_its_patch(
    stand_in: StandIn, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write(SCHEMA)
    write_series(stand_in, b"good\n#error no\n")
    status, err = fails(run, capsys)
    assert status == 5 and "[build-failed]" in err
    assert "src/opencoti-new.cpp:2:" in err and "(patch 0006-one)" in err


def test_targets_cannot_be_picked(
    stand_in: StandIn, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write(SCHEMA)
    write_series(stand_in)
    status, err = fails(run, capsys, "--target", "x86_64-linux")
    assert status == 2 and "[target-not-selectable]" in err


def test_plan_says_what_changed(
    stand_in: StandIn, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write(SCHEMA)
    write_series(stand_in)
    plan = ("plan", "--tag", "c3", "--quiet", "--json")
    steps = []
    for action in (lambda: None, lambda: run(*BUILD), lambda: _drop(stand_in)):
        action()
        capsys.readouterr()
        assert run(*plan) == 0
        steps += json.loads(capsys.readouterr().out)["steps"]
    assert [(step["cached"], step["changed"]) for step in steps] == [
        (False, []),
        (True, []),
        (False, ["series"]),
    ]


def _drop(stand_in: StandIn) -> None:
    (stand_in.project / "patches" / "0007-two.patch").unlink()
