"""Checks of a finished file that never run it."""
