"""Progress and messages, on stderr: bars on a terminal, plain lines otherwise, or nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from enum import Enum
from typing import Any, Protocol


class Unit(Enum):
    """What a task counts."""

    BYTES = "bytes"
    STEPS = "steps"


class Task(Protocol):
    """One running piece of work."""

    def advance(self, count: int = 1) -> None:
        """Count ``count`` more units as done."""

    def update(self, *, done: int | None = None, total: int | None = None) -> None:
        """Set the units done or the total (when it becomes known)."""


class _Silent:
    def advance(self, count: int = 1) -> None:
        pass

    def update(self, *, done: int | None = None, total: int | None = None) -> None:
        pass


class _Lines:
    """Speaks at the start, each quarter and the end, at most once every 2 seconds between."""

    def __init__(self, label: str, total: int | None, unit: Unit) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self._spoken = time.monotonic()
        self._quarter = 0

    def advance(self, count: int = 1) -> None:
        self.update(done=self.done + count)

    def update(self, *, done: int | None = None, total: int | None = None) -> None:
        self.total = total if total is not None else self.total
        self.done = done if done is not None else self.done
        now = time.monotonic()
        if not self.total or now - self._spoken < 2:
            return
        quarter = 4 * self.done // self.total
        if quarter > self._quarter or now - self._spoken > 30:
            self._quarter, self._spoken = quarter, now
            print(f"{self.label}: {_amount(self.done, self.total, self.unit)}", file=sys.stderr)


class _Bar:
    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task

    def advance(self, count: int = 1) -> None:
        self._progress.advance(self._task, count)

    def update(self, *, done: int | None = None, total: int | None = None) -> None:
        self._progress.update(self._task, completed=done, total=total)


def _amount(done: int, total: int, unit: Unit) -> str:
    if unit is Unit.BYTES:
        return f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
    return f"{done} of {total}"


class Ui:
    """Where every module reports what it is doing. Results never go through here."""

    def __init__(self, *, quiet: bool = False, bars: bool | None = None) -> None:
        self.quiet = quiet
        self._bars = sys.stderr.isatty() if bars is None else bars

    def info(self, text: str) -> None:
        """One line of news."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """One line that the user should read."""
        if not self.quiet:
            print(f"warning: {text}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def task(self, label: str, total: int | None = None, unit: Unit = Unit.STEPS) -> Iterator[Task]:
        """Show progress of one piece of work while the block runs, then its duration."""
        if self.quiet:
            yield _Silent()
            return
        start = time.monotonic()
        if self._bars:
            yield from self._bar(label, total, unit)
        else:
            print(f"{label} ...", file=sys.stderr, flush=True)
            yield _Lines(label, total, unit)
        print(f"{label}: done in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)

    def _bar(self, label: str, total: int | None, unit: Unit) -> Iterator[Task]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
        if unit is Unit.BYTES:
            columns += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
        else:
            columns += [MofNCompleteColumn(), TimeRemainingColumn()]
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True) as progress:
            yield _Bar(progress, progress.add_task(label, total=total))
