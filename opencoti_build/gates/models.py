"""The model pins that gates run on. Standard library only."""

from __future__ import annotations

# A plain model with full attention, and one with a sliding window and a large vocabulary.
SMOLLM2 = "smollm2-135m-instruct"
GEMMA3 = "gemma-3-270m"
MODELS = (SMOLLM2, GEMMA3)
