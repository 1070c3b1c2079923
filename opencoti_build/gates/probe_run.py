"""Running opencoti-probe and reading its stream of logits. Standard library only."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from opencoti_build.errors import CheckError
from opencoti_build.gates.subject import PROBE, Subject

_HEADER = struct.Struct("<8sII")
_ROW = struct.Struct("<iiii")
_MAGIC = b"OCLOGITS"
_FORMAT = 1
_TIMEOUT = 1800


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated: ``tokens`` of each of ``sequences``, the last ``decoded`` one by one."""

    tokens: int
    decoded: int
    sequences: int = 1


@dataclass(frozen=True)
class Row:
    """The logits of one token, as a digest of their bytes."""

    sequence: int
    position: int
    digest: bytes


def clean_environment() -> dict[str, str]:
    """The environment without anything that changes an engine's defaults."""
    ours = ("LLAMA_", "OPENCOTI_", "GGML_", "TURBO_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _command(
    subject: Subject, text: Path, out: str, what: Evaluation, args: Sequence[str]
) -> list[str]:
    numbers = [str(what.tokens), str(what.decoded), str(what.sequences)]
    # -fit off: parameters must not depend on the memory that happens to be free.
    return [str(subject.program(PROBE)), "logits", str(text), out, *numbers, "-fit", "off", *args]


def logits_digests(
    subject: Subject, text: Path, what: Evaluation, args: Sequence[str], log: Path
) -> list[Row]:
    """The digest of every row of logits, read from a pipe: nothing is written to disk.

    Raises CheckError ``gate-probe-failed``.
    """
    reading, writing = os.pipe()
    command = _command(subject, text, f"/dev/fd/{writing}", what, args)
    with log.open("wb") as errors, os.fdopen(reading, "rb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            env=clean_environment(),
        )
        os.close(writing)
        try:
            rows = list(_read_rows(stream))
        except EOFError:
            rows = []
        finally:
            stream.close()
            status = process.wait(_TIMEOUT)
    if status != 0 or len(rows) != what.tokens * what.sequences:
        raise _failure(subject, command, status, log)
    return rows


def write_logits(
    subject: Subject, text: Path, what: Evaluation, args: Sequence[str], out: Path, log: Path
) -> None:
    """Write the logits to the file ``out``. Raises CheckError ``gate-probe-failed``."""
    command = _command(subject, text, str(out), what, args)
    with log.open("wb") as errors:
        status = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT,
            env=clean_environment(),
        ).returncode
    if status != 0:
        raise _failure(subject, command, status, log)


def compare_logits(subject: Subject, reference: Path, other: Path, log: Path) -> Difference:
    """How far ``other`` is from ``reference``. Raises CheckError ``gate-probe-failed``."""
    command = [str(subject.program(PROBE)), "compare", str(reference), str(other)]
    with log.open("wb") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, timeout=_TIMEOUT)
    if done.returncode != 0:
        raise _failure(subject, command, done.returncode, log)
    return Difference(**json.loads(done.stdout))


@dataclass(frozen=True)
class Difference:
    """Two evaluations of the same tokens. Divergences are KL(reference || other), in nats.

    A number that came out as NaN or infinite is None.
    """

    tokens: int
    identical: int
    first_difference: dict[str, int] | None
    max_delta: float | None
    kld_mean: float | None
    kld_999: float | None
    kld_max: float | None
    same_top: float | None
    ppl_reference: float | None
    ppl: float | None


def _read_rows(stream: IO[bytes]) -> Iterator[Row]:
    """Raises EOFError when the stream ends too early or is no stream of logits."""
    magic, version, n_vocab = _HEADER.unpack(_exactly(stream, _HEADER.size))
    if (magic, version) != (_MAGIC, _FORMAT):
        raise EOFError("not a stream of logits")
    while head := stream.read(_ROW.size):
        if len(head) != _ROW.size:
            raise EOFError("a part of a row")
        sequence, position, _, _ = _ROW.unpack(head)
        yield Row(sequence, position, hashlib.sha256(_exactly(stream, 4 * n_vocab)).digest())


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the stream ended too early")
    return data


def _failure(subject: Subject, command: Sequence[str], status: int, log: Path) -> CheckError:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return CheckError(
        "gate-probe-failed",
        f"the probe of {subject.name} failed",
        context={
            "command": " ".join(command),
            "status": status,
            "last lines": "\n    " + "\n    ".join(lines[-8:]),
        },
    )
