"""Paths of the build machine inside a program: names of source files below usual folders."""

from __future__ import annotations

import re

_PATH = re.compile(
    rb"(?:/(?:home|root|tmp|Users|work|builds)/|[A-Za-z]:[\\/](?:Users|build|src)[\\/])"
    rb"[^\0 \n\"']{1,200}?\.(?:cpp|c|hpp|h|cu|m|mm|pdb)(?![a-z])"
)


def build_path(data: bytes) -> str | None:
    """The first path in ``data`` that only the build machine can have; None without any."""
    found = _PATH.search(data)
    return found[0].decode("ascii", "replace") if found else None
