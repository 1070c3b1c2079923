"""What a KV cache type promises to cost. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class KvType:
    """A cache type: ``values`` numbers are stored in ``bytes``."""

    values: int
    bytes: int

    @property
    def bytes_per_value(self) -> Fraction:
        return Fraction(self.bytes, self.values)


# A patch that adds a type adds its row: name, values and bytes of a block.
KV_TYPES: Mapping[str, KvType] = {
    "f16": KvType(1, 2),
    "bf16": KvType(1, 2),
    "q8_0": KvType(32, 34),
    "q5_1": KvType(32, 24),
    "q5_0": KvType(32, 22),
    "q4_1": KvType(32, 20),
    "q4_0": KvType(32, 18),
}
