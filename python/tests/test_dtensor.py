"""scaled_dot_product_attention of DTensors, sharded by batch and by heads. The process group is a fake one: a rank gets
no data from others, so what it computes needs none."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from fa.torch import scaled_dot_product_attention

B, N, L, S, E = 2, 4, 5, 7, 8
RANKS = 2


@pytest.fixture(params=range(RANKS))
def mesh(request):
    dist.init_process_group("fake", rank=request.param, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    dist.destroy_process_group()


def shard(mesh, tensor, placement):
    """This rank's part of a tensor that every rank has."""
    part = tensor.detach()
    if isinstance(placement, Shard):
        part = part.chunk(RANKS, placement.dim)[mesh.get_local_rank()].clone()
    return DTensor.from_local(part, mesh, [placement], run_check=False).requires_grad_(tensor.requires_grad)


def run(tensors, d_out, **keywords):
    leaves = [t for t in tensors if t.requires_grad]
    out = scaled_dot_product_attention(*tensors, **keywords)
    return [out, *torch.autograd.grad(out, leaves, d_out)]


def assert_as_unsharded(mesh, placement, heads_kv=N, mask=None, mask_placement=None, key_placement=None, **keywords):
    """Every rank's part of output and gradients, and that nothing else came back."""
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
            assert g.placements == (Partial(),)  # the sum over the ranks
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
