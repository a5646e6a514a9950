#!/usr/bin/env python3
"""What the planner's rules for tiles lose on this machine, against the best tile that a sweep finds.

    tune.py --threads 1 --isa avx2 --only 'backward/f32/*'

First the keys of a tile are swept with the rules' rows, then the rows with the best keys; what was the best is measured again
with the rules' alone, in three times as many rounds, since the best of many is partly luck. Every candidate is a process of
its own, which has FA_TUNED_TILES set; candidates take turns, and each has the best of all its calls, which are short: on a
busy machine those that nothing disturbed. A loss of 2 % is a finding: the rules, which are functions of sizes and level alone,
then want another constant. No results are stored.
"""

import argparse
import os
import shutil
import sys
import tempfile
from fnmatch import fnmatch

import cases
import compare
import rounds
from peers.client import Peer

FINDING = 1.02
KEYS = {"forward": (32, 64, 96, 128, 160, 192, 224, 256), "backward": (32, 64, 128)}
ROWS = (16, 32, 48, 64, 96, 128, 144, 160)
# B, N, Nkv, Sq, Sk, D: head sizes whose tiles differ; long enough that edges are few.
SHAPES = {f"d{d}": (1, 4, 4, 1024, 1024, d) for d in (64, 128, 256)}


def all_cases(threads):
    return [cases.make(shape, sizes, operation, dtype, mask, threads)
            for operation in KEYS for dtype in ("f32", "bf16") for mask in ("full", "causal")
            for shape, sizes in SHAPES.items()]


class Candidate:
    """fa with a tile of its own; rows or keys of 0 are those of the rules."""

    def __init__(self, args, log, rows=0, keys=0):
        variables = {"FA_TUNED_TILES": f"{rows}x{keys}"} | ({"FA_FORCE_ISA": args.isa} if args.isa else {})
        self.peer = Peer("fa", args.build, args.threads, log, variables=variables)

    def prepare(self, case, folder):
        """@return the tile that the plan has"""
        self.peer.ask("prepare", folder=folder, **case.request())
        plan = self.peer.ask("plan")
        return plan["block_q"], plan["block_k"]


def distinct(case, folder, candidates):
    """The candidates by their tiles; of those with equal tiles the first, the others end."""
    kept = {}
    for candidate in candidates:
        tile = candidate.prepare(case, folder)
        if tile in kept:
            candidate.peer.close()
        else:
            kept[tile] = candidate
    return kept


def ratios(by_tile, rule, seconds, round_count):
    """Time of the rules' tile over that of each, both of the best call."""
    best = dict.fromkeys(by_tile, float("inf"))
    for candidate in by_tile.values():
        candidate.peer.ask("time", seconds=seconds)
    for number in range(round_count):
        for tile in rounds.order_of(list(by_tile), number):
            best[tile] = min(best[tile], *by_tile[tile].peer.ask("time", seconds=seconds)["seconds"])
    return {tile: best[rule] / best[tile] for tile in by_tile}


def sweep(case, args, folder, log, rule, choices, again=1):
    """@return by tile, how many times as fast as the rules' it is"""
    by_tile = distinct(case, folder, [rule, *(Candidate(args, log, *choice) for choice in choices)])
    try:
        return ratios(by_tile, next(iter(by_tile)), args.seconds, again * args.rounds)
    finally:
        for candidate in by_tile.values():
            if candidate is not rule:
                candidate.peer.close()


def tune(case, args, log):
    """@return the rules' tile, the best, how many times as fast as the rules' it is"""
    folder = tempfile.mkdtemp(prefix="fa-tune-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    rule = Candidate(args, log)
    try:
        compare.write_inputs(case, folder)
        own = rule.prepare(case, folder)
        by_keys = sweep(case, args, folder, log, rule, [(0, keys) for keys in KEYS[case.operation]])
        keys = max(by_keys, key=by_keys.get)[1]
        by_both = sweep(case, args, folder, log, rule, [(rows, keys) for rows in ROWS])
        best = max(by_both, key=by_both.get)
        return own, best, sweep(case, args, folder, log, rule, [best], again=3)[best]
    finally:
        rule.peer.close()
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", help="build folder of fa_peer")
    parser.add_argument("--isa", default="", help="the level; the CPU's best without")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="*", help="a pattern of cases, such as 'backward/f32/d128/*'")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    args = parser.parse_args()
    print("| case | rules: rows x keys | best found | loss |\n|---|---|---|---:|")
    findings = 0
    with open(os.devnull, "w", encoding="utf-8") as log:
        for case in all_cases(args.threads):
            if not fnmatch(case.key, args.only):
                continue
            own, best, ratio = tune(case, args, log)
            name = case.key.rsplit("/", 1)[0]
            print(f"| {name} | {own[0]} x {own[1]} | {best[0]} x {best[1]} | {100 * (ratio - 1):.1f} % |", flush=True)
            findings += ratio >= FINDING
    print(f"{findings} findings", file=sys.stderr)


if __name__ == "__main__":
    main()
