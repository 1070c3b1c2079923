"""A KV cache that grows and shrinks gives the answers of one that is allocated at once."""

from __future__ import annotations

import re
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Built
from tests.lib.server import Server, running

pytestmark = pytest.mark.engine

LAZY = ("--slot-initial-ctx", "1")  # one step of 256 cells
STORY = "The fox ran to the hill and the owl told him of the river. "
LONG = STORY * 30  # more than 256 tokens; the answer goes beyond 512
REQUEST = {"n_predict": 80, "temperature": 0, "n_probs": 3, "ignore_eos": True}


def complete(server: Server, prompt: object, **more: Any) -> Any:
    """Tokens and probabilities of the answers."""
    status, answer = server.request("/completion", {"prompt": prompt, **REQUEST, **more}, 600)
    assert status == 200, answer
    answers = answer if isinstance(answer, list) else [answer]
    return [(one["content"], one["completion_probabilities"]) for one in answers]


def growth(server: Server) -> list[Any]:
    """Growth in mid-prompt and mid-decode, in one slot and in all at once, and a copied slot."""
    seen = [
        complete(server, LONG, id_slot=1),
        complete(server, LONG + "So", id_slot=1, n_predict=4),
    ]
    seen.append(complete(server, [STORY * 20, "A fox", STORY * 3, "An owl"], n_predict=8))
    if len(server.request("/slots")[1]) > 1:
        seen.append(complete(server, STORY * 19 + "The river", n_cmpl=2, n_predict=4))
    return seen


def save_and_restore(server: Server) -> list[Any]:
    """A slot that is saved, erased, restored elsewhere and goes on."""
    seen = [complete(server, LONG, id_slot=0, n_predict=8)]
    for slot, action in ((0, "save"), (0, "erase"), (1, "restore")):
        status, _ = server.request(f"/slots/{slot}?action={action}", {"filename": "one"})
        assert status == 200
    seen.append(complete(server, LONG + "The fox", id_slot=1, n_predict=8))
    seen.append(complete(server, STORY * 12, id_slot=1, n_predict=8))
    return seen


def shift(server: Server) -> list[Any]:
    """Context shifts, and pieces of a prompt that move."""
    seen = [complete(server, LONG, n_predict=100), complete(server, STORY * 8, n_predict=8)]
    seen.append(complete(server, STORY * 4 + "Now. " + STORY * 16, n_predict=8, id_slot=0))
    seen.append(complete(server, STORY * 2 + "Now. " + STORY * 14, n_predict=8, id_slot=0))
    return seen


