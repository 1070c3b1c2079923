"""Ways to bring a pin's bytes here: one module for each way."""
