#!/usr/bin/env python3
"""Times fa and its peers, which are other libraries, on the same inputs, threads and CPUs.

    compare.py --quick
    compare.py --set headline --threads 1,2 --budget 110 --out results.json

Peers take turns call after call. First their results are compared with a computation in double. A round in which other
programs were busy is thrown away. --quick needs no build folder. It measures the installed Python package of fa and the
installed PyTorch, and prints a table. Otherwise the peers are the programs of the build folder and every library that
is installed. A run stops when its budget is used up. The next run with the same --out file continues with the cases
that are missing in the file. report.py makes tables and plots of the file.
"""

import argparse
import datetime
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np

import machine
import quick
import reference
import results as store
import rounds
from cases import SETS, select
from peers.client import (INSTALLED_FA, KINDS, LOCKED_VENDOR, PEERS, Peer, PeerError, reading_library, unlocking_library,
                          why_missing)
from torch_install import offer_torch, why_unusable

# The pause between two peers, because threads of the first peer may still spin for some milliseconds.
SETTLE_SECONDS = 0.03
ROUND_SECONDS = 0.25
# How many seconds a peer reads the keys and values of a decode before and after every round. This time is long enough
# to read all of them several times.
READ_SECONDS = 0.1
# The seconds for which the machine's peak is measured before and after every round.
PEAK_SECONDS = 0.05


@dataclass
class Timed:
    rounds: list
    rejected: int


