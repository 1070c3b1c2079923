"""Copies the layers of a GGUF file by hand: the file that layer repetition has to equal."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_U32, _STRING, _ARRAY = 4, 8, 9
_ALIGNMENT = 32


@dataclass(frozen=True)
class Tensor:
    """Name, shape and type as raw bytes, and the data with its padding."""

    name: str
    head: bytes
    data: bytes


@dataclass(frozen=True)
class Gguf:
    """A file: keys with their raw typed values, and tensors, both in order."""

    keys: dict[str, bytes]
    tensors: list[Tensor]

    @property
    def architecture(self) -> str:
        return _text(self.keys["general.architecture"], 4)[0]

    @property
    def n_layer(self) -> int:
        return int(struct.unpack_from("<I", self.keys[f"{self.architecture}.block_count"], 4)[0])


def _text(data: bytes, at: int) -> tuple[str, int]:
    size = struct.unpack_from("<Q", data, at)[0]
    return data[at + 8 : at + 8 + size].decode(), at + 8 + size


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _skip(data: bytes, at: int, kind: int) -> int:
    """The offset after a value of ``kind`` at ``at``."""
    if kind == _STRING:
        return at + 8 + int(struct.unpack_from("<Q", data, at)[0])
    if kind == _ARRAY:
        item, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if item in _FIXED:
            return at + int(_FIXED[item] * count)
        for _ in range(count):
            at = _skip(data, at, item)
        return at
    return at + _FIXED[kind]


def read_gguf(path: Path) -> Gguf:
    """Parse ``path``, a version 3 file with the default alignment."""
    data = path.read_bytes()
    magic, version, n_tensors, n_keys = struct.unpack_from("<4sIQQ", data)
    if (magic, version) != (b"GGUF", 3):
        raise ValueError(f"{path}: not a GGUF file of version 3")
    at = 24
    keys = {}
    for _ in range(n_keys):
        key, at = _text(data, at)
        end = _skip(data, at + 4, struct.unpack_from("<I", data, at)[0])
        keys[key] = data[at:end]
        at = end
    heads = []
    for _ in range(n_tensors):
        name, at = _text(data, at)
        end = at + 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4
        heads.append((name, data[at:end], struct.unpack_from("<Q", data, end)[0]))
        at = end + 8
    base = -(-at // _ALIGNMENT) * _ALIGNMENT
    ends = sorted([*(offset for _, _, offset in heads), len(data) - base])
    tensors = []
    for name, head, offset in heads:
        end = next(end for end in ends if end > offset)
        tensors.append(Tensor(name, head, data[base + offset : base + end]))
    return Gguf(keys, tensors)


def write_gguf(path: Path, file: Gguf) -> None:
    """Write ``file`` to ``path``."""
    out = [struct.pack("<4sIQQ", b"GGUF", 3, len(file.tensors), len(file.keys))]
    out += [_string(key) + value for key, value in file.keys.items()]
    offset = 0
    for tensor in file.tensors:
        out.append(_string(tensor.name) + tensor.head + struct.pack("<Q", offset))
        offset += -(-len(tensor.data) // _ALIGNMENT) * _ALIGNMENT
    out.append(b"\0" * (-sum(map(len, out)) % _ALIGNMENT))
    with path.open("wb") as stream:
        stream.writelines(out)
        for tensor in file.tensors:
            stream.write(tensor.data + b"\0" * (-len(tensor.data) % _ALIGNMENT))


def copy_layers(source: Path, target: Path, path: Sequence[int]) -> None:
    """Write to ``target`` the model ``source`` whose layer i is the layer ``path[i]`` of it.

    Raises ValueError for a model that has a table with one entry a layer.
    """
    file = read_gguf(source)
    arch, n_layer = file.architecture, file.n_layer
    for key, value in file.keys.items():
        kind, item, count = struct.unpack_from("<IIQ", value.ljust(16, b"\0"))
        if key.startswith(f"{arch}.") and kind == _ARRAY and count == n_layer:
            raise ValueError(f"{key} (item type {item}) would have to be copied as well")
    keys = {**file.keys, f"{arch}.block_count": struct.pack("<II", _U32, len(path))}
    blocks: dict[int, list[tuple[str, Tensor]]] = {}
    tensors = []
    for tensor in file.tensors:
        match = re.fullmatch(r"blk\.(\d+)\.(.+)", tensor.name)
        if match:
            blocks.setdefault(int(match[1]), []).append((match[2], tensor))
        else:
            tensors.append(tensor)
    for new, old in enumerate(path):
        for rest, tensor in blocks[old]:
            tensors.append(Tensor(f"blk.{new}.{rest}", tensor.head, tensor.data))
    write_gguf(target, Gguf(keys, tensors))
