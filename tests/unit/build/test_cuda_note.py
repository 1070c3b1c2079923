"""The note of a CUDA library: written by the compiler, read from the file and from memory."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from opencoti_build.build.cuda_note import SYMBOL, needed_driver, note_text, write_note
from opencoti_build.verify.gpu_note import read_note
from tests.lib.single_file import ABI, compile_c


@pytest.mark.parametrize("names", [("75",), ("75", "80"), ("75", "80", "120f"), ("110f", "121a")])
def test_what_is_written_is_read(tmp_path: Path, names: tuple[str, ...]) -> None:
    text = note_text(ABI, names, 13000, "0.10.3")
    source = write_note(tmp_path, text)
    compile_c(tmp_path, source.name, "-shared", "-fPIC", "-o", "ggml-cuda.so")
    library = tmp_path / "ggml-cuda.so"
    note = read_note(library.read_bytes())
    assert note is not None
    assert (note.abi, note.architectures, note.driver, note.version) == (
        ABI, names, 13000, "0.10.3",
    )  # fmt: skip
    loaded = ctypes.c_char.in_dll(ctypes.CDLL(str(library)), SYMBOL)
    assert ctypes.string_at(ctypes.addressof(loaded)) == text.encode()


def test_the_text_has_no_order_of_its_own() -> None:
    text = note_text(ABI, ["90"], 13000, "0.10.3")
    assert text == (
        f'{{"abi":"{ABI}","architectures":["90"],"driver":13000,"format":1,"version":"0.10.3"}}'
    )


@pytest.mark.parametrize(
    ("cuda", "driver"), [("12.9.86", 12040), ("13.0.88", 13000), ("13.1.1", 13000), ("14.0", 14000)]
)
def test_the_driver_that_a_library_needs(cuda: str, driver: int) -> None:
    assert needed_driver(cuda) == driver
