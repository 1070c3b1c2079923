"""Medians of paired measurements with bootstrap confidence intervals. Standard library only."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_RESAMPLES = 2000
_SEED = 1
# Wide, because a measurement that goes on until it decides looks many times: with 0.95, one in
# twenty comparisons of equal engines on a noisy machine ended as a slow-down.
LEVEL = 0.99


@dataclass(frozen=True)
class Ratio:
    """An estimate of a ratio with its ``LEVEL`` confidence interval."""

    value: float
    low: float
    high: float
    pairs: int

    @property
    def half_width(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}] of {self.pairs} pairs"


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """The median of ``a / b`` over ``pairs``, with a percentile bootstrap over the pairs.

    The two of a pair were measured one right after the other, so what disturbs the machine for
    longer than that disturbs both. The resampling has a fixed seed: same data, same interval.
    """
    ratios = [a / b for a, b in pairs]
    rng = random.Random(_SEED)
    medians = sorted(
        statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES)
    )
    tail = (1 - LEVEL) / 2
    low = medians[int(tail * _RESAMPLES)]
    high = medians[min(_RESAMPLES - 1, int((1 - tail) * _RESAMPLES))]
    return Ratio(statistics.median(ratios), low, high, len(ratios))
