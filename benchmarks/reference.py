"""Attention of single rows in double, and bounds for the error of a correct computation. The peers' results are checked
with these bounds before the timing. The headers of tools/check derive the bounds."""

from dataclasses import dataclass

import numpy as np

UNIT_ROUNDOFF = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}
U = UNIT_ROUNDOFF["f32"]
# The relative error that an exponential may have: 20 ulp, as in PyTorch's flash kernel. The check only has to show that
# all peers compute the same function.
EXP_ERROR = 20 * 2.0**-23
F16_SUBNORMAL = 2.0**-25


def to_double(array, dtype):
    """Returns the array of a .npy file as floats. Such a file stores the bits of bf16 as 16-bit integers."""
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def from_float(array, dtype):
    """Rounds an f32 array to the type, to nearest even. @return the array as a .npy file stores it"""
    if dtype == "bf16":
        bits = array.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return array.astype({"f32": np.float32, "f16": np.float16}[dtype])


def kept(mask, rows, sq, sk):
    """Returns which keys the rows see, bool [rows, Sk]. A causal mask is aligned bottom-right."""
    last = rows[:, None] + sk - sq
    keys = np.arange(sk)[None, :]
    if mask == "full":
        return np.ones((len(rows), sk), bool)
    first = 0 if mask == "causal" else last - int(mask.removeprefix("window"))
    return (keys <= last) & (keys >= first)


class Head:
    """One query head with its key head, in double: q and d_out [Sq, D], k and v [Sk, D]."""

    def __init__(self, q, k, v, mask, dtype, d_out=None):
        self.q, self.k, self.v, self.d_out, self.mask, self.dtype = q, k, v, d_out, mask, dtype
        self.scale = 1 / np.sqrt(q.shape[1])
        self.narrow = 0.0 if dtype == "f32" else UNIT_ROUNDOFF[dtype]
        self.subnormal = F16_SUBNORMAL if dtype == "f16" else 0.0

    def rounded(self, value):
        """Returns the error of rounding the result to the type."""
        return UNIT_ROUNDOFF[self.dtype] * np.abs(value) + self.subnormal

    def kept(self, rows):
        return kept(self.mask, rows, len(self.q), len(self.k))

    def forward(self, rows):
        """@return rows of the output, their bounds, and two columns [rows, 1]: the log-sum-exp and its error"""
        keep, q = self.kept(rows), self.q[rows]
        depth = q.shape[1] + 6
        scores = np.where(keep, self.scale * (q @ self.k.T), -np.inf)
        magnitude = np.max(np.where(keep, self.scale * (np.abs(q) @ np.abs(self.k).T), 0), axis=1, keepdims=True)
        largest = scores.max(axis=1, keepdims=True)
        p = np.exp(scores - largest)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        terms = keep.sum(axis=1, keepdims=True)
        out = p @ self.v
        relative = 2 * depth * U * magnitude + 2 * terms * U + 2 * EXP_ERROR + self.narrow
        bound = relative * (p @ np.abs(self.v)) + self.rounded(out)
        return out, bound, largest + np.log(total), depth * U * magnitude + terms * U + EXP_ERROR

    def facts(self, rows):
        """@return columns with one number per row, for the backward: log-sum-exp, its error, delta = dO . O, its
        error"""
        parts = []
        for begin in range(0, len(rows), 256):
            part = rows[begin : begin + 256]
            out, bound, lse, lse_error = self.forward(part)
            d_out = self.d_out[part]
            error = np.abs(d_out) * (bound + out.shape[1] * U * np.abs(out))
            sums = [np.sum(values, axis=1, keepdims=True) for values in (d_out * out, error)]
            parts.append((lse, lse_error, *sums))
        return [np.concatenate(columns) for columns in zip(*parts)]

    def pairs(self, rows, keys, facts):
        """@return for rows and a slice of keys: P, its error, dS, its error, each [rows, keys]"""
        lse, lse_error, delta, delta_error = facts
        q, k, v, d_out = self.q[rows], self.k[keys], self.v[keys], self.d_out[rows]
        magnitude = self.scale * (np.abs(q) @ np.abs(k).T)
        p = np.where(self.kept(rows)[:, keys], np.exp(self.scale * (q @ k.T) - lse), 0)
        relative = (q.shape[1] + 8) * U * (magnitude + np.abs(lse)) + lse_error + EXP_ERROR
        dp = d_out @ v.T
        dp_error = v.shape[1] * U * (np.abs(d_out) @ np.abs(v).T)
        ds = p * (dp - delta)
        ds_error = p * (relative * np.abs(dp - delta) + dp_error + delta_error + 3 * U * (np.abs(dp) + np.abs(delta)))
        ds_error += self.narrow * np.abs(ds) + self.subnormal
        return p, p * (relative + self.narrow) + self.subnormal, ds, ds_error

    def query_gradients(self, rows):
        """@return rows of dq, their bounds"""
        _, _, ds, ds_error = self.pairs(rows, slice(None), self.facts(rows))
        dq = self.scale * (ds @ self.k)
        error = ds_error + (len(self.k) + 8) * U * np.abs(ds)
        return dq, self.scale * (error @ np.abs(self.k)) + self.rounded(dq)


