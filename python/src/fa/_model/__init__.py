"""What `fa.transformers` is made of."""
