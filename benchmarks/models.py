"""Times whole models with fa's and with PyTorch's attention. Also measures attention's share of the time, and memory.

    benchmarks/models.py --quick                       takes some seconds; shows that everything runs and agrees
    benchmarks/models.py --output build/models.json    takes minutes to hours
    benchmarks/models.py --report build/models.json docs/benchmarks/NAME    writes tables and, with matplotlib, a plot

--models, --works, --types and --seconds choose what --output measures. A run adds its results to the file, and replaces
older results of the same cases. --models vllm measures steps of vLLM (vllm_steps.py), where vLLM is installed. On a
busy machine, --clock cpu counts the CPU time of all threads.

All implementations have the same weights and tokens. Before the timing, their results for a few tokens are compared
with "eager" in float64. Implementations take turns, one step each, and the order moves by one per round. Other programs
therefore disturb all of them equally, and ratios are more reliable than times. On an AMD CPU, PyTorch runs with MKL
unlocked for every implementation.
"""

import argparse
import copy
import importlib
import json
import time
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AttentionInterface

import machine
import model_cases
import model_report
from peers.client import is_unlocked, restart_unlocked
from rounds import order_of

IMPLEMENTATIONS = ("fa", "sdpa", "eager", "flex_attention")
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
VLLM = "vllm"


class AttentionTime:
    """Counts the seconds that a forward spends in the attention functions of one implementation. `now` is a clock."""

    def __init__(self, now):
        self.now, self.seconds = now, 0.0

    def wrap(self, name):
        """Replaces the registered attention function `name` by one that also measures its time. @return `name`"""
        function = AttentionInterface()[name] if name != "eager" else None
        if function is None:
            return name  # eager functions are not registered; they are in the models' own modules

        def timed(*arguments, **keywords):
            begin = self.now()
            try:
                return function(*arguments, **keywords)
            finally:
                self.seconds += self.now() - begin

        AttentionInterface.register(name, timed)
        return name


