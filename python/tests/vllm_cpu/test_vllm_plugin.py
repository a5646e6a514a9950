"""How fa.vllm gets into vLLM: the entry point, the variable FA_VLLM, and the registries."""

from __future__ import annotations

import logging
import os
import sys
import types
from importlib.metadata import entry_points

import pytest
import torch
import vllm.platforms
import vllm.platforms.cpu
from vllm.platforms import current_platform
from vllm.v1.attention.backends.mla.prefill.registry import MLAPrefillBackendEnum
from vllm.v1.attention.backends.registry import AttentionBackendEnum

import fa.vllm


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch):
    monkeypatch.setenv("FA_VLLM", "0")
    fa.vllm.unregister()
    yield
    fa.vllm.unregister()


def registered() -> list[bool]:
    members = AttentionBackendEnum.CPU_ATTN, AttentionBackendEnum.CPU_MLA, MLAPrefillBackendEnum.CPU
    return [member.get_path().startswith("fa.vllm.") for member in members]


def test_the_wheel_has_the_entry_point():
    (found,) = (point for point in entry_points(group="vllm.general_plugins") if point.name == "fa")
    assert found.value == "fa.vllm:plugin"
    assert found.load() is fa.vllm.plugin


@pytest.mark.parametrize(
    ("value", "want"),
    [(None, [False] * 3), ("", [False] * 3), ("0", [False] * 3), ("1", [True] * 3), ("dense", [True, False, False])],
)
def test_the_variable_decides(monkeypatch, value, want):
    if value is None:
        monkeypatch.delenv("FA_VLLM", raising=False)
    else:
        monkeypatch.setenv("FA_VLLM", value)
    fa.vllm.plugin()
    assert registered() == want
    fa.vllm.plugin()  # vLLM may load plugins twice
    assert registered() == want


def test_an_unknown_value_is_an_error(monkeypatch):
    monkeypatch.setenv("FA_VLLM", "yes")
    with pytest.raises(ValueError, match="FA_VLLM=yes, want 0, 1, dense"):
        fa.vllm.plugin()
    assert registered() == [False] * 3


def test_register_reaches_the_processes_that_start_later():
    fa.vllm.register()
    assert (registered(), os.environ["FA_VLLM"]) == ([True] * 3, "1")
    fa.vllm.register(mla=False)
    assert (registered(), os.environ["FA_VLLM"]) == ([True, False, False], "dense")
    fa.vllm.unregister()
    assert registered() == [False] * 3
    assert "FA_VLLM" not in os.environ


def test_no_latent_attention_may_be_any_false_value():
    fa.vllm.register(mla=None)
    assert (registered(), os.environ["FA_VLLM"]) == ([True, False, False], "dense")


@pytest.mark.parametrize(
    ("amx", "zentorch", "want"), [(True, None, "AMX_MLA"), (False, object(), "zentorch"), (False, None, None)]
)
def test_latent_attention_that_vllm_keeps_is_named(monkeypatch, amx, zentorch, want):
    written = []
    log = types.SimpleNamespace(warning_once=written.append)
    monkeypatch.setattr(fa.vllm, "_log", lambda: log)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(fa.vllm, "find_spec", lambda name: zentorch)
    fa.vllm.register(mla=False)
    assert written == []
    fa.vllm.register()
    assert (want is None and written == []) or (len(written) == 1 and want in written[0])


def test_classes_of_others_stay():
    from vllm.v1.attention.backends.registry import register_backend

    register_backend(AttentionBackendEnum.CPU_ATTN, "somebody.Else")
    fa.vllm.unregister()
    assert AttentionBackendEnum.CPU_ATTN.get_path() == "somebody.Else"
    AttentionBackendEnum.CPU_ATTN.clear_override()


def test_the_registries_find_the_classes_and_vllm_takes_them():
    fa.vllm.register()
    dense = AttentionBackendEnum.CPU_ATTN.get_class()
    assert dense is fa.vllm.AttentionBackend
    assert dense.get_name() == "CPU_ATTN"
    assert (dense.supports_sink(), dense.supports_sliding_window(), dense.supports_non_causal()) == (True, True, True)
    assert dense.forward_includes_kv_cache_update is False
    assert [layout.name for layout in dense.supported_kv_cache_layouts()] == ["LBHNC"]
    assert dense.supports_block_size(16) and not dense.supports_block_size(8)
    assert all(dense.supports_head_size(size) for size in (8, 33, 40, 1024))
    assert all(dense.supports_dtype(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16))
    for kind in ("decoder", "encoder", "encoder_only", "encoder_decoder"):
        assert dense.supports_attn_type(kind)
    assert AttentionBackendEnum.CPU_MLA.get_class() is fa.vllm.MLABackend
    assert fa.vllm.MLABackend.get_name() == "CPU_MLA"
    assert MLAPrefillBackendEnum.CPU.get_class() is fa.vllm.MLAPrefill


def test_a_platform_that_is_no_cpu_keeps_its_own(monkeypatch):
    monkeypatch.setattr(type(current_platform), "is_cpu", lambda self: False)
    written = []
    monkeypatch.setattr(logging.getLogger("vllm.fa"), "warning", lambda *words: written.append(words[0] % words[1:]))
    monkeypatch.setenv("FA_VLLM", "1")
    fa.vllm.plugin()
    assert registered() == [False] * 3
    assert written == ["fa.vllm: the platform is cpu, not a CPU: nothing is registered"]


@pytest.mark.parametrize(("value", "want"), [(None, None), ("", None), ("0", None), ("1", "fa.vllm.CpuPlatform")])
def test_the_variable_decides_about_the_platform(monkeypatch, value, want):
    (found,) = (point for point in entry_points(group="vllm.platform_plugins") if point.name == "fa")
    assert found.load() is fa.vllm.platform_plugin
    monkeypatch.delenv("FA_VLLM_PLATFORM", raising=False)
    if value is not None:
        monkeypatch.setenv("FA_VLLM_PLATFORM", value)
    assert fa.vllm.platform_plugin() == want


