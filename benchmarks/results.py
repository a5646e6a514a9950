"""The JSON file of results: written after every case, so that a run can stop anywhere and go on later."""

import json
import os

FORMAT = 1


def load(path):
    """What is there, or an empty collection. Throws ValueError for a file of another format."""
    if not os.path.exists(path):
        return {"format": FORMAT, "machine": {}, "versions": {}, "cases": {}}
    with open(path, encoding="utf-8") as file:
        results = json.load(file)
    if results.get("format") != FORMAT:
        raise ValueError(f"{path}: format {results.get('format')}, want {FORMAT}")
    return results


def save(path, results):
    """Replaces the file in one step."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    new = path + ".new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1, sort_keys=True)
        file.write("\n")
    os.replace(new, path)


def is_done(results, case, peers):
    """Whether the case was measured with all of these peers: figures of different runs do not stand side by side."""
    entry = results["cases"].get(case.key)
    return entry is not None and set(peers) <= set(entry["peers"])


def seconds(entry, peer, which="best"):
    """Of a peer's call, or None where it has no figure."""
    return entry["peers"].get(peer, {}).get(which)


def gflops(entry, peer, which="best"):
    value = seconds(entry, peer, which)
    return None if value is None else entry["flops"] / value * 1e-9
