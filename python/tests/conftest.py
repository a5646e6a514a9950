import sys
from pathlib import Path

import pytest
import torch

# The tests share reference.py; the package itself is the installed one.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(7)