def key_gradients(group, key):
    """Computes the rows of dk and dv for a key, summed over the query heads that share the key. @return dk, its bound,
    dv, its bound"""
    dk = dv = dk_bound = dv_bound = 0.0
    terms = sum(len(head.q) for head in group) + 8
    for head in group:
        rows = np.arange(len(head.q))
        rows = rows[head.kept(rows)[:, key]]
        if len(rows) == 0:
            continue
        p, p_error, ds, ds_error = head.pairs(rows, slice(key, key + 1), head.facts(rows))
        q, d_out = head.q[rows], head.d_out[rows]
        dk = dk + head.scale * (ds.T @ q)[0]
        dv = dv + (p.T @ d_out)[0]
        dk_bound = dk_bound + head.scale * ((ds_error + terms * U * np.abs(ds)).T @ np.abs(q))[0]
        dv_bound = dv_bound + ((p_error + terms * U * p).T @ np.abs(d_out))[0]
    return dk, dk_bound + group[0].rounded(dk), dv, dv_bound + group[0].rounded(dv)


@dataclass(frozen=True)
class ExpectedRow:
    """An expected row of a result, and how far each of its elements may be off."""

    name: str  # "out", "dq", "dk" or "dv"
    batch: int
    head: int
    row: int
    value: np.ndarray
    bound: np.ndarray


def places(sizes, count):
    """Returns (batch, head, row) of the last row and of `count` random ones. They are the same in every run."""
    random = np.random.default_rng(4)
    chosen = [tuple(size - 1 for size in sizes)]
    return chosen + [tuple(int(random.integers(size)) for size in sizes) for _ in range(count)]


def expected_rows(case, inputs):
    """Returns the expected values of some rows of a case's results. @param inputs  .npy arrays by name: q, k, v; for
    the backward also d_out"""
    group = case.heads // case.heads_kv

    def head_at(batch, head):
        def rows(name, at):
            return to_double(inputs[name][batch, at], case.dtype)

        d_out = rows("d_out", head) if case.operation == "backward" else None
        return Head(rows("q", head), rows("k", head // group), rows("v", head // group), case.mask, case.dtype, d_out)

    expected = []
    for batch, head, row in [(0, 0, 0), *places((case.batch, case.heads, case.sq), 5)]:
        name, compute = ("out", Head.forward) if case.operation == "forward" else ("dq", Head.query_gradients)
        value, bound = compute(head_at(batch, head), np.array([row]))[:2]
        expected.append(ExpectedRow(name, batch, head, row, value[0], bound[0]))
    if case.operation == "backward":
        # A row of dk needs the whole forward of its heads, so fewer rows are checked.
        for batch, head_kv, key in places((case.batch, case.heads_kv, case.sk), 1):
            heads = [head_at(batch, head_kv * group + g) for g in range(group)]
            dk, dk_bound, dv, dv_bound = key_gradients(heads, key)
            expected.append(ExpectedRow("dk", batch, head_kv, key, dk, dk_bound))
            expected.append(ExpectedRow("dv", batch, head_kv, key, dv, dv_bound))
    return expected


def compare(expected, results, dtype):
    """@return the largest error, and the largest quotient of an error and its bound. A result is wrong if the quotient
    is above 1. Both are infinite if a result, its expected value or its bound is NaN."""
    error = share = 0.0
    for want in expected:
        got = to_double(results[want.name][want.batch, want.head, want.row], dtype)
        off = np.abs(got - want.value)
        # If an element has no error, its quotient is 0, even if its bound is 0.
        of_bound = np.divide(off, want.bound, out=np.where(off == 0, 0.0, np.inf), where=want.bound != 0)
        error = max(error, *np.where(np.isnan(off), np.inf, off).tolist())
        share = max(share, *np.where(np.isnan(of_bound), np.inf, of_bound).tolist())
    return error, share
