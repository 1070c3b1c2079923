"""The build plan: steps with content keys, their cache and their execution."""
