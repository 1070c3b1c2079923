"""Copies of a single file with more entries behind those that it has.

Everything before the central directory of the source is copied as it is, so every such copy
begins with the same bytes as its source: the host stays byte-identical in all of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from opencoti_build.errors import PackError
from opencoti_build.pack.host import check_written, mapped
from opencoti_build.pack.limits import check_size
from opencoti_build.pack.zipformat import ALIGNMENT
from opencoti_build.pack.zipreader import ZipLayout, read_zip
from opencoti_build.pack.zipwriter import Written, ZipWriter, planned_size
from opencoti_build.paths import atomic_path

STEP = 64 << 20


@dataclass(frozen=True)
class Addition:
    """An entry to append: a file whose data is aligned for mapping, or bytes."""

    name: str
    data: Path | bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data) if isinstance(self.data, bytes) else self.data.stat().st_size

    @property
    def align(self) -> int:
        """What the data's offset is a multiple of."""
        return 1 if isinstance(self.data, bytes) else ALIGNMENT


def layout_of(path: Path) -> ZipLayout:
    """The zip part of a single file. Raises PackError with a ``zip-…`` reason."""
    with path.open("rb") as stream, mapped(stream) as data:
        return read_zip(data)


def append_entries(
    source: Path,
    out: Path,
    additions: Sequence[Addition],
    *,
    digests: bool = True,
    progress: Callable[[int], None] = lambda count: None,
) -> tuple[int, list[Written]]:
    """Copy ``source`` to ``out`` (mode 0755) with ``additions``: the new size, what was added.

    One pass over all data. Raises PackError ``pack-output-is-input``,
    ``pack-too-large-for-windows`` (before anything is copied), or a ``zip-…`` reason.
    """
    inputs = [source, *(a.data for a in additions if isinstance(a.data, Path))]
    for path in inputs:
        with contextlib.suppress(FileNotFoundError):
            if out.samefile(path):
                raise PackError("pack-output-is-input", f"{out} would replace {path}")
    layout = layout_of(source)
    rows = [(item.name, item.size, item.align) for item in additions]
    check_size(out.name, planned_size(layout.entries, layout.directory_offset, rows))
    with _copy(source, out, layout, progress) as stream:
        writer = ZipWriter(stream, layout.entries, progress, digests=digests)
        written = [_add(writer, item) for item in additions]
        size = writer.finish()
    return size, written


def _add(writer: ZipWriter, item: Addition) -> Written:
    if isinstance(item.data, bytes):
        return writer.add_bytes(item.name, item.data, align=item.align)
    return writer.add_file(item.name, item.data, align=item.align)


@contextlib.contextmanager
def _copy(
    source: Path, out: Path, layout: ZipLayout, progress: Callable[[int], None]
) -> Iterator[BinaryIO]:
    with atomic_path(out, 0o755) as made:
        with source.open("rb") as old, made.open("r+b", buffering=0) as stream:
            _copy_start(old, stream, layout.directory_offset, progress)
            stream.seek(layout.directory_offset)
            yield stream
        check_written(made)


def _copy_start(
    source: BinaryIO, target: BinaryIO, size: int, progress: Callable[[int], None]
) -> None:
    """Copy the first ``size`` bytes inside the kernel where it can (it shares blocks if it may)."""
    done = 0
    while done < size:
        step = min(STEP, size - done)
        try:
            count = os.copy_file_range(source.fileno(), target.fileno(), step, done, done)
        except (OSError, AttributeError):
            count = os.pwrite(target.fileno(), os.pread(source.fileno(), step, done), done)
        if count == 0:
            raise PackError("zip-source-changed", "the file became shorter while it was copied")
        done += count
        progress(count)
