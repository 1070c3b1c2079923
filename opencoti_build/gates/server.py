"""A server of a subject: start, ask, look at its CPU time and memory, stop. Standard library."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opencoti_build.errors import CheckError
from opencoti_build.gates.probe_run import clean_environment
from opencoti_build.gates.subject import Subject

_START_SECONDS = 300.0
_STOP_SECONDS = 30.0


@dataclass
class Server:
    """A running server of ``subject``; it listens on loopback."""

    subject: Subject
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def ask(self, path: str, body: Any = None, timeout: float = 600) -> tuple[int, Any]:
        """GET ``path``, or POST ``body`` as JSON; the status and the parsed answer."""
        return ask(self.port, path, body, timeout)

    def cpu_seconds(self) -> float:
        """Seconds that all its threads spent on a CPU (Linux only, else 0)."""
        total = 0
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    total += int((thread / "schedstat").read_text().split()[0])
        return total / 1e9

    def memory_bytes(self) -> int:
        """Memory of its own that it holds now, without mapped files (Linux only, else 0)."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
        return 0

    def log_text(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace")


def ask(
    port: int,
    path: str,
    body: Any = None,
    timeout: float = 600,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """GET ``path`` of a server on loopback, or POST ``body`` as JSON; the status and the answer.

    An answer with an error status that is not JSON is given as text. Raises OSError when nothing
    answers, and ValueError when another answer is not JSON.
    """
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read()
        try:
            return error.code, json.loads(text)
        except ValueError:
            return error.code, text.decode("utf-8", "replace")


def free_port() -> int:
    """A TCP port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(subject: Subject, args: Sequence[str], log: Path) -> Iterator[Server]:
    """A server with ``args`` until the block ends. Raises CheckError ``gate-server-failed``."""
    port = free_port()
    # -fit off: parameters must not depend on the memory that happens to be free.
    command = [*subject.server_command(), "-fit", "off", *args]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=clean_environment(),
            cwd=log.parent,
            start_new_session=True,
        )
    server = Server(subject, port, process, log)
    try:
        _wait_for_health(server, command)
        yield server
    finally:
        stop(process)


def _wait_for_health(server: Server, command: Sequence[str]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError):
            if server.ask("/health", timeout=10)[0] == 200:
                return
        if server.process.poll() is not None or time.monotonic() > deadline:
            lines = [line for line in server.log_text().splitlines() if line.strip()]
            raise CheckError(
                "gate-server-failed",
                f"the server of {server.subject.name} does not start",
                context={
                    "command": " ".join(command),
                    "status": server.process.poll(),
                    "last lines": "\n    " + "\n    ".join(lines[-8:]),
                },
            )
        time.sleep(0.05)


def stop(process: subprocess.Popen[bytes], seconds: float = _STOP_SECONDS) -> None:
    """End ``process`` and its group: it is asked to, and killed after ``seconds``."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
