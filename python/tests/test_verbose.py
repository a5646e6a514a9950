"""With FA_VERBOSE=1, every call writes a line to stderr, from whichever interface of the library it comes."""

import os
import re
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np, torch, fa, fa.torch, fa.flash_attn, fa.torch_npu
torch.set_num_threads(2)
q = torch.randn(1, 4, 512, 64, requires_grad=True)
fa.torch.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
q = q.detach().bfloat16()
fa.torch.decode_attention(q[:, :, :1], q, q)
fa.flash_attn.flash_attn_func(*[q.transpose(1, 2)] * 3, window_size=(8, 0))
fa.torch_npu.npu_fusion_attention(q, q, q, 4, "BNSD")
x = np.zeros((1, 2, 8, 16), np.float32)
fa.flash_attention(x, x, x)
fa.flash_attention(x[:, :, :0], x, x)
try:
    fa.flash_attention(x, x[..., :8], x)
except ValueError:
    pass
"""
LINES = [
    r"forward, f32: 1 sequences, sq 512, sk 512, 4 heads \(4 of k and v\), d 64 \+ rope 0, dv 64; causal; .*; 2 threads; ",
    r"backward, f32: .*; causal; .*; 2 threads; ",
    r"decode, bf16: .*, sq 1, sk 512, .*; no rule; ",
    r"forward, bf16: .*; row i: keys i-8 to i\+0; ",
    r"forward, bf16: .*; no rule; ",
    r"forward, f32: .*, sq 8, sk 8, 2 heads.*; ",
    r"forward, f32: .*, sq 0, sk 8, .*; no rule; [a-z0-9_]+; no kernel; 1 thread; ",
]


@pytest.mark.parametrize("value", ["1", "0", None])
def test_a_line_per_call(value):
    environment = {name: text for name, text in os.environ.items() if name not in ("FA_NUM_THREADS", "FA_VERBOSE")}
    environment |= {} if value is None else {"FA_VERBOSE": value}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("fa: ")]
    if value != "1":
        assert not lines
        return
    assert len(lines) == len(LINES)
    for line, pattern in zip(lines, LINES, strict=True):
        assert re.fullmatch(f"fa: {pattern}(.*; )?[0-9.]+ ms", line), line
