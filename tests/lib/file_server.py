"""A real HTTP server on localhost for files, package index pages and planned misbehaviour."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FileServer:
    """Serves ``files`` (path -> bytes).

    ``drops``: for the next answers with a body, how many bytes of it to send before the
    connection is cut (one number each). ``statuses``: the next answers are these codes instead.
    ``ranges`` False: Range is ignored. ``length`` False: no Content-Length is sent.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    drops: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    ranges: bool = True
    length: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # (path, Range)
    sent: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add_package(self, package: str, filename: str, data: bytes, *, digest: bool = True) -> None:
        """Put a file on the index at ``/simple/``."""
        self.files[f"/files/{filename}"] = data
        mark = f"#sha256={hashlib.sha256(data).hexdigest()}" if digest else ""
        page = f'<!DOCTYPE html><html><body><a href="/files/{filename}{mark}">{filename}</a></body>'
        self.files[f"/simple/{package}/"] = page.encode()

    @property
    def index(self) -> str:
        return f"{self.url}/simple/"

    def asked(self, path: str) -> list[str | None]:
        """The Range headers of the requests for ``path``, in order."""
        return [value for name, value in self.requests if name == path]


@contextmanager
def serving() -> Iterator[FileServer]:
    """A running server on a free port."""
    state = FileServer()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            with lock:
                state.requests.append((self.path, wanted))
                status = state.statuses.pop(0) if state.statuses else 0
            data = state.files.get(self.path)
            if status or data is None:
                self.send_response(status or 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = 0
            if wanted and state.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            html = data.startswith(b"<!DOCTYPE")
            self.send_header("Content-Type", "text/html" if html else "application/octet-stream")
            if state.length:
                self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            body = data[start:]
            with lock:
                if not html and state.drops:
                    body = body[: state.drops.pop(0)]
            try:
                self.wfile.write(body)
                state.sent += len(body)
            except ConnectionError:
                pass
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
