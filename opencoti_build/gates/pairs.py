"""A small set of combinations in which every pair of values occurs. Standard library only."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def product(factors: Mapping[str, Sequence[T]]) -> list[dict[str, T]]:
    """Every combination of the factors' values."""
    names = list(factors)
    return [dict(zip(names, row, strict=True)) for row in itertools.product(*factors.values())]


def all_pairs(factors: Mapping[str, Sequence[T]]) -> list[dict[str, T]]:
    """Few combinations that together hold every pair of values of two factors.

    Greedy and without chance: the same factors give the same list.
    """
    rows = product(factors)
    missing = set().union(*(_pairs(row) for row in rows)) if rows else set()
    chosen: list[dict[str, T]] = []
    while missing:
        best = max(rows, key=lambda row: len(_pairs(row) & missing))
        chosen.append(best)
        missing -= _pairs(best)
    return chosen


def _pairs(row: Mapping[str, T]) -> set[tuple[str, T, str, T]]:
    return {(a, row[a], b, row[b]) for a, b in itertools.combinations(sorted(row), 2)}
