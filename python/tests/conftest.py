import sys
from pathlib import Path

import pytest
import torch

# The tests share reference.py; the package itself is the installed one.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(7)


@pytest.fixture
def one_torch_thread():
    """PyTorch's own operators, of which references are made, on one thread: theirs wait for each other on a busy
    machine, for far longer than small tensors take. The library keeps all of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
