"""The modules of fa.flash_attn other than attention: padding, rotary embeddings, and installation under the name
flash_attn."""

import math
import subprocess
import sys

import fa.flash_attn
import pytest
import torch
from fa.flash_attn.__main__ import main
from fa.flash_attn.bert_padding import (
    index_first_axis,
    index_first_axis_residual,
    index_put_first_axis,
    pad_input,
    unpad_input,
    unpad_input_for_concatenated_sequences,
)
from fa.flash_attn.layers.rotary import apply_rotary_emb, apply_rotary_emb_torch
from flash_reference import turned
from time_limits import seconds


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_unpad_and_pad(dtype):
    hidden = torch.randn(3, 5, 2, 4, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1]]).to(dtype)
    rows, indices, cu_seqlens, longest, used = unpad_input(hidden, mask)
    assert cu_seqlens.tolist() == [0, 3, 3, 7] and cu_seqlens.dtype == torch.int32
    assert indices.tolist() == [0, 1, 2, 11, 12, 13, 14] and longest == 4 and isinstance(longest, int)
    assert used.tolist() == [3, 0, 4] and used.dtype == torch.int32
    assert torch.equal(rows, hidden[mask.bool()])
    back = pad_input(rows, indices, 3, 5)
    assert torch.equal(back, hidden * mask.bool()[:, :, None, None])
    (gradient,) = torch.autograd.grad(back.sum(), hidden)
    assert torch.equal(gradient, mask.bool()[:, :, None, None].expand_as(hidden).float())


def test_unpad_keeps_rows_that_are_not_in_use():
    hidden = torch.randn(2, 4, 3)
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
    unused = torch.tensor([[0, 0, 1, 0], [0, 1, 1, 0]])
    rows, indices, cu_seqlens, longest, used = unpad_input(hidden, mask, unused)
    assert cu_seqlens.tolist() == [0, 3, 6] and used.tolist() == [2, 1] and longest == 3
    assert indices.tolist() == [0, 1, 2, 4, 5, 6] and torch.equal(rows, hidden.flatten(0, 1)[indices])


def test_unpad_of_concatenated_sequences():
    hidden = torch.randn(2, 6, 3)
    lengths = torch.tensor([[2, 3, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0]])
    rows, indices, cu_seqlens, longest = unpad_input_for_concatenated_sequences(hidden, lengths)
    assert cu_seqlens.tolist() == [0, 2, 5, 11] and longest == 6
    assert indices.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert torch.equal(rows, hidden.flatten(0, 1)[indices])


def test_rows_by_index():
    x, places = torch.randn(6, 3, requires_grad=True), torch.tensor([4, 0])
    assert torch.equal(index_first_axis(x, places), x[places])
    put = index_put_first_axis(x[:2], places, 5)
    assert torch.equal(put[places], x[:2]) and not put[[1, 2, 3]].any()
    rows, residual = index_first_axis_residual(x, places)
    assert torch.equal(rows, x[places]) and torch.equal(residual, x)
    with pytest.raises(ValueError, match=r"^invalid argument: attention_mask.shape=\[2, 3\]"):
        unpad_input(torch.rand(2, 4, 8), torch.ones(2, 3))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rotary_dim", [16, 24])
def test_rotary(interleaved, inplace, dtype, rotary_dim):
    x = torch.randn(3, 5, 2, 24, dtype=dtype, requires_grad=True)
    angle = torch.rand(12, rotary_dim // 2) * 2 * math.pi
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    offsets = torch.tensor([0, 5, 10], dtype=torch.int32)  # the last sequence goes beyond the tables' 12 positions
    given = x.clone()
    out = apply_rotary_emb(given, cos, sin, interleaved, inplace, seqlen_offsets=offsets)
    assert (out is given) == inplace and (inplace or torch.equal(given, x))
    exact = [t.detach().double() for t in (x, cos, sin)]
    places = [[start + i for i in range(5)] for start in offsets.tolist()]
    want = torch.stack([turned(exact[0][b], *exact[1:], places[b], interleaved) for b in range(3)])
    # `out` has a rounding to `dtype`, and the float32 roundings of two products and their sum.
    bound = torch.finfo(dtype).eps / 2 * want.abs() + 2**-22 * exact[0].abs().max()
    assert out.dtype == dtype and ((out.double() - want).abs() <= bound).all()
    d_out = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, x, d_out)
    exact_d = d_out.double()
    want = torch.stack([turned(exact_d[b], exact[1], -exact[2], places[b], interleaved) for b in range(3)])
    bound = torch.finfo(dtype).eps * want.abs() + 2**-22 * exact_d.abs().max()
    assert ((gradient.double() - want).abs() <= bound).all()


