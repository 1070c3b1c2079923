"""Runs a command and writes down the most memory that one of its processes took, in KiB.

``python -I -S measure.py FILE COMMAND…``: it is started thousands of times, so it uses nothing
but the standard library. A call that ccache answers takes little; the file keeps the maximum.
"""

from __future__ import annotations

import contextlib
import os
import sys


def main(output: str, command: list[str]) -> int:
    """Run ``command``; return its exit status as a shell would tell it."""
    process = os.posix_spawnp(command[0], command, os.environ)
    _, status, used = os.wait4(process, 0)
    peak = used.ru_maxrss
    with contextlib.suppress(OSError, ValueError):
        with open(output) as stream:  # noqa: PTH123
            peak = max(peak, int(stream.read()))
    # Only a guess for the next build: that it cannot be written is no failure of this one.
    with contextlib.suppress(OSError), open(output, "w") as stream:  # noqa: PTH123
        stream.write(f"{peak}\n")
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
