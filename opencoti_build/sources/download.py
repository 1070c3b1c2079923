"""Downloads one archive into the cache: resumed, checked, atomic, one process at a time."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from opencoti_build.digest import sha256_file
from opencoti_build.errors import SourceError
from opencoti_build.sources.context import FetchContext, disk_errors, disk_full
from opencoti_build.sources.http import make_session, public, reason
from opencoti_build.sources.pins import Archive
from opencoti_build.ui import Task, Unit

if TYPE_CHECKING:
    import requests

_CHUNK = 1 << 16
_MOST_RESUMES = 100
_REFUSED = (400, 401, 403, 404, 405, 410, 451)


class _Interrupted(Exception):
    """The stream broke; the bytes so far are kept."""


def download(
    archive: Archive,
    find: Callable[[requests.Session], tuple[str, dict[str, str]]],
    context: FetchContext,
) -> Path:
    """The archive's checked file in the cache; ``find`` gives its URL and request headers.

    Nothing is asked when the file is here. Raises SourceError ``offline-missing``,
    ``hash-mismatch``, ``size-mismatch``, ``download-refused``, ``download-failed``,
    ``disk-full``, or what ``find`` raises.
    """
    target = context.blob(archive.sha256, archive.filename)
    with disk_errors(context.cache.root):
        context.cache.downloads.mkdir(parents=True, exist_ok=True)
        with context.locked(f"blob-{archive.sha256}", archive.filename):
            if cached(archive, context):
                return target
            if context.offline:
                raise offline_missing([archive.filename])
            session = make_session(context.retry)
            url, headers = find(session)
            _Download(archive, url, headers, session, context).run()
            return target


def cached(archive: Archive, context: FetchContext) -> Path | None:
    """The archive's file in the cache when it is there and whole; a bad one is removed."""
    target = context.blob(archive.sha256, archive.filename)
    if not target.is_file():
        return None
    if target.stat().st_size == archive.size and sha256_file(target) == archive.sha256:
        return target
    context.ui.warn(f"{target} was damaged; removed")
    target.unlink()
    return None


