"""The same single file on other systems: Windows under wine, aarch64 under qemu-user.

Both answer the same chat completion as x86_64 Linux. The tokens are the same where the chosen
code does the same arithmetic: wine runs the same CPU levels, so there they must be equal. On
aarch64 another instruction set rounds sums in another order; logits then differ in the last
digits, and a greedy answer can turn at a near tie. There the first tokens must be equal.
macOS programs cannot run here: ``verify`` examines them.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opencoti_build.pack.bundle import add_model, args_text
from opencoti_build.targets import System, Target
from opencoti_build.ui import Ui
from opencoti_build.verify.single import verify_file
from tests.engine.conftest import Built
from tests.lib.desktop import QEMU, Wine
from tests.lib.server import Server, running

pytestmark = pytest.mark.engine

CHAT = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "seed": 1,
    "max_tokens": 16,
    "logprobs": True,
    "top_logprobs": 2,
}
OPTIONS = ("--server", "-c", "512", "-np", "1", "-t", "2")
SAME_ON_ARM = 6
"""Tokens of the greedy answer that do not depend on how sums are rounded."""


def require(built: Built, target: Target) -> None:
    """Leave the test out when the recipe does not build ``target``."""
    if target not in [recipe.target for recipe in built.context.targets]:
        pytest.skip(f"the recipe does not build {target}")


def tokens(answer: dict[str, Any]) -> list[str]:
    return [item["token"] for item in answer["choices"][0]["logprobs"]["content"]]


@pytest.fixture(scope="module")
def bundled(built: Built, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact with the model inside, under a name that every system starts."""
    out = tmp_path_factory.mktemp("desktop") / "with model.llamafile.exe"
    return add_model(built.file, smollm2, out, args_text("")).path


