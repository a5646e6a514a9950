"""The forms of fused inference that graphs use (.out, the workspace, the results' shapes), types as numbers, and what
is refused by name."""

import inspect

import pytest
import torch
from npu_sequences import LAYOUTS, PACKED, TRIANGLE, arranged, parts, sums

import fa.torch_npu as torch_npu

N, NKV, D, DV, ROWS, KEYS = 4, 2, 32, 16, [2, 3], [9, 5]
VERSIONS = {
    "": ("num_heads", "softmax_lse_flag", "actual_seq_lengths", "actual_seq_lengths_kv", "quant_scale2"),
    "_v2": ("num_query_heads", "return_softmax_lse", "actual_seq_qlen", "actual_seq_kvlen", "quant_scale_out"),
}


def call_of(version="", layout="BNSD", lse=True, dtype=torch.float32, **more):
    torch.manual_seed(2)
    heads, flag, rows, keys, _ = VERSIONS[version]
    left = LAYOUTS[layout][0]
    tensors = parts(N, ROWS, D, dtype), parts(NKV, KEYS, D, dtype), parts(NKV, KEYS, DV, dtype)
    names = ("query", "key", "value")
    given = {name: arranged(t, left) for name, t in zip(names, tensors, strict=True)}
    lengths = (sums(ROWS), sums(KEYS)) if layout in PACKED else (ROWS, KEYS)
    given |= {heads: N, "num_key_value_heads": NKV, flag: lse, rows: lengths[0], keys: lengths[1]}
    return given | {"input_layout": layout} | more


def function(version, form=""):
    if form == "out":
        return getattr(torch_npu, f"npu_fused_infer_attention_score{version}").out
    return getattr(torch_npu, ("_" if form else "") + f"npu_fused_infer_attention_score{version}{form}")


