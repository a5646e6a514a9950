"""Runs calls on the threads of PyTorch's OpenMP runtime. These threads spin after each operator of PyTorch, so other
threads would find no free core."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

import torch

from .. import _fa

_RUNTIME = re.compile(r"lib(gomp|omp|iomp5)\b[^/]*\.so[^/]*")


def openmp_runtime(files: Iterable[str], torch_folder: str) -> str | None:
    """Returns which of the `files` that the process has mapped is PyTorch's OpenMP runtime. Returns None if that is
    unclear."""
    runtimes = {file for file in files if _RUNTIME.fullmatch(os.path.basename(file))}
    if len(runtimes) > 1:
        # Other packages may have brought their own runtimes.
        own = (torch_folder + os.sep, torch_folder + ".libs" + os.sep)
        runtimes = {file for file in runtimes if file.startswith(own)}
    return runtimes.pop() if len(runtimes) == 1 else None


def share_openmp_threads() -> None:
    """Makes calls share PyTorch's OpenMP threads. Does nothing if FA_SHARE_OPENMP is 0, or if PyTorch has no OpenMP
    runtime or the runtime is not found."""
    if os.environ.get("FA_SHARE_OPENMP") == "0" or not torch.backends.openmp.is_available():
        return
    try:
        maps = os.fsdecode(Path("/proc/self/maps").read_bytes())
    except OSError:
        return
    # The sixth column is the file's path, which may contain spaces.
    files = (fields[5] for line in maps.splitlines() if len(fields := line.split(maxsplit=5)) == 6)
    runtime = openmp_runtime(files, os.path.realpath(Path(torch.__file__).parent))
    if runtime is not None:
        # share_openmp_threads refuses file names that are no text, and runtimes without GNU's interface. Calls then run
        # on the library's own threads.
        with contextlib.suppress(ValueError):
            _fa.share_openmp_threads(runtime)
