"""Attention of PyTorch tensors as a peer: torch_peer.py [KERNEL].

KERNEL is flash (scaled_dot_product_attention with its flash kernel; the default), flex (compiled flex_attention),
zentorch (AMD's operator) or fa (the installed Python package). autograd computes the backward."""

import sys
import time

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from worker import Unsupported, serve

KERNEL = sys.argv[1] if len(sys.argv) > 1 else "flash"
if KERNEL == "zentorch":
    import zentorch  # imported for this kernel alone, because zentorch changes PyTorch
if KERNEL == "fa":
    import fa.torch  # imported for this kernel alone, because other kernels need no installed fa


def flash(case, q, k, v):
    """@return a function without arguments that makes the call"""
    # Older versions have the kernel but not this parameter.
    grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    if case["mask"] not in ("full", "causal"):
        raise Unsupported(f"mask {case['mask']} in the flash kernel")

    def call():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=case["mask"] == "causal", **grouped)

    return call


def flex(case, q, k, v):
    if case["operation"] == "backward":
        raise Unsupported("no backward on CPUs")
    torch.compiler.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    if case["mask"] == "full":
        return lambda: compiled(q, k, v)
    offset = case["sk"] - case["sq"]
    back = case["sk"] if case["mask"] == "causal" else int(case["mask"].removeprefix("window"))

    def kept(_batch, _head, row, key):
        return (key <= row + offset) & (key >= row + offset - back)

    blocks = create_block_mask(kept, None, None, case["sq"], case["sk"], device="cpu")
    return lambda: compiled(q, k, v, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1])


def zen(case, q, k, v):
    if case["mask"] not in ("full", "causal"):
        raise Unsupported(f"mask {case['mask']}")
    if case["operation"] == "backward":
        raise Unsupported("no backward")
    if q.shape[1] != k.shape[1]:
        # The operator wants as many key heads as query heads.
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    causal = case["mask"] == "causal"
    return lambda: torch.ops.zentorch.zentorch_sdpa(q, k, v, 0.0, causal)[0]


def own(case, q, k, v):
    if case["mask"] not in ("full", "causal"):
        raise Unsupported(f"mask {case['mask']}")
    fa.set_default_context(fa.Context(threads=case["threads"]))
    causal, grouped = case["mask"] == "causal", q.shape[1] != k.shape[1]
    return lambda: fa.torch.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


KERNELS = {"flash": flash, "flex": flex, "zentorch": zen, "fa": own}


def product_rate(request):
    """Returns the GFLOP/s of a matrix product on all threads. In f32 the faster of PyTorch's and NumPy's product
    counts."""
    n = 1024
    a = torch.ones(n, n, dtype=torch.bfloat16 if request["dtype"] == "bf16" else torch.float32)
    products = [lambda: a @ a] if request["dtype"] == "bf16" else [lambda: a @ a, lambda: a.numpy() @ a.numpy()]
    best = float("inf")
    for product in products:
        product()
        end = time.perf_counter() + request["seconds"]
        while (begin := time.perf_counter()) < end:
            product()
            best = min(best, time.perf_counter() - begin)
    return 2e-9 * n**3 / best


class TorchPeer:
    def about(self):
        facts = {"version": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability()}
        packages = {"zentorch": lambda: zentorch.__version__, "fa": lambda: fa.__version__}
        return facts | ({"version": packages[KERNEL]()} if KERNEL in packages else {})

    def answer(self, request):
        """Answers the requests that compare.py sends to fa alone. For the peak, it gives the rate of a matrix product,
        because only a C++ program can measure the peak."""
        if request["do"] == "peak":
            return {"gflops": product_rate(request)}
        case = self.case
        q, k = ((case["batch"], case[heads], case[rows], case["d"]) for heads, rows in (("heads", "sq"), ("heads_kv", "sk")))
        mask = fa.Mask.causal() if case["mask"] == "causal" else None
        plan = fa.plan(case["operation"], q, k, k, dtype=case["dtype"], mask=mask)
        return {"kernels": list(plan.kernels)}

    def load(self, name):
        array = np.load(f"{self.case['folder']}/{name}.npy")
        if self.case["dtype"] == "bf16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def save(self, name, tensor):
        dense = tensor.detach().contiguous()
        array = dense.view(torch.int16).numpy().view(np.uint16) if self.case["dtype"] == "bf16" else dense.numpy()
        heads, rows = ("heads_kv", "sk") if name in ("dk", "dv") else ("heads", "sq")
        np.save(f"{self.case['folder']}/{name}.npy", array.reshape([self.case[size] for size in ("batch", heads, rows, "d")]))

    def load_queries(self, name):
        """Loads the rows of query heads. Without a mask, all query heads of one key head become one head. PyTorch then
        sees equal numbers of heads, and computes a decode as a matrix product."""
        rows, joined = self.load(name), self.case["mask"] == "full" and KERNEL != "fa"
        return rows.flatten(1, 2).unflatten(1, (self.case["heads_kv"], -1)) if joined else rows

    def prepare(self, case):
        self.release()
        torch.set_num_threads(case["threads"])
        self.case = case
        self.backward = case["operation"] == "backward"
        inputs = (self.load_queries("q"), self.load("k"), self.load("v"))
        self.inputs = [tensor.requires_grad_(self.backward) for tensor in inputs]
        self.forward = KERNELS[KERNEL](case, *self.inputs)
        if self.backward:
            self.out = self.forward()
            self.d_out = self.load_queries("d_out")

    def call(self):
        if self.backward:
            self.gradients = torch.autograd.grad(self.out, self.inputs, self.d_out, retain_graph=True)
        else:
            with torch.no_grad():
                self.out = self.forward()

    def save_results(self):
        if self.backward:
            for name, gradient in zip(("dq", "dk", "dv"), self.gradients):
                self.save(name, gradient)
        else:
            self.save("out", self.out)

    def memory(self):
        return [(tensor.data_ptr(), tensor.nbytes) for tensor in self.inputs[1:]]

    def release(self):
        self.inputs = self.forward = self.out = self.d_out = self.gradients = None


if __name__ == "__main__":
    serve(TorchPeer())
