#!/usr/bin/env python3
"""Measures how much speed this machine loses by the planner's choice of tiles and by constants of the kernels.

    tune.py --threads 1 --isa avx2 --only 'backward/f32/*'
    tune.py --sweep blocks --only 'forward/bf16/d128/full/1'
    tune.py --sweep fetches --only 'forward/f32/*'

A sweep of tiles first tries numbers of keys, with the planner's number of rows. Then it tries numbers of rows, with the
best number of keys. The best tile and the planner's tile are measured once more, in three times as many rounds, because
the best of many is partly luck.

Blocks and fetches are constants of the build, the same for all machines. Blocks are the register blocks of the level's
widest strip, and kLastSteps. Fetches are the distances at which keys and values are fetched ahead. The results of each
variant are compared with those of the build. The best variant is measured once more.

Every candidate is a process with its own libfa, for which variants.py compiles one source again. Candidates take turns,
and the best of all calls counts. Calls are short, so even on a busy machine some calls are undisturbed.

A choice that loses 2 % or more needs another constant. No results are stored.
"""

import argparse
import os
import shutil
import sys
import tempfile
from fnmatch import fnmatch
from subprocess import CalledProcessError

import numpy as np

import cases
import compare
import reference
import rounds
import variants
from peers.client import Peer

FINDING = 1.02
KEYS = {"forward": (32, 64, 96, 128, 160, 192, 224, 256), "backward": (32, 64, 128)}
ROWS = (16, 32, 48, 64, 96, 128, 144, 160)
# B, N, Nkv, Sq, Sk, D. The head sizes have different tiles. The sequences are so long that few tiles are partial.
SHAPES = {f"d{d}": (1, 4, 4, 1024, 1024, d) for d in (64, 128, 256)}
# The shapes for which distances of fetching ahead are tried. They include short sequences, and decodes in groups of 1,
# 4 and 8 rows.
FETCHED = {"d128": SHAPES["d128"], "short": (8, 12, 12, 128, 128, 64),
           **{f"decode{rows}": (8, 8 * rows, 8, 1, 4096, 128) for rows in (1, 4, 8)}}


def all_cases(threads, sweep="tiles"):
    if sweep == "fetches":
        return [cases.make(shape, sizes, "forward", dtype, "full", threads)
                for dtype in ("f32", "bf16") for shape, sizes in FETCHED.items()]
    return [cases.make(shape, sizes, operation, dtype, mask, threads)
            for operation in KEYS for dtype in ("f32", "bf16") for mask in ("full", "causal")
            for shape, sizes in SHAPES.items()]


class Candidate:
    """A peer that runs fa, with the build's libfa or with a libfa from another folder."""

    def __init__(self, args, log, library=None):
        variables = {"FA_FORCE_ISA": args.isa} if args.isa else {}
        if library:
            variables |= {"LD_LIBRARY_PATH": library}
        self.peer = Peer("fa", args.build, args.threads, log, variables=variables)
        if library and f"{library}/libfa.so.0" not in maps_of(self.peer.pid):
            raise SystemExit(f"tune: {args.build}'s fa_peer does not load libfa.so.0 of {library}")

    def prepare(self, case, folder):
        """Prepares the peer for the case. @return (block_q, block_k), the tile of its plan"""
        self.peer.ask("prepare", folder=folder, **case.request())
        plan = self.peer.ask("plan")
        return plan["block_q"], plan["block_k"]


