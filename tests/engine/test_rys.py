"""Layers that run more than once equal layers that were copied by hand, and are refused loudly."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
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
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):",
    "Water boils at",
)
# The file of Gemma 3 has no table of sliding windows: only whole periods of 6 can be copied.
COPIES: dict[str, tuple[str, str, list[int]]] = {
    "smollm2-block": ("smollm2", PLAN, PATH),
    "smollm2-two-blocks": (
        "smollm2",
        "8,9;20-23x3",
        [*range(9), *range(8, 23), *range(20, 23), *range(20, 30)],
    ),
    "smollm2-path": (
        "smollm2",
        "0..14,12,13,14,12..29",
        [*range(15), 12, 13, 14, *range(12, 30)],
    ),
    "gemma3-period": ("gemma3", "4-10", [*range(10), *range(4, 18)]),
}


@pytest.fixture(scope="module")
def tool(native_tests: dict[str, Path]) -> Path:
    """The C++ test of the patch, with the CPU modules beside it."""
    return native_tests["rys"]


@pytest.fixture(scope="module")
def models(smollm2: Path, gemma3: Path) -> dict[str, Path]:
    return {"smollm2": smollm2, "gemma3": gemma3}


@pytest.fixture(scope="module")
def copied(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 with four layers copied by hand."""
    file = tmp_path_factory.mktemp("copied") / "copied.gguf"
    copy_layers(smollm2, file, PATH)
    return file


def _run(command: Sequence[str | Path], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )


