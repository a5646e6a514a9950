"""Runs functions of a test module on several ranks, which are processes of this machine that communicate by gloo.

    python run_ranks.py MODULE NUMBER_OF_RANKS FUNCTION...

The module is imported once. The ranks are then forked, before any thread starts. Each rank calls every function as
function(rank, ranks). The exit status is that of the first rank that fails.
"""

from __future__ import annotations

import datetime
import importlib
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
from time_limits import seconds  # noqa: E402 -- this file is a program too

SECONDS = 20
"""The time after which a rank that waits for another gives up; ten times as long under an emulator."""


def run_on_ranks(module: str, ranks: int, *functions: str, limit: int = 120) -> str:
    """Runs the functions on `ranks` ranks and returns the text that they print. If a rank fails, raises AssertionError
    with that text."""
    command = [sys.executable, __file__, module, str(ranks), *functions]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "FA_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(limit), env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _rank(module, store: str, rank: int, ranks: int, functions: list[str]) -> int:
    try:
        torch.set_num_threads(1)
        time_out = datetime.timedelta(seconds=seconds(getattr(module, "SECONDS", SECONDS)))
        dist.init_process_group(
            "gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks, timeout=time_out
        )
        for function in functions:
            torch.manual_seed(7)
            getattr(module, function)(rank, ranks)
        dist.destroy_process_group()
    except BaseException:
        print(f"rank {rank} of {ranks}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return 1
    return 0


def main(name: str, ranks: int, functions: list[str]) -> int:
    sys.path.insert(0, str(Path(__file__).parent))
    module = importlib.import_module(name)
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            processes.append(os.fork())
            if processes[-1] == 0:
                status = _rank(module, f"{folder}/store", rank, ranks, functions)
                sys.stdout.flush()
                os._exit(status)
        return max(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
