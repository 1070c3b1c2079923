"""The gates: one module for each, found by ``registry``. Standard library only."""
