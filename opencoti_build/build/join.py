"""Puts the device code of a file into the object of its host code.

``python -I -S join.py OBJCOPY OBJECT OUTPUT CONTAINER…``: each container has the code for one
architecture, packed already. One for all of them is their entries, one behind the other, under a
header that tells their size (``verify.fatbin`` describes it).
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys

_HEADER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_KNOWN = (0xBA55ED50, 1, _HEADER.size)


def merge(containers: list[bytes]) -> bytes:
    """One container with the entries of all. Raises ValueError for what is none."""
    body = b""
    for data in containers:
        if len(data) < _HEADER.size:
            raise ValueError("a container is cut off")
        *head, size = _HEADER.unpack_from(data)
        if tuple(head) != _KNOWN or size != len(data) - _HEADER.size:
            raise ValueError("a container is not what this version of CUDA writes")
        body += data[_HEADER.size :]
    return _HEADER.pack(*_KNOWN, len(body)) + body


def main(objcopy: str, host: str, output: str, containers: list[str]) -> int:
    """Write ``output`` whole; return objcopy's exit status."""
    parts = []
    for name in containers:
        with open(name, "rb") as stream:  # noqa: PTH123
            parts.append(stream.read())
    packed, new = f"{output}.fatbin", f"{output}.new"
    with open(packed, "wb") as stream:  # noqa: PTH123
        stream.write(merge(parts))
    done = subprocess.run([objcopy, "--update-section", f".nv_fatbin={packed}", host, new])
    os.unlink(packed)  # noqa: PTH108
    if done.returncode == 0:
        os.replace(new, output)  # noqa: PTH105
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
