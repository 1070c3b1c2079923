"""Starts a server program, waits for its health, talks to it, stops it."""

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
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=data,
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

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


def free_port() -> int:
    """A TCP port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
