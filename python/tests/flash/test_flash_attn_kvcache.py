"""Attention over caches of keys and values, contiguous and in pages, in fa.flash_attn, compared with its definition."""

import random
import subprocess
import sys
import threading

import fa.flash_attn
import pytest
import torch
from fa.flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache, third_generation
from fa.flash_attn._cache import Cache, attend_cache
from fa.flash_attn._call import Options
from flash_cases import check, expected, random_case
from flash_reference import turned
from test_flash_attn import sums
from time_limits import seconds

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Caches:
    """Caches of the keys and values of a few sequences. Elements without a key are NaN. places[b] has the indices of
    sequence b's rows in a cache."""

    def __init__(self, case, lengths, capacity, form, leftpad):
        sequences = len(lengths)
        self.form, self.leftpad = form, leftpad
        self.arguments = {}
        if form == "pages":
            page = random.choice((1, 3, 16))
            columns = -(-capacity // page)
            pages = sequences * columns + 2
            table = torch.randperm(pages)[: sequences * columns].view(sequences, columns)
            shape, self.capacity = (pages, page), columns * page
            self.arguments["block_table"] = table.int()
            at = torch.arange(self.capacity)
            self.places = [(table[b, at // page], at % page) for b in range(sequences)]
        else:
            slots = sequences + 2 if form == "slots" else sequences
            chosen = torch.randperm(slots)[:sequences] if form == "slots" else torch.arange(slots)
            if form == "slots":
                self.arguments["cache_batch_idx"] = chosen.int()
            shape, self.capacity = (slots, capacity), capacity
            self.places = [(chosen[b].expand(capacity), torch.arange(capacity)) for b in range(sequences)]
        if any(leftpad):
            self.arguments["cache_leftpad"] = torch.tensor(leftpad, dtype=torch.int32)
        self.tensors = []
        for size in (case.d, case.dv):
            cache = torch.full((*shape, case.heads_kv, size + 8), torch.nan, dtype=case.dtype)[..., :size]
            for b, length in enumerate(lengths):
                cache[self.of(b, slice(leftpad[b], length))] = torch.randn(
                    length - leftpad[b], case.heads_kv, size, dtype=case.dtype
                )
            self.tensors.append(cache)

    def of(self, b, rows):
        """Returns the indices of these rows of sequence b in a cache."""
        return tuple(place[rows] for place in self.places[b])


def same_bits(a, b):
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def random_call(seed, forms):
    case = random_case(300 + seed, same_lengths=False, dropout=False)
    sequences = len(case.lengths_k)
    new = random.choice((0, 0, 1, 5))
    capacity = 45 + new
    leftpad = [random.randint(0, n) if random.random() < 0.3 else 0 for n in case.lengths_k]
    caches = Caches(case, case.lengths_k, capacity, random.choice(forms), leftpad)
    case.options.pop("dropout_p")
    case.options.pop("deterministic")
    arguments = {**case.options, **caches.arguments, "num_splits": random.randint(0, 4)}
    arguments["cache_seqlens"] = torch.tensor(case.lengths_k, dtype=torch.int32)
    case.options["dropout_p"] = 0.0
    return case, caches, arguments, new, sequences


def rotary_tables(case, caches):
    """Returns (cos, sin, interleaved), or None for a call without rotary embedding."""
    if random.random() < 0.3:
        return None
    width = min(random.choice((8, 16, 32)), case.d // 2 * 2)
    angle = torch.rand(caches.capacity + 40, width // 2) * 6.28
    return angle.cos().to(case.dtype), angle.sin().to(case.dtype), random.random() < 0.5


def turned_to_type(x, tables, positions):
    """Returns x rotated in float64 and then rounded to the type of x."""
    cos, sin, interleaved = tables
    return turned(x.double(), cos.double(), sin.double(), positions, interleaved).to(x.dtype)


@pytest.mark.parametrize("seed", range(40))
def test_caches_are_read_and_written_where_they_lie(seed):
    case, caches, arguments, new, sequences = random_call(seed, ("rows", "slots", "pages"))
    rows = random.choice((1, 1, 2, 7, 33))
    q = torch.randn(sequences, rows, case.heads, case.d, dtype=case.dtype)
    slopes = case.alibi_slopes(sequences)
    tables, asked = None, q
    if new:
        k = torch.randn(sequences, new, case.heads_kv, case.d, dtype=case.dtype)
        v = torch.randn(sequences, new, case.heads_kv, case.dv, dtype=case.dtype)
        arguments |= {"k": k, "v": v}
        tables = rotary_tables(case, caches)
    written = k if new else None
    if tables:
        arguments |= dict(zip(("rotary_cos", "rotary_sin", "rotary_interleaved"), tables, strict=True))
        local = case.options["causal"] or max(case.options["window_size"]) >= 0
        places = [[n + i * local for i in range(rows)] for n in case.lengths_k]
        asked = torch.stack([turned_to_type(q[b], tables, places[b]) for b in range(sequences)])
        places = [[n + i for i in range(new)] for n in case.lengths_k]
        written = torch.stack([turned_to_type(k[b], tables, places[b]) for b in range(sequences)])
    before = [cache.clone() for cache in caches.tensors]
    result = flash_attn_with_kvcache(q, *caches.tensors, alibi_slopes=slopes, return_softmax_lse=True, **arguments)
    out, lse = result

    spans = [slice(caches.leftpad[b], case.lengths_k[b] + new) for b in range(sequences)]
    for b in range(sequences) if new else ():
        place = caches.of(b, slice(case.lengths_k[b], case.lengths_k[b] + new))
        assert torch.equal(caches.tensors[1][place], v[b])
        # Written keys were rotated in float32, the expected ones in float64. After rounding to the caches' type, they
        # differ by at most two units in the last place.
        bound = torch.finfo(case.dtype).eps * k[b].abs().max() * 2
        assert ((caches.tensors[0][place] - written[b]).abs() <= bound).all()
        before[0][place], before[1][place] = caches.tensors[0][place], v[b]
    for cache, want in zip(caches.tensors, before, strict=True):
        assert same_bits(cache, want)

    def reference(dtype):
        parts = []
        for b, span in enumerate(spans):
            keys, values = (cache[caches.of(b, span)] for cache in caches.tensors)
            own = slopes if slopes is None or slopes.dim() == 1 else slopes[b]
            parts.append(expected(case, dtype, asked[b], keys, values, own, None)[:2])
        return [torch.stack(results) for results in zip(*parts, strict=True)]

    check([out], [], lambda dtype: reference(dtype)[0], None, str(case))
    want = reference(torch.float64)[1]
    want = torch.where(want == -torch.inf, torch.inf, want)
    assert torch.equal(torch.isinf(lse), torch.isinf(want))
    unit = torch.finfo(case.dtype if tables else torch.float32).eps  # with tables, rotated queries are rounded to dtype
    finite = torch.isfinite(want)
    assert ((lse - want)[finite].abs() <= 64 * unit * (1 + want[finite].abs())).all()


@pytest.mark.parametrize("seed", range(20))
def test_third_generation(seed):
    case, caches, arguments, new, sequences = random_call(50 + seed, ("rows", "slots", "pages"))
    if "block_table" in arguments:
        arguments["page_table"] = arguments.pop("block_table")
    counts = [random.choice((0, 1, 1, 6)) for _ in range(sequences)]
    cu_q = sums(counts)
    q = torch.randn(int(cu_q[-1]), case.heads, case.d, dtype=case.dtype)
    fresh = [random.randint(0, new) for _ in range(sequences)]
    cu_new = sums(fresh)
    k = torch.randn(int(cu_new[-1]), case.heads_kv, case.d, dtype=case.dtype)
    v = torch.randn(int(cu_new[-1]), case.heads_kv, case.dv, dtype=case.dtype)
    chunk = random.choice((0, 9))
    sink = torch.randn(case.heads) if random.random() < 0.5 else None
    qv = None
    if "page_table" not in arguments and random.random() < 0.5:
        qv = torch.randn(*q.shape[:-1], case.dv, dtype=case.dtype)
    arguments |= {"cu_seqlens_q": cu_q, "max_seqlen_q": max(counts), "k": k, "v": v, "cu_seqlens_k_new": cu_new}
    arguments |= {"attention_chunk": chunk, "learnable_sink": sink, "qv": qv, "return_softmax_lse": True}
    out, lse = third_generation.flash_attn_with_kvcache(q, *caches.tensors, **arguments)
    assert lse.shape == (case.heads, q.shape[0])

    def reference(dtype):
        parts = []
        for b in range(sequences):
            span = slice(caches.leftpad[b], case.lengths_k[b] + fresh[b])
            keys, values = (cache[caches.of(b, span)] for cache in caches.tensors)
            own = slice(cu_q[b], cu_q[b + 1])
            others = {"chunk": chunk, "sink": sink, "qv": None if qv is None else qv[own].to(dtype)}
            parts.append(expected(case, dtype, q[own], keys, values, None, None, **others)[0])
        return torch.cat(parts)

    check([out], [], reference, None, str(case))
    for b in range(sequences):
        place = caches.of(b, slice(case.lengths_k[b], case.lengths_k[b] + fresh[b]))
        assert torch.equal(caches.tensors[0][place], k[cu_new[b] : cu_new[b + 1]])


@pytest.mark.parametrize("seed", range(20))
def test_packed_queries_over_pages(seed):
    case, caches, arguments, _, sequences = random_call(100 + seed, ("pages",))
    caches.leftpad = [0] * sequences
    caches = Caches(case, case.lengths_k, caches.capacity, "pages", caches.leftpad)
    cu_q, cu_k = sums(case.lengths_q), sums(case.lengths_k)
    q = case.random(int(cu_q[-1]), case.heads, case.d)
    slopes = case.alibi_slopes(sequences)
    lengths = cu_q, cu_k, max(case.lengths_q), max(case.lengths_k)
    options = {**case.options, "alibi_slopes": slopes, "return_attn_probs": True, **caches.arguments}
    out, lse, s_dmask = flash_attn_varlen_func(q, *caches.tensors, *lengths, **options)
    assert s_dmask is None and not out.requires_grad and lse.shape == (case.heads, q.shape[0])

    def reference(dtype):
        parts = []
        for b in range(sequences):
            keys, values = (cache[caches.of(b, slice(0, case.lengths_k[b]))] for cache in caches.tensors)
            own = slopes if slopes is None or slopes.dim() == 1 else slopes[b]
            parts.append(expected(case, dtype, q[cu_q[b] : cu_q[b + 1]], keys, values, own, None)[0])
        return torch.cat(parts).detach()

    check([out], [], reference, None, str(case))


@pytest.mark.parametrize("form", ["pages", "slots", "rows"])
@pytest.mark.parametrize("seed", range(6))
def test_slopes_with_a_sink(form, seed):
    """Serving engines call attend_cache with both slopes and sinks. The rows past the last sequence have no keys."""
    case, _, _, _, sequences = random_call(200 + seed, (form,))
    case.options = {"softmax_scale": 0.3, "causal": seed % 3 > 0, "window_size": (-1, 2 if seed % 3 == 0 else -1)}
    case.slopes, used = ("N", "BN")[seed % 2], case.lengths_k
    caches = Caches(case, used, 45, form, [0] * sequences)
    cu_q = sums(case.lengths_q)
    q, slopes = case.random(int(cu_q[-1]) + 3, case.heads, case.d), case.alibi_slopes(sequences)
    sink = torch.randn(case.heads)
    cache = Cache(
        *caches.tensors,
        cache_seqlens=torch.tensor(used, dtype=torch.int32),
        cu_seqlens_q=cu_q,
        **caches.arguments,
    )
    options = Options(**case.options, alibi_slopes=slopes, sink=sink)
    out, lse = attend_cache(q, cache, None, options, True, torch.inf)
    case.options |= {"softcap": 0.0, "dropout_p": 0.0}

    def reference(dtype, result=0):
        parts = []
        for b in range(sequences):
            keys, values = (tensor[caches.of(b, slice(0, used[b]))] for tensor in caches.tensors)
            own = slopes if slopes.dim() == 1 else slopes[b]
            rows = q[cu_q[b] : cu_q[b + 1]]
            parts.append(expected(case, dtype, rows, keys, values, own, None, sink=sink)[result])
        return torch.cat(parts, result).detach()

    check([out[:-3]], [], reference, None, str(case))
    assert out[-3:].eq(0).all() and lse[:, -3:].eq(torch.inf).all()
    without_keys = torch.tensor(used).repeat_interleave(torch.tensor(case.lengths_q)) == 0
    want = reference(torch.float64, 1).masked_fill(without_keys, torch.inf)
    # Scores, biases and sinks are below 64. So each of about 8 roundings to float32 changes them by 2^-24 * 64 at most.
    torch.testing.assert_close(lse[:, :-3].double(), want, rtol=0, atol=8 * 2**-24 * 64)


def small_call():
    q = torch.randn(2, 3, 4, 16)
    k_cache, v_cache = (torch.randn(2, 20, 2, 16) for _ in range(2))
    k, v = (torch.randn(2, 3, 2, 16) for _ in range(2))
    return {
        "q": q,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "k": k,
        "v": v,
        "cache_seqlens": torch.tensor([5, 17], dtype=torch.int32),
        "causal": True,
    }


def test_compiled_without_graph_breaks():
    results = []
    angle = torch.rand(20, 8)
    tables = {"rotary_cos": angle.cos(), "rotary_sin": angle.sin()}
    for backend in (None, "aot_eager"):
        torch.manual_seed(2)
        call = small_call() | tables
        function = flash_attn_with_kvcache
        if backend:
            function = torch.compile(function, fullgraph=True, backend=backend)
        results.append((function(**call), call["k_cache"], call["v_cache"]))
    for eager, own in zip(*results, strict=True):
        assert torch.equal(eager, own)


def test_gradients_are_not_recorded_and_inference_mode():
    call = small_call()
    call["q"].requires_grad_()
    out = flash_attn_with_kvcache(**call)
    assert not out.requires_grad
    with torch.inference_mode():
        assert torch.equal(flash_attn_with_kvcache(**call), out)
        made_there = {name: call[name].clone() for name in ("k_cache", "v_cache")}
        assert torch.equal(flash_attn_with_kvcache(**call | made_there), out)
    call["cache_seqlens"] = 5
    assert torch.equal(flash_attn_with_kvcache(**call)[0], out[0])
    with torch.autocast("cpu", torch.bfloat16):  # the call converts q, k and v to the caches' type
        assert torch.equal(flash_attn_with_kvcache(**call), flash_attn_with_kvcache(**call))
    version = call["k_cache"]._version
    flash_attn_with_kvcache(**call)
    assert call["k_cache"]._version > version  # _version shows autograd that a saved cache has changed.


def test_the_number_of_splits_changes_no_bit():
    call = small_call()
    want = flash_attn_with_kvcache(**call)
    assert all(torch.equal(flash_attn_with_kvcache(**call, num_splits=splits), want) for splits in (1, 2, 7))


def test_threads_with_caches_of_their_own():
    calls = [small_call() for _ in range(4)]
    want = [flash_attn_with_kvcache(**call) for call in calls]
    got = [None] * len(calls)

    def run(i):
        got[i] = flash_attn_with_kvcache(**calls[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cache_seqlens": torch.tensor([5, 18]).int()}, r"cache_seqlens\[1\]=18, want 0..17"),
        ({"cache_seqlens": torch.tensor([-1, 1]).int()}, r"cache_seqlens\[0\]=-1, want 0..17"),
        ({"cache_seqlens": torch.tensor([1.0, 2.0])}, "cache_seqlens.dtype"),
        ({"cache_seqlens": None}, "cache_seqlens=None"),
        ({"cache_seqlens": torch.tensor([5]).int()}, r"cache_seqlens.shape\[0\]=1, want 2"),
        ({"cache_batch_idx": torch.tensor([0, 2]).int()}, r"cache_batch_idx\[1\]=2, want 0..1"),
        ({"cache_batch_idx": torch.tensor([1, 1]).int()}, "cache_batch_idx"),
        ({"cache_leftpad": torch.tensor([9, 0]).int()}, r"cache_leftpad\[0\]=9, want 0..8"),
        ({"block_table": torch.tensor([[0], [2]]).int(), "cache_seqlens": 1}, r"block_table\[1\]\[0\]=2, want 0..1"),
        ({"block_table": torch.tensor([[0], [1]])}, "block_table.dtype"),
        ({"k": None}, "k=None"),
        ({"v": torch.rand(2, 3, 2, 8)}, r"v.shape\[3\]=8, want 16"),
        ({"k": torch.rand(2, 3, 2, 16).bfloat16()}, "k.dtype"),
        ({"k_cache": torch.rand(2, 20, 2, 32)[..., ::2]}, r"k_cache.stride\(-1\)=2"),
        ({"v_cache": torch.rand(2, 19, 2, 16)}, r"v_cache.shape\[1\]=19"),
        ({"k_cache": torch.rand(1, 20, 2, 16), "v_cache": torch.rand(1, 20, 2, 16)}, r"k_cache.shape\[0\]=1"),
        ({"rotary_cos": torch.rand(20, 4)}, "rotary_sin: want it given together"),
        ({"rotary_cos": torch.rand(19, 4), "rotary_sin": torch.rand(19, 4)}, r"rotary_cos.shape\[0\]=19"),
        ({"rotary_cos": torch.rand(20, 9), "rotary_sin": torch.rand(20, 9)}, r"rotary_cos.shape\[1\]=9"),
        ({"softcap": float("inf")}, "softcap=inf"),
        ({"alibi_slopes": torch.rand(3, 4)}, "alibi_slopes.shape"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_written(wrong, says):
    call = {**small_call(), **wrong}
    before = [call[name].clone() for name in ("k_cache", "v_cache")]
    with pytest.raises(ValueError, match=f"^invalid argument: {says}"):
        flash_attn_with_kvcache(**call)
    assert all(torch.equal(call[name], want) for name, want in zip(("k_cache", "v_cache"), before, strict=True))


def test_the_third_generations_names_are_its_own():
    call = small_call()
    with pytest.raises(ValueError, match=r"^invalid argument: page_table.dtype"):
        third_generation.flash_attn_with_kvcache(**call, page_table=torch.tensor([[0], [1]]))
    with pytest.raises(ValueError, match="^invalid argument: qv=given, want None with pages"):
        qv = torch.rand(2, 3, 4, 16)
        pages = torch.tensor([[0], [1]]).int()
        third_generation.flash_attn_with_kvcache(**call, qv=qv, page_table=pages)


# For each call, prints by how many MiB the peak of the process' memory rises. A copy of a cache, or one byte per pair
# of row and key, would take far more.
MEMORY = """
import resource, torch
import fa.flash_attn as flash
from fa.flash_attn import third_generation

def rise(call):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

torch.set_num_threads(1)
q, k = torch.randn(1, 16384, 1, 16, dtype=torch.bfloat16), torch.randn(1, 16384, 1, 16, dtype=torch.bfloat16)
keys = torch.randn(4, 65536, 1, 256, dtype=torch.bfloat16)
row, table = torch.randn(3, 1, 4, 256, dtype=torch.bfloat16), torch.arange(8192, dtype=torch.int32).view(4, 2048)[:3]
new, places = torch.randn(3, 1, 1, 256, dtype=torch.bfloat16), torch.tensor([65000, 300, 65535], dtype=torch.int32)
others = {"cache_leftpad": torch.tensor([5, 0, 40000], dtype=torch.int32)}
slopes = torch.rand(1)
flash.flash_attn_func(q[:, :64], k[:, :64], k[:, :64])
flash.flash_attn_with_kvcache(row[:1], keys[:1, :64], keys[:1, :64])
pages = keys.view(8192, 32, 1, 256)
slots = {"cache_batch_idx": torch.tensor([3, 0, 2], dtype=torch.int32)}
for call in (
    lambda: flash.flash_attn_func(q, k, k, causal=True, window_size=(512, 0), alibi_slopes=slopes),
    lambda: flash.flash_attn_func(q, k, k, 0.1, window_size=(256, 256)),
    lambda: third_generation.flash_attn_func(q, k, k, attention_chunk=512),
    lambda: flash.flash_attn_with_kvcache(row, keys, keys, new, new, cache_seqlens=places, **slots, **others),
    lambda: flash.flash_attn_with_kvcache(row, keys[:3], keys[:3], new, new, cache_seqlens=places),
    lambda: flash.flash_attn_with_kvcache(row, pages, pages, new, new, cache_seqlens=places, block_table=table),
    lambda: flash.flash_attn_with_kvcache(
        row, pages, pages, new, new, cache_seqlens=places, block_table=table, alibi_slopes=torch.rand(4), **others
    ),
    lambda: flash.flash_attn_with_kvcache(
        row, pages, pages, cache_seqlens=300, block_table=torch.cat([table] * 128, 1), alibi_slopes=torch.rand(4)
    ),
):
    print(rise(call))
"""


def test_neither_pairs_nor_caches_are_copied():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=seconds(300))
    assert done.returncode == 0, done.stderr
    rises = [float(line) for line in done.stdout.split()]
    # A byte per pair of 16384 rows and 16384 keys would take 256 MiB. A cache takes 128 MiB, one of its sequences 32
    # MiB. The biases of one row with 4 heads and 65536 keys for three sequences take 3 MiB. Biases as wide as the last
    # call's table would take 384 MiB.
    assert len(rises) == 8 and max(rises) < 24, rises


def test_exports():
    assert "flash_attn_with_kvcache" in fa.flash_attn.__all__
