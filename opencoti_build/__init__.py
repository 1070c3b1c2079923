"""Turns an upstream pin, a patch series and a recipe into one file that serves a local LLM."""

__version__ = "0.1.0"