@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_results_have_the_shapes_of_the_call(version, layout, lse):
    heads, flag, *_ = VERSIONS[version]
    call = call_of(version, layout, lse)
    want = function(version)(**call)
    keywords = {name: call[name] for name in (heads, flag, "num_key_value_heads", "input_layout")}
    query, key, value = call["query"], call["key"], call["value"]
    infer = function(version, "_infer_output")
    for got in (infer(query, value, **keywords), infer(query, key, value, **keywords),
                infer(query=query, value=value, **keywords)):
        assert [(t.shape, t.dtype) for t in got] == [(t.shape, t.dtype) for t in want]
    assert want[1].numel() == 0 or lse


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("quantised", [False, True])
def test_results_of_pages_and_of_int8(version, quantised):
    call = call_of(version, "TND", dtype=torch.bfloat16)
    table = torch.tensor([[0, 1], [2, -1]], dtype=torch.int32)
    pages = torch.randn(3, NKV, D // 16, 8, 16).to(torch.bfloat16), torch.randn(3, NKV, 1, 8, 16).to(torch.bfloat16)
    call |= {"key": pages[0], "value": pages[1], "block_table": table, VERSIONS[version][3]: KEYS}
    scale = {VERSIONS[version][4]: torch.ones(1) * 50} if quantised else {}
    want = function(version)(**call, **scale)
    heads, flag, *_ = VERSIONS[version]
    keywords = {name: call[name] for name in (heads, flag, "num_key_value_heads", "input_layout", "block_table")}
    got = function(version, "_infer_output")(call["query"], call["value"], **keywords, **scale)
    assert [(t.shape, t.dtype) for t in got] == [(t.shape, t.dtype) for t in want]
    assert want[0].dtype == (torch.int8 if quantised else torch.bfloat16)


def test_results_need_a_value():
    for version in VERSIONS:
        with pytest.raises(TypeError, match="value: missing"):
            function(version, "_infer_output")(torch.zeros(1, 1, 1, 8))


@pytest.mark.parametrize("layout", ["BNSD", "BSND_NBSD", "TND_NTD"])
@pytest.mark.parametrize("version", VERSIONS)
def test_out_is_written_in_place(version, layout):
    call = call_of(version, layout)
    want = function(version)(**call)
    out = torch.full_like(want[0], torch.nan), torch.full_like(want[1], torch.nan)
    versions = [t._version for t in out]
    results = function(version, "out")(**call, workspace=torch.empty(3), out=list(out))
    assert results[0] is out[0] and results[1] is out[1]
    assert torch.equal(out[0], want[0]) and torch.equal(out[1], want[1])
    assert all(t._version > old for t, old in zip(out, versions, strict=True))
    part = torch.full((*want[0].shape[:-1], 3 * DV), 7.0)[..., DV : 2 * DV]  # this output has gaps between its rows
    function(version, "out")(**call, out=(part, out[1]))
    assert torch.equal(part, want[0])
    with torch.inference_mode():
        function(version, "out")(**call, out=(torch.empty_like(part), torch.empty_like(out[1])))


@pytest.mark.parametrize("version", VERSIONS)
def test_out_is_checked(version):
    call = call_of(version)
    out, lse = function(version)(**call)
    write = function(version, "out")
    for wrong, message in (
        ([out[:, :1], lse], r"out\[0\].shape=\[2, 1, 3, 16\], want \[2, 4, 3, 16\]"),
        ([out.double(), lse], r"out\[0\].dtype=torch.float64, want torch.float32"),
        ([out, lse[..., 0]], r"out\[1\].shape=\[2, 4, 3\], want \[2, 4, 3, 1\]"),
        ([out, lse.half()], r"out\[1\].dtype=torch.float16, want torch.float32"),
        ([out.clone().requires_grad_(), lse], r"out\[0\]: requires a gradient"),
        ([call["query"][..., :DV], lse], "out: shares memory with query"),
    ):
        before = [t.detach().clone() for t in wrong]
        with pytest.raises(ValueError, match=message):
            write(**call, out=wrong)
        assert all(torch.equal(t.nan_to_num(5), old.nan_to_num(5)) for t, old in zip(wrong, before, strict=True))
    for wrong in (out, [out], [out, None]):
        with pytest.raises(TypeError, match="out: want"):
            write(**call, out=wrong)
    with pytest.raises(TypeError, match="query: want a Tensor"):
        write(**{**call, "query": 3}, out=[out, lse])
    with pytest.raises(TypeError, match="colour"):
        write(**call, out=[out, lse], colour=3)
    call[VERSIONS[version][1]] = False
    write(**call, out=[out, torch.empty(1, dtype=torch.float16)])  # without the flag any buffer is fine


@pytest.mark.parametrize("version", VERSIONS)
def test_signatures_of_the_forms(version):
    names = list(inspect.signature(function(version)).parameters)
    assert list(inspect.signature(function(version, "out")).parameters) == [*names, "workspace", "out"]
    assert list(inspect.signature(function(version, "_get_max_workspace")).parameters) == names
    for dtype in (torch.float32, torch.bfloat16):
        assert function(version, "_get_max_workspace")(**call_of(version, dtype=dtype)).dtype == dtype
    with pytest.raises(TypeError, match="colour"):
        function(version, "_get_max_workspace")(**call_of(version), colour=3)


ONES = torch.ones(1)
NOT_SERVED = "is not served"


@pytest.mark.parametrize(("keywords", "message"), [
    ({"key_rope_antiquant_scale": ONES}, f"key_rope_antiquant_scale {NOT_SERVED}"),
    ({"antiquant_mode": 2}, "antiquant_mode=2, want 0"),
    ({"sparse_mode": 5}, "sparse_mode=5"),
    ({"sparse_mode": 8}, "sparse_mode=8"),
    ({"sparse_mode": 9}, "atten_mask: missing"),
    ({"input_layout": "SBH"}, 'input_layout="SBH", want one of BSH, BSND, BNSD, TND'),
    ({"num_heads": 0}, "num_heads=0, want >= 1"),
    ({"key_shared_prefix": torch.zeros(1, NKV, 3, D)}, "value_shared_prefix"),
    ({"actual_shared_prefix_len": [4], "key_shared_prefix": torch.zeros(1, NKV, 3, D),
      "value_shared_prefix": torch.zeros(1, NKV, 3, DV)}, r"actual_shared_prefix_len=\[4\], want one of 0\.\.3"),
    ({"actual_shared_prefix_len": [4]}, r"actual_shared_prefix_len: given, want None \(key_shared_prefix is missing\)"),
    ({"key_shared_prefix": torch.zeros(1, NKV, 3, D), "value_shared_prefix": torch.zeros(1, NKV, 3, DV),
      "kv_padding_size": torch.tensor([1])}, "key_shared_prefix|kv_padding_size"),
    ({"kv_padding_size": torch.tensor([1]), "actual_seq_lengths_kv": None}, "actual_seq_lengths_kv"),
    ({"query_padding_size": torch.tensor([1]), "actual_seq_lengths": None}, "actual_seq_lengths"),
    ({"query_padding_size": torch.tensor([2])}, "query_padding_size"),
    ({"kv_padding_size": torch.tensor([1], dtype=torch.int32)}, "kv_padding_size.dtype"),
])
def test_refusals(keywords, message):
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_fused_infer_attention_score(**call_of(**keywords))


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "TND", "NTD", "NSD", "NZ"])
def test_a_number_of_key_heads_that_is_not_given_is_named_as_not_given(layout):
    call = call_of("", "BNSD" if layout in ("NSD", "NZ") else layout, num_key_value_heads=0)
    if layout == "NSD":
        call |= {name: call[name][0] for name in ("query", "key", "value")} | {"input_layout": "NSD"}
        call |= {"actual_seq_lengths": None, "actual_seq_lengths_kv": None}
    if layout == "NZ":
        pages = torch.zeros(3, NKV, D // 8, 8, 8)
        call |= {"key": pages, "value": pages, "block_table": torch.tensor([[0, 1], [2, -1]], dtype=torch.int32)}
    with pytest.raises(ValueError, match=rf"^invalid argument: num_key_value_heads=0, want {NKV} \(key\)$"):
        torch_npu.npu_fused_infer_attention_score(**call)


@pytest.mark.parametrize(("keywords", "message"), [
    ({"dequant_scale_query": ONES}, "dequant_scale_query: given, want None with query_quant_mode=0"),
    ({"query_quant_mode": 3}, "dequant_scale_query: missing, want it with query_quant_mode=3"),
    ({"query_quant_mode": 6}, "query_quant_mode=6, want 0 or 3"),
    ({"quant_scale_p": ONES}, "quant_scale_p: given, want None without query_quant_mode=3, key_quant_mode=3"),
    ({"dequant_scale_key_rope": ONES}, f"dequant_scale_key_rope {NOT_SERVED}"),
    ({"query_dtype": 290}, rf"query_dtype=290 \(HiFloat8\) {NOT_SERVED}"),
    ({"key_dtype": 291}, rf"key_dtype=291 \(float8_e5m2\) {NOT_SERVED}"),
    ({"value_dtype": 293}, rf"value_dtype=293 \(float8_e8m0\) {NOT_SERVED}"),
    ({"value_dtype": 296}, rf"value_dtype=296 \(FP4\) {NOT_SERVED}"),
    ({"query_dtype": 27}, r"query_dtype=27 \(torch.bfloat16\), want torch.float32"),
    ({"query_dtype": 77}, "query_dtype=77, want None or the number of a type"),
    *(({f"{name}_shared_prefix_dtype": 0}, f"{name}_shared_prefix_dtype {NOT_SERVED}") for name in ("key", "value")),
    *(({f"dequant_scale_{name}_dtype": 293}, rf"dequant_scale_{name}_dtype=293 \(float8_e8m0\) {NOT_SERVED}")
      for name in ("query", "key", "value", "key_rope")),
    *(({"dequant_scale_key": ONES, "dequant_scale_value": ONES, f"dequant_scale_{name}_dtype": 257},
       rf"dequant_scale_{name}_dtype=257 \(torch.float16\), want torch.float32") for name in ("key", "value")),
    ({"out_dtype": 1}, "out_dtype=1, want None or the number of torch.float32"),
])
def test_refusals_of_the_second_version(keywords, message):
    with pytest.raises(ValueError, match=message):
        torch_npu.npu_fused_infer_attention_score_v2(**call_of("_v2", **keywords))


def test_numbers_of_types_that_agree_change_nothing():
    call = call_of("_v2")
    want = torch_npu.npu_fused_infer_attention_score_v2(**call)
    for number in (0, 256, torch.float32):
        kinds = {f"{name}_dtype": number for name in ("query", "key", "value", "query_rope", "out")}
        got = torch_npu.npu_fused_infer_attention_score_v2(**call, **kinds)
        assert all(torch.equal(*pair) for pair in zip(got, want, strict=True))
    codes = {name: call[name].nan_to_num().to(torch.float8_e4m3fn) for name in ("key", "value")}
    call |= {"dequant_scale_key": ONES, "dequant_scale_value": ONES, **codes}
    want = torch_npu.npu_fused_infer_attention_score_v2(**call)
    for stored, number in ((torch.uint8, 292), (torch.int8, 36)):
        call |= {name: code.view(stored) for name, code in codes.items()}
        got = torch_npu.npu_fused_infer_attention_score_v2(**call, key_dtype=number, value_dtype=number)
        assert all(torch.equal(*pair) for pair in zip(got, want, strict=True))


def test_compiled_calls_write_and_return_the_same():
    call = call_of("", "TND", atten_mask=TRIANGLE, sparse_mode=3)

    def step(query, out, lse):
        return torch_npu.npu_fused_infer_attention_score.out(**{**call, "query": query + 1}, out=[out, lse])[0] * 2

    want, lse = torch_npu.npu_fused_infer_attention_score(**{**call, "query": call["query"] + 1})
    results = torch.empty_like(want), torch.empty_like(lse)
    got = torch.compile(step, backend="aot_eager", fullgraph=True)(call["query"], *results)
    assert torch.equal(got, want * 2) and torch.equal(results[0], want) and torch.equal(results[1], lse)
