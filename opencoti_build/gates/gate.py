"""What a gate is: cases to measure, a limit, and a verdict on each. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from opencoti_build.errors import CheckError
from opencoti_build.gates.subject import Subject


class Verdict(Enum):
    """What came out of one case.

    ``INCONCLUSIVE`` means that the measurement was not good enough to tell: it is not a pass, and
    not a failure of the engine. ``SKIPPED`` means that there was nothing to measure.
    """

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Measure:
    """The outcome of one case: a number (what it counts, the gate's limit says) and words."""

    verdict: Verdict
    value: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Case:
    """One measurement of a gate.

    ``model`` is the name of a model pin (empty: none needed). ``params`` is plain data that the
    gate's ``run`` reads; it is a part of the key under which the result is kept.
    """

    name: str
    model: str = ""
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What the user chose for one run.

    ``full`` measures the cases that take too long for every day. ``on`` are server arguments that
    turn a feature on in the patched engine; gates of features need them, the others ignore them.
    ``engine_args`` go to both engines, such as ``-ngl 99`` on a machine with a GPU. ``limit`` is
    the limit of the feature ``on`` in the unit of the gate. ``max_seconds`` is how long a gate may
    repeat one measurement of time.
    """

    full: bool = False
    on: tuple[str, ...] = ()
    engine_args: tuple[str, ...] = ()
    limit: float | None = None
    max_seconds: float = 30.0


@dataclass(frozen=True)
class Bench:
    """What a running case works with. ``scratch`` is an empty folder of its own.

    ``facts`` are plain data about the run, such as the files of the release and their limits.
    """

    subjects: Mapping[str, Subject]
    models: Mapping[str, Path]
    scratch: Path
    options: Options = field(default_factory=Options)
    facts: Mapping[str, object] = field(default_factory=dict)

    def model(self, case: Case) -> Path:
        """The file of the case's model. Raises CheckError ``gate-model-missing``."""
        try:
            return self.models[case.model]
        except KeyError:
            raise CheckError(
                "gate-model-missing",
                f"the model {case.model} is not here",
                context={"models": ", ".join(self.models) or "none"},
            ) from None


@dataclass(frozen=True)
class Gate:
    """One kind of proof.

    ``cases`` lists what to measure, ``run`` measures one of them. ``tests`` are upstream test
    programs that both engines need, ``facts`` the names of the bench's facts that are read. A gate
    that is not ``default`` runs only when it is named. ``measures_time`` keeps a result from being
    used again on another machine.
    """

    name: str
    proves: str
    inputs: str
    limit: str
    cases: Callable[[Options], Sequence[Case]]
    run: Callable[[Bench, Case], Measure]
    tests: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    default: bool = True
    measures_time: bool = False