def test_an_unknown_value_for_the_platform_is_an_error(monkeypatch):
    monkeypatch.setenv("FA_VLLM_PLATFORM", "yes")
    for ask in (fa.vllm.platform_plugin, fa.vllm.plugin):
        with pytest.raises(ValueError, match="FA_VLLM_PLATFORM=yes, want 0 or 1"):
            ask()


def test_a_platform_that_vllm_did_not_choose_is_named(monkeypatch):
    written = []
    monkeypatch.setattr(logging.getLogger("vllm.fa"), "warning", lambda *words: written.append(words[0] % words[1:]))
    monkeypatch.setenv("FA_VLLM_PLATFORM", "1")
    fa.vllm.plugin()
    chosen = type(current_platform).__name__
    words = f"FA_VLLM_PLATFORM=1, but vLLM chose the platform {chosen}: nothing of that platform is served"
    assert written == [f"fa.vllm: {words}"]


def test_a_build_for_another_device_keeps_its_platform(monkeypatch):
    monkeypatch.setattr(vllm.platforms, "cpu_platform_plugin", lambda: None)
    monkeypatch.setenv("FA_VLLM_PLATFORM", "1")
    assert fa.vllm.platform_plugin() is None


def test_the_platform_chooses_sparse_attention_and_leaves_the_rest():
    platform = fa.vllm.CpuPlatform
    assert issubclass(platform, vllm.platforms.cpu.CpuPlatform)
    chosen = {use_sparse: platform.get_attn_backend_cls(None, types.SimpleNamespace(use_mla=False, use_sparse=use_sparse))
              for use_sparse in (True, False)}  # fmt: skip
    assert chosen == {True: "fa.vllm.SparseMLABackend", False: AttentionBackendEnum.CPU_ATTN.get_path()}


def config_of(monkeypatch, **members) -> types.SimpleNamespace:
    """Returns a configuration. Also replaces the changes that vLLM's own platform makes to a configuration by a fixed
    set.
    """
    def change(config):
        config.cache_config.block_size, config.cache_config.enable_prefix_caching = 16, False
        config.scheduler_config.enable_chunked_prefill, config.scheduler_config.max_num_batched_tokens = False, 4096

    monkeypatch.setattr(vllm.platforms.cpu.CpuPlatform, "check_and_update_config", change)
    text = types.SimpleNamespace(model_type="deepseek_v32", index_topk=32)
    parallel = {"prefill_context_parallel_size": 1, "decode_context_parallel_size": 1}
    config = {
        "model_config": types.SimpleNamespace(hf_text_config=text, use_mla=True),
        "cache_config": types.SimpleNamespace(block_size=64, user_specified_block_size=True, enable_prefix_caching=True),
        "scheduler_config": types.SimpleNamespace(enable_chunked_prefill=True, max_num_batched_tokens=512),
        "parallel_config": types.SimpleNamespace(**parallel),
        "speculative_config": None,
        "kv_transfer_config": None,
    }
    return types.SimpleNamespace(**config | members)


def settings_of(config) -> tuple:
    cache, scheduler = config.cache_config, config.scheduler_config
    chunks = scheduler.enable_chunked_prefill, scheduler.max_num_batched_tokens
    return cache.block_size, cache.enable_prefix_caching, *chunks


def test_the_platform_keeps_chunks_blocks_and_shared_prefixes(monkeypatch):
    written = []
    log = types.SimpleNamespace(info_once=lambda *given: written.append(given[0] % given[1:]))
    monkeypatch.setattr(sys.modules[fa.vllm.CpuPlatform.__module__], "init_logger", lambda name: log)
    config = config_of(monkeypatch)
    fa.vllm.CpuPlatform.check_and_update_config(config)
    assert settings_of(config) == (64, True, True, 512)
    assert written == ["fa.vllm: enable_chunked_prefill=True, enable_prefix_caching=True: as before"]
    assert config.cache_config.user_specified_block_size
    config = config_of(monkeypatch)
    config.cache_config.user_specified_block_size = False
    fa.vllm.CpuPlatform.check_and_update_config(config)
    assert settings_of(config)[0] == 128


def test_latent_attention_of_vllm_gets_what_vllm_wants(monkeypatch):
    for register, want in ((False, (16, False, False, 4096)), (True, (64, True, True, 512))):
        config = config_of(monkeypatch)
        config.model_config.hf_text_config = types.SimpleNamespace(model_type="deepseek_v3")
        if register:
            fa.vllm.register()
        fa.vllm.CpuPlatform.check_and_update_config(config)
        assert settings_of(config) == want


@pytest.mark.parametrize(("name", "value", "words"), [
    ("model_config", types.SimpleNamespace(hf_text_config=types.SimpleNamespace(model_type="deepseek_v4")),
     "model_type=deepseek_v4"),
    ("speculative_config", object(), "speculative_config"),
    ("kv_transfer_config", object(), "kv_transfer_config"),
    ("parallel_config", types.SimpleNamespace(prefill_context_parallel_size=2, decode_context_parallel_size=4),
     "prefill_context_parallel_size=2, decode_context_parallel_size=4"),
])  # fmt: skip
def test_the_platform_refuses_by_name(monkeypatch, name, value, words):
    with pytest.raises(NotImplementedError, match=f"fa.vllm: {words}: not served with sparse attention"):
        fa.vllm.CpuPlatform.check_and_update_config(config_of(monkeypatch, **{name: value}))


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match="no attribute 'Backend'"):
        fa.vllm.Backend  # noqa: B018
