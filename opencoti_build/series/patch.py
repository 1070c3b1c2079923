"""One patch file: ``NNNN-slug.patch``, a mail that ``git am`` alone can apply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from opencoti_build.digest import sha256_bytes
from opencoti_build.errors import SeriesError
from opencoti_build.series.diff import FileChange, parse_diff
from opencoti_build.series.mail import Mail, parse_mail
from opencoti_build.series.trailers import Klass, parse_depends, split_message

__all__ = ["FileChange", "Patch", "parse_name", "parse_patch", "patch_from_bytes"]

# The number ranges of DESIGN section 4; together they have no hole.
RANGES: tuple[tuple[int, int, str], ...] = (
    (6, 19, "host and packaging"),
    (20, 29, "feature parameters and introspection"),
    (30, 39, "sessions, slots, pools"),
    (40, 59, "KV types and tiers"),
    (60, 69, "attention with log-sum-exp, DCA"),
    (70, 79, "rolling KV"),
    (80, 89, "sparse attention"),
    (90, 99, "speculative decoding"),
    (100, 109, "RYS"),
    (110, 119, "retention eviction"),
    (120, 133, "CUDA build and kernels"),
    (134, 199, "reserve: patches that no range has room for, and local ones"),
)

_NAME = re.compile(r"(\d{4})-([a-z0-9]+(?:-[a-z0-9]+)*)\.patch", re.A)


@dataclass(frozen=True)
class Patch:
    """A parsed patch. ``why`` is the prose of its message, without subject and trailers."""

    number: int
    slug: str
    path: Path
    data: bytes = field(repr=False)
    sha256: str
    subject: str
    author: str
    date: datetime
    why: str = field(repr=False)
    trailers: Mapping[str, str] = field(hash=False)
    files: tuple[FileChange, ...]
    diff: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """``NNNN-slug``: the file name without its ending."""
        return f"{self.number:04d}-{self.slug}"

    @property
    def feature(self) -> str:
        return self.trailers["Feature"]

    @property
    def gate(self) -> str:
        return self.trailers["Gate"]

    @property
    def klass(self) -> Klass:
        return Klass(self.trailers["Class"])

    @property
    def depends(self) -> tuple[int, ...]:
        return parse_depends(self.trailers["Depends"])

    @property
    def upstream(self) -> str:
        return self.trailers["Upstream"]

    @property
    def message(self) -> str:
        """The whole message: subject, prose and trailers, with a final newline."""
        trailers = "\n".join(f"{key}: {value}".rstrip() for key, value in self.trailers.items())
        return f"{self.subject}\n\n{self.why}\n\n{trailers}\n"

    def mail(self) -> Mail:
        """The patch as a mail, for writing it out again."""
        body = self.message.partition("\n\n")[2]
        diff = self.diff.decode("utf-8", "surrogateescape")
        return Mail(self.author, self.date, self.subject, body, diff)


def parse_name(name: str) -> tuple[int, str]:
    """Number and slug of a patch file's name.

    Raises SeriesError ``patch-bad-name`` or ``patch-bad-number``.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise SeriesError(
            "patch-bad-name", f"{name!r} is not a patch name", hint="use NNNN-some-words.patch"
        )
    number = int(found.group(1))
    if not any(first <= number <= last for first, last, _ in RANGES):
        raise SeriesError(
            "patch-bad-number",
            f"number {number:04d} lies in no range",
            hint=f"use {RANGES[0][0]:04d} to {RANGES[-1][1]:04d}",
        )
    return number, found.group(2)


def parse_patch(path: Path) -> Patch:
    """Read one patch file.

    Raises SeriesError: ``patch-bad-name``, ``patch-bad-number``, ``patch-unreadable`` and all of
    ``patch_from_bytes``.
    """
    parse_name(path.name)
    try:
        if path.is_symlink() or not path.is_file():
            raise SeriesError("patch-unreadable", f"{path.name} is not a plain file")
        data = path.read_bytes()
    except OSError as error:
        raise SeriesError(
            "patch-unreadable", f"{path.name} cannot be read: {error.strerror}"
        ) from error
    return patch_from_bytes(path, data)


def patch_from_bytes(path: Path, data: bytes) -> Patch:
    """The patch that ``data`` is; ``path`` gives its name.

    Raises SeriesError: ``patch-bad-name``, ``patch-bad-number``, ``patch-empty``,
    ``patch-not-utf8``, ``patch-crlf``, ``patch-no-final-newline``, ``patch-no-reason``,
    ``patch-malformed``, those of ``split_message`` and those of ``parse_diff``.
    """
    number, slug = parse_name(path.name)
    text = _text(data)
    mail = parse_mail(text)
    why, trailers = split_message(mail.body)
    if not why:
        raise SeriesError("patch-no-reason", "the message does not say why the patch is needed")
    return Patch(
        number=number,
        slug=slug,
        path=path,
        data=data,
        sha256=sha256_bytes(data),
        subject=mail.subject,
        author=mail.author,
        date=mail.date,
        why=why,
        trailers=MappingProxyType(trailers),
        files=parse_diff(mail.diff),
        diff=mail.diff.encode("utf-8"),
    )


def _text(data: bytes) -> str:
    if not data.strip():
        raise SeriesError("patch-empty", "the patch file is empty")
    if b"\r" in data:
        raise SeriesError(
            "patch-crlf",
            "the patch holds carriage returns",
            hint="keep '*.patch -text' in .gitattributes and check the file out again",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SeriesError("patch-not-utf8", f"byte {error.start} is not UTF-8") from error
    if not text.endswith("\n"):
        raise SeriesError("patch-no-final-newline", "the patch does not end with a newline")
    return text