@pytest.fixture(scope="module")
def linux(bundled: Path, home: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The answer of x86_64 Linux."""
    log = tmp_path_factory.mktemp("log") / "linux.log"
    with running(["sh", bundled, *OPTIONS], log, home) as server:
        status, answer = server.request("/v1/chat/completions", CHAT)
    assert status == 200
    assert len(tokens(answer)) > 3
    return answer


@pytest.fixture(scope="module")
def wine(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wine]:
    require(built, Target.X86_64_WINDOWS)
    made = Wine(tmp_path_factory.mktemp("windows"))
    yield made
    made.stop()


def test_windows_answers_token_for_token(
    wine: Wine, bundled: Path, linux: Any, tmp_path: Path
) -> None:
    command = ["wine", bundled, *OPTIONS]
    with running(command, tmp_path / "wine.log", wine.env, timeout=300) as server:
        status, answer = server.request("/v1/chat/completions", CHAT, timeout=300)
        path = server.request("/props")[1]["model_path"]
    assert status == 200
    assert path.startswith("/zip/")
    assert tokens(answer) == tokens(linux)


def test_windows_says_its_version_and_passes_exit_codes_on(
    wine: Wine, built: Built, bundled: Path
) -> None:
    done = wine.run(bundled, "--version", timeout=300)
    assert done.stdout == f"opencoti-{built.context.recipe.version}-{built.context.tag}\n"
    assert wine.run(bundled, "--server", "--no-such-flag", timeout=300).returncode != 0


def test_windows_finds_models_with_any_name(
    wine: Wine, built: Built, smollm2: Path, tmp_path: Path
) -> None:
    """Arguments reach the engine in UTF-8 although Windows has another code page."""
    model = tmp_path / "модель ünï.gguf"
    model.symlink_to(smollm2)
    file = Path(shutil.copy(built.file, tmp_path / "файл.exe"))
    command = ["wine", file, *OPTIONS, "-m", wine.path(model)]
    with running(command, tmp_path / "names.log", wine.env, timeout=300) as server:
        assert server.request("/completion", {"prompt": "Hi", "n_predict": 2})[0] == 200


GROWING = ("--server", "-c", "2048", "-np", "2", "-t", "2", "--slots", "--slot-initial-ctx", "1")


def grow(server: Server) -> list[Any]:
    """Cells with memory of two slots: loaded, with a long prompt in one, idle; and the answers."""
    prompt = "The fox ran to the hill and the owl told him of the river. " * 30
    body = {"prompt": prompt, "id_slot": 1, "n_predict": 70, "temperature": 0, "ignore_eos": True}
    seen: list[Any] = [allocated(server)]
    for _ in range(2):
        status, answer = server.request("/completion", body, timeout=600)
        assert status == 200, answer
        seen += [answer["content"], allocated(server)]
        deadline = time.monotonic() + 120
        while allocated(server) != seen[0] and time.monotonic() < deadline:
            time.sleep(0.1)
        seen.append(allocated(server))
    return seen


def allocated(server: Server) -> list[int]:
    return [slot["opencoti"]["n_ctx_alloc"] for slot in server.request("/slots", timeout=300)[1]]


def test_windows_commits_memory_as_slots_grow(
    wine: Wine, bundled: Path, tmp_path: Path, home: dict[str, str]
) -> None:
    command: list[str | Path] = [bundled, *GROWING, "--slot-shrink-idle-ms", "1500"]
    with running(["sh", *command], tmp_path / "linux.log", home) as server:
        expected = grow(server)
    assert [seen for seen in expected if isinstance(seen, list)] == [
        [256, 256],
        *[[256, 768], [256, 256]] * 2,
    ]
    with running(["wine", *command], tmp_path / "wine.log", wine.env, timeout=300) as server:
        assert grow(server) == expected


def arm_engine(built: Built, folder: Path) -> Path:
    """The aarch64 engine as its launcher unpacks it (under qemu, exec needs binfmt)."""
    (recipe,) = (r for r in built.context.targets if r.target is Target.AARCH64_LINUX)
    engine = built.pipeline.engine(recipe)
    for path in engine.files():
        Path(shutil.copy(path, folder / path.name)).chmod(0o755)
    return folder / engine.files()[0].name


def test_aarch64_unpacks_and_answers(
    built: Built, bundled: Path, linux: Any, tmp_path: Path, home: dict[str, str]
) -> None:
    require(built, Target.AARCH64_LINUX)
    if not shutil.which(QEMU[0]):
        pytest.skip("qemu-user is not installed")
    folder = tmp_path / "engine"
    folder.mkdir()
    engine = arm_engine(built, folder)
    launcher = built.pipeline.launcher(Target.AARCH64_LINUX)
    env = {**home, "OPENCOTI_HOME": str(tmp_path / "cache")}
    subprocess.run([*QEMU, launcher, bundled, "--version"], env=env, capture_output=True)
    (unpacked,) = (tmp_path / "cache" / "v" / built.context.recipe.version).iterdir()
    for path in folder.iterdir():
        assert (unpacked / path.name).read_bytes() == path.read_bytes()
    env["OPENCOTI_SELF"] = str(bundled)
    command = [*QEMU, unpacked / engine.name, *OPTIONS]
    with running(command, tmp_path / "arm.log", env, timeout=600) as server:
        status, answer = server.request("/v1/chat/completions", CHAT, timeout=1200)
    assert status == 200
    assert tokens(answer)[:SAME_ON_ARM] == tokens(linux)[:SAME_ON_ARM]


def test_programs_of_all_targets_are_examined(built: Built) -> None:
    report = verify_file(built.file, built.release.manifest, Ui(quiet=True))
    assert report.reasons == ()
    checks = {finding.check: finding for finding in report.findings}
    for recipe in built.context.targets:
        assert not checks[f"engine {recipe.target}"].skipped
        assert not checks[f"launcher {recipe.target}"].skipped


def test_every_artifact_begins_with_the_same_host(built: Built) -> None:
    rows = built.release.manifest["artifacts"]
    assert isinstance(rows, list)
    assert len({row["host_sha256"] for row in rows}) == 1
    for path, row in zip(built.release.artifacts, rows, strict=True):
        assert row["gpu_library"] is None
        assert verify_file(path, built.release.manifest, Ui(quiet=True)).reasons == ()


def test_the_bare_host_is_small(built: Built) -> None:
    """Under 60 MB with five targets."""
    assert built.file.stat().st_size < 60e6
    systems = {recipe.target.system for recipe in built.context.targets}
    named = {path.suffix == ".exe" for path in built.release.artifacts}
    assert (True in named) == (System.WINDOWS in systems)
