"""Private names of PyTorch that `fa` uses, each with the feature that stops without it. Only fa._pytorch may use
them."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import fa
import pytest
import torch

ROOT = Path(fa.__file__).parent
WITHOUT = {
    "torch._C._after_autograd_keyset": "operators with a derivative",
    "torch._C._any_requires_grad": "recording gradients, in operators and past the dispatcher",
    "torch._C._are_functorch_transforms_active": "torch.func over operators, and calls past the dispatcher",
    "torch._C._AutoDispatchBelowAutograd": "operators with a derivative",
    "torch._C._disabled_torch_function_impl": "masks of transformers' models (ModelMask)",
    "torch._C._dispatch_keys": "calls past the dispatcher, and the extension's reading of tensors in place",
    "torch._C._dispatch_tls_local_exclude_set": "compiled calls of flex_attention",
    "torch._C._dispatch_tls_local_include_set": "compiled calls of flex_attention",
    "torch._C._ForceDispatchKeyGuard": "compiled calls of flex_attention",
    "torch._C._get_tracing_state": "torch.jit.trace",
    "torch._C._is_fwd_grad_enabled": "the refusal of forward-mode derivatives in fa's functions of arrays",
    "torch._C._is_torch_function_mode_enabled": "torch.overrides.TorchFunctionMode",
    "torch._C._len_torch_dispatch_stack": "TorchDispatchMode, FakeTensorMode",
    "torch._functorch.autograd_function.enable_single_level_autograd_function": "torch.func.grad and vjp",
    "torch._ops.HigherOrderOperator": "compiled calls of flex_attention",
    "torch.autograd._profiler_enabled": "operators in torch.profiler",
    "torch.autograd.forward_ad._current_level": "the refusal of forward-mode derivatives",
    "torch.autograd.forward_ad._set_fwd_grad_enabled": "forward mode around torch.func.grad",
    "torch.cpu._is_amx_tile_supported": "fa.vllm's warning that vLLM computes latent attention",
    "torch.distributed.distributed_c10d._get_default_group": "calls over ranks without a group",
    "torch.jit._builtins._get_builtin_table": "replace_scaled_dot_product_attention",
    "torch.jit._builtins._register_builtin": "replace_scaled_dot_product_attention",
    "torch.nested._internal.nested_tensor.NestedTensor": "nested tensors, and classes that override PyTorch's functions",
    "torch.nested._internal.nested_tensor.nested_view_from_values_offsets_lengths": "nested tensors",
    "torch.nn.attention.flex_attention._compute_dq_write_order_from_block_mask": "compute_dq_write_order of block masks",
    "torch.overrides._get_current_function_mode_stack": "fa.torch_npu.uninstall",
    "torch.overrides._pop_mode": "fa.torch_npu.uninstall",
    "torch.overrides._push_mode": "fa.torch_npu.install",
    "torch.utils._python_dispatch.TorchDispatchMode": "traces of mask_mod and score_mod (flex_attention)",
    "torch.utils._pytree.tree_leaves": "masks of transformers' models (ModelMask)",
    "torch.utils._pytree.tree_map": "masks of transformers' models (ModelMask)",
    "torch.Tensor._make_wrapper_subclass": "masks of transformers' models (ModelMask)",
    "torch.Tensor._version": "masks that are verified once, copies of T5's position bias",
    "torch.nn.functional._canonical_mask": "weights of MultiheadAttention",
    "torch.nn.functional._in_projection": "weights of MultiheadAttention",
    "torch.nn.functional._in_projection_packed": "weights of MultiheadAttention",
    "torch.nn.functional._mha_shape_check": "weights of MultiheadAttention",
    "torch.nn.functional._none_or_dtype": "weights of MultiheadAttention",
    "torch.ops.aten.add.Tensor._schema": "vmap over operators that write in place, writes into ModelMask",
}
OF_OBJECTS = {  # private attributes that exist only on instances
    "_ragged_idx": (lambda: nested(), "nested tensors"),
    "_maybe_min_seqlen": (lambda: nested(), "nested tensors"),
    "_maybe_max_seqlen": (lambda: nested(), "nested tensors"),
    "_forward_hooks": (torch.nn.Module, "the warning after a model that calls no attention function"),
    "_compiled_call_impl": (torch.nn.Module, "the warning after a model that calls no attention function"),
    "_torchdynamo_orig_callable": (lambda: torch.compile(len), "the warning after a compiled model"),
}


def nested():
    return torch.nested.nested_tensor([torch.ones(2, 3)], layout=torch.jagged)


def private_names(text):
    """Returns the full private names of PyTorch that a source text uses, and the private attributes that it reads from
    other objects."""
    names, attributes, aliases = set(), set(), {}
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                full = aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                names.update([full] if "._" in full else [])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    aliases[alias.asname or "torch"] = alias.name if alias.asname else "torch"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            root, _, rest = ast.unparse(node).partition(".")
            if root in aliases:
                names.add(f"{aliases[root]}.{rest}")
            else:
                attributes.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("_torch"):
            attributes.add(node.value)
    return names, attributes


def found(full):
    """Imports and returns the object with this full name. Returns None if there is none."""
    parts = full.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        for part in parts[split:]:
            owner = getattr(owner, part, None)
        return owner
    return None


@pytest.mark.parametrize("name", WITHOUT)
def test_pytorch_still_has(name):
    assert found(name) is not None, f"this PyTorch has no {name}, which fa needs for: {WITHOUT[name]}"


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_objects_still_have(name):
    make, use = OF_OBJECTS[name]
    assert hasattr(make(), name), f"this PyTorch's {type(make()).__name__} has no {name}, which fa needs for: {use}"


def test_private_names_are_in_one_file_and_listed():
    used, attributes = private_names((ROOT / "_pytorch.py").read_text())
    of_classes = {name for name in WITHOUT if name.split(".")[-1] in attributes}
    assert used | of_classes == set(WITHOUT)
    assert attributes - {name.split(".")[-1] for name in of_classes} == set(OF_OBJECTS)
    listed = attributes | {name.split(".")[-1] for name in WITHOUT}
    others = {}
    for path in ROOT.rglob("*.py"):
        names, attributes = private_names(path.read_text())
        others[path.name] = {name for name in names if not name.startswith("torch.ops.")} | attributes & listed
    del others["_pytorch.py"]
    assert {name: private for name, private in others.items() if private} == {}


OF_ONE_FEATURE = """
import sys, numpy, torch, torch.nn.attention.bias
for name in {modules}:
    sys.modules[name] = None
import fa, fa.torch, fa.torch_npu, fa.flash_attn
q = numpy.ones((1, 1, 2, 8), numpy.float32)
t = torch.ones(1, 1, 2, 8)
assert (fa.flash_attention(q, q, q).out == 1).all()
assert torch.equal(fa.torch.scaled_dot_product_attention(t, t, t), t)
assert torch.equal(fa.torch_npu.npu_fusion_attention(t, t, t, 1, "BNSD")[0], t)
assert torch.equal(fa.flash_attn.flash_attn_func(t, t, t), t)
"""


def test_other_features_work_without_the_modules_of_one():
    modules = ["torch.distributed.distributed_c10d", "torch.jit._builtins", "torch.nested._internal.nested_tensor"]
    done = subprocess.run([sys.executable, "-c", OF_ONE_FEATURE.format(modules=modules)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_private_names_are_found():
    text = "import torch\nfrom torch import nn\nfrom torch._C import _a\ndef f(t):\n    t._b; torch.x._c; nn._d; t.__e__"
    assert private_names(text) == ({"torch._C._a", "torch.x._c", "torch.nn._d"}, {"_b"})
    assert found("torch._C._no_such_name") is None