class Driver:
    def __init__(self, args, threads, log, vendor):
        self.args, self.threads, self.log, self.vendor = args, threads, log, vendor
        self.peers = {name: self.start(name) for name in args.peers}

    def start(self, name):
        return Peer(name, self.args.build, self.threads, self.log, self.vendor)

    def close(self):
        for peer in self.peers.values():
            peer.close()

    def pids(self):
        return [os.getpid()] + [peer.pid for peer in self.peers.values()]

    def versions(self):
        return {name: peer.about for name, peer in self.peers.items()}

    def restart(self, name, error):
        """Starts a peer again after it died or failed."""
        print(f"  {error}", file=sys.stderr)
        self.peers[name].close()
        self.peers[name] = self.start(name)

    def measure(self, case):
        """@return what the results file stores about the case"""
        folder = tempfile.mkdtemp(prefix="fa-compare-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        try:
            expected = reference.expected_rows(case, write_inputs(case, folder))
            outcome = {name: self.prepare(name, case, folder, expected) for name in list(self.peers)}
            able = [name for name, entry in outcome.items() if "share_of_bound" in entry]
            plan = self.peers["fa"].ask("plan")
            timed = self.time_rounds(case, able)
        finally:
            shutil.rmtree(folder)
        for name in able:
            samples = [each.seconds for each in timed[name].rounds]
            outcome[name] |= rounds.summarize(samples) | {"rejected": timed[name].rejected}
            if self.reads(case):
                outcome[name] |= read_facts(case, samples, [each.reads for each in timed[name].rounds])
        for peer in self.peers.values():
            peer.ask("release")
        entry = {"case": case.request(), "flops": case.flops(), "peers": outcome, "kernels": plan["kernels"],
                 "peak_gflops": rounds.peak_around_best(timed["fa"].rounds)}
        if self.reads(case):
            entry["peak_gbytes"] = outcome["fa"]["read_gbytes"]
        entry["date"] = datetime.date.today().isoformat()
        return entry

    def reads(self, case):
        """Returns whether peers measure, for this case, how fast they read memory. The measurement needs a library
        of the build folder.
        """
        return is_bound_by_memory(case) and os.path.exists(reading_library(self.args.build))

    def prepare(self, name, case, folder, expected):
        """Starts one peer on the case, and checks its result. @return what the results file stores about the peer,
        without times
        """
        try:
            answer = self.peers[name].ask("prepare", folder=folder, **case.request())
            if "unsupported" in answer:
                return {"unsupported": answer["unsupported"]}
            self.peers[name].ask("check")
        except PeerError as error:
            self.restart(name, error)
            return {"unsupported": str(error)}
        outputs = ("out",) if case.operation == "forward" else ("dq", "dk", "dv")
        results = {output: np.load(f"{folder}/{output}.npy") for output in outputs}
        for output in outputs:
            os.remove(f"{folder}/{output}.npy")
        error, share = reference.compare(expected, results, case.dtype)
        if share > 1:
            return {"wrong": f"error {error:.3g}, {share:.3g} times the bound", "error": error}
        found = {"error": error, "share_of_bound": share}
        return found | {"note": answer["note"]} if "note" in answer else found

    def time_rounds(self, case, names):
        """@return the quiet rounds of each peer, and the number of its rounds that were not quiet"""
        timed = {name: Timed([], 0) for name in names}
        for number in range(self.args.rounds):
            for name in rounds.order_of(names, number):
                for _ in range(self.args.tries):
                    one, quiet = self.time_once(name, case)
                    if quiet:
                        timed[name].rounds.append(one)
                        break
                    timed[name].rejected += 1
                else:
                    raise PeerError(f"{case.key}: the machine is busy, {self.args.tries} rounds thrown away")
        return timed

    def time_once(self, name, case):
        """Times a round of one peer. fa measures the machine's peak before and after the calls. If reading memory
        limits the case, the peer also measures how fast it reads memory. @return the round, and whether it was quiet"""
        peer = self.peers[name]

        def measure():
            time.sleep(SETTLE_SECONDS)
            peak = self.peers["fa"].ask("peak", dtype=case.dtype, threads=case.threads, seconds=PEAK_SECONDS)["gflops"]
            return peak, peer.read(READ_SECONDS) if self.reads(case) else None

        before = machine.cpu_use(self.pids())
        first = measure()
        seconds = peer.ask("time", seconds=ROUND_SECONDS)["seconds"]
        peaks, reads = zip(first, measure(), strict=True)
        quiet = rounds.is_quiet(before, machine.cpu_use(self.pids()), self.args.foreign)
        if not self.args.quick:  # with --quick, the rate of a matrix product stands for the peak
            quiet = quiet and rounds.is_bracketed(case.flops() * 1e-9, seconds, peaks, rounds.PEAK_AGREEMENT)
        if self.reads(case):
            quiet = quiet and rounds.is_bracketed(case.key_value_bytes() * 1e-9, seconds, reads)
        return rounds.Round(seconds, peaks, reads), quiet


def is_bound_by_memory(case):
    """Returns whether the speed of reading memory limits the case."""
    return case.sq == 1


def read_facts(case, samples, reads):
    """Returns the highest rate, in GB/s, at which the peer's threads read keys and values. Also returns the fraction of
    this rate that the peer's calls reach."""
    return {"read_gbytes": max(map(max, reads)), "read_fraction": rounds.read_fraction(case.key_value_bytes(), samples, reads)}


def write_inputs(case, folder):
    """Writes unit normal inputs. Cases of one shape have the same numbers in every type, up to rounding. @return the
    arrays by name"""
    random = np.random.default_rng(1)
    query, key = (case.batch, case.heads, case.sq, case.d), (case.batch, case.heads_kv, case.sk, case.d)
    inputs = {}
    for name, shape in (("q", query), ("k", key), ("v", key), ("d_out", query)):
        if name == "d_out" and case.operation == "forward":
            continue
        inputs[name] = reference.from_float(random.standard_normal(shape, np.float32), case.dtype)
        np.save(f"{folder}/{name}.npy", inputs[name])
    return inputs


def text_of(entry):
    """Returns one line of text about a case and its figures."""
    figures = []
    for name, peer in entry["peers"].items():
        value = store.gflops(entry, name)
        figures.append(f"{name} {value:.1f}" if value else f"{name} {'WRONG' if 'wrong' in peer else '-'}")
    return f"{', '.join(figures)} GFLOP/s of {entry['peak_gflops']:.1f}"


def estimate(case, peers, round_count):
    """Returns about how many seconds a case will take. The estimate counts the start, the reference, two calls per peer
    and all rounds. It assumes the speed of a slow peer."""
    call = case.flops() / (75e9 * case.threads)
    return 2 + len(peers) * (2 * call + round_count * max(call, ROUND_SECONDS + 2 * (SETTLE_SECONDS + PEAK_SECONDS)))


def run_cases(args, results, driver, cases, begin):
    """@return whether all cases were run"""
    for case in cases:
        if time.monotonic() - begin + estimate(case, args.peers, args.rounds) > args.budget:
            return False
        print(f"{case.key}: ", end="", flush=True)
        try:
            results["cases"][case.key] = driver.measure(case)
        except PeerError as error:
            print(error)
            results.setdefault("given_up", {})[case.key] = str(error)
            store.save(args.out, results)
            continue
        results.get("given_up", {}).pop(case.key, None)
        results["versions"] |= driver.versions()
        store.save(args.out, results)
        print(text_of(results["cases"][case.key]))
    return True


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def words(text):
        return text.split(",")

    parser.add_argument("--quick", action="store_true", help="the installed fa and PyTorch, f32 and bf16, two rounds, a table")
    parser.add_argument("--build", default="build/release", help="build folder of the C++ peers")
    parser.add_argument("--set", dest="sets", type=words, help=f"of {', '.join(SETS)}; headline")
    parser.add_argument("--only", type=words, default=[], help="keys such as 'forward/f32/*/causal/2'")
    parser.add_argument("--peers", type=words, help=f"of {', '.join(PEERS)}; all")
    parser.add_argument("--threads", type=lambda text: [int(count) for count in text.split(",")],
                        default=[len(os.sched_getaffinity(0))])
    parser.add_argument("--rounds", type=int, help="rounds of each peer that count; 3")
    parser.add_argument("--tries", type=int, default=8, help="rounds until one counts, before a case is given up")
    parser.add_argument("--foreign", type=float, default=0.1, help="share of one CPU that others may use in a round")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no case is begun")
    parser.add_argument("--again", action="store_true", help="measure what was measured already")
    parser.add_argument("--out", help="build/benchmarks/results.json, or quick.json there")
    args = parser.parse_args()
    usual = quick.DEFAULTS if args.quick else {"sets": ["headline"], "peers": list(PEERS), "rounds": 3,
                                               "out": "build/benchmarks/results.json"}
    for name, value in usual.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.quick:
        KINDS["fa"] = INSTALLED_FA
    for given, known in ((args.sets, SETS), (args.peers, PEERS)):
        for name in given:
            if name not in known:
                parser.error(f"{name}: want {', '.join(known)}")
    cpus = len(os.sched_getaffinity(0))
    if not all(0 < count <= cpus for count in args.threads):
        parser.error(f"--threads: want 1 to {cpus}, the CPUs of this process")
    if "fa" not in args.peers:
        parser.error("--peers: fa is not among them; it also measures the peak")
    return args


def leave_out_missing(args, vendor):
    """Removes from args.peers the peers that cannot be started. @return {name: reason}. On CPUs on which MKL is locked,
    PyTorch is left out if the library that unlocks MKL is missing.
    """
    left_out = {}
    with_torch = {name for name in args.peers if "torch" in KINDS[name].modules}
    if with_torch:
        offer_torch()
    for name in list(args.peers):
        if reason := (why_unusable() if name in with_torch else None) or why_missing(name, args.build, vendor):
            print(f"{name} is left out: {reason}", file=sys.stderr)
            args.peers.remove(name)
            left_out[name] = reason.replace(sys.executable, "this Python").replace(os.getcwd() + os.sep, "")
    is_locked = vendor == LOCKED_VENDOR and not os.path.exists(unlocking_library(args.build))
    if not args.quick and is_locked and with_torch & set(args.peers):
        raise SystemExit(f"compare: build the target mkl_unlock first: {unlocking_library(args.build)} is not there")
    if args.quick and not {"fa", "torch"} <= set(args.peers):
        raise SystemExit("compare: --quick needs fa and PyTorch: pip install ./python torch")
    if "fa" not in args.peers:
        raise SystemExit("compare: build the target fa_peer first, see benchmarks/README.md")
    return left_out


def main():
    args = parse_arguments()
    begin = time.monotonic()
    described = machine.describe()
    left_out = leave_out_missing(args, described["vendor"])
    results = store.load(args.out)
    if results["cases"] and not machine.is_same(results["machine"], described):
        raise SystemExit(f"compare: {args.out} has results of another machine ({results['machine']['cpu']}); "
                         "name another file with --out")
    results["machine"] = described
    there = set(args.peers)
    results["left_out"] = {name: why for name, why in results.get("left_out", {}).items() if name not in there} | left_out
    chosen = [case for count in args.threads for case in select(args.sets, count, args.only)]
    chosen = list({case.key: case for case in chosen}.values())
    left = [case for case in chosen if args.again or not store.is_done(results, case, args.peers)]
    print(f"{len(left)} of {len(chosen)} cases to measure")
    os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
    with open(args.out + ".log", "a", encoding="utf-8") as log:
        for threads in sorted({case.threads for case in left}):
            driver = Driver(args, threads, log, described["vendor"])
            try:
                if not run_cases(args, results, driver, [case for case in left if case.threads == threads], begin):
                    print("Budget spent; run again to go on.")
                    return
            finally:
                driver.close()
    if args.quick:
        print(quick.report(results, chosen))


if __name__ == "__main__":
    main()
