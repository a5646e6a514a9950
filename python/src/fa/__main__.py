"""Reports this package, this machine and the plan of a call: `python -m fa info`, `doctor` and `plan`."""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from . import Context, Mask, __version__, _fa, flash_attention, flash_attention_grad, plan

_PLANNED = ("forward", "backward", "prompt", "decode")
_DTYPES = ("f32", "bf16", "f16", "float32", "bfloat16", "float16")
# Environment variables that change speed or results: {name: (effect, values with this effect)}. None means every value.
_SPINS = "OpenMP threads spin between their regions on the cores that fa works on"
_VARIABLES = {
    "FA_FORCE_ISA": ("every call runs at this level", None),
    "FA_ASSUME_ISA": ("the level is taken for granted: without it in the CPU, calls die of SIGILL", None),
    "FA_NUM_THREADS": ("every call without a context has this many threads", None),
    "FA_PORTABLE_BLAS": ("OpenBLAS computes the products of the level portable", None),
    "FA_VERBOSE": ("every call writes a line to stderr if it is 1", None),
    "FA_SHARE_OPENMP": ("calls of fa.torch start threads next to PyTorch's if it is 0", None),
    "OMP_WAIT_POLICY": (_SPINS, ("active",)),
    "KMP_BLOCKTIME": (_SPINS, ("infinite", "infinity")),
    "GOMP_SPINCOUNT": (_SPINS, ("infinite", "infinity")),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that `arguments` name, by default the arguments of the program. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fa", description=__doc__)
    parser.add_argument("--version", action="version", version=f"fa {__version__}")
    parser.set_defaults(run=lambda _: parser.print_help() or 0)
    commands = parser.add_subparsers(dest="command", metavar="{info,doctor,plan}")
    commands.add_parser("info", help="version, CPU, level, threads, files").set_defaults(run=_info)
    doctor = commands.add_parser("doctor", help="info, a test of every level that the CPU has, and what may surprise")
    doctor.set_defaults(run=_doctor)
    planner = commands.add_parser("plan", help="what a call would run, and why; nothing is computed")
    planner.set_defaults(run=_plan)
    planner.add_argument("operator", choices=_PLANNED)
    planner.add_argument("--shape", required=True, metavar="B,N,Nkv,Sq,Sk,D[,Dv]", type=_sizes)
    planner.add_argument("--dtype", default="f32", choices=_DTYPES)
    planner.add_argument("--causal", action="store_true", help="the last query sees the last key")
    planner.add_argument("--threads", type=int, default=0, help="0: as many as a call without a context has")
    given = parser.parse_args(arguments)
    try:
        return given.run(given)
    except (ValueError, RuntimeError, MemoryError) as error:
        print(f"python -m fa {given.command}: {error}", file=sys.stderr)
        return 2


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) not in (6, 7):
        raise argparse.ArgumentTypeError(f"{text}, want six or seven integers B,N,Nkv,Sq,Sk,D[,Dv]")
    return sizes


def _info(_: argparse.Namespace) -> int:
    print(f"fa {__version__}")
    print(str(Context()).rstrip())
    for name, value in _files():
        print(f"{name}: {value}")
    return 0


def _files() -> Iterator[tuple[str, str]]:
    """Yields (name, path or version) of the package, libfa and Python, and of the packages that parts of fa need."""
    yield "package", str(Path(__file__).parent)
    yield "libfa", ", ".join(_libraries()) or "in the extension"
    yield "python", f"{platform.python_version()}, numpy {np.__version__}"
    for package in ("torch", "transformers"):
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, f"none (pip install 'fa-attention[{package}]')"


def _libraries() -> list[str]:
    """Returns the paths of libfa that this process has mapped."""
    try:
        maps = os.fsdecode(Path("/proc/self/maps").read_bytes())
    except OSError:
        return []
    files = (fields[5] for line in maps.splitlines() if len(fields := line.split(maxsplit=5)) == 6)
    return sorted({file for file in files if os.path.basename(file).startswith("libfa.so")})


def _plan(given: argparse.Namespace) -> int:
    batch, heads, heads_kv, rows, keys, size, *size_v = given.shape
    query, key = (batch, heads, rows, size), (batch, heads_kv, keys, size)
    keywords = {"mask": Mask.causal() if given.causal else Mask.none(), "context": Context(threads=given.threads)}
    if given.operator == "prompt":
        keywords |= {"head_num": heads, "head_num_kv": heads_kv}
    value = (*key[:3], *(size_v or [size]))
    try:
        description = plan(given.operator, query, key, value, dtype=given.dtype, **keywords)
    except ValueError as error:
        raise ValueError(f"--shape: {error}") from None
    print(str(description).rstrip())
    return 0


