"""Times operators that no other library has as one call, in fa and in careful PyTorch code.

    operators.py --threads 2 --only 'sparse*' --out build/benchmarks/results.json

fa and PyTorch take turns. Their results are compared before the timing. On an AMD CPU, PyTorch runs with MKL unlocked.
PyTorch's chunk size is the fastest in a trial. report.py writes the table.
"""

import argparse
import datetime
import os
import sys
import time
from fnmatch import fnmatch

import torch

import fa
import inference_cases
import machine
import results as store
import rounds
from operator_cases import CASES, TYPES, bound, normal
from peers.client import restart_unlocked

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def seconds_of(call, clock="wall"):
    begin = CLOCKS[clock]()
    call()
    return CLOCKS[clock]() - begin


def distance(got, want):
    """Returns the largest of norm(got - want) / norm(want) over the tensors."""
    got, want = ([tensor for tensor in tensors if tensor is not None] for tensors in (got, want))
    if len(got) != len(want):
        raise ValueError(f"{len(got)} results, want {len(want)}")
    apart = [((a.double() - b.double().reshape(a.shape)).norm() / b.double().norm()).item() for a, b in zip(got, want)]
    return max(float("inf") if value != value else value for value in apart)


def best_chunk(problem):
    """Returns PyTorch's fastest chunk size. Each size is tried three times."""
    if len(problem.chunks) == 1:
        return problem.chunks[0]
    return min(problem.chunks, key=lambda chunk: min(seconds_of(lambda: problem.peer(chunk)) for _ in range(3)))


def measure(problem, dtype, args, limit):
    """@return what the results file stores about a case"""
    chunk = best_chunk(problem)
    error = distance(problem.own(), problem.peer(chunk))
    entry = {"work": problem.work, "unit": problem.unit, "chunk": chunk, "error": error, "dtype": dtype,
             "threads": args.threads, "date": datetime.date.today().isoformat()}
    if not error <= limit:
        return entry | {"wrong": f"they differ by {error:.3g}, want at most {limit:.3g}"}
    calls = {"fa": problem.own, "torch": lambda: problem.peer(chunk)}
    return entry | time_in_turn(calls, args)


def time_in_turn(calls, args):
    """Times calls in turn until each has args.rounds quiet rounds.
    @return {"by": the summary of each call, "foreign": the most CPU time of other programs}, or {"busy": why}"""
    samples, rejected, foreign = {name: [] for name in calls}, dict.fromkeys(calls, 0), 0.0
    for number in range(args.rounds):
        for name in rounds.order_of(list(calls), number):
            for _ in range(args.tries):
                time.sleep(0.03)
                before = machine.cpu_use([os.getpid()])
                taken = [seconds_of(calls[name], args.clock)]
                while sum(taken) < args.seconds:
                    taken.append(seconds_of(calls[name], args.clock))
                after = machine.cpu_use([os.getpid()])
                if rounds.is_quiet(before, after, args.foreign):
                    samples[name].append(taken)
                    foreign = max(foreign, rounds.foreign_share(before, after))
                    break
                rejected[name] += 1
            else:
                return {"busy": "no quiet round"}
    by = {name: rounds.summarize(samples[name]) | {"rejected": rejected[name]} for name in calls}
    return {"by": by, "foreign": foreign, "clock": args.clock}


def add_options(parser):
    """Adds the options that say what is timed, how often, and where the results go."""
    parser.add_argument("--build", default="build/release", help="build folder of mkl_unlock")
    parser.add_argument("--only", default="*", help="a pattern of names")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=0.25, help="of a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each that count")
    parser.add_argument("--tries", type=int, default=8, help="rounds until one counts, before a case is given up")
    parser.add_argument("--foreign", type=float, default=0.1, help="share of one CPU that others may use in a round")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: of this process, for a busy machine")
    parser.add_argument("--again", action="store_true", help="measure what was measured already")
    parser.add_argument("--out", default="build/benchmarks/results.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="f32,bf16")
    add_options(parser)
    args = parser.parse_args()
    restart_unlocked("operators", args.build, machine.describe()["vendor"])
    run(args)


def results_of(args):
    """Returns the results of the file args.out, and exits if another machine made them."""
    results = store.load(args.out)
    described = machine.describe()
    if not machine.is_same(results["machine"] or described, described):
        sys.exit(f"operators: {args.out} has results of another machine; name another file with --out")
    results["machine"] = described
    return results


def run(args):
    torch.set_num_threads(args.threads)
    fa.set_default_context(fa.Context(threads=args.threads))
    results = results_of(args)
    measured = results.setdefault("operators", {})
    for name, make in (CASES | inference_cases.CASES).items():
        for dtype in args.types.split(","):
            key = f"{name}/{dtype}/{args.threads}"
            if not fnmatch(name, args.only) or (key in measured and not args.again):
                continue
            normal.generator.manual_seed(7)  # a case has the same data, whichever cases ran before
            problem = make(TYPES[dtype])
            measured[key] = measure(problem, dtype, args, bound(dtype, problem))
            store.save(args.out, results)
            print(f"{key}: {text_of(measured[key])}", flush=True)


def text_of(entry):
    if "by" not in entry:
        return entry.get("wrong") or entry["busy"]
    rates = {name: entry["work"] / by["best"] * 1e-9 for name, by in entry["by"].items()}
    return f"fa {rates['fa']:.1f}, PyTorch {rates['torch']:.1f} {entry['unit']}, chunk {entry['chunk']}, error {entry['error']:.1e}"


if __name__ == "__main__":
    main()
