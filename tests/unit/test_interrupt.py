"""What runs when a command is told to end: the clean-up of Ctrl-C, and nothing stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opencoti_build.interrupt import STATUS, Terminated, heed_sigterm

# A gate's server, as far as starting and ending it goes; it answers once and then waits.
SERVER = """\
import http.server, os, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")
port = int(sys.argv[sys.argv.index("--port") + 1])
pathlib.Path("pid").write_text(str(os.getpid()))
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
COMMAND = """\
import signal, sys, time
from pathlib import Path
import click
from opencoti_build.cli import main as program
from opencoti_build.gates.server import running
from opencoti_build.gates.subject import Subject

@click.command()
def command():
    folder = Path(sys.argv[1])
    # A shell starts background jobs with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    subject = Subject("base", folder, ("server",), "", "")
    with running(subject, [], folder / "log"):
        print("runs", flush=True)
        time.sleep(600)

program.cli.get_command = lambda context, name: command
program.main(["verify"])
"""


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGTERM, STATUS), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_a_told_command_takes_its_server_along(
    tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    server = tmp_path / "server"
    server.write_text(f"#!{sys.executable}\n{SERVER}")
    server.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        pid = int((tmp_path / "pid").read_text())
        assert Path(f"/proc/{pid}").exists()
        process.send_signal(sent)
        assert process.wait(60) == status
    assert not Path(f"/proc/{pid}").exists()


def test_a_handler_of_others_is_left_alone() -> None:
    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        heed_sigterm()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        heed_sigterm()
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, old)
