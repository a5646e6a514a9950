"""The parts of `fa.torch_npu`."""
