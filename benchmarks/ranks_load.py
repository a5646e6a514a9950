"""Compares a call over ranks with the same call in one process that has as many threads.

    benchmarks/ranks_load.py --build build/release

By default there are two ranks of one thread. Both calls do the same work on the same cores, so the ratio of their times
shows what ranks cost. Each round runs `fa bench` and `mpirun fa-mpi bench`. The order moves by one per round. A round
in which other programs were busy is discarded and repeated. The last column is the ratio of the best rounds. It is 1
where ranks cost nothing.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import product
from statistics import median

from machine import TICK, describe, parse_busy_ticks, read
from rounds import CpuUse, is_quiet, order_of

ONE, RANKS = "one process", "ranks"
# Ranks must reach this fraction of the speed of one process.
WANTED = {"forward": 0.93, "backward": 0.90}


def command_of(who, case, options):
    """Returns the command line of one process or of the ranks. Both have the same number of threads in all."""
    bench = ["bench", case["op"], "--shape", options.shape, "--dtype", case["dtype"], "--causal",
             "--seconds", str(options.seconds), "--json"]
    if who == ONE:
        return [f"{options.build}/tools/fa/fa", *bench, "--threads", str(options.ranks * options.threads)]
    return [*options.mpirun.split(), "-n", str(options.ranks), f"{options.build}/tools/fa_mpi/fa-mpi", *bench,
            "--threads", str(options.threads), "--cut", options.cut]


def cpu_use():
    """Returns the CPU time used until now. `own` counts the programs that this program has started and that have
    ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return CpuUse(parse_busy_ticks(read("/proc/stat")) * TICK, children.ru_utime + children.ru_stime, time.monotonic())


def measure(command):
    """@return the best and the median seconds per call that the command prints"""
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)["seconds"]


def run_case(case, options):
    """Runs rounds until enough were quiet, or until no tries are left. @return the seconds of each round, for one
    process and for ranks, and the number of discarded rounds"""
    rounds, dropped = {ONE: [], RANKS: []}, 0
    while len(rounds[ONE]) < options.rounds:
        before = cpu_use()
        seconds = {who: measure(command_of(who, case, options))
                   for who in order_of([ONE, RANKS], len(rounds[ONE]) + dropped)}
        if not is_quiet(before, cpu_use(), options.foreign) and dropped < options.tries:
            dropped += 1
            continue
        for who, of_round in seconds.items():
            rounds[who].append(of_round)
    return rounds, dropped


def ratios(rounds):
    """Returns the speed of ranks divided by that of one process, first by their best rounds, then by their median
    rounds."""
    best = min(s["best"] for s in rounds[ONE]) / min(s["best"] for s in rounds[RANKS])
    typical = median(one["median"] / many["median"] for one, many in zip(rounds[ONE], rounds[RANKS]))
    return {"best": best, "median": typical}


def parse_options(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--shape", default="1,8,8,8192,8192,128")
    parser.add_argument("--op", default="forward,backward")
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--cut", default="zigzag")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of calls per side and round")
    parser.add_argument("--foreign", type=float, default=0.1, help="share of a CPU that other programs may take")
    parser.add_argument("--tries", type=int, default=10, help="rounds that may be thrown away per case")
    parser.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe --bind-to none",
                        help="Open MPI binds each of one or two processes to a core, whatever their threads")
    parser.add_argument("--json", metavar="FILE", help="write all rounds there")
    return parser.parse_args(words)


def main(words):
    options = parse_options(words)
    results = {"machine": describe(), "shape": options.shape, "ranks": options.ranks, "threads": options.threads,
               "cut": options.cut, "cases": []}
    print(f"{results['machine']['cpu']}; {options.shape}, causal, {options.cut}; {options.ranks} ranks, threads of each: "
          f"{options.threads}")
    print("| case | one process, s | ranks, s | rounds (dropped) | median ratio | best ratio | wanted |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    missed = 0
    for op, dtype in product(options.op.split(","), options.dtype.split(",")):
        rounds, dropped = run_case({"op": op, "dtype": dtype}, options)
        ratio = ratios(rounds)
        results["cases"].append({"op": op, "dtype": dtype, "rounds": rounds, "dropped": dropped, "ratio": ratio})
        missed += not ratio["best"] >= WANTED[op]
        best = {who: min(s["best"] for s in rounds[who]) for who in rounds}
        print(f"| {op} {dtype} | {best[ONE]:.4g} | {best[RANKS]:.4g} | {len(rounds[ONE])} ({dropped}) "
              f"| {ratio['median']:.3f} | {ratio['best']:.3f} | {WANTED[op]} |", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
