"""Compiler output becomes file, line, owning patch and the end of the log."""

from __future__ import annotations

from pathlib import Path

from opencoti_build.build.diagnostics import LOG_TAIL_LINES, build_failure, find_errors

LOG = """\
[1/9] Building CXX object x.o
FAILED: x.o
{work}/src/a.cpp:12:3: error: use of undeclared identifier 'x'
   12 |   x;
../../work/src/a.cpp:12:3: error: use of undeclared identifier 'x'
../../work/src/b.h:7:10: fatal error: 'none.h' file not found
src/c.cpp:1:1: warning: unused
CMake Error at tools/CMakeLists.txt:4 (add_library):
ninja: build stopped: subcommand failed.
"""


def test_errors_are_found_once_each(tmp_path: Path) -> None:
    work = tmp_path / "work"
    errors = find_errors(LOG.format(work=work), work)
    assert [(item.file, item.line) for item in errors] == [
        ("src/a.cpp", 12),
        ("src/b.h", 7),
        ("tools/CMakeLists.txt", 4),
    ]
    assert errors[1].text == "'none.h' file not found"


def test_the_owner_and_the_end_of_the_log_are_shown(tmp_path: Path) -> None:
    work, log = tmp_path / "work", tmp_path / "log"
    noise = "".join(f"noise {number}\n" for number in range(500))
    log.write_text(noise + LOG.format(work=work))
    owners = {("src/a.cpp", 12): "0008-thread-pool"}
    error = build_failure("compile-failed", "no", log, work, lambda f, n: owners.get((f, n)))
    assert error.reason == "compile-failed"
    assert error.exit_code == 5
    assert "patch 0008-thread-pool" in str(error.context["error 1"])
    assert "upstream line" in str(error.context["error 2"])
    tail = str(error.context["last lines"]).strip().splitlines()
    assert len(tail) == LOG_TAIL_LINES
    assert "noise 1\n" not in str(error.context["last lines"])
    assert error.context["log"] == log
