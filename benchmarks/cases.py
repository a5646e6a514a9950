"""The attention calls that compare.py measures: what each computes, on which sizes, with how many threads."""

from dataclasses import asdict, dataclass
from fnmatch import fnmatch

# B, N, Nkv, Sq, Sk, D of each shape. Shape F is a decode with one query row per sequence. benchmarks/operators.cc uses
# the same letters.
SHAPES = {
    "A": (1, 16, 16, 1024, 1024, 64),
    "B": (1, 16, 16, 2048, 2048, 128),
    "C": (1, 8, 8, 4096, 4096, 128),
    "D": (1, 8, 8, 8192, 8192, 64),
    "E": (1, 32, 8, 2048, 2048, 128),
    "F": (8, 32, 8, 1, 4096, 128),
    "G": (8, 12, 12, 128, 128, 64),
    "H": (1, 8, 8, 2048, 2048, 256),
}
DECODE = "F"
ELEMENT_BYTES = {"f32": 4, "bf16": 2, "f16": 2}


@dataclass(frozen=True)
class Case:
    """One attention call on dense [B, N, S, D] tensors."""

    shape: str  # a letter of SHAPES, or a name such as s4096
    operation: str  # "forward" or "backward"
    dtype: str  # "f32", "bf16" or "f16"
    mask: str  # full, causal or windowN, which keeps the diagonal and the N keys before it
    threads: int
    batch: int
    heads: int
    heads_kv: int
    sq: int
    sk: int
    d: int

    @property
    def key(self):
        return f"{self.operation}/{self.dtype}/{self.shape}/{self.mask}/{self.threads}"

    def kept_pairs(self):
        """Returns how many (query row, key) pairs of one head the mask keeps. A causal mask is aligned bottom-right."""
        if self.mask == "full":
            return self.sq * self.sk
        back = self.sk if self.mask == "causal" else int(self.mask.removeprefix("window"))
        last = [row + self.sk - self.sq for row in range(self.sq)]
        return sum(max(0, min(at, self.sk - 1) - max(0, at - back) + 1) for at in last)

    def flops(self):
        """Returns the FLOPs of the kept pairs: 2 D per pair and matrix product. The forward has two matrix
        products, and the backward five.
        """
        products = 2 if self.operation == "forward" else 5
        return 2.0 * products * self.batch * self.heads * self.kept_pairs() * self.d

    def key_value_bytes(self):
        return 2.0 * self.batch * self.heads_kv * self.sk * self.d * ELEMENT_BYTES[self.dtype]

    def tensor_bytes(self):
        """Returns the bytes of queries, keys, values and output, and for the backward also of their gradients."""
        one_direction = 2.0 * self.batch * self.d * (self.heads * self.sq + self.heads_kv * self.sk)
        return (1 if self.operation == "forward" else 2) * one_direction * ELEMENT_BYTES[self.dtype]

    def request(self):
        """Returns the case as a dictionary, for peers and for the results. Case(**request) is the same case again."""
        return asdict(self)


def make(shape, sizes, operation, dtype, mask, threads):
    return Case(shape, operation, dtype, mask, threads, *sizes)


def headline(threads):
    """Returns all combinations of shape, type, direction and mask."""
    for operation in ("forward", "backward"):
        for dtype in ("f32", "bf16", "f16"):
            for mask in ("full", "causal"):
                for shape, sizes in SHAPES.items():
                    if shape == DECODE and (mask == "causal" or operation == "backward"):
                        continue
                    if operation == "backward" and dtype == "f16":
                        continue
                    yield make(shape, sizes, operation, dtype, mask, threads)


def lengths(threads):
    """Returns cases for plots of the cost against S: two heads of size 128, full, causal and with a window."""
    for mask in ("full", "causal", "window512"):
        for s in (512, 1024, 2048, 4096, 8192, 16384):
            yield make(f"s{s}", (1, 2, 2, s, s, 128), "forward", "f32", mask, threads)


def scaling(threads):
    """Returns cases for plots of the speed against the number of threads: 1, 2, 4 and so on up to `threads`."""
    counts = [1]
    while counts[-1] < threads:
        counts.append(min(2 * counts[-1], threads))
    for operation in ("forward", "backward"):
        for shape in ("B", "G"):
            for count in counts:
                yield make(shape, SHAPES[shape], operation, "f32", "full", count)


def quick(threads):
    """Returns the cases of headline() in f32 and bf16."""
    return (case for case in headline(threads) if case.dtype != "f16")


SETS = {"headline": headline, "lengths": lengths, "scaling": scaling, "quick": quick}


def select(sets, threads, patterns):
    """Returns the cases in `sets` with a key that matches one of the patterns, each case once. Without patterns,
    returns all cases."""
    chosen = {}
    for name in sets:
        for case in SETS[name](threads):
            if not patterns or any(fnmatch(case.key, pattern) for pattern in patterns):
                chosen.setdefault(case.key, case)
    return list(chosen.values())
