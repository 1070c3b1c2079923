"""What a CUDA library says about itself: an ELF note, and the same text as a data symbol.

The note is read without loading the library (by the engine, patch 0121, and by ``verify``). The
symbol is looked at after it is loaded, so that a file that changed in between is seen. Neither has
a tag or a time in it: the same library goes into releases of several tags.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from opencoti_build.paths import write_atomic

OWNER = "opencoti"
TYPE = 1
SECTION = ".note.opencoti"
SYMBOL = "opencoti_gpu_library"
FORMAT = 1

_ZSTD_DRIVER = 12040
# Aligned and laid out by hand: a note is three words, the owner and the text, each padded to four.
_SOURCE = """\
struct note {{
    unsigned int owner_size, text_size, type;
    char owner[{owner_room}];
    char text[{text_room}];
}};
__attribute__((section("{section}"), used, aligned(4)))
static const struct note note = {{ {owner_size}, {text_size}, {type}, "{owner}", "{text}" }};
__attribute__((visibility("default"))) extern const char {symbol}[{text_size} + 1];
const char {symbol}[{text_size} + 1] = "{text}";
"""


def needed_driver(cuda: str) -> int:
    """The oldest CUDA that a driver has to support (1000 * major + 10 * minor) for nvcc ``cuda``.

    A driver of the same major version does, but one older than 12.4 does not know the compression
    that ``-compress-mode`` asks for.
    """
    return max(1000 * int(cuda.split(".")[0]), _ZSTD_DRIVER)


def note_text(abi: str, architectures: Sequence[str], driver: int, version: str) -> str:
    """The text of the note: JSON in one line."""
    facts = {
        "abi": abi,
        "architectures": list(architectures),
        "driver": driver,
        "format": FORMAT,
        "version": version,
    }
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def note_source(text: str) -> str:
    """A C source that puts ``text`` (ASCII) into a library."""
    return _SOURCE.format(
        owner=OWNER,
        owner_size=len(OWNER) + 1,
        owner_room=_padded(len(OWNER) + 1),
        section=SECTION,
        symbol=SYMBOL,
        text=text.replace("\\", "\\\\").replace('"', '\\"'),
        text_size=len(text),
        text_room=_padded(len(text)),
        type=TYPE,
    )


def write_note(folder: Path, text: str) -> Path:
    """Write the C source into ``folder`` and return its path."""
    path = folder / "opencoti-note.c"
    write_atomic(path, note_source(text).encode("ascii"))
    return path


def _padded(size: int) -> int:
    return -(-size // 4) * 4
