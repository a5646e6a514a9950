"""scaled_dot_product_attention of DTensors that are sharded by batch and by heads. The fake process group delivers
nothing. So results are right only if no rank needs the data of another rank.
"""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

import fa.torch_npu as torch_npu
from fa.torch import scaled_dot_product_attention

B, N, L, S, E = 2, 4, 5, 7, 8
RANKS = 2


@pytest.fixture(params=range(RANKS))
def mesh(request):
    dist.init_process_group("fake", rank=request.param, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    dist.destroy_process_group()


def shard(mesh, tensor, placement):
    """Returns a DTensor with this rank's part of `tensor`, which every rank has."""
    part = tensor.detach()
    if isinstance(placement, Shard):
        part = part.chunk(RANKS, placement.dim)[mesh.get_local_rank()].clone()
    return DTensor.from_local(part, mesh, [placement], run_check=False).requires_grad_(tensor.requires_grad)


def run(tensors, d_out, **keywords):
    leaves = [t for t in tensors if t.requires_grad]
    out = scaled_dot_product_attention(*tensors, **keywords)
    return [out, *torch.autograd.grad(out, leaves, d_out)]


def assert_as_unsharded(mesh, placement, heads_kv=N, mask=None, mask_placement=None, key_placement=None, **keywords):
    """Compares this rank's parts of output and gradients with a call on whole tensors, and checks their placements."""
    sizes = (N, L), (heads_kv, S), (heads_kv, S)
    tensors = [torch.randn(B, heads, rows, E, requires_grad=True) for heads, rows in sizes]
    placements = [placement, *[key_placement or placement] * 2]
    if mask is not None:
        tensors, placements = [*tensors, mask], [*placements, mask_placement]
    d_out = torch.randn(B, N, L, E)
    want = run(tensors, d_out, **keywords)
    sharded = [shard(mesh, t, p) for t, p in zip(tensors, placements, strict=True)]
    got = run(sharded, shard(mesh, d_out, placement), **keywords)
    parts = (shard(mesh, t, p) for t, p in zip(tensors, placements, strict=True))
    own = [part.to_local().detach().requires_grad_(part.requires_grad) for part in parts]
    alone = run(own, shard(mesh, d_out, placement).to_local(), **keywords)
    for g, w, a, p in zip(got, want, alone, [placement, *placements], strict=False):
        if p == placement:
            assert g.placements == (p,)
            assert torch.equal(g.to_local(), shard(mesh, w, p).to_local())
        else:
            assert g.placements == (Partial(),)  # the gradient is the sum over the ranks
            assert torch.equal(g.to_local(), a)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()], ids=str)
def test_batch_and_heads_are_computed_where_they_are(mesh, placement):
    assert_as_unsharded(mesh, placement, is_causal=True)


def test_grouped_heads(mesh):
    assert_as_unsharded(mesh, Shard(1), heads_kv=2, enable_gqa=True)
    assert_as_unsharded(mesh, Shard(0), heads_kv=2, enable_gqa=True)


def test_one_head_of_keys_for_all_is_whole_everywhere(mesh):
    assert_as_unsharded(mesh, Shard(1), heads_kv=1, key_placement=Replicate())


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_masks(mesh, dtype):
    def mask(*shape):
        return (torch.rand(shape) < 0.7) if dtype == torch.bool else torch.randn(shape, requires_grad=True)

    for axis in (0, 1):
        assert_as_unsharded(mesh, Shard(axis), mask=mask(B, N, L, S), mask_placement=Shard(axis))
    assert_as_unsharded(mesh, Shard(0), mask=mask(B, 1, L, S), mask_placement=Shard(0))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_mask_that_all_share(mesh, axis):
    for mask in (torch.rand(L, S) < 0.7, torch.randn(L, S, requires_grad=True)):
        assert_as_unsharded(mesh, Shard(axis), mask=mask, mask_placement=Replicate())


def test_dropout_is_whole_everywhere(mesh):
    q, k, v = (torch.randn(B, N, L, E) for _ in range(3))
    torch.manual_seed(1)
    want = scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(1)
    got = scaled_dot_product_attention(*(shard(mesh, t, Replicate()) for t in (q, k, v)), dropout_p=0.5)
    assert got.placements == (Replicate(),) and torch.equal(got.to_local(), want)


