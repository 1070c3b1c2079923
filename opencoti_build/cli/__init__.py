"""Command line: one module per command; each parses, calls and renders, and holds no logic."""
