"""Host code and device code of a file were compiled apart: do they name the same things?

Host code finds its kernels by name when the library is loaded. Names of internal ones have a
module id in them, which has to be the same in every compilation of the file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path

from opencoti_build.errors import BuildError

_MODULE = re.compile(rb"_(?:INTERNAL|GLOBAL__N_)_([0-9a-f]{8})_")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_ARGUMENTS = b".nv.constant0."
_ELF, _ZSTD = b"\x7fELF", b"\x28\xb5\x2f\xfd"
# The first entry of a container (verify.fatbin): where its code starts, packed and plain size.
_FIRST, _START_AT, _PACKED_AT, _SIZE_AT = 16, 4, 16, 56
_START, _PACKED, _SIZE = struct.Struct("<I"), struct.Struct("<I"), struct.Struct("<Q")
_MOST_BYTES = 1 << 30
_SECTION = struct.Struct("<IIQQQQIIQQ")


def check_names(folder: Path, host: str, device: Mapping[str, str]) -> None:
    """Compare the object of host code with the containers of a file, all in ``folder``.

    Code that is packed in a way that is not known here is passed over. Raises BuildError
    ``cuda-names-differ``.
    """
    body = (folder / host).read_bytes()
    strings, modules = set(body.split(b"\0")), set(_MODULE.findall(body))
    for arch, name in device.items():
        data = _unpack((folder / name).read_bytes())
        unknown = sorted(_kernels(data) - strings)
        other = sorted(set(_MODULE.findall(data)) - modules)
        if unknown or other:
            kind, first = ("kernel", unknown[0]) if unknown else ("module", other[0])
            raise BuildError(
                "cuda-names-differ",
                f"host and device code of {host} do not fit together",
                context={"architecture": arch, kind: first.decode()},
                hint=f"remove {folder} and build again; report it if that does not help",
            )


def _unpack(container: bytes) -> bytes:
    """The code of the only entry of a container; empty where it cannot be read."""
    import zstandard

    try:
        (start,) = _START.unpack_from(container, _FIRST + _START_AT)
        (packed,) = _PACKED.unpack_from(container, _FIRST + _PACKED_AT)
        (size,) = _SIZE.unpack_from(container, _FIRST + _SIZE_AT)
        code = container[_FIRST + start :]
        if code.startswith(_ELF):
            return code
        if code.startswith(_ZSTD) and size <= _MOST_BYTES:
            return zstandard.ZstdDecompressor().decompress(code[:packed], max_output_size=size)
    except (struct.error, zstandard.ZstdError):
        pass
    return b""


def _kernels(cubin: bytes) -> set[bytes]:
    """The kernels of an ELF file: each has a section for its arguments."""
    try:
        header = _HEADER.unpack_from(cubin)
        start, size, count, names = header[6], header[11], header[12], header[13]
        rows = [_SECTION.unpack_from(cubin, start + size * number) for number in range(count)]
        table = cubin[rows[names][4] : rows[names][4] + rows[names][5]]
    except (struct.error, IndexError):
        return set()
    found = (table[row[0] : table.find(b"\0", row[0])] for row in rows)
    return {name[len(_ARGUMENTS) :] for name in found if name.startswith(_ARGUMENTS)}
