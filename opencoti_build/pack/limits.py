"""How large a file may be under which name.

Windows refuses to start a program of 4 GiB or more (facts: whole-file limit, 32 and 64 bit alike).
"""

from __future__ import annotations

from opencoti_build.errors import PackError

WINDOWS_LIMIT = 1 << 32
"""Bytes; a Windows program must be smaller."""
WINDOWS_SUFFIX = ".exe"


def check_size(name: str, size: int) -> None:
    """Refuse a Windows name for a file of ``size`` bytes that Windows would not start.

    Raises PackError ``pack-too-large-for-windows``.
    """
    if name.lower().endswith(WINDOWS_SUFFIX) and size >= WINDOWS_LIMIT:
        raise PackError(
            "pack-too-large-for-windows",
            f"{name} would have {size} bytes; Windows starts no program of {WINDOWS_LIMIT} or more",
            hint="keep the weights in a file of their own (-m), or drop .exe from the name",
        )
