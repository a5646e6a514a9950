"""What `fa.torch_npu` is made of."""
