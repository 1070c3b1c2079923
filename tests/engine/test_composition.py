"""Features of the series together: the answers are those of the same layers without any of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Built
from tests.lib.gguf_layers import copy_layers
from tests.lib.server import Server, running

pytestmark = pytest.mark.engine

PLAN = "10-14"
PATH = [*range(14), *range(10, 30)]
STORY = "The fox ran to the hill and the owl told him of the river. "
FEATURES = ("--repeat-layers", PLAN, "--slot-initial-ctx", "1", "--slot-shrink-idle-ms", "600000")
SLOT_KEYS = {"session_id", "draft_n_total", "draft_n_accepted", "draft_acceptance"}


@pytest.fixture(scope="module")
def copied(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 with four layers copied by hand."""
    file = tmp_path_factory.mktemp("copied") / "copied.gguf"
    copy_layers(smollm2, file, PATH)
    return file


def ask(server: Server, prompt: str, session: str | None, **more: Any) -> list[Any]:
    """Tokens of an answer, and how many tokens were drafted and accepted for it."""
    body = {"prompt": prompt, "temperature": 0, "ignore_eos": True, "return_tokens": True, **more}
    if session:
        body["session_id"] = session
    status, answer = server.request("/completion", body, 600)
    assert status == 200, answer
    timings = answer["timings"]
    return [answer["tokens"], timings.get("draft_n"), timings.get("draft_n_accepted")]


def converse(server: Server, sessions: Sequence[str | None]) -> list[Any]:
    """Growth, a shift of the context, a prompt whose pieces move, a saved slot, several choices."""
    first, second = sessions
    seen = [
        ask(server, STORY * 32, first, id_slot=0, n_predict=12),
        ask(server, "1 2 3 4 5 6 7 8 9 10 11 12 13 14", second, id_slot=1, n_predict=24),
        ask(server, STORY * 32 + "So", first, id_slot=0, n_predict=40),
        ask(server, STORY * 4 + "Now. " + STORY * 16, first, id_slot=0, n_predict=8),
        ask(server, STORY * 2 + "Now. " + STORY * 14, first, id_slot=0, n_predict=8),
    ]
    for slot, action in ((0, "save"), (0, "erase"), (1, "restore")):
        assert server.request(f"/slots/{slot}?action={action}", {"filename": "one"})[0] == 200
    seen.append(
        ask(server, STORY * 2 + "Now. " + STORY * 14 + "The", first, id_slot=1, n_predict=8)
    )
    choices = {"prompt": STORY * 3, "n_cmpl": 2, "temperature": 0, "n_predict": 6}
    status, answers = server.request("/completion", choices, 600)
    assert status == 200, answers
    return [*seen, [answer["content"] for answer in answers]]


@pytest.mark.parametrize(
    "options",
    [("--draft", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"), ("-kvu",)],
    ids=["draft-quantized", "unified"],
)
def test_all_features_together(
    built: Built,
    smollm2: Path,
    copied: Path,
    home: dict[str, str],
    tmp_path: Path,
    options: tuple[str, ...],
) -> None:
    command: list[str | Path] = ["sh", built.file, "--server", "-t", "2", "-c", "1024", "-np", "2"]
    command += ["--slots", "--slot-save-path", tmp_path, "--context-shift", "--cache-reuse", "16"]
    if "--draft" in options:
        command += ["-md", smollm2, "--spec-type", "draft-simple", *options[1:]]
    else:
        command += options
    with running([*command, "-m", copied], tmp_path / "plain.log", home) as server:
        expected = converse(server, (None, None))
    with running([*command, "-m", smollm2, *FEATURES], tmp_path / "all.log", home) as server:
        seen = converse(server, ("Ann", "Bob"))
        props = server.request("/props")[1]["opencoti"]
        slots = [slot["opencoti"] for slot in server.request("/slots")[1]]
        log = server.log_text()
    assert seen == expected
    assert ("context shift" in log) is ("-kvu" not in options)  # there a slot has all 1,024 cells
    assert props["repeat_layers"]["n_layer_effective"] == 34
    assert props["lazy_slots"]["enabled"]
    assert {frozenset(slot) for slot in slots} == {frozenset({*SLOT_KEYS, "n_ctx_alloc"})}
    drafted = sum(slot["draft_n_total"] for slot in slots)
    assert (drafted > 0) is ("--draft" in options)


def test_embeddings_of_repeated_layers_in_lazy_slots(
    built: Built, smollm2: Path, copied: Path, home: dict[str, str], tmp_path: Path
) -> None:
    """``session_id`` means nothing there, and is no error."""
    command: list[str | Path] = ["sh", built.file, "--server", "-t", "2", "-c", "1024", "-np", "2"]
    command += ["--slots", "--embeddings", "--pooling", "mean", "-ub", "512"]
    texts = [STORY, STORY * 20, "An owl"]
    vectors = []
    models: list[list[str | Path]] = [["-m", copied], ["-m", smollm2, *FEATURES], ["-m", smollm2]]
    for words in models:
        with running([*command, *words], tmp_path / "embeddings.log", home) as server:
            body = {"input": texts, "session_id": "Ann"}
            status, answer = server.request("/v1/embeddings", body)
            assert status == 200, answer
            vectors.append([item["embedding"] for item in answer["data"]])
            assert "Ann" not in str(server.request("/slots")[1])
    assert vectors[0] == vectors[1]
    assert vectors[0] != vectors[2]


@pytest.mark.parametrize(
    ("kind", "least"),
    [("draft-simple", 0.9), ("ngram-simple", 0.1)],
)
def test_acceptance_of_drafts_over_the_life_of_a_slot(
    built: Built,
    smollm2: Path,
    home: dict[str, str],
    tmp_path: Path,
    kind: str,
    least: float,
) -> None:
    """A model that drafts for itself is right nearly always, n-grams are so now and then."""
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, "-t", "2", "--slots"]
    command += ["-c", "1024", "-np", "1", "--spec-type", kind]
    command += ["-md", smollm2] if kind == "draft-simple" else []
    with running(command, tmp_path / "draft.log", home) as server:
        assert server.request("/props")[1]["opencoti"]["speculative"]["types"] == ["none", kind]
        (slot,) = server.request("/slots")[1]
        assert slot["opencoti"] == {
            "session_id": "",
            "draft_n_total": 0,
            "draft_n_accepted": 0,
            "draft_acceptance": None,
        }
        total = accepted = 0
        for prompt in ("one two three four five six " * 8, "A B C D E F G H I J K " * 6):
            _, drafted, right = ask(server, prompt, None, n_predict=48)
            total, accepted = total + drafted, accepted + right
            (slot,) = server.request("/slots")[1]
            assert slot["opencoti"]["draft_n_total"] == total
            assert slot["opencoti"]["draft_n_accepted"] == accepted
            assert slot["opencoti"]["draft_acceptance"] == pytest.approx(accepted / total)
    assert accepted / total > least


def test_slots_without_a_feature_have_no_object_of_their_own(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    command: list[str | Path] = ["sh", built.file, "--server", "-m", smollm2, "-t", "2", "--slots"]
    with running([*command, "-c", "512", "-np", "2"], tmp_path / "off.log", home) as server:
        ask(server, "A fox", None, n_predict=2, id_slot=1)
        slots = server.request("/slots")[1]
        assert all("opencoti" not in slot for slot in slots)
        ask(server, "A fox", "Ann", n_predict=2, id_slot=1)
        assert [set(slot.get("opencoti", ())) for slot in server.request("/slots")[1]] == [
            set(),
            SLOT_KEYS,
        ]