CASES: dict[str, tuple[str, Sequence[str], Callable[[Server], list[Any]]]] = {
    "one slot": ("smollm2", ("-np", "1", "-c", "1024"), growth),
    "four slots, quantized": (
        "smollm2",
        ("-np", "4", "-c", "4096", "-ctk", "q8_0", "-ctv", "q4_0"),
        growth,
    ),
    "four slots, unified": ("smollm2", ("-np", "4", "-c", "4096", "-kvu"), growth),
    "sliding window": ("gemma3", ("-np", "2", "-c", "2048", "-ctk", "q8_0"), save_and_restore),
    "shift": (
        "smollm2",
        ("-np", "2", "-c", "1024", "--context-shift", "--cache-reuse", "16"),
        shift,
    ),
    "shift, quantized": (
        "smollm2",
        ("-np", "1", "-c", "512", "--context-shift", "-ctk", "q8_0"),
        shift,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_a_full_cache(
    built: Built,
    request: pytest.FixtureRequest,
    home: dict[str, str],
    tmp_path: Path,
    case: str,
) -> None:
    model, options, talk = CASES[case]
    command: list[str | Path] = ["sh", built.file, "--server", "-t", "2", *options]
    command += ["-m", request.getfixturevalue(model), "--slots", "--slot-save-path", tmp_path]
    seen = []
    for name, more in (("full", ()), ("lazy", LAZY)):
        with running([*command, *more], tmp_path / f"{name}.log", home) as server:
            seen.append(talk(server))
            lazy = "n_ctx_alloc" in str(server.request("/slots")[1])
        assert lazy is (name == "lazy")
    assert seen[0] == seen[1]


def resident_mib(server: Server) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def allocated(server: Server) -> list[int]:
    return [slot["opencoti"]["n_ctx_alloc"] for slot in server.request("/slots")[1]]


def wait_for(server: Server, expected: list[int]) -> None:
    deadline = time.monotonic() + 30
    while allocated(server) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert allocated(server) == expected


def test_idle_slots_give_memory_back_and_go_on(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, "-t", "2"]
    command += ["-c", "16384", "-np", "2", "-fa", "on", "--slots", "--slot-initial-ctx", "256"]
    command += ["--log-verbosity", "4"]
    env = {**home, "OPENCOTI_LLAMAFILE_SLOT_SHRINK_IDLE_MS": "4000"}
    with running(command, tmp_path / "idle.log", env) as server:
        props = server.request("/props")[1]["opencoti"]["lazy_slots"]
        assert props == {"enabled": True, "initial_ctx": 256, "shrink_idle_ms": 4000}
        loaded = resident_mib(server)
        before = complete(server, STORY * 50, id_slot=1, n_predict=8)
        assert allocated(server) == [256, 768]
        grown = resident_mib(server)
        wait_for(server, [256, 256])
        shrunk = resident_mib(server)
        again = server.request("/completion", {"prompt": STORY * 50, **REQUEST, "id_slot": 1})[1]
        log = server.log_text()
    assert grown > loaded + 15
    assert shrunk < grown - 8
    assert again["timings"]["cache_n"] == 256
    assert again["content"].startswith(before[0][0])
    sizes = [float(size) for size in re.findall(r"CPU KV buffer size = +([\d.]+) MiB", log)]
    assert sizes[0] < 15
    assert max(sizes) > 20


def limit_memory(server: Server, mib: int) -> None:
    """Let the server take so much more memory, as if the machine had no more."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^VmData:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    limit = int(found[1]) * 1024 + (mib << 20)
    resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (limit, limit))


def test_a_request_that_cannot_grow_fails_alone(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, "-t", "2", *LAZY]
    command += ["-c", "16384", "-np", "2", "-fa", "on", "--slots", "--slot-save-path", tmp_path]
    with running(command, tmp_path / "memory.log", home) as server:
        complete(server, "A fox", id_slot=0)
        complete(server, "A fox", id_slot=1)
        limit_memory(server, 48)
        status_long, answer = server.request("/completion", {"prompt": STORY * 60, "id_slot": 1})
        assert (status_long, answer["error"]["type"]) == (503, "unavailable_error")
        assert complete(server, "A fox", id_slot=1)
        assert complete(server, "A fox", id_slot=0)


def test_a_choice_that_cannot_be_copied_fails_its_request_alone(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    """The prompt fits once, its copy for a second choice does not; another request goes on."""
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, "-t", "2", *LAZY]
    command += ["-c", "24576", "-np", "3", "-fa", "on", "--slots", "--cache-ram", "0"]
    with running(command, tmp_path / "copy.log", home) as server:
        for slot in range(3):
            complete(server, "A fox", id_slot=slot, n_predict=2)
        # a step needs 32 MiB beside it; 1,024 cells take 17 MiB more than the 256 that are there
        limit_memory(server, 32 + 17 + 9)
        other: list[Any] = []
        talk = threading.Thread(
            target=lambda: other.append(complete(server, "An owl", id_slot=0, n_predict=200))
        )
        talk.start()
        while not server.request("/slots")[1][0]["is_processing"]:
            time.sleep(0.01)
        body = {"prompt": STORY * 60, "n_predict": 2}
        status, answer = server.request("/completion", {**body, "n_cmpl": 2})
        assert (status, answer["error"]["type"]) == (503, "unavailable_error")
        talk.join(120)
        assert other
        log = server.log_text()
        assert "copying state to child" in log
        assert "Invalid input batch" not in log
        # the slots are free again, and one choice fits
        assert server.request("/completion", {**body, "id_slot": 1})[0] == 200
        assert not any(slot["is_processing"] for slot in server.request("/slots")[1])


def test_a_server_that_slept_is_lazy_again(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, "-t", "2", *LAZY]
    command += ["-c", "2048", "-np", "2", "--slots", "--sleep-idle-seconds", "1"]
    command += ["--slot-shrink-idle-ms", "60000"]
    with running(command, tmp_path / "sleep.log", home) as server:
        before = complete(server, LONG, id_slot=1, n_predict=8)
        assert allocated(server) == [256, 512]
        deadline = time.monotonic() + 60
        while not server.request("/props")[1]["is_sleeping"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert complete(server, "A fox", id_slot=0, n_predict=1)
        assert allocated(server) == [256, 256]
        assert complete(server, LONG, id_slot=1, n_predict=8) == before


@pytest.mark.parametrize(
    "words",
    [
        ["--slot-shrink-idle-ms", "100"],
        [*LAZY, "-fa", "off"],
        [*LAZY, "--context-shift", "-np", "5"],
        ["--slot-initial-ctx", "-1"],
        ["--slot-initial-ctx", "much"],
    ],
)
def test_what_does_not_work_is_refused(
    built: Built, smollm2: Path, home: dict[str, str], words: list[str]
) -> None:
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, *words]
    done = subprocess.run(command, env=home, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "--slot-" in done.stderr
