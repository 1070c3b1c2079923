"""The first 4096 bytes of a single file: a DOS header that is also a shell script.

Layout (DESIGN section 5): 64 bytes of DOS header, of which a shell sees the beginning of a
quoted assignment; the POSIX start script, rendered from ``start.sh.in``; zeros; and at the end
the PE headers of the Windows launcher, which the dword at 0x3c (``e_lfanew``) points to. It is 0
when there is no Windows launcher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from opencoti_build.errors import PackError
from opencoti_build.targets import FACTS, Target

PROLOGUE_SIZE = 4096
MAX_SCRIPT_SIZE = 3400
MAGIC = b"MZqFpD='\n"
DOS_HEADER_SIZE = 64
LFANEW_OFFSET = 0x3C

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class LauncherPlace:
    """Where a launcher lies in the single file (bytes), and its sha256 (hex)."""

    offset: int
    size: int
    sha256: str


def check_word(value: str, what: str) -> str:
    """``value`` if it can be a version or tag: it becomes a folder name and a script constant.

    Raises PackError ``pack-bad-word``.
    """
    if not _WORD.fullmatch(value) or len(value) > 64:
        raise PackError(
            "pack-bad-word",
            f"{what} {value!r} is not letters, digits, dots, dashes and underscores",
        )
    return value


def render_script(version: str, launchers: Mapping[Target, LauncherPlace]) -> bytes:
    """The start script. Raises PackError ``pack-script-too-long`` or ``pack-bad-word``."""
    template = resources.files("opencoti_build.pack").joinpath("start.sh.in").read_text("ascii")
    cases, holds = [], []
    for target in Target:
        place, names = launchers.get(target), FACTS[target].uname
        if place is None or not names:
            continue
        pattern = " | ".join(f"'{name}'" for name in names)
        values = f"t={target.value} o={place.offset} c={place.size} h={place.sha256[:16]}"
        cases.append(f"{pattern}) {values} ;;")
        holds.append(target.value)
    text = template.replace("@VERSION@", check_word(version, "version"))
    text = text.replace("@CASES@", "\n".join(cases)).replace("@HOLDS@", ", ".join(holds))
    # Comments are for readers of the template; the file's own bytes are scarce.
    lines = [line.lstrip() for line in text.splitlines()]
    kept = [line for at, line in enumerate(lines) if at == 0 or not line.startswith("#")]
    script = ("\n".join(kept) + "\n").encode("ascii")
    if len(script) > MAX_SCRIPT_SIZE:
        raise PackError(
            "pack-script-too-long",
            f"the start script has {len(script)} bytes, {MAX_SCRIPT_SIZE} are allowed",
        )
    return script


def render_prologue(
    version: str, launchers: Mapping[Target, LauncherPlace], pe_headers: bytes = b""
) -> bytes:
    """The first ``PROLOGUE_SIZE`` bytes of the file. Raises as ``render_script`` does."""
    script = render_script(version, launchers)
    # The quoted header must not end early: a multiple of 8 has no byte 0x27 ("'") at its front.
    place = (PROLOGUE_SIZE - len(pe_headers)) // 8 * 8 if pe_headers else 0
    head = MAGIC.ljust(LFANEW_OFFSET, b" ") + place.to_bytes(4, "little") + b"'\n" + script
    if place and len(head) >= place:
        raise PackError(
            "pack-script-too-long",
            f"the start script has {len(script)} bytes; the PE headers leave room for "
            f"{place - DOS_HEADER_SIZE - 3}",
        )
    return (head.ljust(place, b"\0") + pe_headers).ljust(PROLOGUE_SIZE, b"\0")


def pe_headers(prologue: bytes) -> bytes:
    """The PE headers in a prologue (with the zeros behind them); empty when it has none."""
    place = int.from_bytes(prologue[LFANEW_OFFSET:DOS_HEADER_SIZE], "little")
    return prologue[place:PROLOGUE_SIZE] if DOS_HEADER_SIZE <= place < PROLOGUE_SIZE else b""
