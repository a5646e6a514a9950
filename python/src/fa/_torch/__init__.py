"""PyTorch's side of `fa.torch`: operators, shapes, derivatives, and calls past the dispatcher."""