def _doctor(given: argparse.Namespace) -> int:
    _info(given)
    print("\nself-test: the largest error of a call as a fraction of what rounding explains")
    wrong = []
    for level in _fa.levels():
        try:
            errors = _errors(Context(isa=level))
        except RuntimeError as error:  # the library has tested this level and found it wrong
            wrong.append(str(error))
            continue
        print(f"  {level:<14}" + "  ".join(f"{name} {error:.2f}" for name, error in errors.items()))
        wrong += [f"{level}: {name} is wrong" for name, error in errors.items() if not error <= 1.0]
    print("\nfindings")
    findings = [*wrong, *_surprises()]
    print("\n".join(f"  {finding}" for finding in findings) if findings else "  none")
    return 1 if wrong else 0


def _surprises() -> Iterator[str]:
    yield from _of_variables(os.environ)
    allowed = len(os.sched_getaffinity(0))
    yield from _of_cores(allowed, os.cpu_count() or allowed, os.getloadavg()[0], os.environ)
    libraries = _libraries()
    if len(libraries) > 1:
        yield f"{len(libraries)} libraries are loaded, and one is used: {', '.join(libraries)}"
    yield from _of_pytorch()


def _of_variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, (meaning, values) in _VARIABLES.items():
        value = environment.get(name)
        if value and (values is None or value.lower() in values):
            yield f"{name}={value}: {meaning}"
    for name in sorted(environment):
        if name.startswith("FA_") and name not in _VARIABLES:
            similar = difflib.get_close_matches(name, _VARIABLES, 1)
            yield f"{name}: fa reads no such variable at run time" + (f", but {similar[0]}" if similar else "")


def _of_cores(allowed: int, cpus: int, load: float, environment: Mapping[str, str]) -> Iterator[str]:
    """Yields findings about cores and threads. `load` is the number of threads of all programs that run or wait."""
    if allowed < cpus:
        yield f"affinity: the process may use {allowed} of {cpus} hardware threads"
    threads = environment.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > allowed:
        yield f"OMP_NUM_THREADS={threads}: PyTorch, and so fa.torch, has more threads than the {allowed} it may use"
    if load > cpus:
        yield f"load: {load:.0f} threads of all programs want the {cpus} hardware threads, so calls wait"


def _mkl_is_unlocked() -> bool:
    return "mkl_unlock" in os.environ.get("LD_PRELOAD", "")


def _of_pytorch() -> Iterator[str]:
    try:
        import torch
    except (ImportError, OSError) as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != "torch":  # PyTorch is installed but broken
            yield f"PyTorch cannot be imported, so fa.torch cannot be either: {error}"
        return
    amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    if amd and not _mkl_is_unlocked() and torch.backends.mkl.is_available():
        text = "PyTorch's MKL takes slow kernels on CPUs of AMD, so a model is slower outside its attention"
        yield f"{text}; benchmarks/README.md of the sources unlocks it"


def _errors(context: Context) -> dict[str, float]:
    """Returns the largest error of each result of a causal forward and backward, as a fraction of its bound."""
    rng = np.random.default_rng(0)
    q, k, v, d_out = (rng.standard_normal((1, 2, 70, 24), dtype=np.float32) for _ in range(4))
    mask = Mask.causal()
    out, softmax_max, softmax_sum = flash_attention(q, k, v, mask=mask, context=context)
    gradients = flash_attention_grad(q, k, v, out, d_out, softmax_max, softmax_sum, mask=mask, context=context)
    got = {"forward": [out], "backward": [gradients.dq, gradients.dk, gradients.dv]}
    exact, naive = (_reference(*(t.astype(dtype) for t in (q, k, v, d_out))) for dtype in (np.float64, np.float32))
    largest = {}
    for name, results in got.items():
        ratios = [_ratio(*three) for three in zip(results, exact[name], naive[name], strict=True)]
        largest[name] = max(ratios, key=lambda ratio: np.inf if np.isnan(ratio) else ratio)
    return largest


def _ratio(got: np.ndarray, exact: np.ndarray, naive: np.ndarray) -> float:
    """Returns the largest error of `got`, divided by three times the largest naive error in float32."""
    return float(np.abs(got - exact).max() / (3.0 * np.abs(naive - exact).max()))


def _reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, d_out: np.ndarray) -> dict[str, list[np.ndarray]]:
    """Computes causal attention and its gradients in the type of the arguments."""
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    scores = scale * (q @ k.swapaxes(-2, -1))
    scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out = p @ v
    dp = d_out @ v.swapaxes(-2, -1)
    ds = scale * p * (dp - (d_out * out).sum(-1, keepdims=True))
    return {"forward": [out], "backward": [ds @ k, ds.swapaxes(-2, -1) @ q, p.swapaxes(-2, -1) @ d_out]}


if __name__ == "__main__":
    sys.exit(main())
