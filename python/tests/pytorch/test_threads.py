"""fa.torch computes on PyTorch's OpenMP threads, and uses as many as `torch.get_num_threads()` returns."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import fa
from fa import _context, _fa, flash_attn, torch_npu
from fa._torch.threads import openmp_runtime
from fa.torch import decode_attention, scaled_dot_product_attention
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


# Prints how many threads a call of fa adds to the process, after an operator of PyTorch has started its threads.
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


COMPUTING = ("forward", "backward", "merge", "dropout_mask", "prompt", "decode", "attend", "attend_masked", "attend_backward")
COMPUTING += ("attend_cache", "sparse_forward", "indexer")


@pytest.fixture
def numbers(monkeypatch):
    """Returns a list to which each call appends how many threads its context has. None stands for the library's own
    context."""
    used = []

    def watched(function):
        def call(*arguments):
            context = next((a for a in arguments if isinstance(a, fa.Context)), None)
            used.append(None if context is None else context.threads)
            return function(*arguments)

        return call

    for name in COMPUTING:
        monkeypatch.setattr(_fa, name, watched(getattr(_fa, name)))
    monkeypatch.delenv("FA_NUM_THREADS", raising=False)
    _context._of_threads.cache_clear()
    before = torch.get_num_threads()
    yield used
    torch.set_num_threads(before)
    fa.set_default_context(None)
    _context._of_threads.cache_clear()


def qkv(recorded=False):
    return [torch.randn(1, 2, 5, 16, requires_grad=recorded) for _ in range(3)]


def sparse(name):
    query, key = torch.randn(1, 5, 2, 16), torch.randn(1, 7, 1, 16)
    if name == "sparse_forward":
        chosen = torch.zeros(1, 5, 1, 1, dtype=torch.int32)
        return fa.sparse_flash_attention(query, key, key, chosen)
    return fa.lightning_indexer(query, key, torch.randn(1, 5, 2), sparse_count=2)


FACES = {
    "fa.torch": lambda: scaled_dot_product_attention(*qkv()),
    "with a mask": lambda: scaled_dot_product_attention(*qkv(), torch.randn(5, 5)),
    "with a gradient": lambda: scaled_dot_product_attention(*qkv(True)).sum().backward(),
    "with dropout": lambda: scaled_dot_product_attention(*qkv(True), dropout_p=0.5).sum().backward(),
    "under vmap": lambda: torch.vmap(scaled_dot_product_attention)(*(t[None] for t in qkv())),
    "decode": lambda: decode_attention(*qkv()),
    "decode by lengths": lambda: decode_attention(*qkv(), lengths_kv=[3], query_rope=torch.randn(1, 2, 5, 8), key_rope=torch.randn(1, 2, 5, 8)),
    "fa.flash_attn": lambda: flash_attn.flash_attn_func(*qkv()),
    "flash_attn with a gradient": lambda: flash_attn.flash_attn_func(*qkv(True)).sum().backward(),
    "probabilities": lambda: flash_attn.flash_attn_func(*qkv(), dropout_p=0.5, return_attn_probs=True),
    "a cache": lambda: flash_attn.flash_attn_with_kvcache(*qkv()),
    "fa.torch_npu": lambda: torch_npu.npu_fusion_attention(*qkv(), 2, "BNSD"),
    "npu, with a gradient": lambda: torch_npu.npu_fusion_attention(*qkv(True), 2, "BNSD")[0].sum().backward(),
    "prompt": lambda: torch_npu.npu_prompt_flash_attention(*qkv(), num_heads=2, input_layout="BNSD"),
    "tensors in place of arrays": lambda: fa.flash_attention(*qkv()),
    "sparse": lambda: sparse("sparse_forward"),
    "indexer": lambda: sparse("indexer"),
    "a model's layer": lambda: model_layer(),
}


def model_layer():
    transformers = pytest.importorskip("transformers")
    import fa.transformers  # noqa: F401, PLC0415

    sizes = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, attn_implementation="fa")
    model = transformers.LlamaForCausalLM(config)
    model(torch.zeros(1, 5, dtype=torch.int64)).logits.sum().backward()
    model.generate(torch.zeros(1, 5, dtype=torch.int64), max_new_tokens=2, do_sample=False, pad_token_id=0)


@pytest.mark.parametrize("face", FACES)
def test_the_default_is_pytorchs_number_of_threads(face, numbers):
    for threads in (3, 1):
        torch.set_num_threads(threads)
        numbers.clear()
        FACES[face]()
        assert set(numbers) == {threads}


@pytest.mark.parametrize("face", FACES)
def test_numbers_that_are_set_for_fa_count_more(face, numbers, monkeypatch):
    torch.set_num_threads(3)
    fa.set_default_context(fa.Context(threads=2))
    FACES[face]()
    assert set(numbers) == {2}
    fa.set_default_context(None)
    monkeypatch.setenv("FA_NUM_THREADS", "2")
    numbers.clear()
    FACES[face]()
    assert set(numbers) == {None}


def test_arrays_of_numpy_have_nothing_to_do_with_pytorch(numbers):
    torch.set_num_threads(3)
    q = np.zeros((1, 2, 5, 16), np.float32)
    fa.flash_attention(q, q, q)
    fa.decode_attention(q, q, q)
    fa.generate_dropout_mask(1, 2, 0.5, 8)
    assert set(numbers) == {None}


def test_contexts_are_kept_and_few(numbers):
    inputs = qkv()
    want = scaled_dot_product_attention(*inputs)
    for threads in range(1, 20):
        torch.set_num_threads(threads)
        assert torch.equal(scaled_dot_product_attention(*inputs), want)
        assert _context.context_of_tensors() is _context.context_of_tensors()
    assert _context._of_threads.cache_info().currsize == _context._of_threads.cache_info().maxsize < 19


WORKER = """
import os, torch, fa.torch

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        q = torch.randn(1, 8, 512, 64)
        before = len(os.listdir("/proc/self/task"))
        assert fa.torch.scaled_dot_product_attention(q, q, q).isfinite().all()
        return len(os.listdir("/proc/self/task")) - before

if __name__ == "__main__":
    torch.set_num_threads(4)
    loader = torch.utils.data.DataLoader(Samples(), num_workers=1, multiprocessing_context="spawn")
    print(*(int(added) for added in loader))
"""


@pytest.mark.parametrize("of_fa", [None, "4"])
def test_a_worker_that_loads_data_has_one_thread(of_fa, tmp_path):
    program = tmp_path / "loader.py"
    program.write_text(WORKER)
    environment = {k: v for k, v in os.environ.items() if k != "FA_NUM_THREADS"}
    environment |= {} if of_fa is None else {"FA_NUM_THREADS": of_fa}
    result = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=seconds(120)
    )
    assert result.returncode == 0, result.stderr
    assert (int(result.stdout) == 0) is (of_fa is None)


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
