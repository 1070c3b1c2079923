"""Pins, transports, archives, and the import of upstream trees into the object store."""
