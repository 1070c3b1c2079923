"""Retrieval tasks from a seed: a fact hidden in a long text, to be found again.

Both are made so that a small model without a special prompt scores near 1 within the context that
it was trained for: the question ends where the sentence with the answer goes on. Standard library.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from opencoti_build.gates.texts import prose

_CITIES = ("Lisbon", "Oslo", "Cairo", "Lima", "Quito", "Delhi", "Tokyo", "Paris")
_FOODS = ("oranges", "noodles", "cheese", "pancakes", "olives", "honey", "mushrooms", "apples")
_VIEWS = ("the sea", "the mountains", "the bridge", "the stars", "the river", "the trains")


@dataclass(frozen=True)
class Task:
    """A prompt, and what an exact answer begins with."""

    prompt: str
    answer: str


def passkey(seed: int, characters: int, depth: float) -> Task:
    """A pass key told once, ``depth`` (0 to 1) into about ``characters`` of other text."""
    key = str(random.Random(seed).randint(10000, 99999))
    needle = f"The pass key is {key}. Remember it: the pass key is {key}."
    head = "There is a pass key hidden in this text. Find it and remember it.\n\n"
    text = _hide(seed, characters, [(depth, needle)])
    return Task(f"{head}{text}\n\nWhat is the pass key? The pass key is", key)


def needle(seed: int, characters: int, depth: float) -> Task:
    """A sentence that fits nothing around it, to be finished in its own words."""
    rng = random.Random(seed)
    city, food, view = rng.choice(_CITIES), rng.choice(_FOODS), rng.choice(_VIEWS)
    start, answer = f"The best thing to do in {city} is to eat", f"{food} and look at {view}"
    text = _hide(seed, characters, [(depth, f"{start} {answer}.")])
    return Task(f"{text}\n\n{start}", answer)


def _hide(seed: int, characters: int, sentences: list[tuple[float, str]]) -> str:
    filler = prose(seed, max(2, characters // 60))[:characters].rpartition(".")[0] + "."
    parts = filler.split(". ")
    for depth, sentence in sorted(sentences, reverse=True):
        parts.insert(round(depth * len(parts)), sentence.rstrip("."))
    return ". ".join(parts)


def is_right(task: Task, answer: str) -> bool:
    """Whether ``answer`` begins with exactly what is wanted."""
    words = answer.strip().lstrip(":*\"' ")
    rest = words.removeprefix(task.answer)
    return rest != words and not rest[:1].isalnum()
