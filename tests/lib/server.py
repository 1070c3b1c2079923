"""Starts a server program, waits for its health, talks to it, stops it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opencoti_build.gates.server import ask, free_port, stop


@dataclass
class Server:
    """A running server and its log file."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def request(
        self,
        path: str,
        body: Any = None,
        timeout: float = 120,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """GET ``path``, or POST ``body`` as JSON; the status and the parsed answer."""
        return ask(self.port, path, body, timeout, headers)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    log: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    cwd: Path | None = None,
) -> Iterator[Server]:
    """Run ``command`` plus host and port until the block ends; raises when it does not get well."""
    port = free_port()
    full = [*map(str, command), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            full,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
    server = Server(port, process, log)
    try:
        deadline = time.monotonic() + timeout
        while True:
            if process.poll() is not None:
                raise RuntimeError(
                    f"exit status {process.returncode}:\n{server.log_text()[-3000:]}"
                )
            with contextlib.suppress(OSError):
                if server.request("/health", timeout=5)[0] == 200:
                    break
            if time.monotonic() > deadline:
                raise RuntimeError(f"no health in {timeout} s:\n{server.log_text()[-3000:]}")
            time.sleep(0.05)
        yield server
    finally:
        stop(process, 20)
