"""The ABI digest: headers that engine and library share change it, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from opencoti_build.build import abi
from opencoti_build.build.abi import abi_digest, shared_headers

FILES = {
    "ggml/include/ggml.h": "#pragma once\n#include <stdint.h>\nstruct ggml_tensor;\n",
    "ggml/include/ggml-backend.h": '#include "ggml.h"\n#include "ggml-alloc.h"\n',
    "ggml/include/ggml-alloc.h": "struct ggml_gallocr;\n",
    "ggml/include/ggml-cpu.h": "struct ggml_cplan;\n",
    "ggml/src/ggml-impl.h": '  # include "ggml.h"\nstruct ggml_cgraph { int n; };\n',
    "ggml/src/ggml.c": '#include "ggml-impl.h"\n',
    "ggml/src/ggml-cuda/common.cuh": '#pragma once\n#include "ggml-impl.h"\n',
    "ggml/src/ggml-cuda/one.cu": '#include "common.cuh"\n#include "ggml-cuda/common.cuh"\n',
    "ggml/src/ggml-cuda/template-instances/two.cu": '#include "../common.cuh"\n'
    '#include "ggml-backend.h"\n',
    "src/llama.cpp": '#include "llama.h"\n',
}
SHARED = ["ggml-alloc.h", "ggml-backend.h", "ggml.h", "ggml-impl.h"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def test_shared_headers_are_those_that_the_library_includes(tree: Path) -> None:
    assert [name.split("/")[-1] for name in shared_headers(tree)] == SHARED


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_edit_of_a_shared_header_changes_the_digest(tree: Path, name: str) -> None:
    before = abi_digest(tree)
    with (tree / name).open("a") as stream:
        stream.write("/* edited */\n")
    assert (abi_digest(tree) != before) == (Path(name).name in SHARED)


def test_a_header_that_the_library_begins_to_share_counts(tree: Path) -> None:
    before = abi_digest(tree)
    with (tree / "ggml/src/ggml-cuda/one.cu").open("a") as stream:
        stream.write('#include "ggml-cpu.h"\n')
    assert abi_digest(tree) != before


def test_the_digest_knows_no_place_and_no_time(tree: Path, tmp_path: Path) -> None:
    before = abi_digest(tree)
    assert abi_digest(tree.rename(tmp_path / "elsewhere")) == before


def test_defines_are_part_of_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = abi_digest(tree)
    monkeypatch.setattr(abi, "DEFINES", (*abi.DEFINES, "GGML_MORE"))
    assert abi_digest(tree) != before
