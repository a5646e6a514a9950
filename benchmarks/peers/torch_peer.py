"""PyTorch's scaled_dot_product_attention as a peer, restricted to its flash kernel; the backward is autograd's."""

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from worker import Unsupported, serve


class TorchPeer:
    def about(self):
        return {"version": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability()}

    def load(self, name):
        array = np.load(f"{self.case['folder']}/{name}.npy")
        if self.case["dtype"] == "bf16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def save(self, name, tensor):
        dense = tensor.detach().contiguous()
        array = dense.view(torch.int16).numpy().view(np.uint16) if self.case["dtype"] == "bf16" else dense.numpy()
        np.save(f"{self.case['folder']}/{name}.npy", array)

    def prepare(self, case):
        self.release()
        if case["mask"] not in ("full", "causal"):
            raise Unsupported(f"mask {case['mask']} in the flash kernel")
        torch.set_num_threads(case["threads"])
        self.case = case
        self.backward = case["operation"] == "backward"
        self.inputs = [self.load(name).requires_grad_(self.backward) for name in ("q", "k", "v")]
        self.causal = case["mask"] == "causal"
        # Older versions have the kernel but not this parameter.
        self.grouped = {"enable_gqa": True} if case["heads"] != case["heads_kv"] else {}
        if self.backward:
            self.out = self.forward()
            self.d_out = self.load("d_out")

    def forward(self):
        q, k, v = self.inputs
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=self.causal, **self.grouped)

    def call(self):
        if self.backward:
            self.gradients = torch.autograd.grad(self.out, self.inputs, self.d_out, retain_graph=True)
        else:
            self.out = self.forward()

    def save_results(self):
        if self.backward:
            for name, gradient in zip(("dq", "dk", "dv"), self.gradients):
                self.save(name, gradient)
        else:
            self.save("out", self.out)

    def release(self):
        self.inputs = self.out = self.d_out = self.gradients = None


if __name__ == "__main__":
    serve(TorchPeer())
