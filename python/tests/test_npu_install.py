"""fa.torch_npu.install lets scripts for the NPU run unchanged, and uninstall undoes it completely."""

import importlib
import sys
import threading

import pytest
import torch

import fa.torch_npu
from fa._npu.install import _mode

CPU = torch.device("cpu")


@pytest.fixture
def installed():
    fa.torch_npu.install()
    yield
    fa.torch_npu.uninstall()


def test_a_script_for_the_npu_runs_as_it_is(installed):
    import torch_npu  # this is fa.torch_npu under the name torch_npu

    assert torch_npu is fa.torch_npu and sys.modules["torch.npu"] is torch.npu is torch_npu.npu
    assert torch.npu.is_available() and torch.npu.device_count() == 1
    torch.npu.set_device("npu:0")
    torch.npu.set_device(3)
    assert torch.npu.current_device() == 0
    q = torch.randn(1, 2, 8, 16, device="npu")
    out = torch_npu.npu_fusion_attention(q, q, q, head_num=2, input_layout="BNSD", scale=0.25)[0]
    torch.npu.synchronize()
    torch.npu.empty_cache()
    torch.testing.assert_close(out.cpu(), torch.nn.functional.scaled_dot_product_attention(q, q, q))


@pytest.mark.parametrize("device", ["npu", "npu:0", "npu:7"])
def test_the_device_npu_is_the_cpu(installed, device):
    x = torch.ones(2)
    assert torch.device(device) == CPU
    assert x.to(device) is x and x.to(device=device) is x
    assert x.to(device, torch.bfloat16).dtype == torch.bfloat16
    assert x.to(torch.device(device)) is x
    for made in (
        torch.randn(2, device=device),
        torch.tensor([1.0], device=device),
        torch.arange(3, device=torch.device(device)),
        torch.zeros_like(x, device=device),
        x.new_zeros(2, device=device),
    ):
        assert made.device == CPU
    module = torch.nn.Linear(2, 2, device=device)
    assert module.to(device) is module and module.weight.device == CPU
    assert torch.compile(lambda y: y + torch.ones(2, device=device), backend="eager")(x).tolist() == [2, 2]


def test_a_device_with_an_index_apart_is_the_one_of_tensors(installed):
    assert torch.device("npu", 0) == torch.device(type="npu", index=0) == torch.ones(1).device
    assert torch.device("cpu", 0) != CPU, "other devices are PyTorch's"


def test_npu_returns_what_it_is_called_of(installed):
    tensor, module = torch.ones(2), torch.nn.Linear(2, 2)
    assert tensor.npu() is tensor and tensor.npu("npu:0", non_blocking=True) is tensor
    assert module.npu() is module and module.npu(0) is module


def test_seeds_are_pytorchs(installed):
    for seed in (torch.npu.manual_seed, torch.npu.manual_seed_all):
        seed(5)
        drawn = torch.rand(3, device="npu")
        torch.manual_seed(5)
        assert torch.equal(drawn, torch.rand(3))


def test_other_names_of_torch_npu_are_refused_by_name(installed):
    assert not hasattr(torch.npu, "Stream")
    with pytest.raises(AttributeError, match=r"torch.npu.Event is not served by fa.torch_npu.install\(\)"):
        torch.npu.Event(enable_timing=True)


def is_clean():
    stack = torch.overrides._get_current_function_mode_stack()
    named = [hasattr(owner, "npu") for owner in (torch, torch.Tensor, torch.nn.Module, fa.torch_npu)]
    return not any(named) and not {"torch_npu", "torch.npu"} & set(sys.modules) and _mode not in stack


def test_uninstall_undoes_it_all():
    assert is_clean()
    fa.torch_npu.uninstall()
    assert is_clean(), "without install"
    fa.torch_npu.install()
    fa.torch_npu.install()
    assert not is_clean()
    fa.torch_npu.uninstall()
    assert is_clean(), "two calls of install are one"
    with pytest.raises(RuntimeError, match="npu"):
        torch.ones(1).to("npu")
    with pytest.raises(ModuleNotFoundError, match="torch_npu"):
        importlib.import_module("torch_npu")


def test_uninstall_keeps_other_modes_of_pytorch():
    fa.torch_npu.install()
    with torch.device("meta"):
        fa.torch_npu.uninstall()
        assert is_clean()
        assert torch.ones(1).is_meta
    assert torch.ones(1).device == CPU


def test_another_thread_cannot_uninstall(installed):
    raised = []

    def uninstall():
        try:
            fa.torch_npu.uninstall()
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=uninstall)
    thread.start()
    thread.join()
    assert raised == ["uninstall: another thread called install, want the same thread"]
    assert torch.device("npu") == CPU, "nothing was undone"


def test_install_is_refused_where_the_real_package_can_be_imported(tmp_path, monkeypatch):
    (tmp_path / "torch_npu.py").write_text("real = True")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="^invalid argument: force=False, want True: the package torch_npu itself"):
        fa.torch_npu.install()
    assert is_clean()
    real = importlib.import_module("torch_npu")
    fa.torch_npu.install(force=True)
    try:
        assert sys.modules["torch_npu"] is fa.torch_npu
    finally:
        fa.torch_npu.uninstall()
    assert sys.modules.pop("torch_npu") is real


REFUSED = (
    *("npu_mla_prolog", "npu_mla_prolog_v2", "npu_mla_prolog_v3", "mla_preprocess", "npu_compressor", "compressor"),
    *("quant_compressor", "quant_sparse_flash_mla", "mixed_quant_sparse_flash_mla", "npu_kv_rmsnorm_rope_cache"),
    *("npu_kv_rmsnorm_rope_cache_v2", "kv_compress_epilog", "indexer_quant_cache", "npu_quant_fusion_attention"),
    *("npu_nsa_compress", "npu_nsa_select_attention", "npu_nsa_compress_attention", "npu_chunk_gated_delta_rule"),
)


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_that_is_not_served_is_no_attribute(installed, name):
    import cann_ops_transformer

    for owner in (fa.torch_npu, torch.ops._C_ascend, torch.ops.custom, cann_ops_transformer.ops, torch.ops.npu):
        with pytest.raises(AttributeError, match=name):
            getattr(owner, name)
