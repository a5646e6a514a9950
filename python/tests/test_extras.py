"""Parts of fa that need another package say how to install it if it is missing."""

import subprocess
import sys

import pytest

FACES = ["torch", "torch.context_parallel", "torch_npu", "flash_attn", "flash_attn.bert_padding", "transformers"]


def imported(face, missing):
    program = f"import sys; sys.modules[{missing!r}] = None; import fa; print(fa.__version__); import fa.{face}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("face", FACES)
def test_without_pytorch(face):
    done = imported(face, "torch")
    assert done.returncode == 1 and done.stdout, done.stderr
    hint = "this part of fa needs torch, which is not installed: pip install 'fa-attention[torch]'"
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {hint}"


def test_a_face_without_its_package_is_no_attribute():
    program = "import sys; sys.modules['torch'] = None; import fa; print(hasattr(fa, 'torch')); fa.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"
    assert done.stderr.splitlines()[-1].startswith("AttributeError: this part of fa needs torch, which is not installed")


def test_without_transformers():
    done = imported("transformers", "transformers")
    assert "needs transformers, which is not installed: pip install 'fa-attention[transformers]'" in done.stderr
    assert imported("torch", "transformers").returncode == 0


def test_what_a_package_lacks_itself_is_its_own_error():
    done = imported("torch", "torch._C")
    assert done.returncode == 1 and "torch._C" in done.stderr and "fa-attention" not in done.stderr


@pytest.mark.parametrize("face", ["torch", "torch_npu", "flash_attn", "transformers"])
def test_a_face_is_imported_when_it_is_first_named(face):
    program = f"import sys, fa; assert 'torch' not in sys.modules; print(fa.{face}.__name__); fa.{face}s"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == f"fa.{face}\n", done.stderr
    assert f"AttributeError: module 'fa' has no attribute '{face}s'" in done.stderr
