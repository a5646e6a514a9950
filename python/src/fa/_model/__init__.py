"""The parts of `fa.transformers`."""
