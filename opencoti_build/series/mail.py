"""The mail form of a patch: header, message, diff; read leniently, written in one way only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from opencoti_build.errors import SeriesError

_FROM_LINE = re.compile(r"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001")
_HEADER = re.compile(r"([A-Za-z-]+): ?(.*)")
_AUTHOR = re.compile(r"(?P<name>.*?) ?<(?P<email>[^<>\s]+@[^<>\s]+)>")
_IGNORED = ("mime-version", "content-type", "content-transfer-encoding")
_PREFIX = re.compile(r"\[PATCH[^\]]*\] ?")
# Lines that make `git am` end the message early, or take it for a header of its own.
_BREAKS = re.compile(r"^(diff -|Index: |---(\s|$)|From .*\d:\d\d)", re.M)
_IN_BODY = re.compile(r"(From:|Subject:|Date:|>From |\[PATCH)", re.I)
_STAT = re.compile(r"---\n(?: .*\n)*\n?")
_SIGNATURE = re.compile(r"\n-- \n[^\n]*\n*\Z")
_SPECIALS = frozenset('()<>@,;:\\".[]')
_CRUD = " .,:;<>\"\\'\t"  # git takes these away from both ends of a name
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


@dataclass(frozen=True)
class Mail:
    """One patch mail, taken apart. ``author`` is ``Name <email>``."""

    author: str
    date: datetime
    subject: str
    body: str
    diff: str


def parse_mail(text: str) -> Mail:
    """Take a patch mail apart. Raises SeriesError ``patch-malformed`` or ``patch-empty``."""
    first, _, rest = text.partition("\n")
    if not _FROM_LINE.fullmatch(first):
        raise SeriesError(
            "patch-malformed",
            "the file does not start as a patch mail",
            hint="write patches with 'opencoti-build series export'",
        )
    head, blank, rest = rest.partition("\n\n")
    headers = _headers(head)
    for key in ("from", "date", "subject"):
        if not blank or not headers.get(key):
            raise SeriesError("patch-malformed", f"the header {key.capitalize()!r} is missing")
    body, diff = _split_body(rest)
    if _BREAKS.search(body) or _IN_BODY.match(body):
        raise SeriesError("patch-malformed", "the message holds a line that git am would eat")
    subject = _PREFIX.sub("", headers["subject"], count=1)
    if not subject or subject.startswith("[") or subject.lower().startswith("re:"):
        raise SeriesError("patch-malformed", "git am would change this subject")
    return Mail(_author(headers["from"]), _date(headers["date"]), subject, body, diff)


def render_mail(mail: Mail) -> bytes:
    """The one way in which we write a patch mail (DESIGN section 4), in UTF-8."""
    name, _, address = mail.author.rpartition(" <")
    if _SPECIALS.intersection(name):
        name = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
    body = "\n".join(line.rstrip() for line in mail.body.strip("\n").split("\n"))
    lines = [
        f"From {'0' * 40} Mon Sep 17 00:00:00 2001",
        f"From: {name} <{address}",
        f"Date: {format_date(mail.date)}",
        f"Subject: [PATCH] {mail.subject}",
    ]
    if not (mail.subject + body).isascii():
        lines += [
            "MIME-Version: 1.0",
            "Content-Type: text/plain; charset=UTF-8",
            "Content-Transfer-Encoding: 8bit",
        ]
    return "\n".join([*lines, "", body, "", mail.diff]).encode("utf-8", "surrogateescape")


def format_date(date: datetime) -> str:
    """The date as git writes it in mails, the same in every locale."""
    day, month = _DAYS[date.weekday()], _MONTHS[date.month - 1]
    return f"{day}, {date.day} {month} {date.year} {date:%H:%M:%S} {date:%z}"


def _headers(head: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    key = ""
    for line in head.split("\n"):
        if line[:1] in (" ", "\t") and key:
            headers[key] += " " + line.strip()
            continue
        found = _HEADER.fullmatch(line)
        if found is None:
            raise SeriesError("patch-malformed", f"bad header line {line[:60]!r}")
        key = found.group(1).lower()
        if key not in ("from", "date", "subject", *_IGNORED) or key in headers:
            raise SeriesError("patch-malformed", f"unexpected header {found.group(1)!r}")
        headers[key] = found.group(2).strip()
        if "=?" in headers[key]:
            raise SeriesError("patch-malformed", f"header {key!r} is encoded; write it in UTF-8")
    return headers


def _split_body(rest: str) -> tuple[str, str]:
    start = re.search(r"^diff --git ", rest, re.M)
    if start is None:
        raise SeriesError("patch-empty", "the patch holds no diff")
    body, diff = rest[: start.start()], rest[start.start() :]
    if stat := re.search(r"^---\n", body, re.M):
        if not _STAT.fullmatch(body, stat.start()):
            raise SeriesError("patch-malformed", "text between the message and the diff")
        body = body[: stat.start()]
    return body.strip("\n"), _SIGNATURE.sub("\n", diff)


def _author(value: str) -> str:
    found = _AUTHOR.fullmatch(value)
    if found is None:
        raise SeriesError("patch-malformed", f"bad author {value!r}")
    name = found["name"]
    if len(name) > 1 and name[0] == name[-1] == '"':
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    if not name or name != name.strip(_CRUD):
        raise SeriesError("patch-malformed", f"bad author {value!r}")
    return f"{name} <{found['email']}>"


def _date(value: str) -> datetime:
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        date = None
    if date is None or date.tzinfo is None or date.timestamp() < 0:
        raise SeriesError("patch-malformed", f"bad date {value!r}")
    return date