def test_torch_compile_takes_it_whole(mesh):
    q, k, v = (shard(mesh, torch.randn(B, N, L, E), Shard(1)) for _ in range(3))
    compiled = torch.compile(scaled_dot_product_attention, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, k, v).to_local(), scaled_dot_product_attention(q, k, v).to_local())


@pytest.fixture
def plane():
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    yield init_device_mesh("cpu", (2, 2))
    dist.destroy_process_group()


@pytest.mark.parametrize("heads_kv", [1, 2, 4])
def test_batch_and_heads_of_a_mesh_of_two_dimensions(plane, heads_kv):
    """heads_kv is the number of key heads on all ranks together. A rank needs only its own tensors."""
    both = [Shard(0), Shard(1)]
    q, k = torch.randn(1, 2, L, E), torch.randn(1, max(1, heads_kv // 2), S, E)
    keys = [Shard(0), Replicate()] if heads_kv == 1 else both
    sharded = [DTensor.from_local(t, plane, p, run_check=False) for t, p in ((q, both), (k, keys))]
    with CommDebugMode() as messages:
        out = scaled_dot_product_attention(sharded[0], sharded[1], sharded[1], enable_gqa=True)
    assert messages.get_total_counts() == 0
    assert out.placements == tuple(both)
    assert torch.equal(out.to_local(), scaled_dot_product_attention(q, k, k, enable_gqa=True))


def test_heads_that_do_not_split_evenly_are_gathered(plane):
    whole = [torch.randn(B, heads, rows, E) for heads, rows in ((12, L), (6, S), (6, S))]
    row = init_device_mesh("cpu", (4,))
    tensors = [DTensor.from_local(t, row, [Replicate()], run_check=False) for t in whole]
    out = scaled_dot_product_attention(*tensors, enable_gqa=True)
    assert torch.equal(out.to_local(), scaled_dot_product_attention(*whole, enable_gqa=True))
    from fa._torch.distributed import _splits_evenly

    assert [_splits_evenly(6, shape) for shape in ((4,), (2, 2))] == [False, False]
    assert [_splits_evenly(6, shape) for shape in ((2, 3), (2,), (8,))] == [True, True, True]


NPU = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
import fa.torch_npu as npu

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
mesh = init_device_mesh("cpu", (2,))
own = torch.randn(1, 4, 5, 8)
q = DTensor.from_local(own, mesh, [Shard(0)])
out = npu.npu_fusion_attention(q, q, q, 4, "BNSD")[0]
print(out.placements == (Shard(0),), torch.equal(out.to_local(), npu.npu_fusion_attention(own, own, own, 4, "BNSD")[0]))
"""


def test_the_first_call_may_be_one_of_torch_npu():
    done = subprocess.run([sys.executable, "-c", NPU], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["True", "True"], done.stderr


PARTIALS = [("SBH", 0, 2), ("SBH", 1, 0), ("TND", 0, 0), ("TND", 1, 1)]


@pytest.mark.parametrize(("layout", "out_axis", "row_axis"), PARTIALS)
def test_partial_results_are_merged_where_they_are(mesh, layout, out_axis, row_axis):
    shapes = {"SBH": ((6, 4, N * E), (4, N, 6, 8)), "TND": ((6, N, E), (6, N, 8))}[layout]
    rows = [torch.rand(shapes[1])[..., :1].repeat_interleave(8, -1) for _ in range(4)]
    tensors = [torch.rand(shapes[0]), *rows[:2], torch.rand(shapes[0]), *rows[2:]]
    placements = [Shard(out_axis), Shard(row_axis), Shard(row_axis)]
    keywords = {"input_layout": layout, "input_softmax_layout": "TND"}
    want = torch_npu.npu_ring_attention_update(*tensors, **keywords)
    sharded = [shard(mesh, t, p) for t, p in zip(tensors, placements * 2, strict=True)]
    got = torch_npu.npu_ring_attention_update(*sharded, **keywords)
    for g, w, p in zip(got, want, placements, strict=True):
        assert g.placements == (p,) and torch.equal(g.to_local(), shard(mesh, w, p).to_local())


def test_dropout_of_torch_npu_is_whole_everywhere(mesh):
    q = torch.randn(B, N, L, E)
    keywords = {"keep_prob": 0.5, "seed": 3}
    want = torch_npu.npu_fusion_attention(q, q, q, N, "BNSD", **keywords)[0]
    q = shard(mesh, q, Replicate())
    assert torch.equal(torch_npu.npu_fusion_attention(q, q, q, N, "BNSD", **keywords)[0].to_local(), want)
