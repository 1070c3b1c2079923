"""The single file serves a real model as the plain server of the same tree does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import TAG, Built
from tests.lib.server import Server, running

pytestmark = pytest.mark.engine

CHAT = {
    "messages": [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Name three rivers of Europe."},
    ],
    "temperature": 0,
    "seed": 1,
    "max_tokens": 48,
    "logprobs": True,
    "top_logprobs": 3,
}
OPTIONS = ("-c", "2048", "-np", "2", "-t", "2", "--slots")

# What the unpatched server of the base answers, idle and fresh.
BASE_PROPS = {
    "bos_token",
    "build_info",
    "chat_template",
    "chat_template_caps",
    "cors_proxy_enabled",
    "default_generation_settings",
    "endpoint_metrics",
    "endpoint_props",
    "endpoint_slots",
    "eos_token",
    "is_sleeping",
    "media_marker",
    "modalities",
    "model_alias",
    "model_path",
    "total_slots",
    "ui",
    "ui_settings",
    "webui",
    "webui_settings",
}
BASE_IDLE_SLOT = {"id", "is_processing", "n_ctx", "speculative"}


@pytest.fixture(scope="module")
def server(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "artifact.log"
    command = ["sh", built.file, "--server", "-m", smollm2, *OPTIONS]
    with running(command, log, home) as started:
        yield started


def test_chat_equals_the_plain_server(
    server: Server, plain_server: Path, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    status, ours = server.request("/v1/chat/completions", CHAT)
    with running([plain_server, "-m", smollm2, *OPTIONS], tmp_path / "plain.log", home) as plain:
        plain_status, theirs = plain.request("/v1/chat/completions", CHAT)
    assert (status, plain_status) == (200, 200)
    assert ours["choices"] == theirs["choices"]
    tokens = [item["token"] for item in ours["choices"][0]["logprobs"]["content"]]
    assert len(tokens) > 5
    assert ours["choices"][0]["message"]["content"] == "".join(tokens).removesuffix("<|im_end|>")


def test_health_and_unknown_routes(server: Server) -> None:
    assert server.request("/health") == (200, {"status": "ok"})
    for path in ("/kv", "/polykv/pools", "/no-such-route"):
        assert server.request(path)[0] == 404


def test_props_say_what_is_effective(server: Server) -> None:
    status, props = server.request("/props")
    assert status == 200
    opencoti = props["opencoti"]
    kv = opencoti["kv"]
    assert (kv["cache_type_k"], kv["cache_type_v"], kv["auto_tier"]) == ("f16", "f16", False)
    effective = kv["effective"]
    assert (effective["type_k"], effective["type_v"]) == ("f16", "f16")
    assert effective["n_cells"] >= 2048
    assert effective["n_cells_resident"] == effective["n_cells"]
    assert (effective["fully_resident"], effective["n_layers_spilling"]) == (True, 0)
    assert effective["is_iswa"] is False
    assert opencoti["kv_reuse"]["n_parallel"] == 2
    assert opencoti["repeat_layers"] is None


def test_props_of_a_sliding_window_model_with_quantized_cache(
    built: Built, gemma3: Path, home: dict[str, str], tmp_path: Path
) -> None:
    command = ["sh", built.file, "--server", "-m", gemma3, "-c", "1024", "-np", "1"]
    command += ["-ctk", "q8_0", "-ctv", "q4_0", "-fa", "on"]
    with running(command, tmp_path / "gemma.log", home) as server:
        effective = server.request("/props")[1]["opencoti"]["kv"]["effective"]
        status, answer = server.request("/completion", {"prompt": "The sky is", "n_predict": 4})
    assert (effective["type_k"], effective["type_v"]) == ("q8_0", "q4_0")
    assert effective["is_iswa"] is True
    assert effective["n_cells"] == 1024
    assert status == 200
    assert answer["content"]


def test_props_and_slots_of_upstream_keep_their_keys(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    """Our only new key is ``opencoti``; the others are those of the base."""
    command = ["sh", built.file, "--server", "-m", smollm2, *OPTIONS]
    with running(command, tmp_path / "fresh.log", home) as fresh:
        props = fresh.request("/props")[1]
        slots = fresh.request("/slots")[1]
    assert set(props) - {"opencoti"} == BASE_PROPS
    assert [set(slot) for slot in slots] == [BASE_IDLE_SLOT] * 2


def test_the_arguments_of_a_client_are_accepted(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    client = "--no-webui --offline --log-verbosity 4 --no-log-prefix --no-log-timestamps"
    client += " --no-jinja --chat-template chatml --cache-type-k q8_0 --cache-type-v q8_0"
    client += " --flash-attn on -b 512 -ub 256 --context-shift --keep 4 -ngl 0 -t 2"
    client += " --gpu disable -c 1024 -np 1"
    command = ["sh", built.file, "--server", "--model", smollm2, *client.split()]
    with running(command, tmp_path / "client.log", home) as server:
        status, answer = server.request("/completion", {"prompt": "Hi", "n_predict": 2})
        log = server.log_text()
    assert status == 200
    assert answer["tokens_predicted"] == 2
    assert "KV buffer size =" in log
    assert "model buffer size =" in log
    assert "offloaded" not in log or "layers to GPU" in log


@pytest.mark.parametrize("choice", ["auto", "disable"])
def test_gpu_choice_without_a_gpu_serves_on_the_cpu(
    built: Built, smollm2: Path, home: dict[str, str], tmp_path: Path, choice: str
) -> None:
    command = ["sh", built.file, "--server", "-m", smollm2, "-c", "512", "--gpu", choice]
    with running(command, tmp_path / "gpu.log", home) as server:
        assert server.request("/health")[0] == 200


@pytest.mark.parametrize("words", [["--gpu", "nvidia"], ["--gpu", "quantum"], ["--gpu"]])
def test_gpu_choice_that_cannot_be_met_is_refused(
    built: Built, smollm2: Path, home: dict[str, str], words: list[str]
) -> None:
    command = ["sh", built.file, "--server", "-m", smollm2, *words]
    done = subprocess.run(command, env=home, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: --gpu")
    assert done.stderr.count("error") == 1


def test_version_and_help(built: Built, home: dict[str, str]) -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(built.file), *args]
        return subprocess.run(command, env=home, capture_output=True, text=True, timeout=60)

    version = run("--version")
    assert version.stdout == f"opencoti-{built.context.recipe.version}-{TAG}\n"
    assert run("--server", "--version").stdout == version.stdout
    chat_help, server_help = run("--help"), run("--server", "--help")
    assert "--server -m MODEL.gguf" in chat_help.stdout
    assert "--port" in server_help.stdout
    assert (chat_help.returncode, server_help.returncode) == (0, 0)


def test_chat_cli_answers(built: Built, smollm2: Path, home: dict[str, str]) -> None:
    command = ["sh", str(built.file), "-m", str(smollm2), "-st", "--temp", "0", "-n", "24"]
    command += ["-p", "Hello!", "-c", "512"]
    done = subprocess.run(
        command, env=home, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = done.stdout.partition("> Hello!")[2].partition("[ Prompt:")[0].strip(" |\n")
    assert len(answer) > 10


def test_unknown_flag_and_missing_model_are_one_clear_line(
    built: Built, home: dict[str, str], tmp_path: Path
) -> None:
    for words in (["--server", "--no-such-flag"], ["--server", "-m", str(tmp_path / "no.gguf")]):
        command = ["sh", str(built.file), *words]
        done = subprocess.run(command, env=home, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert "no-such-flag" in done.stderr or "no.gguf" in done.stderr
