"""Activation of fa's kernels in PyTorch's dispatcher."""

import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.attention as pytorch
import torch.nn.functional as F
from aten_calls import FORWARD, calls, kernels  # noqa: F401

import fa.torch
from fa._aten import activation, registry

pytestmark = pytest.mark.skipif(
    not hasattr(pytorch, "restore_flash_attention_impl"), reason="this PyTorch does not choose among implementations"
)


@pytest.fixture(autouse=True)
def _restored(kernels):
    yield
    if pytorch.current_flash_attention_impl() is not None:
        pytorch.restore_flash_attention_impl()


@pytest.fixture
def qkv():
    return [torch.randn(1, 4, 64, 32) for _ in range(3)]


def is_ours(qkv):
    """Returns whether fa computes a call. The results of PyTorch's kernel differ in some bits."""
    return torch.equal(F.scaled_dot_product_attention(*qkv), fa.torch.scaled_dot_product_attention(*qkv))


def test_the_import_registers_and_activates_nothing(qkv):
    script = (
        "import torch.nn.attention as a; import fa.torch\n"
        "assert 'fa' in a.list_flash_attention_impls() and a.current_flash_attention_impl() is None\n"
        "import sys; assert 'fa._aten.activation' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not is_ours(qkv)


def test_pytorchs_functions_activate_and_restore(qkv):
    for _ in range(2):
        pytorch.activate_flash_attention_impl("fa")
        assert is_ours(qkv) and pytorch.current_flash_attention_impl() == "fa"
        pytorch.activate_flash_attention_impl("fa")
        assert is_ours(qkv)
        pytorch.restore_flash_attention_impl()
        assert not is_ours(qkv)


def test_fas_functions_activate_and_restore(qkv):
    fa.torch.deactivate()
    for _ in range(2):
        fa.torch.activate()
    assert is_ours(qkv) and pytorch.current_flash_attention_impl() == "fa"
    for _ in range(2):
        fa.torch.deactivate()
        assert not is_ours(qkv) and pytorch.current_flash_attention_impl() is None


def test_older_versions_of_pytorch(qkv, monkeypatch):
    monkeypatch.setattr(registry, "_CHOOSES", False)
    registry.register()
    for _ in range(2):
        fa.torch.activate()
    assert is_ours(qkv) and pytorch.current_flash_attention_impl() is None
    for _ in range(2):
        fa.torch.deactivate()
        assert not is_ours(qkv)


def test_packed_sequences_are_refused_again_after_the_restoration():
    tensor, sums = torch.randn(5, 2, 16), torch.tensor([0, 5], dtype=torch.int32)
    given = (tensor, tensor, tensor, sums, sums, 5, 5, 0.0, False, False)
    fa.torch.activate()
    torch.ops.aten._flash_attention_forward(*given)
    fa.torch.deactivate()
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        torch.ops.aten._flash_attention_forward(*given)


def test_a_pytorch_without_get_kernel_is_refused(monkeypatch):
    monkeypatch.delattr(torch.library, "get_kernel")
    with pytest.raises(RuntimeError, match="want PyTorch 2.10 or newer, got 2"):
        fa.torch.activate()


def test_a_library_of_another_version_is_refused(kernels, monkeypatch, qkv):
    monkeypatch.setattr(activation._fa, "__version__", "9.9.9")
    if kernels == "Python":
        activation.Handle().remove()
        return
    with pytest.raises(RuntimeError, match=r"libfa_torch.so is of fa \d.*, and the package of 9.9.9"):
        fa.torch.activate()
    assert not is_ours(qkv)


def test_another_implementation_replaces_fas(qkv):
    """FA3 needs a GPU and cannot be activated here. PyTorch restores its own kernels before it finds that out."""
    pytorch.activate_flash_attention_impl("fa")
    with pytest.raises(ImportError):
        pytorch.activate_flash_attention_impl("FA3")
    assert not is_ours(qkv)
    fa.torch.deactivate()

    class Handle:
        def remove(self):
            removed.append(1)

    removed = []
    pytorch.register_flash_attention_impl("another", register_fn=Handle)
    pytorch.activate_flash_attention_impl("fa")
    pytorch.activate_flash_attention_impl("another")
    assert not is_ours(qkv)
    fa.torch.deactivate()  # this is not fa's to restore
    assert pytorch.current_flash_attention_impl() == "another" and not removed
    pytorch.activate_flash_attention_impl("fa")
    assert removed and is_ours(qkv)


def test_activation_warns_of_nothing():
    script = "import fa.torch; fa.torch.activate(); fa.torch.deactivate()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


def test_a_handle_may_be_removed_twice(qkv):
    handle = activation.Handle()
    assert is_ours(qkv)
    for _ in range(2):
        handle.remove()
        assert not is_ours(qkv)


def test_threads_compute_while_kernels_come_and_go(calls):
    """Each call may run fa's kernel or PyTorch's. A score is a sum of 32 products, below 8 sqrt(32) after scaling, so
    its error is at most 2^-24 (4 sqrt(32) + 8) 8 sqrt(32). A weight has twice this relative error. An output is a mean
    of values below 8.
    """
    bound = 2.0**-24 * (4 * 32**0.5 + 8) * 8 * 32**0.5 * 2 * 8
    fa.torch.deactivate()
    q, k, v = (torch.randn(1, 4, 64, 32) for _ in range(3))
    want = F.scaled_dot_product_attention(*(t.double() for t in (q, k, v)))
    stop, errors, made = threading.Event(), [], []

    def compute():
        try:
            while not stop.is_set():
                off = (F.scaled_dot_product_attention(q, k, v) - want).abs().max().item()
                made.append(off)
                if not off <= bound:
                    errors.append(off)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        fa.torch.activate()
        before = len(made)
        while len(made) < before + 4 and not errors:
            stop.wait(0.001)
        fa.torch.deactivate()
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors and 0 < calls[FORWARD] <= len(made) + 2