def peak_bytes_of(step):
    """Returns by how many bytes the memory of this process rises at most during the step."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    step()
    return _status("VmHWM") - before


def _status(field):
    line = next(line for line in machine.read("/proc/self/status").splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def disagreement(got, want):
    """Returns the norm of got - want, divided by the norm of want."""
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def measure(name, work, dtype, size, implementations, clock, seconds):
    """Returns the results of one case: the samples of each implementation, or the reason why it has none."""
    model = model_cases.build(name, size, TYPES[dtype])
    steps, entry = {}, {"model": name, "work": work, "dtype": dtype, "by": {}}
    bound = _check_bound(model, work, TYPES[dtype])
    for implementation in implementations:
        try:
            model.set_attn_implementation(implementation)
            error = disagreement(model_cases.step_of(model, _checked(work))(), bound.want)
            if not error <= bound.error:
                raise ValueError(f"differs by {error:.1e}, want at most {bound.error:.1e}")
            step = model_cases.step_of(model, work)
            step()
            entry["by"][implementation] = {"error": error, "peak_bytes": peak_bytes_of(step), "samples": [], "shares": []}
            steps[implementation] = step
        except Exception as failure:  # noqa: BLE001  (what transformers refuses is part of the table)
            reason = f"{type(failure).__name__}: {failure}".split("\n")[0]
            entry["by"][implementation] = {"failed": reason[:120]}
    _time_in_turn(model, steps, entry, clock, seconds)
    return entry


class Bound(NamedTuple):
    want: torch.Tensor
    error: float


def _checked(work):
    """Returns a step for checking results: the step `work`, but with at most 256 tokens."""
    kind, tokens = work.split()
    return f"{kind} {min(int(tokens), 256)}"


def _check_bound(model, work, dtype):
    """Returns the result of "eager" in float64, and a bound for the error of other implementations. The bound is three
    times the error of "eager" in `dtype`, but at least a few roundings."""
    exact = copy.deepcopy(model).double()
    exact.set_attn_implementation("eager")
    if hasattr(exact.config, "num_local_experts"):
        exact.set_experts_implementation("eager")  # only this implementation of experts takes float64
    want = model_cases.step_of(exact, _checked(work))()
    model.set_attn_implementation("eager")
    error = disagreement(model_cases.step_of(model, _checked(work))(), want)
    return Bound(want, max(3 * error, 4 * torch.finfo(dtype).eps))


def _time_in_turn(model, steps, entry, clock, seconds):
    end, number = time.monotonic() + seconds, 0
    while number < 3 or time.monotonic() < end:
        for implementation in order_of(list(steps), number) if steps else ():
            model.set_attn_implementation(implementation)
            clock.seconds, begin = 0.0, clock.now()
            steps[implementation]()
            took = clock.now() - begin
            entry["by"][implementation]["samples"].append(took)
            entry["by"][implementation]["shares"].append(clock.seconds / took)
        number += 1


def _case_of(entry):
    return entry["model"], entry["work"], entry["dtype"]


def _begin(output):
    """Returns the results to which a run adds its own: those in the file if they come from the same machine and
    PyTorch, and otherwise none."""
    results = {"machine": machine.describe(), "torch": torch.__version__, "mkl_unlocked": is_unlocked(), "entries": []}
    if output and output.exists():
        before = json.loads(output.read_text(encoding="utf-8"))
        same = machine.is_same(before["machine"], results["machine"])
        if not same or any(before[name] != results[name] for name in ("torch", "mkl_unlocked")):
            raise SystemExit(f"models: {output} has results of another machine or PyTorch; name another file")
        results["entries"] = before["entries"]
    return results


def _entries(name, arguments, implementations, clock):
    """Measures the cases of one model, and yields their results."""
    size = model_cases.QUICK if arguments.quick else model_cases.WHOLE
    wanted = set(filter(None, arguments.works.split(",")))
    for dtype in arguments.types.split(","):
        if name == VLLM:
            steps = importlib.import_module("vllm_steps")  # this module starts vLLM
            yield from steps.entries(dtype, wanted, arguments.seconds, clock.now)
            continue
        for work in model_cases.works(name, size):
            if not wanted or {work, work.split()[0]} & wanted:
                # After too many recompilations, PyTorch runs flex_attention uncompiled. The reset keeps earlier
                # compilations from counting.
                torch.compiler.reset()
                yield measure(name, work, dtype, size, implementations, clock, arguments.seconds)


def run(arguments):
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    clock = AttentionTime(CLOCKS[arguments.clock])
    implementations = [clock.wrap(name) for name in arguments.by.split(",")]
    results = _begin(arguments.output)
    failed = False
    for name in arguments.models.split(","):
        for entry in _entries(name, arguments, implementations, clock):
            entry |= {"clock": arguments.clock, "threads": torch.get_num_threads()}
            key = _case_of(entry)
            results["entries"] = [e for e in results["entries"] if _case_of(e) != key] + [entry]
            failed |= "failed" in entry["by"].get("fa", {})
            print(model_report.line_of(entry), flush=True)
            if arguments.output:
                arguments.output.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return int(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny models, three rounds")
    parser.add_argument("--models", default=",".join(model_cases.CONFIGS), help="of %(default)s," + VLLM)
    parser.add_argument("--works", default="", help="of prefill, decode, train, or with their tokens: prefill 2048")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--by", default="fa,sdpa,eager", help="of " + ", ".join(IMPLEMENTATIONS))
    parser.add_argument("--seconds", type=float, default=20.0, help="per case; at least three rounds")
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0: its own choice")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--build", default="build/release", help="build folder of mkl_unlock")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--report", nargs=2, metavar=("RESULTS", "FOLDER"), type=Path)
    arguments = parser.parse_args()
    if arguments.report:
        model_report.write(json.loads(arguments.report[0].read_text(encoding="utf-8")), arguments.report[1])
        return 0
    if VLLM in arguments.models.split(",") and (arguments.quick or arguments.by != parser.get_default("by")):
        parser.error(f"--models {VLLM}: --quick and --by do not apply to it")
    if arguments.quick:
        arguments.seconds = 0.0
    else:
        restart_unlocked("models", arguments.build, machine.describe()["vendor"])
    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