def test_rotary_of_packed_sequences_is_that_of_each():
    x, angle = torch.randn(9, 2, 16), torch.rand(20, 8)
    cos, sin = angle.cos(), angle.sin()
    cu_seqlens, offsets = torch.tensor([0, 4, 4, 9], dtype=torch.int32), torch.tensor([3, 1, 7])
    out = apply_rotary_emb(x, cos, sin, True, seqlen_offsets=offsets, cu_seqlens=cu_seqlens, max_seqlen=5)
    for b, offset in ((0, 3), (2, 7)):
        rows = slice(cu_seqlens[b], cu_seqlens[b + 1])
        assert torch.equal(out[rows], apply_rotary_emb(x[None, rows], cos, sin, True, seqlen_offsets=offset)[0])
    plain = apply_rotary_emb(x, cos, sin, cu_seqlens=cu_seqlens)
    assert torch.equal(plain[4:], apply_rotary_emb_torch(x[None, 4:], cos, sin)[0])


def test_rotary_compiled_without_graph_breaks():
    x, angle = torch.randn(2, 5, 2, 16), torch.rand(20, 8)
    call = lambda offsets: apply_rotary_emb(x, angle.cos(), angle.sin(), seqlen_offsets=offsets)
    offsets = torch.tensor([3, 1])
    assert torch.equal(torch.compile(call, fullgraph=True, backend="eager")(offsets), call(offsets))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"seqlen_offsets": 16}, "seqlen_offsets=16, want 0..15"),
        ({"cos": torch.rand(20, 9)}, r"sin.shape\[1\]=8, want 9"),
        ({"cos": torch.rand(20, 9), "sin": torch.rand(20, 9)}, r"cos.shape\[1\]=9, want at most 8"),
        ({"seqlen_offsets": torch.tensor([1])}, r"seqlen_offsets.shape\[0\]=1, want 2"),
        ({"x": torch.rand(5, 2, 16)}, "x.shape"),
    ],
)
def test_bad_arguments_of_rotary_are_named(wrong, says):
    given = {"x": torch.rand(2, 5, 2, 16), "cos": torch.rand(20, 8), "sin": torch.rand(20, 8)}
    with pytest.raises(ValueError, match=f"^invalid argument: {says}"):
        apply_rotary_emb(**{**given, **wrong})


SCRIPT = """
import sys
import flash_attn
from flash_attn import flash_attn_func
from flash_attn.bert_padding import unpad_input
from flash_attn.flash_attn_interface import flash_attn_varlen_func
from flash_attn.layers.rotary import apply_rotary_emb
import flash_attn.flash_attn_interface
import flash_attn_interface
assert flash_attn_func.__module__.startswith("fa.flash_attn")
assert flash_attn_interface.flash_attn_combine
print(flash_attn.__version__, __name__, sys.argv[1:])
"""


def run(*arguments, **keywords):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=seconds(120), **keywords)


def test_a_script_finds_the_package_under_the_other_name(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run("-m", "fa.flash_attn", tmp_path / "script.py", "--one", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2.8.4+fa __main__ ['--one', '2']"


def test_install_is_refused_where_the_real_package_can_be_imported(tmp_path, monkeypatch):
    (tmp_path / "flash_attn.py").write_text("real = True")
    (tmp_path / "script.py").write_text("import flash_attn; print(flash_attn.__version__)")
    done = run("-m", "fa.flash_attn", "--force", tmp_path / "script.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.strip() == "2.8.4+fa", done.stderr
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "flash_attn", raising=False)
    with pytest.raises(ValueError, match="^invalid argument: force=False, want True: the package flash_attn itself"):
        fa.flash_attn.install()
    with pytest.raises(SystemExit, match="the package flash_attn itself can be imported"):
        main([str(tmp_path / "script.py")])
    assert "flash_attn" not in sys.modules


def test_running_nothing_says_how_to_run():
    for arguments in ([], ["-m"], ["--force"], ["--unknown", "script.py"]):
        with pytest.raises(SystemExit, match="^usage: python -m fa.flash_attn"):
            main(arguments)
