"""SIGTERM ends a command as Ctrl-C does: what runs is stopped, what is finished is kept."""

from __future__ import annotations

import contextlib
import signal
from types import FrameType

STATUS = 128 + signal.SIGTERM
"""The exit status of a command that was ended so, as shells report it."""


class Terminated(KeyboardInterrupt):
    """Someone asked this process to end. Every clean-up for Ctrl-C serves it too."""


def heed_sigterm() -> None:
    """From now on SIGTERM raises Terminated in the main thread, unless it is ignored or taken."""
    # ValueError: another thread than the main one may not do it.
    with contextlib.suppress(ValueError):
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    # A second one while the first is being handled ends the process at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated
