"""What every fetch needs to know, and where its files lie in the cache."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opencoti_build.errors import SourceError
from opencoti_build.paths import Cache, locked
from opencoti_build.ui import Ui


@dataclass(frozen=True)
class Retry:
    """How to go on after a network failure. Each wait (seconds) is twice the one before."""

    attempts: int = 5  # failures in a row without one new byte
    first_wait: float = 0.5
    longest_wait: float = 20.0
    timeout: float = 60.0  # seconds without a byte

    def wait(self, failures: int) -> float:
        """Seconds to wait after that many failures in a row (from 1)."""
        return min(self.longest_wait, self.first_wait * 2.0 ** (failures - 1))


@dataclass(frozen=True)
class FetchContext:
    """One fetch: cache, messages, and which places may be asked.

    ``mirrors`` are local folders or archives, tried before any transport of the pin.
    """

    cache: Cache
    ui: Ui
    offline: bool = False
    mirrors: tuple[Path, ...] = ()
    retry: Retry = field(default_factory=Retry)

    def blob(self, sha256: str, filename: str) -> Path:
        """Where a whole, checked file lies in the cache."""
        return self.cache.downloads / sha256 / filename

    def partial(self, sha256: str) -> Path:
        """Where the first bytes of a file lie until it is whole."""
        return self.cache.downloads / f"{sha256}.partial"

    @contextlib.contextmanager
    def locked(self, name: str, what: str) -> Iterator[None]:
        """Hold the lock ``name``; say so when another process holds it for more than 1 s."""
        import threading

        text = f"{what}: another process is at it, waiting"
        timer = threading.Timer(1.0, self.ui.info, [text])
        timer.daemon = True
        timer.start()
        try:
            with locked(self.cache, name):
                timer.cancel()
                yield
        finally:
            timer.cancel()


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn the system's refusals into SourceErrors; ``folder`` is the cache or a part of it.

    Raises ``disk-full``, ``cache-not-writable`` or, for a file outside of the cache,
    ``not-readable``; other errors pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise disk_full(folder) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            if error.filename and not Path(error.filename).is_relative_to(folder):
                raise SourceError(
                    "not-readable",
                    f"cannot read {error.filename}: {error.strerror}",
                    context={"path": error.filename},
                ) from error
            raise SourceError(
                "cache-not-writable",
                f"cannot write to the cache: {error.strerror}",
                hint="set OPENCOTI_BUILD_CACHE to a folder of your own",
                context={"path": error.filename or folder},
            ) from error
        raise


def disk_full(folder: Path, needed: int | None = None) -> SourceError:
    """The error for a full disk. ``needed`` in bytes, when known."""
    context: dict[str, object] = {"folder": folder}
    if needed is not None:
        context["needed"] = f"{needed} bytes"
    return SourceError(
        "disk-full",
        "the disk (or quota) of the cache is full",
        hint="free some space or set OPENCOTI_BUILD_CACHE; what was fetched is kept",
        context=context,
    )
