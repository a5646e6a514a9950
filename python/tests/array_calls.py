"""For every function of fa that takes arrays, one small call: {name of the function: (arguments by name, keywords)}."""

import numpy as np

import fa

B, N, NKV, S1, S2, D, K = 2, 4, 2, 5, 9, 16, 6


def _floats(rng, *shape):
    return rng.standard_normal(shape, np.float32)


def _dense(rng):
    q, k, v = _floats(rng, B, N, S1, D), _floats(rng, B, NKV, S2, D), _floats(rng, B, NKV, S2, D)
    inputs = {
        "q": q,
        "k": k,
        "v": v,
        "query_rope": _floats(rng, B, N, S1, 8),
        "key_rope": _floats(rng, B, NKV, S2, 8),
        "pse": _floats(rng, B, N, S1, S2),
        "dense_mask": rng.random((B, 1, S1, S2)) < 0.3,
        "drop_mask": rng.integers(0, 256, (B * N * S1 * S2 + 7) // 8, np.uint8),
        "sink": _floats(rng, N),
    }
    return inputs, {"keep_prob": 0.5}


def _sparse(rng):
    inputs = {
        "q": _floats(rng, B, S1, N, D),
        "k": _floats(rng, B, S2, 1, D),
        "v": _floats(rng, B, S2, 1, D),
        "sparse_indices": np.sort(rng.integers(0, S2, (B, S1, 1, K)).astype(np.int32)),
        "query_rope": _floats(rng, B, S1, N, 8),
        "key_rope": _floats(rng, B, S2, 1, 8),
        "sink": _floats(rng, N),
    }
    return inputs, {"sparse_mode": 0}


def _index(rng):
    return {
        "query_index": _floats(rng, B, S1, N, D),
        "key_index": _floats(rng, B, S2, 1, D),
        "weights": _floats(rng, B, S1, N),
    }


def calls():
    rng = np.random.default_rng(3)
    made = {}
    dense, options = _dense(rng)
    made["flash_attention"] = dense, options
    forward = fa.flash_attention(**dense, **options)
    statistics = {"softmax_max": forward.softmax_max, "softmax_sum": forward.softmax_sum}
    gradient = {"out": forward.out, "d_out": _floats(rng, B, N, S1, D)}
    made["flash_attention_grad"] = (
        {**dense, **gradient, **statistics},
        {**options, "need_dpse": True, "need_dsink": True},
    )
    made["decode_attention"] = {name: dense[name] for name in ("q", "k", "v", "pse", "dense_mask", "sink")}, {}
    infer = ("q", "k", "v", "query_rope", "key_rope", "pse", "dense_mask", "sink")
    made["infer_attention"] = {name: dense[name] for name in infer}, {"return_lse": True}
    made["prompt_flash_attention"] = {name: dense[name] for name in ("q", "k", "v", "pse", "dense_mask")}, {}
    made["ring_attention_update"] = (
        {
            "prev_out": _floats(rng, B, N, S1, D),
            "prev_softmax_max": _floats(rng, B, N, S1),
            "prev_softmax_sum": rng.random((B, N, S1), np.float32),
            "cur_out": _floats(rng, B, N, S1, D),
            "cur_softmax_max": _floats(rng, B, N, S1),
            "cur_softmax_sum": rng.random((B, N, S1), np.float32),
        },
        {"layout": "BNSD"},
    )
    made["merge_by_lse"] = {"lse": _floats(rng, S1), "local_out": _floats(rng, S1, D)}, {"return_lse": True}
    cache = {"key_cache": _floats(rng, 3, 4, NKV, D), "value_cache": _floats(rng, 3, 4, NKV, D)}
    rows = {"key": _floats(rng, S1, NKV, D), "value": _floats(rng, S1, NKV, D)}
    places = {"slot_mapping": np.array([3, 8, 0, 5, -1], np.int32), "source_rows": np.array([1, 0, 4, 2, 3], np.int32)}
    made["scatter_rows"] = {**rows, **places}, {name: array.copy() for name, array in cache.items()}
    table = {"block_table": np.array([[2, 0], [1, 2]], np.int32), "seq_lens": np.array([6, 3], np.int32)}
    made["gather_rows"] = {**cache, **table, "seq_offset": np.array([0, 4], np.int32)}, {"rows": 9}
    sparse, options = _sparse(rng)
    made["sparse_flash_attention"] = sparse, {**options, "need_p_head_mean": True}
    forward = fa.sparse_flash_attention(**sparse, **options)
    statistics = {"softmax_max": forward.softmax_max, "softmax_sum": forward.softmax_sum}
    gradient = {"out": forward.out, "d_out": _floats(rng, B, S1, N, D)}
    made["sparse_flash_attention_grad"] = {**sparse, **gradient, **statistics}, options
    index = _index(rng)
    renamed = dict(zip(("q", "k", "weights"), index.values(), strict=True))
    shared = {name: sparse[name] for name in ("q", "sink")}
    shared |= {"ori_kv": sparse["k"], "cmp_kv": _floats(rng, B, S2 // 2, 1, D)}
    shared["cmp_indices"] = np.sort(rng.integers(0, S2 // 2, (B, S1, 1, K)).astype(np.int32))
    window = {"cmp_ratio": 2, "ori_mask": 4, "window_left": 3, "window_right": 0}
    made["shared_kv_attention"] = shared, window
    out, lse = fa.shared_kv_attention(**shared, **window)
    given = {"out": out, "d_out": _floats(rng, B, S1, N, D), "lse": lse}
    made["shared_kv_attention_grad"] = {**shared, **given}, window
    made["lightning_indexer"] = renamed, {"sparse_mode": 0, "sparse_count": K}
    made["lightning_indexer_grad"] = (
        {**renamed, "sparse_indices": sparse["sparse_indices"], "d_values": _floats(rng, B, S1, 1, K)},
        {"sparse_mode": 0},
    )
    attention = {name: sparse[name] for name in sparse if name not in ("v", "sink")}
    made["sparse_lightning_indexer_grad_kl_loss"] = {**attention, **index, **statistics}, options
    given = {"sparse_indices": sparse["sparse_indices"], "target": rng.random((B, S1, K), np.float32)}
    made["sparse_lightning_indexer_kl_loss_grad"] = {**index, **given}, options
    made["dense_lightning_indexer_softmax_lse"] = index, {"sparse_mode": 0}
    attention = {name: sparse[name] for name in ("q", "k", "query_rope", "key_rope")}
    rows = {"softmax_max_index": _floats(rng, B, 1, S1), "softmax_sum_index": 1 + rng.random((B, 1, S1), np.float32)}
    made["dense_lightning_indexer_grad_kl_loss"] = {**attention, **index, **statistics, **rows}, options
    made["indexer_kl_loss"] = {name: rng.random((S1, K), np.float32) for name in ("target", "probabilities")}, {}
    lengths = {"lengths_q": [2, S1], "lengths_kv": [150, 300]}
    made["msa_index_score"] = {"q": _floats(rng, S1, N, D), "k": _floats(rng, 300, 1, D)}, lengths
    return made


CALLS = calls()
ARGUMENTS = [(name, argument) for name, (arrays, _) in CALLS.items() for argument in arrays]


def run(name, **changed):
    """Returns the results of the function's small call, with the arguments in `changed` replaced, as a list of
    arrays."""
    arrays, options = CALLS[name]
    results = getattr(fa, name)(**{**arrays, **options, **changed})
    results = results if isinstance(results, tuple) else (results,)
    return [result for result in results if result is not None]
