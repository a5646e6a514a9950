"""Reads and writes the JSON file of results, and selects figures from it. The file is written after every case, so
that a run can stop and continue later."""

import json
import os

from cases import SHAPES, Case

FORMAT = 1
NAMES = {"fa": "fa", "torch": "PyTorch", "torch_mkl": "PyTorch, MKL unlocked", "flex": "flex_attention",
         "zentorch": "zentorch", "onnxruntime": "ONNX Runtime", "onednn": "oneDNN", "openvino": "OpenVINO",
         "ggml": "ggml", "naive": "OpenBLAS, naive"}


def load(path):
    """Returns the results in the file, or empty results if there is no file. Raises ValueError for a file of another
    format."""
    if not os.path.exists(path):
        return {"format": FORMAT, "machine": {}, "versions": {}, "cases": {}}
    with open(path, encoding="utf-8") as file:
        results = json.load(file)
    if results.get("format") != FORMAT:
        raise ValueError(f"{path}: format {results.get('format')}, want {FORMAT}")
    return results


def save(path, results):
    """Writes the results to a new file and renames it, so that no reader sees a part of the file."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    new = path + ".new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1, sort_keys=True)
        file.write("\n")
    os.replace(new, path)


def is_done(results, case, peers):
    """Returns whether one run has measured the case with all of these peers. Figures of different runs must not be
    compared."""
    entry = results["cases"].get(case.key)
    return entry is not None and set(peers) <= set(entry["peers"])


def seconds(entry, peer, which="best"):
    """Returns the time of the peer's "best" or "median" call, or None if the peer has no figure."""
    return entry["peers"].get(peer, {}).get(which)


def gflops(entry, peer, which="best"):
    """Returns the GFLOP/s of kept pairs in the time that seconds() returns, or None if the peer has no figure."""
    value = seconds(entry, peer, which)
    return None if value is None else entry["flops"] / value * 1e-9


def fraction(entry):
    """Returns the fraction of the peak that fa reaches. The peak is measured in the same run."""
    return gflops(entry, "fa") / entry["peak_gflops"]


def best_other(entry):
    """Returns the GFLOP/s of the fastest peer, or None."""
    return max((rate for name in NAMES if name != "fa" and (rate := gflops(entry, name))), default=None)


def ratio_to_best(entry):
    """Returns fa's rate divided by that of the fastest peer, or None."""
    other, own = best_other(entry), gflops(entry, "fa")
    return own / other if other and own else None


def entries_of(results):
    """Returns all (case, entry) pairs, in the order of SHAPES."""
    pairs = [(Case(**entry["case"]), entry) for entry in results["cases"].values()]
    shapes = list(SHAPES)
    return sorted(pairs, key=lambda pair: (shapes.index(pair[0].shape) if pair[0].shape in shapes else len(shapes),
                                           pair[0].sk, pair[0].mask != "full", pair[0].mask, pair[0].threads))


def chosen(results, **wanted):
    """Returns the (case, entry) pairs whose case has the attributes in `wanted`. A tuple in `wanted` allows any of its
    members."""
    def fits(case):
        return all(getattr(case, name) in (value if isinstance(value, tuple) else (value,))
                   for name, value in wanted.items())

    return [pair for pair in entries_of(results) if fits(pair[0])]


def peers_of(pairs):
    """Returns the peers that have a figure in any of these (case, entry) pairs, in the order of NAMES."""
    return [name for name in NAMES if any(seconds(entry, name) for _, entry in pairs)]
