"""Finds gates: every module of ``checks/`` that has a ``GATE``. Standard library only."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path

from opencoti_build.errors import UsageError
from opencoti_build.gates.gate import Gate

_FOLDER = Path(__file__).parent / "checks"
_PACKAGE = "opencoti_build.gates.checks"


def load_gates() -> dict[str, Gate]:
    """All gates by name, in the order in which they run: by the names of their files."""
    gates: dict[str, Gate] = {}
    for path in sorted(_FOLDER.glob("[a-z]*.py")):
        gate = getattr(importlib.import_module(f"{_PACKAGE}.{path.stem}"), "GATE", None)
        if isinstance(gate, Gate):
            gates[gate.name] = gate
    return gates


def gate_file(gate: Gate) -> Path:
    """The file that defines ``gate``."""
    return Path(gate.run.__code__.co_filename)


def select_gates(gates: dict[str, Gate], names: Iterable[str]) -> list[Gate]:
    """The gates called ``names``, or the default ones. Raises UsageError ``gate-unknown``."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in gates:
            raise UsageError(
                "gate-unknown",
                f"there is no gate {name}",
                hint="see 'opencoti-build gate list'",
                context={"gates": ", ".join(gates)},
            )
    return [gate for name, gate in gates.items() if name in wanted or (not wanted and gate.default)]
