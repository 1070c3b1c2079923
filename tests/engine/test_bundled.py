"""A model inside the single file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opencoti_build.pack.bundle import add_model
from opencoti_build.pack.host import mapped as mapped_file
from opencoti_build.pack.zipreader import read_zip
from tests.engine.conftest import Built
from tests.lib.server import running

pytestmark = pytest.mark.engine

ASK = {"prompt": "Once upon a time", "n_predict": 16, "temperature": 0, "n_probs": 2}


@pytest.fixture(scope="module")
def bundled(built: Built, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "with model.llamafile"
    add_model(built.file, smollm2, out)
    return out


def test_the_model_inside_is_used_and_mapped_in_place(
    built: Built, bundled: Path, smollm2: Path, home: dict[str, str], tmp_path: Path
) -> None:
    options = ["--server", "-c", "512", "-np", "1", "-t", "2"]
    with running(["sh", bundled, *options], tmp_path / "inside.log", home) as server:
        inside = server.request("/completion", ASK)[1]
        path = server.request("/props")[1]["model_path"]
        maps = Path(f"/proc/{server.process.pid}/maps").read_text().splitlines()
    outer = ["sh", built.file, *options, "-m", smollm2]
    with running(outer, tmp_path / "outside.log", home) as server:
        outside = server.request("/completion", ASK)[1]
    assert path == f"/zip/{smollm2.name}"
    assert inside["content"] == outside["content"]
    assert inside["completion_probabilities"] == outside["completion_probabilities"]
    mapped = [line.split(maxsplit=5) for line in maps if line.endswith(str(bundled))]
    assert mapped, "the model is not mapped"
    with bundled.open("rb") as stream, mapped_file(stream) as data:
        entry = read_zip(data).find(smollm2.name)
    assert entry is not None
    assert entry.data_offset % 65536 == 0
    # The loader gives back the parts that it copied, so a mapping may begin later.
    assert all(int(row[2], 16) >= entry.data_offset for row in mapped)


@pytest.mark.parametrize("words", [["--no-mmap"], ["-m", "/zip/SmolLM2-135M-Instruct.Q4_1.gguf"]])
def test_other_ways_to_read_it(
    bundled: Path, home: dict[str, str], tmp_path: Path, words: list[str]
) -> None:
    command = ["sh", bundled, "--server", "-c", "512", "-np", "1", *words]
    with running(command, tmp_path / "log", home) as server:
        assert server.request("/completion", {**ASK, "n_predict": 2})[0] == 200


def test_a_name_that_is_not_inside_is_refused(bundled: Path, home: dict[str, str]) -> None:
    command = ["sh", str(bundled), "--server", "-m", "/zip/other.gguf"]
    done = subprocess.run(command, env=home, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "other.gguf" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_truncated_bundle_is_refused_before_anything_runs(
    bundled: Path, home: dict[str, str], tmp_path: Path
) -> None:
    cut = tmp_path / "cut.llamafile"
    with bundled.open("rb") as source, cut.open("wb") as target:
        target.write(source.read(bundled.stat().st_size - 40))
    done = subprocess.run(
        ["sh", str(cut), "--version"], env=home, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert str(cut) in done.stderr
    assert done.stderr.count("\n") == 1
