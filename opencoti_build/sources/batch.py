"""Fetches several pins and reports each: what the ``fetch`` command shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from opencoti_build.errors import SourceError
from opencoti_build.sources.download import offline_missing
from opencoti_build.sources.fetch import FetchContext, ensure_file, ensure_tree, find_present
from opencoti_build.sources.pins import Pin, PinKind, find_pin

DEFAULT_PINS = ("llama.cpp",)


class Status(Enum):
    """How a pin stands after a fetch, or before one."""

    PRESENT = "present"
    FETCHED = "fetched"
    ABSENT = "absent"
    FAILED = "failed"
    NOT_LOCKED = "not locked"


@dataclass(frozen=True)
class Outcome:
    """One pin's row: ``where`` is the tree id or the file; ``error`` belongs to FAILED."""

    pin: Pin
    status: Status
    where: str | Path | None = None
    error: SourceError | None = None

    @property
    def size(self) -> int | None:
        """Bytes of the model, or of the first transport's archive; None for git alone."""
        if self.pin.size is not None:
            return self.pin.size
        return next((archive.size for archive in self.pin.transports[0].archives), None)


def choose(pins: Mapping[str, Pin], names: Sequence[str], *, everything: bool) -> list[Pin]:
    """The pins to fetch: those named, all but toolchains, or what the default recipe needs.

    Raises UsageError ``unknown-pin``.
    """
    if everything:
        return [pin for pin in pins.values() if pin.kind is not PinKind.TOOLCHAIN]
    return [find_pin(pins, name) for name in dict.fromkeys(names or DEFAULT_PINS)]


def fetch_all(
    pins: Sequence[Pin], context: FetchContext, *, skip_unlocked: bool = False
) -> list[Outcome]:
    """Fetch each pin; one that fails does not stop the others."""
    outcomes = []
    for pin in pins:
        if skip_unlocked and not pin.locked:
            context.ui.warn(f"{pin.name}: skipped, its pin names no commit")
            outcomes.append(Outcome(pin, Status.NOT_LOCKED))
            continue
        try:
            outcomes.append(_fetch(pin, context))
        except SourceError as error:
            outcomes.append(Outcome(pin, Status.FAILED, error=error))
    return outcomes


def look(pin: Pin, context: FetchContext) -> Outcome:
    """How the pin stands now, without fetching."""
    if where := find_present(pin, context):
        return Outcome(pin, Status.PRESENT, where)
    return Outcome(pin, Status.ABSENT if pin.locked else Status.NOT_LOCKED)


def failure(outcomes: Sequence[Outcome]) -> SourceError | None:
    """One error for all that failed: the error itself, or ``fetch-failed`` listing them."""
    errors = [(outcome.pin.name, outcome.error) for outcome in outcomes if outcome.error]
    if len(errors) < 2:
        return errors[0][1] if errors else None
    if all(error.reason == "offline-missing" for _, error in errors):
        return offline_missing([str(error.context["missing"]) for _, error in errors])
    return SourceError(
        "fetch-failed",
        f"{len(errors)} of {len(outcomes)} pins could not be fetched",
        hint="fetch one of them alone to see all of its facts",
        context={name: f"{error.message} [{error.reason}]" for name, error in errors},
    )


def _fetch(pin: Pin, context: FetchContext) -> Outcome:
    if where := find_present(pin, context):
        return Outcome(pin, Status.PRESENT, where)
    bring = ensure_file if pin.is_file else ensure_tree
    return Outcome(pin, Status.FETCHED, bring(pin, context))
