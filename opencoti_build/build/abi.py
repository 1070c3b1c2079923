"""The ABI digest: whether an engine and a GPU library have the same structs.

Both are compiled with the same few headers of ggml. Where those differ, a library loads all the
same, and then crashes or computes nonsense; so both carry the digest of the headers, and the engine
refuses a library with another one (patch 0121). It covers each header that the library includes
from outside its own folder, and the defines below. What no header says (the meaning of an op's
parameters, say) is not in it: a patch that changes such a thing has to touch a header as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from opencoti_build.digest import content_key

FORMAT = 1
"""Raise it when the rule for the digest changes."""
DEFINES = ("GGML_BACKEND_DL", "GGML_BACKEND_SHARED", "GGML_SHARED")
"""Defines of both builds that change what the headers declare; none of them has a value."""

_LIBRARY = "ggml/src/ggml-cuda"
_FOLDERS = ("ggml/include", "ggml/src")
_SUFFIXES = frozenset({".cu", ".cuh", ".h"})
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def abi_digest(tree: Path) -> str:
    """The digest (64 hex digits) of the tree in the folder ``tree``; no path is part of it."""
    headers = shared_headers(tree)
    return content_key(
        {
            "format": FORMAT,
            "defines": list(DEFINES),
            "headers": {name: _blob_id(data) for name, data in headers.items()},
        }
    )


def shared_headers(tree: Path) -> dict[str, bytes]:
    """Each header that engine and library share, by its path in the tree, in order of names."""
    library = tree / _LIBRARY
    sources = sorted(path for path in library.rglob("*") if path.suffix in _SUFFIXES)
    found: dict[str, bytes] = {}
    waiting = [name for path in sources for name in _included(tree, path.read_bytes())]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = (tree / name).read_bytes()
            waiting += _included(tree, found[name])
    return dict(sorted(found.items()))


def _included(tree: Path, data: bytes) -> Iterator[str]:
    """The headers in the shared folders that ``data`` includes.

    A name with a folder in it is one of a backend's own files.
    """
    for match in _INCLUDE.finditer(data):
        name = match[1].decode("utf-8", "replace")
        for folder in _FOLDERS:
            if "/" not in name and (tree / folder / name).is_file():
                yield f"{folder}/{name}"
                break


def _blob_id(data: bytes) -> str:
    """The id that git gives to a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
