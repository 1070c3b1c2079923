"""The copier of GGUF layers copies layers, and nothing else."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.lib.gguf_layers import Gguf, Tensor, copy_layers, read_gguf, write_gguf


def _text(value: str) -> bytes:
    return struct.pack("<IQ", 8, len(value)) + value.encode()


def _model(n_layer: int, **more: bytes) -> Gguf:
    words = struct.pack("<IIQ", 9, 8, 2) + b"".join(
        struct.pack("<Q", len(word)) + word for word in (b"one", b"three")
    )
    keys = {
        "general.architecture": _text("toy"),
        "toy.block_count": struct.pack("<II", 4, n_layer),
        "tokenizer.ggml.tokens": words,
        "toy.scale": struct.pack("<If", 6, 0.5),
        **more,
    }
    head = struct.pack("<IQI", 1, 10, 24)
    names = [
        "token_embd.weight",
        *(f"blk.{i}.norm.weight" for i in range(n_layer)),
        "output.weight",
    ]
    return Gguf(keys, [Tensor(name, head, name.encode().ljust(64, b"-")) for name in names])


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", _model(3))
    assert read_gguf(tmp_path / "a.gguf") == _model(3)


def test_layers_are_copied_along_the_path(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", _model(3))
    copy_layers(tmp_path / "a.gguf", tmp_path / "b.gguf", [0, 1, 1, 2])
    copied = read_gguf(tmp_path / "b.gguf")
    assert copied.n_layer == 4
    data = {tensor.name: tensor.data.rstrip(b"-").decode() for tensor in copied.tensors}
    assert data == {
        "token_embd.weight": "token_embd.weight",
        "output.weight": "output.weight",
        "blk.0.norm.weight": "blk.0.norm.weight",
        "blk.1.norm.weight": "blk.1.norm.weight",
        "blk.2.norm.weight": "blk.1.norm.weight",
        "blk.3.norm.weight": "blk.2.norm.weight",
    }
    assert {**copied.keys, "toy.block_count": b""} == {**_model(3).keys, "toy.block_count": b""}


def test_a_table_of_layers_is_refused(tmp_path: Path) -> None:
    table = struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3)
    write_gguf(tmp_path / "a.gguf", _model(3, **{"toy.heads": table}))
    with pytest.raises(ValueError, match=r"toy\.heads"):
        copy_layers(tmp_path / "a.gguf", tmp_path / "b.gguf", [0, 1, 1, 2])


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGML".ljust(64, b"\0"))
    with pytest.raises(ValueError, match="version 3"):
        read_gguf(tmp_path / "a.gguf")
