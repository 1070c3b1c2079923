"""The program itself: exit codes, errors on stderr, a fast --help."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from opencoti_build.cli.main import COMMANDS, main, render_error
from opencoti_build.errors import BuildError, OpencotiError, PackError, SeriesError, SourceError


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opencoti_build.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_help_names_every_command_without_importing_any() -> None:
    code = "import sys; from opencoti_build.cli.main import main\n"
    code += "try: main(['--help'])\nexcept SystemExit: pass\n"
    code += "heavy = {'pygit2', 'jinja2', 'requests', 'rich', 'huggingface_hub', 'jsonschema'}\n"
    code += "print('loaded:', sorted(heavy & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "loaded: []" in done.stdout
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert "Usage:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code"),
    [(["--no-such"], 2), (["nonsense"], 2), (["artifact"], 2), (["artifact", "--tag", "a/b"], 2)],
)
def test_usage_errors_exit_2(args: list[str], code: int) -> None:
    done = run(*args)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("kind", "code"), [(SourceError, 3), (SeriesError, 4), (BuildError, 5), (PackError, 6)]
)
def test_exit_codes_of_the_stages(
    kind: type[OpencotiError], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import opencoti_build.cli.main as module

    def fail(**_: object) -> None:
        raise kind("some-reason", "what happened")

    monkeypatch.setattr(module.cli, "main", fail)
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == code


def test_an_error_shows_reason_facts_and_hint() -> None:
    error = SourceError("hash-mismatch", "wrong", hint="try again", context={"expected": "aa"})
    assert render_error(error).splitlines() == [
        "error: wrong [hash-mismatch]",
        "  expected: aa",
        "hint: try again",
    ]


def test_a_bug_of_ours_exits_70(monkeypatch: pytest.MonkeyPatch) -> None:
    import opencoti_build.cli.main as module

    def fail(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module.cli, "main", fail)
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 70


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "disk-full"), (errno.EACCES, "system-error")]
)
def test_what_the_system_refuses_is_no_bug(
    number: int, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import opencoti_build.cli.main as module

    def fail(**_: object) -> None:
        raise OSError(number, "no", "/some/file")

    monkeypatch.setattr(module.cli, "main", fail)
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert f"[{reason}]" in capsys.readouterr().err
