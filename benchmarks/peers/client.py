"""Starts peers and sends them requests. A peer is a process that answers requests, pinned to as many CPUs as it has
threads."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass



@dataclass(frozen=True)
class Kind:
    """How a peer is started: its program, its arguments, and what it needs."""

    program: str  # a file of this folder if its name ends in .py, otherwise a program of the build folder
    arguments: tuple = ()
    modules: tuple = ()  # modules that the peer's Python imports
    unlocks_mkl: bool = False  # whether the peer gets MKL's fast kernels on CPUs that are not Intel's


KINDS = {
    "fa": Kind("fa_peer"),
    "onednn": Kind("onednn_peer"),
    "naive": Kind("naive_peer"),
    "torch": Kind("torch_peer.py", modules=("torch",)),
    "torch_mkl": Kind("torch_peer.py", modules=("torch",), unlocks_mkl=True),
    "flex": Kind("torch_peer.py", ("flex",), modules=("torch",), unlocks_mkl=True),
    "zentorch": Kind("torch_peer.py", ("zentorch",), modules=("torch", "zentorch"), unlocks_mkl=True),
    "openvino": Kind("openvino_peer.py", modules=("openvino",)),
    "ggml": Kind("ggml_peer.py", modules=("libggml",)),
    "onnxruntime": Kind("onnxruntime_peer.py", modules=("onnxruntime", "onnx")),
}
PEERS = tuple(KINDS)
# fa as compare.py --quick starts it, from the installed package and without a build folder.
INSTALLED_FA = Kind("torch_peer.py", ("fa",), modules=("torch", "fa"))
# These peers are started only where MKL is locked. Elsewhere they would be the same as another peer.
ONLY_UNLOCKED = ("torch_mkl",)
LOCKED_VENDOR = "AuthenticAMD"
PRELOAD = "LD_PRELOAD"


class PeerError(Exception):
    """A peer could not be started, has died, or has answered with an error."""


def is_python(kind):
    return kind.program.endswith(".py")


def command_of(name, build):
    """Returns the command line that starts a peer. @param build  build folder of the C++ peers"""
    kind = KINDS[name]
    if is_python(kind):
        here = os.path.dirname(os.path.abspath(__file__))
        return [sys.executable, os.path.join(here, kind.program), *kind.arguments]
    return [os.path.join(os.path.abspath(build), "benchmarks", kind.program), *kind.arguments]


def unlocking_library(build):
    """Returns the path of a library to preload, which makes MKL choose its fast kernels."""
    return os.path.join(os.path.abspath(build), "benchmarks", "libmkl_unlock.so")


def reading_library(build):
    """Returns the path of the library with which peers in Python measure how fast they read their memory."""
    return os.path.join(os.path.abspath(build), "benchmarks", "libpeer_read_rate.so")


def is_unlocked():
    """Returns whether this process was started with unlocking_library preloaded."""
    return "libmkl_unlock.so" in os.environ.get(PRELOAD, "")


def restart_unlocked(program, build, vendor):
    """If MKL is locked, starts this Python program again with unlocking_library preloaded. The restart is needed
    because MKL has already checked the CPU's vendor."""
    library = unlocking_library(build)
    if vendor == LOCKED_VENDOR and library not in os.environ.get(PRELOAD, ""):
        if not os.path.exists(library):
            sys.exit(f"{program}: build the target mkl_unlock: {library} is not there")
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, PRELOAD: library})


def why_missing(name, build, vendor):
    """Returns why a peer cannot be started, or None if it can. @param vendor  the CPU's vendor in /proc/cpuinfo"""
    kind = KINDS[name]
    if not is_python(kind):
        program = command_of(name, build)[0]
        return None if shutil.which(program) else f"{program} is not built"
    missing = [module for module in kind.modules if importlib.util.find_spec(module) is None]
    if missing:
        return f"no module {' and '.join(missing)} for {sys.executable}"
    if name in ONLY_UNLOCKED and vendor != LOCKED_VENDOR:
        return "MKL takes its fast kernels on this CPU"
    if kind.unlocks_mkl and vendor == LOCKED_VENDOR and not os.path.exists(unlocking_library(build)):
        return f"{unlocking_library(build)} is not built"
    return None


class Peer:
    def __init__(self, name, build, threads, log, vendor="", variables=None):
        """Starts the peer.
        @param log  the file for the peer's standard error
        @param vendor  the CPU's vendor in /proc/cpuinfo
        @param variables  environment variables of the peer"""
        self.name, self.threads, self.library = name, threads, reading_library(build)
        cpus = sorted(os.sched_getaffinity(0))[:threads]
        # All libraries get thread pools of this size.
        pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = {**os.environ, **{pool: str(threads) for pool in pools}, **(variables or {})}
        # PyPI's oneDNN runs CPU code through an OpenCL driver. The package brings this driver, but oneDNN does not find
        # it by itself.
        libraries = os.path.join(sys.prefix, "lib")
        if name == "onednn" and os.path.exists(driver := os.path.join(libraries, "libintelocl.so")):
            environment |= {"OCL_ICD_FILENAMES": driver, "LD_LIBRARY_PATH": libraries}
        if KINDS[name].unlocks_mkl and vendor == LOCKED_VENDOR:
            environment[PRELOAD] = unlocking_library(build)
        self.process = subprocess.Popen(command_of(name, build), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=log, env=environment, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        self.about = self.ask("about")

    @property
    def pid(self):
        return self.process.pid

    def ask(self, what, **details):
        """Sends a request. @return the answer, in which the caller looks for "unsupported". Raises PeerError."""
        try:
            self.process.stdin.write(json.dumps({"do": what, **details}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"{self.name}: ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer

    def read(self, seconds):
        """@return the GB/s at which the peer's threads read the keys and values of the case. They read at the same
        addresses as the call."""
        return self.ask("read", seconds=seconds, threads=self.threads, library=self.library)["gbytes"]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
