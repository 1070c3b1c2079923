"""Requests that name a session come back to the slot that holds its KV cache."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Built
from tests.lib.server import Server, running

pytestmark = pytest.mark.engine

SYSTEM = "You are an agent who plans journeys by train. " * 8
OPTIONS = ("-c", "2048", "-np", "2", "-t", "2", "--slots")
ROUTES = {
    "/completion": {"prompt": "Hello", "n_predict": 1},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
    "/infill": {"input_prefix": "def", "input_suffix": "end", "n_predict": 1},
}
# SmolLM2 has no tokens for /infill; these are some of its names for parts of a repository.
INFILL = ("--override-kv", ",".join(
    f"tokenizer.ggml.fim_{part}_token_id=int:{token}"
    for part, token in (("pre", 10), ("suf", 11), ("mid", 12))
))  # fmt: skip


@pytest.fixture(scope="module")
def server(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sessions")
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, *OPTIONS, *INFILL]
    command += ["--slot-save-path", folder]
    with running(command, folder / "log", home) as started:
        yield started


@pytest.fixture(autouse=True)
def erased(server: Server) -> None:
    """Every test begins with slots of no session; the host prompt cache stays as it is."""
    for slot in (0, 1):
        assert server.request(f"/slots/{slot}?action=erase", {})[0] == 200


def turn(server: Server, agent: str, number: int, session: str | None, **more: Any) -> Any:
    """One turn of an agent whose history grows; the parsed answer."""
    history = f"{SYSTEM}{agent} travels. " + f"The train of {agent} is late. " * (8 + number)
    body = {"prompt": history, "n_predict": 4, "temperature": 0, **more}
    if session is not None:
        body["session_id"] = session
    status, answer = server.request("/completion", body)
    assert status == 200, answer
    return answer


def sessions(server: Server) -> list[str]:
    slots = server.request("/slots")[1]
    return [slot["opencoti"]["session_id"] if "opencoti" in slot else "" for slot in slots]


def test_two_interleaved_sessions_keep_their_slots(server: Server) -> None:
    slots = [turn(server, name, 0, name)["id_slot"] for name in ("Ann", "Bob")]
    assert sorted(slots) == [0, 1]
    for number in (1, 2):
        for name, slot in zip(("Ann", "Bob"), slots, strict=True):
            answer = turn(server, name, number, name)
            assert answer["id_slot"] == slot
            assert answer["timings"]["prompt_n"] < 24


def test_a_session_that_lost_its_slot_comes_back_with_its_cache(server: Server) -> None:
    for name in ("Cleo", "Dan", "Eve"):
        turn(server, name, 0, name)
    assert "Cleo" not in sessions(server)
    back = turn(server, "Cleo", 1, "Cleo")
    assert back["timings"]["prompt_n"] < 24
    assert "Cleo" in sessions(server)
    assert "Dan" not in sessions(server)


def test_a_request_without_a_session_takes_the_most_similar_slot(server: Server) -> None:
    """The base's rule, whoever owns the slot; and the owner's prompt is not lost by it."""
    first = turn(server, "Fay", 0, "Fay")
    other = turn(server, "Fay", 1, None)
    assert other["id_slot"] == first["id_slot"]
    assert other["timings"]["prompt_n"] < 24
    assert sessions(server) == ["", ""]
    assert turn(server, "Fay", 2, "Fay")["timings"]["prompt_n"] < 40


def test_a_session_leaves_the_cached_prompts_of_others_alone(server: Server) -> None:
    for name in ("Gus", "Hal", "Ida"):
        turn(server, name, 0, name)
    turn(server, "Gus", 0, "a stranger with the prompt of Gus")
    assert turn(server, "Gus", 1, "Gus")["timings"]["prompt_n"] < 24


@pytest.mark.parametrize("route", ROUTES)
def test_every_completion_route_has_the_field_and_the_header(server: Server, route: str) -> None:
    name = f"caf\u00e9 \U0001f600 {route}"
    status, answer = server.request(route, {**ROUTES[route], "session_id": name})
    assert status == 200, answer
    assert name in sessions(server)
    headers = {"x-session-id": f"header of {route}"}
    assert server.request(route, ROUTES[route], headers=headers)[0] == 200
    assert headers["x-session-id"] in sessions(server)


@pytest.mark.parametrize("value", [7, True, ["a"], {"a": "b"}, "x" * 257])
@pytest.mark.parametrize("route", ROUTES)
def test_what_is_no_session_is_refused(server: Server, route: str, value: object) -> None:
    status, answer = server.request(route, {**ROUTES[route], "session_id": value})
    assert status == 400
    assert "session_id" in str(answer)
    assert sessions(server) == ["", ""]


@pytest.mark.parametrize("value", [None, ""])
def test_an_empty_session_is_none(server: Server, value: object) -> None:
    assert server.request("/completion", {**ROUTES["/completion"], "session_id": value})[0] == 200
    assert sessions(server) == ["", ""]


def together(server: Server, calls: list[tuple[str, int, str]], n_predict: int) -> list[Any]:
    """The calls at the same time, started in their order; their answers."""
    answers: list[Any] = [None] * len(calls)

    def call(index: int) -> None:
        answers[index] = turn(server, *calls[index], n_predict=n_predict, ignore_eos=True)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
        while not any(slot["is_processing"] for slot in server.request("/slots")[1]):
            time.sleep(0.01)
    for thread in threads:
        thread.join(120)
    assert all(answers)
    return answers


@pytest.mark.parametrize(("wait_ms", "same"), [("0", False), ("-1", True)])
def test_a_busy_slot_of_the_own_session(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path, wait_ms: str, same: bool
) -> None:
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, *OPTIONS]
    env = {**home, "OPENCOTI_LLAMAFILE_SESSION_BUSY_WAIT_MS": wait_ms}
    with running(command, tmp_path / "busy.log", env) as server:
        assert server.request("/props")[1]["opencoti"]["kv_reuse"]["session_busy_wait_ms"] == int(
            wait_ms
        )
        first, second = together(server, [("Jo", 0, "Jo"), ("Jo", 1, "Jo")], 64)
    assert (first["id_slot"] == second["id_slot"]) is same


class Calls:
    """Requests that run at the same time and are put in one after the other."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.done: list[str] = []  # in the order in which they ended
        self.answers: dict[str, Any] = {}
        self.threads: list[threading.Thread] = []

    def waiting(self) -> int:
        """Requests that the server has put off."""
        url = f"http://127.0.0.1:{self.server.port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = re.search(rb"^llamacpp:requests_deferred (\d+)", answer.read(), re.MULTILINE)
        assert found
        return int(found[1])

    def start(self, name: str, session: str, n_predict: int, waiting: int) -> None:
        """Put a request in, and go on when ``waiting`` ones wait for a slot."""

        def call() -> None:
            self.answers[name] = turn(
                self.server, session, 0, session, n_predict=n_predict, ignore_eos=True
            )
            self.done.append(name)

        before = len(self.busy())
        self.threads.append(threading.Thread(target=call))
        self.threads[-1].start()
        deadline = time.monotonic() + 60
        while self.waiting() != waiting or (not waiting and len(self.busy()) == before):
            assert time.monotonic() < deadline, (name, self.done)
            time.sleep(0.01)

    def busy(self) -> list[Any]:
        return [slot for slot in self.server.request("/slots")[1] if slot["is_processing"]]

    def finish(self) -> list[str]:
        for thread in self.threads:
            thread.join(240)
        return self.done


