"""Every public name has a docstring. The docstring of every function on tensors gives a shape."""

import importlib
import inspect
import re

import pytest

# The shape of a tensor, for example [B, N, Sq, D], [N] or [..., rows held, ...].
SHAPE = re.compile(r"\[[^\]\n]*[A-Za-z][^\]\n]*\]")
# Public functions that take no tensors and return none.
WITHOUT_TENSORS = {
    "set_default_context",
    "replace_flex_attention",
    "replace_scaled_dot_product_attention",
    "install",
    "uninstall",
    "get_scheduler_metadata",
    "traffic",
    "report",
    "activate",
    "calls",
    "deactivate",
    "platform_plugin",
    "plugin",
    "register",
    "unregister",
}
MODULES = [
    "fa",
    "fa.torch",
    "fa.torch.context_parallel",
    "fa.torch_npu",
    "fa.transformers",
    "fa.vllm",
    "fa.flash_attn",
    "fa.flash_attn.flash_attn_interface",
    "fa.flash_attn.bert_padding",
]


def without_shapes(module):
    """Yields the public functions and result tuples of a module whose docstrings lack a shape."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) or (inspect.isclass(value) and issubclass(value, tuple)):
            if name not in WITHOUT_TENSORS and not SHAPE.search(inspect.getdoc(value) or ""):
                yield name


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    assert inspect.getdoc(module)
    public = {name: getattr(module, name) for name in module.__all__}
    documented = {name: value for name, value in public.items() if callable(value)}
    assert documented
    for n, value in documented.items():
        said = inspect.getdoc(value) or ""
        # A tuple class without a docstring gets the text `Name(field, ...)` from Python.
        assert said and not said.startswith(f"{n}("), n


@pytest.mark.parametrize("name", MODULES)
def test_functions_of_tensors_name_shapes(name):
    assert list(without_shapes(importlib.import_module(name))) == []


def test_a_docstring_without_shapes_is_found():
    class Module:
        __all__ = ["good", "bad"]

        @staticmethod
        def good():
            """Of q [B, N, S, D]."""

        @staticmethod
        def bad():
            """Of q and [1]."""

    assert list(without_shapes(Module)) == ["bad"]
