"""Finished steps, stored by content key (DESIGN section 8), and why a step must run again."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.digest import content_key
from opencoti_build.paths import Cache, locked, write_atomic


@dataclass(frozen=True)
class Step:
    """One step of the plan: its name and everything that can change its output.

    ``inputs`` is plain data; nested mappings are compared leaf by leaf when the reason of a
    re-run is asked for.
    """

    name: str
    inputs: Mapping[str, object]

    @property
    def key(self) -> str:
        """The content key: 64 hex digits."""
        return content_key({"step": self.name, "inputs": self.inputs})


@dataclass(frozen=True)
class StepState:
    """What the store knows of a step: cached, and if not, the inputs that changed."""

    step: Step
    cached: bool
    changed: tuple[str, ...]

    @property
    def why(self) -> str:
        """One line for the plan table."""
        if self.cached:
            return "cached"
        if not self.changed:
            return "never built here"
        return "changed: " + ", ".join(self.changed)


class StepStore:
    """Outputs of finished steps: ``steps/<key>/`` holds the files, ``step.json`` the inputs."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def find(self, step: Step) -> Path | None:
        """The output folder of ``step`` if it finished once, else None."""
        folder = self._cache.steps / step.key
        return folder if (folder / "step.json").is_file() else None

    def state(self, step: Step) -> StepState:
        """Whether ``step`` is cached, and which inputs changed since it last ran here."""
        if self.find(step):
            return StepState(step, True, ())
        last = self._read_last(step.name)
        return StepState(step, False, () if last is None else changed_inputs(last, step.inputs))

    def run(self, step: Step, action: Callable[[Path], None]) -> Path:
        """The output folder of ``step``; ``action`` fills a new one when it is not stored.

        The folder appears under its key only after ``action`` returned, so an interrupted step
        is never taken for a finished one. Processes that want the same step wait for each other.
        """
        if found := self.find(step):
            self._write_last(step)
            return found
        with locked(self._cache, f"step-{step.key[:16]}"):
            if found := self.find(step):
                return found
            self._cache.steps.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=".step-", dir=self._cache.steps))
            try:
                action(temporary)
                inputs = json.dumps({"name": step.name, "inputs": step.inputs}, sort_keys=True)
                write_atomic(temporary / "step.json", inputs.encode())
                temporary.chmod(0o755)
                final = self._cache.steps / step.key
                if final.exists():
                    shutil.rmtree(final)
                temporary.rename(final)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        self._write_last(step)
        return final

    def _last_path(self, name: str) -> Path:
        return self._cache.steps / "last" / f"{name.replace(' ', '-')}.json"

    def _read_last(self, name: str) -> dict[str, object] | None:
        try:
            value = json.loads(self._last_path(name).read_text())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def _write_last(self, step: Step) -> None:
        data = json.dumps(step.inputs, sort_keys=True).encode()
        with contextlib.suppress(OSError):
            if self._last_path(step.name).read_bytes() == data:
                return
        write_atomic(self._last_path(step.name), data)


def changed_inputs(
    old: Mapping[str, object], new: Mapping[str, object], prefix: str = ""
) -> tuple[str, ...]:
    """Dotted names of the leaves that differ between two input mappings, sorted."""
    names: list[str] = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        name = f"{prefix}{key}"
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            names += changed_inputs(a, b, f"{name}.")
        elif json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True):
            names.append(name)
    return tuple(names)
