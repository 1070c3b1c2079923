"""Texts for the gates, generated from a seed: ours, so free of other people's licences.

Sentences follow a small grammar, with names and numbers that repeat. Small models predict such a
text far better than noise, so its logits are peaked where a damaged cache would move them.
"""

from __future__ import annotations

import random

_PEOPLE = ("Mara", "Tomas", "Ines", "Ruben", "Hanna", "Pavel", "Lucia", "Oskar")
_PLACES = ("the harbour", "the old mill", "the market", "the library", "the station", "the garden")
_THINGS = ("letter", "lamp", "basket", "map", "clock", "book", "key", "photograph")
_QUALITIES = ("small", "heavy", "broken", "beautiful", "forgotten", "red", "strange", "useful")
_WEATHER = ("It rained", "The sun was shining", "A cold wind blew", "Snow was falling")
_PATTERNS = (
    "{person} walked to {place} and found a {quality} {thing}.",
    "{weather}, and {person} waited at {place} for {other}.",
    '"Where did you leave the {thing}?" asked {person}. "At {place}," said {other}.',
    "The {thing} was {quality}, but {person} did not want to sell it for {number} coins.",
    "In the year {year}, {person} and {other} built a house near {place}.",
    "There were {number} people at {place}, and {person} knew most of them.",
    "{person} gave the {thing} to {other}, because it was {quality}.",
)


def prose(seed: int, sentences: int) -> str:
    """``sentences`` sentences of simple English, in paragraphs; the same for the same seed."""
    rng = random.Random(seed)
    out: list[str] = []
    for number in range(sentences):
        person, other = rng.sample(_PEOPLE, 2)
        out.append(
            rng.choice(_PATTERNS).format(
                person=person,
                other=other,
                place=rng.choice(_PLACES),
                thing=rng.choice(_THINGS),
                quality=rng.choice(_QUALITIES),
                weather=rng.choice(_WEATHER),
                number=rng.randint(3, 90),
                year=rng.randint(1700, 1990),
            )
        )
        out.append("\n\n" if number % 6 == 5 else " ")
    return "".join(out).strip() + "\n"
