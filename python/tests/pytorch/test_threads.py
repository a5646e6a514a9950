"""Calls of `fa.torch` run on PyTorch's OpenMP threads."""

import os
import subprocess
import sys

import pytest
import torch

from fa import _fa
from fa._torch.threads import openmp_runtime
from time_limits import seconds, starts_threads_in_a_forked_child

TORCH = "/site/torch"


@pytest.mark.parametrize(
    ("files", "runtime"),
    [
        ([], None),
        (["/lib/libc.so.6", "[heap]"], None),
        (["/lib/libgomp.so.1", "/lib/libc.so.6"], "/lib/libgomp.so.1"),
        (["/a b/libiomp5.so"], "/a b/libiomp5.so"),
        (["/site/torch.libs/libgomp-24e2ab19.so.1.0.0"], "/site/torch.libs/libgomp-24e2ab19.so.1.0.0"),
        (["/lib/libgomp.so.1", "/site/torch/lib/libgomp.so.1"], "/site/torch/lib/libgomp.so.1"),
        (["/lib/libgomp.so.1", "/site/torch.libs/libgomp-24e2ab19.so.1"], "/site/torch.libs/libgomp-24e2ab19.so.1"),
        (["/lib/libgomp.so.1", "/other/libomp.so"], None),
        (["/lib/libompi.so"], None),
    ],
)
def test_the_runtime_is_pytorchs(files, runtime):
    assert openmp_runtime(files, TORCH) == runtime


# Prints how many threads a call of fa added to the process after an operator of PyTorch's.
PROGRAM = """
import os, torch, fa.torch
torch.set_num_threads(2)
threads = lambda: len(os.listdir("/proc/self/task"))
torch.special.expm1(torch.randn(1 << 20))
before = threads()
q = torch.randn(1, 8, 512, 64)
assert fa.torch.scaled_dot_product_attention(q, q, q).isfinite().all()
print(threads() - before)
"""


def threads_of_a_call(**environment):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "FA_NUM_THREADS": "2", **environment},
        capture_output=True,
        text=True,
        timeout=seconds(120),
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.skipif(not torch.backends.openmp.is_available(), reason="PyTorch without OpenMP")
def test_a_call_starts_no_threads_beside_pytorchs():
    assert threads_of_a_call() == 0
    assert threads_of_a_call(FA_SHARE_OPENMP="0") > 0


FORKED = """
import os, signal, sys, torch
torch.set_num_threads(2)
torch.special.expm1(torch.randn(1 << 20))  # the parent's threads of OpenMP
q = torch.randn(1, 8, 512, 64)
child = os.fork()
if child == 0:
    signal.alarm(int(sys.argv[1]))
    import fa.torch
    out = fa.torch.scaled_dot_product_attention(q, q, q)
    # Of a few elements only: PyTorch itself would wait for its parent's threads.
    os._exit(0 if out[0, :, ::64, 0].isfinite().all().item() else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@starts_threads_in_a_forked_child
def test_a_forked_child_that_imports_fa_first_does_not_wait_for_its_parents_threads():
    environment = {**os.environ, "FA_NUM_THREADS": "2"}
    command = [sys.executable, "-c", FORKED, str(seconds(60))]
    assert subprocess.run(command, env=environment, timeout=seconds(120)).returncode == 0


MAPPED = """
import mmap, os, sys, tempfile
folder = tempfile.mkdtemp()
path = os.fsencode(folder) + b"/mod\\xe8le.bin"
with open(path, "wb+") as file:
    file.write(b"x" * 4096)
    file.flush()
    mapped = mmap.mmap(file.fileno(), 4096)
os.remove(path)
os.rmdir(folder)
import fa.torch
"""


def test_a_mapped_file_whose_name_is_no_text_does_not_matter():
    assert subprocess.run([sys.executable, "-c", MAPPED], timeout=seconds(120)).returncode == 0


def test_a_runtime_that_is_none():
    assert _fa.share_openmp_threads("libno_such_runtime.so.9") is False
    with pytest.raises(ValueError, match="runtime"):
        _fa.share_openmp_threads("libc.so.6")
