"""The C++ tests of the series: what has no surface of its own, or needs what is not here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", ["features", "gpu", "kv-lazy", "sessions", "zip"])
def test_native(
    native_tests: dict[str, Path], home: dict[str, str], tmp_path: Path, name: str
) -> None:
    env = {**home, "TMPDIR": str(tmp_path)}
    done = subprocess.run([native_tests[name]], env=env, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:].decode("utf-8", "replace")


def test_every_native_test_is_run(native_tests: dict[str, Path]) -> None:
    """``rys`` is run in ``test_rys.py``."""
    assert set(native_tests) == {"features", "gpu", "kv-lazy", "rys", "sessions", "zip"}