def maps_of(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return file.read()


def distinct(case, folder, candidates):
    """Prepares all candidates. If several have the same tile, keeps the first and ends the others. @return {tile:
    candidate}"""
    kept = {}
    for candidate in candidates:
        tile = candidate.prepare(case, folder)
        if tile in kept:
            candidate.peer.close()
        else:
            kept[tile] = candidate
    return kept


def ratios(by_tile, rule, seconds, round_count):
    """@return {tile: the time of the planner's tile divided by the time of this tile}, both of the best calls"""
    best = dict.fromkeys(by_tile, float("inf"))
    for candidate in by_tile.values():
        candidate.peer.ask("time", seconds=seconds)
    for number in range(round_count):
        for tile in rounds.order_of(list(by_tile), number):
            best[tile] = min(best[tile], *by_tile[tile].peer.ask("time", seconds=seconds)["seconds"])
    return {tile: best[rule] / best[tile] for tile in by_tile}


def sweep(case, args, folder, log, libraries, rule, choices, again=1):
    """@return {tile: the time of the planner's tile divided by the time of this tile}"""
    built = [libraries.get(variants.tile(case.operation, *choice)) for choice in choices]
    by_tile = distinct(case, folder, [rule, *(Candidate(args, log, library) for library in built if library)])
    try:
        return ratios(by_tile, next(iter(by_tile)), args.seconds, again * args.rounds)
    finally:
        for candidate in by_tile.values():
            if candidate is not rule:
                candidate.peer.close()


def tune(case, args, log, libraries):
    """@return the planner's tile, the best tile, and the time of the planner's tile divided by that of the best"""
    folder = tempfile.mkdtemp(prefix="fa-tune-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    rule = Candidate(args, log)
    try:
        compare.write_inputs(case, folder)
        own = rule.prepare(case, folder)
        by_keys = sweep(case, args, folder, log, libraries, rule, [(0, keys) for keys in KEYS[case.operation]])
        keys = max(by_keys, key=by_keys.get)[1]
        by_both = sweep(case, args, folder, log, libraries, rule, [(rows, keys) for rows in ROWS])
        best = max(by_both, key=by_both.get)
        return own, best, sweep(case, args, folder, log, libraries, rule, [best], again=3)[best]
    finally:
        rule.peer.close()
        shutil.rmtree(folder)


class Libraries:
    """The libraries of the variants. Each is built at its first use."""

    def __init__(self, build, folder):
        self.build, self.folder, self.made = variants.Build(build), folder, {}

    def get(self, variant):
        """@return the folder of the library, or None if the variant does not compile"""
        if variant not in self.made:
            path = tempfile.mkdtemp(dir=self.folder)
            try:
                self.build.make(variant, path)
                self.made[variant] = path
            except CalledProcessError as error:
                print(f"{variant.name} does not compile: {error.stderr.decode()[-300:]}", file=sys.stderr)
                self.made[variant] = None
        return self.made[variant]


def check(case, folder, candidate, expected):
    """Raises SystemExit if a result of the candidate is wrong."""
    candidate.peer.ask("check")
    names = ("out",) if case.operation == "forward" else ("dq", "dk", "dv")
    error, share = reference.compare(expected, {name: np.load(f"{folder}/{name}.npy") for name in names}, case.dtype)
    if share > 1:
        raise SystemExit(f"tune: {case.key}: error {error:.3g}, {share:.3g} times the bound")


def tune_variants(case, args, log, libraries):
    """@return {variant: the build's time divided by the variant's}, the best variant, and its quotient from a second
    measurement"""
    folder = tempfile.mkdtemp(prefix="fa-tune-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    candidates = {"": Candidate(args, log)}
    try:
        expected = reference.expected_rows(case, compare.write_inputs(case, folder))
        level = variants.level_of(args.isa or candidates[""].peer.about["isa"], case.dtype)
        tried = variants.register_blocks(level, case.operation) if args.sweep == "blocks" else \
            variants.fetch_distances(level, case.shape)
        built = {variant.name: library for variant in tried if (library := libraries.get(variant))}
        candidates |= {name: Candidate(args, log, library) for name, library in built.items()}
        for candidate in candidates.values():
            candidate.prepare(case, folder)
            check(case, folder, candidate, expected)
        found = ratios(candidates, "", args.seconds, args.rounds)
        best = max(built, key=found.get)
        again = ratios({name: candidates[name] for name in ("", best)}, "", args.seconds, 3 * args.rounds)[best]
        return {name: found[name] for name in built}, best, again
    finally:
        for candidate in candidates.values():
            candidate.peer.close()
        shutil.rmtree(folder)


def print_tiles(case, args, log, libraries):
    """@return the time of the planner's tile divided by that of the best tile"""
    own, best, ratio = tune(case, args, log, libraries)
    name = case.key.rsplit("/", 1)[0]
    print(f"| {name} | {own[0]} x {own[1]} | {best[0]} x {best[1]} | {100 * (ratio - 1):.1f} % |", flush=True)
    return ratio


def print_variants(case, args, log, libraries):
    """@return the build's time divided by that of the best variant"""
    found, best, ratio = tune_variants(case, args, log, libraries)
    others = ", ".join(f"{name} {100 * (each - 1):+.1f} %" for name, each in found.items())
    print(f"| {case.key.rsplit('/', 1)[0]} | {best} | {100 * (ratio - 1):.1f} % | {others} |", flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", help="build folder of fa_peer")
    parser.add_argument("--sweep", choices=("tiles", "blocks", "fetches"), default="tiles")
    parser.add_argument("--isa", default="", help="the level; the CPU's best without")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="*", help="a pattern of cases, such as 'backward/f32/d128/*'")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    args = parser.parse_args()
    chosen = [case for case in all_cases(args.threads, args.sweep) if fnmatch(case.key, args.only)]
    with open(os.devnull, "w", encoding="utf-8") as log, tempfile.TemporaryDirectory(prefix="fa-tune-") as scratch:
        libraries = Libraries(args.build, scratch)
        if args.sweep == "tiles":
            print("| case | rules: rows x keys | best found | loss |\n|---|---|---|---:|")
            found = [print_tiles(case, args, log, libraries) for case in chosen]
        else:
            print("| case | best other | loss | all, against the build's |\n|---|---|---:|---|")
            found = [print_variants(case, args, log, libraries) for case in chosen]
    print(f"{sum(ratio >= FINDING for ratio in found)} findings", file=sys.stderr)


if __name__ == "__main__":
    main()
