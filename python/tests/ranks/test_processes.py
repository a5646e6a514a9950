"""Child processes of a process that has used the library: by fork, forkserver and spawn, and as workers of a
DataLoader. Another test loads the extension's library and unloads it."""

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest
from process_calls import SEEDS, Rows, attention
from time_limits import seconds, starts_threads_in_a_forked_child
from torch.utils.data import DataLoader

SECONDS_TO_HANG = seconds(120)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_compute_the_bits_of_their_parent(method):
    want = [attention(seed) for seed in SEEDS]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(attention, SEEDS).get(timeout=SECONDS_TO_HANG) == want


@pytest.mark.parametrize("method", [pytest.param("fork", marks=starts_threads_in_a_forked_child), "spawn"])
def test_workers_of_a_data_loader_compute_the_same_bits(method):
    want = [attention(seed) for seed in SEEDS]
    loader = DataLoader(
        Rows(), batch_size=None, num_workers=1, multiprocessing_context=method, timeout=SECONDS_TO_HANG
    )
    assert [item.numpy().tobytes() for item in loader] == want


REOPENING = """
import _ctypes, importlib.machinery, importlib.util, pathlib, sys
folder = pathlib.Path(importlib.util.find_spec("fa").origin).parent
[module] = {path for suffix in importlib.machinery.EXTENSION_SUFFIXES for path in folder.glob("_fa*" + suffix)}
for _ in range(100):
    _ctypes.dlclose(_ctypes.dlopen(str(module), 2))
sys.path.insert(0, sys.argv[1])
import process_calls
process_calls.attention(1)
print("computed")
"""


def test_the_modules_library_may_be_opened_and_closed_a_hundred_times():
    done = subprocess.run(
        [sys.executable, "-c", REOPENING, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=SECONDS_TO_HANG,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "computed\n"), done.stderr
