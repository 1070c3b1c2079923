"""Reading the probe's stream, with a program of ours in the place of the probe."""

from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path

import pytest

from opencoti_build.errors import CheckError
from opencoti_build.gates.probe_run import Evaluation, logits_digests
from opencoti_build.gates.subject import PROBE, Subject

PROGRAM = """\
#!{python}
import os, struct, sys
mode, text, out, tokens, decoded, sequences, *args = sys.argv[1:]
assert mode == "logits" and args[:2] == ["-fit", "off"], args
assert not [name for name in os.environ if name.startswith("LLAMA_")]
with open(out, "wb") as stream:
    stream.write(struct.pack("<8sII", {magic}, 1, 3))
    for row in range({rows}):
        stream.write(struct.pack("<iiii3f", 0, row, 5, 6, row, 1, 2))
    stream.write({rest})
print("a line of the log")
sys.exit({status})
"""


def _subject(
    folder: Path, rows: int = 4, rest: bytes = b"", status: int = 0, magic: bytes = b"OCLOGITS"
) -> Subject:
    program = folder / PROBE
    text = PROGRAM.format(python=sys.executable, rows=rows, rest=rest, status=status, magic=magic)
    program.write_text(text)
    program.chmod(0o755)
    return Subject("base", folder, (), "k", "t")


def test_rows_are_digests_of_their_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "7")
    rows = logits_digests(
        _subject(tmp_path), tmp_path / "text", Evaluation(4, 1), ["-x"], tmp_path / "log"
    )
    assert [(row.sequence, row.position) for row in rows] == [(0, n) for n in range(4)]
    assert rows[2].digest == hashlib.sha256(struct.pack("<3f", 2, 1, 2)).digest()
    assert (tmp_path / "log").read_text() == "a line of the log\n"


@pytest.mark.parametrize(
    "broken",
    [
        {"rows": 3},  # too few
        {"rows": 3, "rest": b"123"},  # a part of a row
        {"rows": 3, "rest": b"1" * 20},  # a row without all of its logits
        {"status": 1},
        {"magic": b"WRONGMAG"},
    ],
)
def test_a_stream_that_is_not_whole_is_an_error(tmp_path: Path, broken: dict[str, object]) -> None:
    subject = _subject(tmp_path, **broken)  # type: ignore[arg-type]
    with pytest.raises(CheckError) as caught:
        logits_digests(subject, tmp_path / "text", Evaluation(4, 1), [], tmp_path / "log")
    assert caught.value.reason == "gate-probe-failed"
    assert "a line of the log" in str(caught.value.context["last lines"])
