import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import fa
from fa import _fa

# Test modules import the modules of their own folder and of python/tests. `fa` is the installed package.
for _folder in (".", "flash", "jax", "models", "pytorch", "ranks", "vllm_cpu", "xformers_cpu"):
    sys.path.insert(0, str(Path(__file__).parent / _folder))

# These tests have an environment of their own (scripts/test_vllm.sh).
collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm_cpu"]


# {folder: (the package that its modules import, why an environment may lack it)}. jaxlib stands for jax, because the
# test folder jax would be found in place of a missing package jax.
_NEEDS = {
    "jax": ("jaxlib", "Python 3.10 has no jax that fa.jax works with"),
    "xformers_cpu": ("xformers", "this environment has no xformers; its package has a wheel for x86-64 only"),
}


class _WithoutPackage(pytest.Module):
    def collect(self):
        pytest.skip(_NEEDS[self.path.parent.name][1], allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Skips a folder's tests where the package that they need is missing, before their modules import it."""
    package, _ = _NEEDS.get(module_path.parent.name, (None, ""))
    if package is not None and importlib.util.find_spec(package) is None:
        return _WithoutPackage.from_parent(parent, path=module_path)
    return None


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(7)


@pytest.fixture
def one_torch_thread():
    """Runs PyTorch's own operators, which compute the references, on one thread. On a busy machine, PyTorch's threads
    would wait for each other much longer than they compute."""
    threads, context = torch.get_num_threads(), fa.set_default_context(fa.Context())
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    fa.set_default_context(context)


@pytest.fixture
def forward_calls(monkeypatch):
    """Returns a counter that grows by one with each forward call of the library."""
    made = []

    def counted(function, answered):
        def call(*arguments):
            result = function(*arguments)
            made.extend([1] * answered(result))
            return result

        return call

    monkeypatch.setattr(_fa, "forward", counted(_fa.forward, lambda _: True))
    for name in ("attend", "attend_masked"):
        monkeypatch.setattr(_fa, name, counted(getattr(_fa, name), lambda result: result is not None))
    return made