def publish(partial: Path, target: Path) -> None:
    """Sync ``partial`` and give it its final name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("rb+") as stream:
        os.fsync(stream.fileno())
    partial.replace(target)


def check_file(path: Path, name: str, sha256: str, size: int) -> None:
    """Raise SourceError ``size-mismatch`` or ``hash-mismatch`` unless ``path`` is as pinned."""
    if (actual_size := path.stat().st_size) != size:
        raise size_mismatch(name, size, actual_size)
    if (actual := sha256_file(path)) != sha256:
        raise hash_mismatch(name, sha256, actual)


def hash_mismatch(name: str, expected: str, actual: str) -> SourceError:
    """The error for wrong bytes (both as 64 hex digits)."""
    return SourceError(
        "hash-mismatch",
        f"{name} is not the file that the pin names",
        hint="nothing of it was kept; if the file was replaced upstream, the pin needs a review",
        context={"file": name, "expected": expected, "actual": actual},
    )


def size_mismatch(name: str, expected: int, actual: int) -> SourceError:
    """The error for a wrong length (both in bytes)."""
    return SourceError(
        "size-mismatch",
        f"{name} has not the size that the pin names",
        context={"file": name, "expected": f"{expected} bytes", "actual": f"{actual} bytes"},
    )


def offline_missing(names: list[str]) -> SourceError:
    """The error for what cannot be had without the network."""
    return SourceError(
        "offline-missing",
        "files are missing in the cache, and --offline forbids the network",
        hint="fetch once without --offline, or give a folder with the files as --mirror",
        context={"missing": ", ".join(names)},
    )


class _Download:
    def __init__(
        self,
        archive: Archive,
        url: str,
        headers: dict[str, str],
        session: requests.Session,
        context: FetchContext,
    ) -> None:
        self._archive, self._url, self._headers = archive, url, headers
        self._session, self._context = session, context
        self._partial = context.partial(archive.sha256)

    def run(self) -> None:
        archive = self._archive
        resumed = self._have()
        missing = archive.size - min(resumed, archive.size)
        if shutil.disk_usage(self._partial.parent).free < missing:
            raise disk_full(self._partial.parent, missing)
        label = f"download {archive.filename}"
        while True:
            with self._context.ui.task(label, archive.size, Unit.BYTES) as task:
                self._complete(task)
            try:
                check_file(self._partial, archive.filename, archive.sha256, archive.size)
                break
            except SourceError:
                self._partial.unlink()
                if not resumed:
                    raise
                # The bytes of an earlier run may be to blame (a crash, another upstream file).
                self._context.ui.warn(f"{archive.filename}: resumed file is wrong, starting over")
                resumed = 0
        publish(self._partial, self._context.blob(archive.sha256, archive.filename))

    def _have(self) -> int:
        return self._partial.stat().st_size if self._partial.exists() else 0

    def _complete(self, task: Task) -> None:
        retry, failures, resumes = self._context.retry, 0, 0
        while (have := self._have()) != self._archive.size:
            try:
                self._append(have if have < self._archive.size else 0, task)
            except _Interrupted as error:
                failures = 1 if self._have() > have else failures + 1
                resumes += 1
                if failures >= retry.attempts or resumes >= _MOST_RESUMES:
                    raise self._failed("download-failed", str(error)) from error
                wait = retry.wait(failures)
                self._context.ui.info(
                    f"{self._archive.filename}: {error}; going on in {wait:.1f} s"
                )
                time.sleep(wait)

    def _failed(self, code: str, why: str) -> SourceError:
        return SourceError(
            code,
            f"cannot download {self._archive.filename}: {why}",
            hint="run the same command again to go on where it stopped",
            context={"url": public(self._url), "why": why},
        )

    def _append(self, start: int, task: Task) -> None:
        """Ask for the bytes from ``start`` on and append them to the partial file."""
        import requests

        headers = dict(self._headers)
        if start:
            headers["Range"] = f"bytes={start}-"
        timeout = (min(15.0, self._context.retry.timeout), self._context.retry.timeout)
        try:
            response = self._session.get(self._url, headers=headers, stream=True, timeout=timeout)
        except requests.RequestException as error:
            # The session has tried again by itself.
            raise self._failed("download-failed", reason(error)) from error
        with response:
            start = self._accept(response, start)
            task.update(done=start)
            self._save(response, start, task)

    def _accept(self, response: requests.Response, start: int) -> int:
        """Where in the file the answer's body begins; raises when it is no use."""
        status = response.status_code
        if status == 206 and start:
            where = response.headers.get("Content-Range", "")
            if where.startswith(f"bytes {start}-"):
                return start
        if status in (206, 416):
            self._partial.unlink(missing_ok=True)
            raise _Interrupted("the server does not resume as asked")
        if status in _REFUSED:
            raise self._failed("download-refused", f"HTTP {status} {response.reason}")
        if status != 200:
            raise self._failed("download-failed", f"HTTP {status} {response.reason}")
        length = response.headers.get("Content-Length", "")
        if length.isdigit() and int(length) != self._archive.size:
            self._partial.unlink(missing_ok=True)
            raise size_mismatch(self._archive.filename, self._archive.size, int(length))
        return 0

    def _save(self, response: requests.Response, start: int, task: Task) -> None:
        import urllib3

        have = start
        with self._partial.open("ab", buffering=0) as file:
            file.truncate(start)
            try:
                for chunk in response.raw.stream(_CHUNK, decode_content=False):
                    have += len(chunk)
                    if have > self._archive.size:
                        self._partial.unlink()
                        raise size_mismatch(self._archive.filename, self._archive.size, have)
                    file.write(chunk)
                    task.advance(len(chunk))
            except (urllib3.exceptions.HTTPError, ConnectionError, TimeoutError) as error:
                raise _Interrupted("the connection broke") from error
        if have < self._archive.size:
            raise _Interrupted("the connection ended early")
