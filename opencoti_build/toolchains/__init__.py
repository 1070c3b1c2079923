"""Compilers: where they are, what identifies them, which flags they take."""