@pytest.fixture(scope="module")
def queues(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], AbstractContextManager[Server]]:
    """A server with so many slots that tells how many requests wait, and lets sessions wait."""
    folder = tmp_path_factory.mktemp("queues")

    def start(n_slots: int) -> AbstractContextManager[Server]:
        command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, "--slots"]
        command += ["-c", str(1024 * n_slots), "-np", str(n_slots), "-t", "2", "--metrics"]
        command += ["--session-busy-wait-ms", "-1"]
        return running(command, folder / f"{n_slots}.log", home)

    return start


def test_one_slot_serves_two_sessions_in_order_of_arrival(
    queues: Callable[[int], AbstractContextManager[Server]],
) -> None:
    """A session that keeps the only slot busy does not keep another one out."""
    with queues(1) as server:
        calls = Calls(server)
        calls.start("Kim 1", "Kim", 600, 0)
        for waiting, name in enumerate(("Lea 1", "Kim 2", "Lea 2"), 1):
            calls.start(name, name[:3], 2, waiting)
        assert calls.finish() == ["Kim 1", "Lea 1", "Kim 2", "Lea 2"]
        assert sessions(server) == ["Lea"]


def test_a_session_that_waits_for_its_slot_blocks_no_other(
    queues: Callable[[int], AbstractContextManager[Server]],
) -> None:
    with queues(2) as server:
        calls = Calls(server)
        calls.start("Kim 1", "Kim", 600, 0)
        calls.start("Kim 2", "Kim", 2, 1)
        turn(server, "Lea", 0, "Lea")  # goes past the one that waits
        assert calls.done == []
        assert calls.finish() == ["Kim 1", "Kim 2"]
        assert calls.answers["Kim 1"]["id_slot"] == calls.answers["Kim 2"]["id_slot"]
        assert sorted(sessions(server)) == ["Kim", "Lea"]


def test_many_sessions_take_no_more_memory_than_the_cache_may(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    """Each of 160 sessions leaves a prompt of 1 MiB; the host prompt cache holds 4 MiB."""
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, *OPTIONS]
    with running([*command, "--cache-ram", "4"], tmp_path / "many.log", home) as server:
        memory: list[int] = []
        for number in range(160):
            body = {"prompt": SYSTEM[:240], "n_predict": 1, "session_id": f"{number} {'x' * 240}"}
            assert server.request("/completion", body)[0] == 200
            memory.append(memory_bytes(server))
        assert memory[-1] - memory[20] < 24 << 20
        assert "cache size limit reached" in server.log_text()


def memory_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def test_a_router_passes_the_session_and_the_flags_on(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "small.gguf").symlink_to(smollm2)
    command: list[str | Path] = ["sh", built.file, "--server", "--models-dir", models]
    command += [*OPTIONS, "--session-busy-wait-ms", "77"]
    body = {"model": "small", **ROUTES["/v1/chat/completions"]}
    with running(command, tmp_path / "router.log", home) as server:
        for more, headers in (({}, {"X-Session-Id": "Mo"}), ({"session_id": "Nia"}, {})):
            status, answer = server.request(
                "/v1/chat/completions", {**body, **more}, headers=headers
            )
            assert status == 200, answer
        slots = server.request("/slots?model=small")[1]
        assert sorted(slot["opencoti"]["session_id"] for slot in slots) == ["Mo", "Nia"]
        reuse = server.request("/props?model=small")[1]["opencoti"]["kv_reuse"]
        assert reuse["session_busy_wait_ms"] == 77
