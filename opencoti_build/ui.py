"""Progress and messages, on stderr: bars on a terminal, plain lines otherwise, or nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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


class _Board:
    """Bars that stay: one row for each of several things that are worked on in turn."""

    def __init__(self, progress: Any, rows: Sequence[str]) -> None:
        self._progress = progress
        self._rows: dict[str | None, Any] = {
            row: progress.add_task(f"{row}: waiting", total=1) for row in rows
        }

    @contextlib.contextmanager
    def task(self, row: str | None, label: str, total: int | None) -> Iterator[Task]:
        """Progress in a row of the board, or in one that is there for this task only."""
        if row in self._rows:
            bar = self._rows[row]
            self._progress.reset(bar, description=f"{row}: {label}", total=total)
            yield _Bar(self._progress, bar)
            return
        bar = self._progress.add_task(f"{row}: {label}" if row else label, total=total)
        try:
            yield _Bar(self._progress, bar)
        finally:
            self._progress.remove_task(bar)

    def close(self, row: str, text: str) -> None:
        """Fill the bar of ``row``, and say how it ended."""
        self._progress.update(
            self._rows[row], description=f"{row}: {text}", completed=1, total=1, refresh=True
        )


def _amount(done: int, total: int, unit: Unit) -> str:
    if unit is Unit.BYTES:
        return f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
    return f"{done} of {total}"


class Ui:
    """Where every module reports what it is doing. Results never go through here."""

    def __init__(self, *, quiet: bool = False, bars: bool | None = None) -> None:
        self.quiet = quiet
        self._bars = sys.stderr.isatty() if bars is None else bars
        self._board: _Board | None = None

    def info(self, text: str) -> None:
        """One line of news."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """One line that the user should read."""
        if not self.quiet:
            print(f"warning: {text}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def task(
        self, label: str, total: int | None = None, unit: Unit = Unit.STEPS, row: str | None = None
    ) -> Iterator[Task]:
        """Show progress of one piece of work while the block runs, then its duration.

        ``row`` is what the work is for; on a board it is the row in which the progress shows.
        """
        if self.quiet:
            yield _Silent()
            return
        if self._board is not None:
            with self._board.task(row, label, total) as task:
                yield task
            return
        label = f"{label} {row}" if row else label
        start = time.monotonic()
        if self._bars:
            yield from self._bar(label, total, unit)
        else:
            print(f"{label} ...", file=sys.stderr, flush=True)
            yield _Lines(label, total, unit)
        print(f"{label}: done in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def board(self, rows: Sequence[str]) -> Iterator[Callable[[str, str], None]]:
        """Show the tasks of all ``rows`` in one view while the block runs.

        Yields a function that says how a row ended: ``close(row, "built")``.
        """
        if self.quiet or not self._bars:
            yield lambda row, text: self.info(f"{row}: {text}")
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        with self._progress([*columns, TimeElapsedColumn()], transient=False) as progress:
            self._board = _Board(progress, rows)
            try:
                yield self._board.close
            finally:
                self._board = None

    def _progress(self, columns: Sequence[Any], transient: bool) -> Any:
        from rich.console import Console
        from rich.progress import Progress

        return Progress(*columns, console=Console(stderr=True), transient=transient)

    def _bar(self, label: str, total: int | None, unit: Unit) -> Iterator[Task]:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
        if unit is Unit.BYTES:
            columns += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
        else:
            columns += [MofNCompleteColumn(), TimeRemainingColumn()]
        with self._progress(columns, transient=True) as progress:
            yield _Bar(progress, progress.add_task(label, total=total))
