"""The trailers of a patch: what machines need to know about it (DESIGN section 4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from opencoti_build.errors import SeriesError

REQUIRED = ("Feature", "Gate", "Class", "Depends", "Upstream")

# The name of the patch, added to the commit by apply and removed by export.
NAME_TRAILER = "Patch"

_LINE = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?: (.*)|)")
_FEATURE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_UPSTREAM = re.compile(r"none|(submitted|merged|declined) https?://\S+")


class Klass(Enum):
    """What a patch is for, as in the usage guide's feature map."""

    LATENCY = "latency"
    QUALITY = "quality"
    CAPACITY = "capacity"
    CONTEXT_EXTENSION = "context-extension"
    DECODE_SPEED = "decode-speed"
    TOOLING = "tooling"
    MEMORY = "memory"
    OBSERVABILITY = "observability"
    PACKAGING = "packaging"
    BUILD = "build"
    INFRA = "infra"


def split_message(body: str) -> tuple[str, dict[str, str]]:
    """The prose and the trailers of a message body (the text below the subject).

    Raises SeriesError ``patch-trailer-missing``, ``patch-trailer-unknown``,
    ``patch-trailer-duplicate`` or ``patch-trailer-bad-value``.
    """
    prose, _, last = body.strip("\n").rpartition("\n\n")
    trailers: dict[str, str] = {}
    for line in last.split("\n"):
        found = _LINE.fullmatch(line)
        if found is None:
            if trailers or line.partition(":")[0] in REQUIRED:
                raise SeriesError("patch-trailer-bad-value", f"the trailers hold a line {line!r}")
            break
        key, value = found.group(1), (found.group(2) or "").strip()
        if key not in REQUIRED:
            raise SeriesError(
                "patch-trailer-unknown",
                f"unknown trailer {key!r}",
                hint=f"known trailers: {', '.join(REQUIRED)}",
            )
        if key in trailers:
            raise SeriesError("patch-trailer-duplicate", f"trailer {key!r} is given twice")
        trailers[key] = value
    missing = [key for key in REQUIRED if key not in trailers]
    if missing:
        raise SeriesError(
            "patch-trailer-missing",
            f"trailer {missing[0]!r} is missing"
            if len(missing) == 1
            else f"trailers {', '.join(missing)} are missing",
            hint="the last paragraph of the message holds the trailers, one a line",
        )
    _check_values(trailers)
    return prose.strip("\n"), trailers


def parse_depends(value: str) -> tuple[int, ...]:
    """The patch numbers of a ``Depends`` trailer.

    Raises SeriesError ``patch-trailer-bad-value``.
    """
    words = value.replace(",", " ").split()
    for word in words:
        if not re.fullmatch(r"[0-9]{4}", word):
            raise _bad("Depends", value, "four-digit patch numbers, or nothing")
    return tuple(int(word) for word in words)


def _check_values(trailers: Mapping[str, str]) -> None:
    if not _FEATURE.fullmatch(trailers["Feature"]):
        raise _bad("Feature", trailers["Feature"], "one slug such as kv-turbo")
    if not trailers["Gate"]:
        raise _bad("Gate", "", "what turns the feature on, or none")
    if trailers["Class"] not in {klass.value for klass in Klass}:
        raise _bad("Class", trailers["Class"], ", ".join(klass.value for klass in Klass))
    if not _UPSTREAM.fullmatch(trailers["Upstream"]):
        raise _bad("Upstream", trailers["Upstream"], "none, or submitted|merged|declined URL")
    parse_depends(trailers["Depends"])


def _bad(key: str, value: str, wanted: str) -> SeriesError:
    return SeriesError(
        "patch-trailer-bad-value", f"trailer {key}: {value!r} is not valid", hint=f"use {wanted}"
    )