def test_random_models_of_every_architecture_equal_copied_ones(
    tool: Path, home: dict[str, str]
) -> None:
    done = _run([tool], home)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for arch in ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3next", "qwen35"):
        assert re.search(rf"^  {arch} ", done.stdout, re.MULTILINE)
    for arch in ("qwen35moe", "gemma3", "gemma4"):
        assert re.search(rf"^  {arch} ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("cache", ["f16", "q8_0"])
def test_logits_equal_those_of_a_file_copied_by_hand(
    tool: Path,
    models: dict[str, Path],
    home: dict[str, str],
    tmp_path: Path,
    name: str,
    cache: str,
) -> None:
    model, plan, path = COPIES[name]
    copy_layers(models[model], tmp_path / "copied.gguf", path)
    runs = {
        "plan": (models[model], plan),
        "copied": (tmp_path / "copied.gguf", ""),
        "off": (models[model], ""),
    }
    logits = {}
    for run, (file, text) in runs.items():
        done = _run([tool, file, text, tmp_path / run, cache], home)
        assert done.returncode == 0, done.stderr[-2000:]
        logits[run] = (tmp_path / run).read_bytes()
    assert len(logits["plan"]) > 1_000_000
    assert logits["plan"] == logits["copied"]
    assert logits["plan"] != logits["off"]


def _complete(server: Server, prompt: str, slot: int, **more: Any) -> Any:
    body = {
        "prompt": prompt,
        "n_predict": 12,
        "temperature": 0,
        "n_probs": 3,
        "id_slot": slot,
        "cache_prompt": True,
        **more,
    }
    status, answer = server.request("/completion", body)
    assert status == 200, answer
    return answer


def _answers(server: Server) -> list[Any]:
    """What every slot says, with the probabilities of each token."""
    return [
        _complete(server, prompt, slot)["completion_probabilities"]
        for slot, prompt in enumerate(PROMPTS)
    ]


def _saved_and_restored(server: Server) -> list[Any]:
    """A conversation that goes on from a file, in another slot."""
    first = _complete(server, PROMPTS[1], 1)
    assert server.request("/slots/1?action=save", {"filename": "slot.bin"})[0] == 200
    assert server.request("/slots/1?action=erase", {})[0] == 200
    assert server.request("/slots/2?action=restore", {"filename": "slot.bin"})[0] == 200
    again = _complete(server, PROMPTS[1] + first["content"], 2)
    assert again["timings"]["cache_n"] > 10
    return [first["completion_probabilities"], again["completion_probabilities"]]


@pytest.mark.parametrize("unified", ["--kv-unified", "--no-kv-unified"])
def test_server_with_slots_quantized_cache_and_saved_slots(
    built: Built,
    smollm2: Path,
    copied: Path,
    home: dict[str, str],
    tmp_path: Path,
    unified: str,
) -> None:
    options = ["-c", "2048", "-np", "4", unified, "-t", "2", "-ctk", "q8_0", "-ctv", "q8_0"]
    options += ["-fa", "on", "--slot-save-path", f"{tmp_path}", "--cache-ram", "0", "-lv", "4"]
    seen = {}
    models = {"plan": [str(smollm2), "--repeat-layers", PLAN], "copied": [str(copied)]}
    for run, words in models.items():
        command = ["sh", str(built.file), "--server", "-m", *words, *options]
        with running(command, tmp_path / f"{run}.log", home) as server:
            seen[run] = (_answers(server), _saved_and_restored(server))
            opencoti = server.request("/props")[1]["opencoti"]
            log = server.log_text()
        assert opencoti["kv"]["effective"]["type_k"] == "q8_0"
        if run == "plan":
            assert opencoti["repeat_layers"] == {
                "plan": PLAN,
                "n_layer": 30,
                "n_layer_effective": 34,
                "path": PATH,
            }
        else:
            assert opencoti["repeat_layers"] is None
        sizes = re.findall(r"KV buffer size = *([0-9.]+) MiB", log)
        # 34 layers, 2048 cells, K and V of 3 heads of 64 values, 34 bytes for 32 values
        assert float(sizes[-1]) == pytest.approx(34 * 2048 * 2 * 192 * 34 / 32 / 2**20, abs=0.01)
    assert seen["plan"] == seen["copied"]


def test_state_of_another_plan_is_refused(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    options = ["-c", "512", "-np", "1", "-t", "2", "--slot-save-path", f"{tmp_path}"]
    command = ["sh", str(built.file), "--server", "-m", str(smollm2), *options]
    body = {"filename": "slot.bin"}
    with running([*command, "--repeat-layers", PLAN], tmp_path / "a.log", home) as server:
        _complete(server, PROMPTS[0], 0)
        assert server.request("/slots/0?action=save", body)[0] == 200
    for words in (["--repeat-layers", "14-18"], []):
        with running([*command, *words], tmp_path / "b.log", home) as server:
            assert server.request("/slots/0?action=restore", body)[0] == 400
            assert _complete(server, PROMPTS[0], 0)["tokens_predicted"] == 12


def test_a_plan_that_repeats_nothing_is_no_plan(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    seen = []
    for words in ([], ["--repeat-layers", "10-14x1"], ["--repeat-layers", "0..29"]):
        command = [
            "sh",
            str(built.file),
            "--server",
            "-m",
            str(smollm2),
            "-c",
            "512",
            "-np",
            "4",
            "-t",
            "2",
        ]
        with running([*command, *words], tmp_path / "log", home) as server:
            opencoti = server.request("/props")[1]["opencoti"]
            seen.append((_answers(server), opencoti))
    assert seen[0][1]["repeat_layers"] is None
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]


def test_env_twins_and_the_advisory(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    command = ["sh", str(built.file), "--server", "-m", str(smollm2), "-c", "256", "-np", "1"]
    command += ["-lv", "4"]
    low = {**home, "OPENCOTI_LLAMAFILE_REPEAT_LAYERS": "0-2;28-30"}
    both = {**low, "LLAMA_ARG_REPEAT_LAYERS": "10,11"}
    for env, plan, n_advice in ((low, "0-2;28-30", 2), (both, "10-11", 0)):
        with running(command, tmp_path / "log", env) as server:
            repeated = server.request("/props")[1]["opencoti"]["repeat_layers"]
            log = server.log_text()
        assert repeated["plan"] == plan
        assert log.count("often makes a model incoherent") == n_advice
        assert log.count("layers run as") == 1


def test_draft_model_runs_every_layer_once(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    command = [
        "sh",
        str(built.file),
        "--server",
        "-m",
        str(smollm2),
        "--repeat-layers",
        PLAN,
        "-c",
        "512",
    ]
    command += [
        "-np",
        "1",
        "-t",
        "2",
        "-lv",
        "4",
        "-md",
        str(smollm2),
        "--spec-type",
        "draft-simple",
    ]
    with running(command, tmp_path / "log", home) as server:
        answer = _complete(server, "1 2 3 4 5 6 7 8 9 10 11 12 13", 0, n_predict=24)
        repeated = server.request("/props")[1]["opencoti"]["repeat_layers"]
        log = server.log_text()
    assert repeated["n_layer_effective"] == 34
    assert log.count("layers run as") == 1
    assert answer["timings"]["draft_n"] > 0
    # KV caches: 34 layers of the model, 30 of the draft
    assert {int(n) for n in re.findall(r"cells, +(\d+) layers", log)} >= {30, 34}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--repeat-layers", "ten"], "26-34"),
        (["--repeat-layers", "12-12"], "12-13"),
        (["--repeat-layers", "8-12;10-14"], "overlap"),
        (["--repeat-layers", "28-31"], "[0, 30)"),
        (["--repeat-layers", "0..9,12..29"], "leave one out"),
        (["--repeat-layers", PLAN, "--control-vector", "x.gguf"], "leave one out"),
        (["--repeat-layers", PLAN, "--split-mode", "tensor"], "--split-mode layer"),
    ],
)
def test_refusals_say_what_to_change(
    built: Built, smollm2: Path, home: dict[str, str], words: list[str], part: str
) -> None:
    done = _run(["sh", str(built.file), "--server", "-m", str(smollm2), *words], home)
    assert done.returncode == 1
    assert part in done.stderr


#
# the probe
#


def _probe(
    built: Built, model: Path, text: Path, result: Path, widths: str = "22,23", **more: str | int
) -> list[str]:
    """A probe with a small text and few questions; ``more`` are its other flags."""
    options: dict[str, object] = {"t": 2, "c": 64, "chunks": 1, "rys-probe-tasks": 3, **more}
    command = ["sh", str(built.file), "--rys-probe", "-m", str(model), "-f", str(text)]
    for name, value in options.items():
        command += [f"-{name}" if len(name) < 4 else f"--{name}", str(value)]
    command += ["--rys-probe-widths", widths, "--rys-probe-topk", "4"]
    return [*command, "--rys-probe-json", str(result)]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("The river runs from the hills to the sea, past farms and small towns. " * 9)
    return file


def _scores(result: Path) -> dict[str, Any]:
    scores: dict[str, Any] = json.loads(result.read_text())["scores"]
    return scores


def test_probe_can_be_stopped_and_goes_on(
    built: Built, smollm2: Path, home: dict[str, str], text: Path, tmp_path: Path
) -> None:
    result = tmp_path / "probe.json"
    command = _probe(built, smollm2, text, result)
    process = subprocess.Popen(
        command,
        env=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (result.exists() and len(_scores(result)) >= 2):
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < deadline, "no score in time"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err[-2000:]
    assert out == ""
    before = _scores(result)

    # another number of threads does not matter
    command[command.index("-t") + 1] = "1"
    done = _run(command, home)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"5 blocks, {len(before) - 1} done before" in done.stderr
    whole = json.loads(result.read_text())
    assert {plan: whole["scores"][plan] for plan in before} == before
    # 24 layers between the bands of 3 layers
    assert set(whole["scores"]) == {"", "3-25", "4-26", "5-27", "3-26", "4-27"}

    report = whole["report"]
    assert len(report["rows"]) == 4
    gains = [row["gain"] for row in report["rows"]]
    assert gains == sorted(gains, reverse=True)
    assert report["most_gain"] == report["rows"][0]["plan"]
    plans = re.findall(r"--repeat-layers '?([0-9;x-]+)'?", done.stdout)
    assert plans == [report["most_efficient"], report["most_gain"]]

    # done already: the same report again, and only the model as it is was scored
    again = _run(command, home)
    assert again.stdout == done.stdout
    assert len(re.findall(r"^rys-probe: \d+/\d+ ", again.stderr, re.MULTILINE)) == 1


def test_scores_that_do_not_compare_are_not_mixed(
    built: Built, smollm2: Path, home: dict[str, str], text: Path, tmp_path: Path
) -> None:
    result = tmp_path / "probe.json"
    command = _probe(built, smollm2, text, result, "23", **{"rys-probe-tasks": 0})
    assert _run(command, home).returncode == 0
    whole = result.read_text()
    assert [score["task"] for score in _scores(result).values()] == [0, 0, 0]

    def refusal(words: Sequence[str | Path]) -> str:
        done = _run(words, home)
        assert done.returncode == 1
        assert "--rys-probe-json" in done.stderr
        return done.stderr

    assert "type_k" in refusal([*command, "-ctk", "q8_0", "-fa", "on"])
    assert "n_tasks" in refusal([*command, "--rys-probe-tasks", "1"])
    assert "compute" in refusal([*command, "-fa", "off"])
    assert result.read_text() == whole

    # a model of the same shape, or a machine that says the same of itself, with other sums
    other = json.loads(whole)
    other["scores"][""]["ppl"] *= 1.0001
    result.write_text(json.dumps(other))
    assert "perplexity of the model as it is" in refusal(command)
    result.write_text(whole[: len(whole) // 2])
    assert "no file of the probe" in refusal(command)


def test_plans_score_the_same_in_any_order(
    built: Built, smollm2: Path, home: dict[str, str], text: Path, tmp_path: Path
) -> None:
    """The model is as fresh for the last plan as for the first, with any number of threads."""
    scores = []
    for widths, threads in (("23", 2), ("23,22", 1)):
        result = tmp_path / f"probe-{widths}.json"
        done = _run(_probe(built, smollm2, text, result, widths, t=threads), home)
        assert done.returncode == 0, done.stderr[-2000:]
        scores.append(_scores(result))
    for plan in ("", "3-26", "4-27"):
        assert scores[0][plan] == scores[1][plan]
    assert scores[0][""]["ppl"] != scores[0]["3-26"]["ppl"]
    assert 0 < scores[0][""]["task"] < 1


@pytest.mark.slow
def test_automatic_widths_find_two_plans(
    built: Built, smollm2: Path, home: dict[str, str], text: Path, tmp_path: Path
) -> None:
    result = tmp_path / "probe.json"
    command = _probe(built, smollm2, text, result, "auto", **{"rys-probe-tasks": 1, "c": 32})
    done = subprocess.run(command, env=home, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    blocks = {plan for plan in _scores(result) if plan and ";" not in plan}
    assert blocks == {
        f"{first}-{first + width}"
        for width in (1, 2, 3, 4, 6, 8, 12)
        for first in range(3, 28 - width)
    }
    assert len(re.findall(r"--repeat-layers ", done.stdout)) == 2


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--rys-probe-widths", "none"], "whole number"),
        (["--rys-probe-widths", "25"], "--rys-probe-widths"),
        (["--rys-probe-tasks", "-1"], "whole number"),
        (["--repeat-layers", "4-6"], "--repeat-layers"),
        (["--lora", "none.gguf"], "--lora"),
    ],
)
def test_probe_refusals(
    built: Built,
    smollm2: Path,
    home: dict[str, str],
    text: Path,
    tmp_path: Path,
    words: list[str],
    part: str,
) -> None:
    done = _run([*_probe(built, smollm2, text, tmp_path / "probe.json"), *words], home)
    assert done.returncode == 1
    assert part in done.stderr


def test_probe_without_a_text_is_refused(built: Built, smollm2: Path, home: dict[str, str]) -> None:
    done = _run(["sh", str(built.file), "--rys-probe", "-m", str(smollm2)], home)
    assert done.returncode == 1
    assert "-f FILE" in done.stderr
