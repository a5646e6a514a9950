"""The commands of `python -m fa`."""

import builtins
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fa
import fa.__main__ as commands


def said(capsys, *arguments):
    code = commands.main(arguments)
    return code, *capsys.readouterr()


def test_info_says_what_is_imported(capsys):
    code, text, _ = said(capsys, "info")
    lines = dict(line.split(": ", 1) for line in text.splitlines()[1:])
    assert code == 0 and text.startswith(f"fa {fa.__version__}\n")
    assert lines["isa"].startswith(fa.Context().isa) and lines["threads"].startswith(str(fa.Context().threads))
    assert Path(lines["package"]) == Path(fa.__file__).parent
    assert all(Path(library).exists() for library in lines["libfa"].split(", "))
    assert lines["torch"][0].isdigit()


def test_a_package_that_is_missing_has_its_hint(capsys, monkeypatch):
    def missing(name):
        raise commands.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(commands.importlib.metadata, "version", missing)
    assert "torch: none (pip install 'fa-attention[torch]')" in said(capsys, "info")[1]


@pytest.mark.parametrize("operator", ["forward", "backward", "prompt", "decode"])
def test_plan_is_that_of_the_function(operator, capsys):
    code, text, _ = said(capsys, "plan", operator, "--shape", "2,8,2,5,7,64,32", "--dtype", "bf16", "--causal", "--threads", "1")
    others = {"head_num": 8, "head_num_kv": 2} if operator == "prompt" else {}
    shapes = (2, 8, 5, 64), (2, 2, 7, 64), (2, 2, 7, 32)
    own = fa.Mask.causal(), fa.Context(threads=1)
    want = fa.plan(operator, *shapes, dtype="bf16", mask=own[0], context=own[1], **others)
    assert code == 0 and text.rstrip() == str(want).rstrip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "forward", "--shape", "1,8,3,4,4,8"], "--shape: invalid argument: k.shape[1]=3"),
        (["plan", "forward", "--shape", "1,8,8,4,4,8", "--threads", "-1"], "threads=-1"),
    ],
)
def test_errors_are_one_line(arguments, words, capsys):
    code, _, text = said(capsys, *arguments)
    assert code == 2 and words in text and text.count("\n") == 1


@pytest.mark.parametrize(("long", "short"), [("float32", "f32"), ("bfloat16", "bf16"), ("float16", "f16")])
def test_types_have_two_names(long, short, capsys):
    texts = [said(capsys, "plan", "forward", "--shape", "1,1,1,5,5,8", "--dtype", name) for name in (long, short)]
    assert texts[0] == texts[1] and texts[0][0] == 0


def test_version_and_help(capsys):
    with pytest.raises(SystemExit) as left:
        commands.main(["--version"])
    assert left.value.code == 0 and capsys.readouterr().out == f"fa {fa.__version__}\n"
    code, text, _ = said(capsys)
    assert code == 0 and text.startswith("usage: python -m fa") and "doctor" in text


@pytest.mark.parametrize("arguments", [["plan", "forward"], ["plan", "merge", "--shape", "1,1,1,1,1,1"], ["plan", "forward", "--shape", "1,x"]])
def test_usage(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        commands.main(arguments)
    assert left.value.code == 2 and "usage: python -m fa" in capsys.readouterr().err


def test_doctor_tests_every_level(capsys, monkeypatch):
    monkeypatch.setenv("FA_NUM_THREAD", "1")
    code, text, _ = said(capsys, "doctor")
    tested, found = text.split("self-test")[1].split("findings")
    assert code == 0 and "portable" in tested and fa.Context().isa in tested
    assert "\n  FA_NUM_THREAD: fa reads no such variable at run time, but FA_NUM_THREADS\n" in found


def test_doctor_without_findings_says_so(capsys, monkeypatch):
    monkeypatch.setattr(commands, "_surprises", lambda: iter(()))
    monkeypatch.setattr(commands._fa, "levels", lambda: ["portable"])
    assert said(capsys, "doctor")[1].endswith("findings\n  none\n")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"FA_PORTABLE_BLAS": "1"}, "FA_PORTABLE_BLAS=1: OpenBLAS computes the products of the level portable"),
        ({"FA_NUM_THREAD": "1"}, "FA_NUM_THREAD: fa reads no such variable at run time, but FA_NUM_THREADS"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "OMP_WAIT_POLICY=ACTIVE: OpenMP threads spin"),
        ({"KMP_BLOCKTIME": "infinite"}, "KMP_BLOCKTIME=infinite: OpenMP threads spin"),
        ({"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "FA_VERBOSE": "", "PATH": "/bin"}, None),
    ],
)
def test_doctor_reads_variables(variables, words):
    found = list(commands._of_variables(variables))
    assert len(found) == (words is not None) and all(words in finding for finding in found)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ((1, 2, 0.5, {}), "affinity: the process may use 1 of 2 hardware threads"),
        ((2, 2, 1.0, {"OMP_NUM_THREADS": "8"}), "OMP_NUM_THREADS=8: "),
        ((2, 2, 15.2, {}), "load: 15 threads of all programs want the 2 hardware threads"),
        ((2, 2, 2.0, {"OMP_NUM_THREADS": "2"}), None),
    ],
)
def test_doctor_counts_cores(facts, words):
    found = list(commands._of_cores(*facts))
    assert len(found) == (words is not None) and all(finding.startswith(words) for finding in found)


@pytest.mark.parametrize(
    ("vendor", "mkl", "preloaded", "found"),
    [
        ("AuthenticAMD", True, "", True),
        ("AuthenticAMD", False, "", False),
        ("AuthenticAMD", True, "libmkl_unlock.so", False),
        ("GenuineIntel", True, "", False),
    ],
)
def test_doctor_knows_mkl_on_amd(vendor, mkl, preloaded, found, monkeypatch):
    monkeypatch.setattr(commands.Path, "read_text", lambda _: f"vendor_id : {vendor}")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    assert any("PyTorch's MKL" in finding for finding in commands._surprises()) is found


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (OSError("libtorch.so: no such file"), ["PyTorch cannot be imported, so fa.torch cannot be either: libtorch.so"]),
        (ImportError("no symbol", name="torch._C"), ["PyTorch cannot be imported, so fa.torch cannot be either: no symbol"]),
        (ModuleNotFoundError("no jinja2", name="jinja2"), ["PyTorch cannot be imported, so fa.torch cannot be either: no j"]),
        (ModuleNotFoundError("no torch", name="torch"), []),
    ],
)
def test_doctor_reports_a_broken_pytorch(error, found, monkeypatch):
    imported = builtins.__import__

    def broken(name, *others):
        if name == "torch":
            raise error
        return imported(name, *others)

    monkeypatch.setattr(builtins, "__import__", broken)
    said_of_it = [finding for finding in commands._surprises() if finding.startswith("PyTorch")]
    assert len(said_of_it) == len(found)
    assert all(finding.startswith(words) for finding, words in zip(said_of_it, found, strict=True))


@pytest.mark.parametrize("wrong", [np.nan, 1e-4])
def test_doctor_finds_a_wrong_result(wrong, capsys, monkeypatch):
    def almost(*arguments, **keywords):
        result = fa.flash_attention(*arguments, **keywords)
        result.out[0, 0, 3, 5] += wrong
        return result

    monkeypatch.setattr(commands, "flash_attention", almost)
    code, text, _ = said(capsys, "doctor")
    assert code == 1 and "portable: forward is wrong" in text


def test_the_module_is_a_program():
    done = subprocess.run([sys.executable, "-m", "fa", "info"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("fa ")
