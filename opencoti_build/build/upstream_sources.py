"""Upstream llamafile's lists of llama.cpp's sources, and the files that a series adds to them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from opencoti_build.series.series import Series

LISTS = "BUILD.mk"
_KINDS = (".c", ".cpp")


def add_sources(root: Path, patch_root: str, series: Series) -> None:
    """Name the files that ``series`` adds in ``patch_root/BUILD.mk`` below ``root``.

    Upstream lists each file, one a line; a new one goes before the first of its kind and folder,
    so that it is in the same list. A file without such a neighbour (tests, another main program)
    is no part of upstream's program and stays out.
    """
    lists = root / patch_root / LISTS
    if not lists.is_file():
        return
    text = lists.read_text(encoding="utf-8")
    for path in _new_files(series):
        folder, name = f"{patch_root}/{path}".rsplit("/", 1)
        kind = re.escape(Path(name).suffix)
        neighbour = rf"^([ \t]+){re.escape(folder)}/[^/\s]+{kind}( \\)?$"
        if found := re.search(neighbour, text, re.MULTILINE):
            line = f"{found[1]}{folder}/{name} \\\n"
            text = text[: found.start()] + line + text[found.start() :]
    lists.write_text(text, encoding="utf-8")


def _new_files(series: Series) -> Iterable[str]:
    """The sources that are there only with the series, in the order of their patches."""
    new: dict[str, None] = {}
    for patch in series.patches:
        for file in patch.files:
            if file.is_deleted:
                new.pop(file.path, None)
            elif file.is_new and Path(file.path).suffix in _KINDS:
                new[file.path] = None
    return new
