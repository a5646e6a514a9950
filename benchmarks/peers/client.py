"""The driver's end of a peer. A peer is a process that answers requests, pinned to as many CPUs as it has threads."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

PYTHON_PEERS = {"torch": "torch_peer.py", "onnxruntime": "onnxruntime_peer.py"}
NATIVE_PEERS = {"fa": "fa_peer", "onednn": "onednn_peer", "naive": "naive_peer"}
PEERS = (*NATIVE_PEERS, *PYTHON_PEERS)


REQUIRES = {"torch": ("torch",), "onnxruntime": ("onnxruntime", "onnx")}


class PeerError(Exception):
    """A peer cannot be started, died, or answered with an error."""


def command_of(name, build):
    """The command line that starts a peer. @param build  build folder of the C++ peers"""
    if name in PYTHON_PEERS:
        return [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), PYTHON_PEERS[name])]
    return [os.path.join(os.path.abspath(build), "benchmarks", NATIVE_PEERS[name])]


def why_missing(name, build):
    """What a peer lacks to be started, or None."""
    if name in NATIVE_PEERS:
        program = command_of(name, build)[0]
        return None if shutil.which(program) else f"{program} is not built"
    missing = [module for module in REQUIRES[name] if importlib.util.find_spec(module) is None]
    return f"no module {' and '.join(missing)} for {sys.executable}" if missing else None


class Peer:
    def __init__(self, name, build, threads, log):
        """Starts the peer. @param log  a file for what the peer writes to standard error"""
        self.name = name
        cpus = sorted(os.sched_getaffinity(0))[:threads]
        # Every library's thread pool gets this size.
        pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = {**os.environ, **{pool: str(threads) for pool in pools}}
        # PyPI's oneDNN runs CPU code through an OpenCL driver that comes with it, but that it does not find by itself.
        libraries = os.path.join(sys.prefix, "lib")
        if name == "onednn" and os.path.exists(driver := os.path.join(libraries, "libintelocl.so")):
            environment |= {"OCL_ICD_FILENAMES": driver, "LD_LIBRARY_PATH": libraries}
        self.process = subprocess.Popen(command_of(name, build), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=log, env=environment, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        self.about = self.ask("about")

    @property
    def pid(self):
        return self.process.pid

    def ask(self, what, **details):
        """@return the answer; the caller looks for "unsupported" in it. Raises PeerError."""
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

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
