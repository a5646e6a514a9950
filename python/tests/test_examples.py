"""Runs the examples, and the code that the documentation shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from time_limits import seconds

REPOSITORY = Path(__file__).resolve().parents[2]


PAGES = "quickstart", "layouts", "training", "python", "flash_attn", "migration", "inference", "jax", "xformers"
DOCUMENTS = ["README.md", *(f"docs/{name}.md" for name in (*PAGES, "pytorch_operators", "flex_attention"))]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_in_documents(document, capsys):
    if document == "docs/jax.md":
        pytest.importorskip("jaxlib", reason="Python 3.10 has no jax that fa.jax works with")
    if document == "docs/xformers.md":
        pytest.importorskip("xformers", reason="this environment has no xformers")
    text = (REPOSITORY / document).read_text()
    programs = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert programs
    for program in programs:
        exec(compile(program, document, "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out


def test_train_gpt_is_reproducible():
    sizes = "--steps 3 --batch 2 --context 64 --layers 2 --heads 2 --width 32"
    command = [sys.executable, REPOSITORY / "examples/train_gpt.py", "--text", REPOSITORY / "LICENSE"]
    done = subprocess.run([*command, *sizes.split()], capture_output=True, text=True, timeout=seconds(120))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same bits in all runs" in done.stdout


def test_train_documents_checks_itself():
    sizes = "--steps 4 --batch 2 --context 96 --layers 2 --heads 2 --width 32"
    command = [sys.executable, REPOSITORY / "examples/train_documents.py", "--text", REPOSITORY / "LICENSE"]
    done = subprocess.run([*command, *sizes.split()], capture_output=True, text=True, timeout=seconds(120))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same bits on one thread and on two" in done.stdout


def test_train_gpt_on_four_processes():
    sizes = "--steps 2 --batch 2 --context 600 --layers 2 --heads 2 --width 32"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    program = [REPOSITORY / "examples/train_gpt.py", "--context-parallel", "--text", REPOSITORY / "LICENSE"]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "FA_NUM_THREADS": "1"}
    command = [*launcher, *program, *sizes.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(240), env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "have the bits of one process in all steps and layers" in done.stdout


def test_models_run_and_agree():
    arguments = ["--quick", "--models", "llama,gemma2", "--types", "f32"]
    command = [sys.executable, REPOSITORY / "benchmarks/models.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(240))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6 and all(re.search(r": fa \d+\.\d+ ms", line) for line in lines), done.stdout


def test_minilm_embeds_and_ranks_alike():
    command = [sys.executable, REPOSITORY / "examples/minilm.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(120))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ranking: the same with both" in done.stdout


def test_minilm_says_what_to_install(tmp_path):
    (tmp_path / "tokenizers.py").write_text("raise ModuleNotFoundError('no tokenizers')")
    command = [sys.executable, REPOSITORY / "examples/minilm.py"]
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 1
    assert done.stderr.lower().startswith("minilm: no "), done.stderr
    assert done.stderr.endswith("minilm.py say how to install it\n"), done.stderr
