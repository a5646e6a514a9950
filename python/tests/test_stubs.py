"""The stubs have the same names as the extension, and mypy --strict accepts a program that uses the package."""

import ast
import subprocess
import sys
from pathlib import Path

from fa import _fa

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/typed.py"


def test_stubs_and_extension_have_the_same_names():
    stubs = ast.parse((Path(_fa.__file__).parent / "_fa.pyi").read_text())
    names = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    values = {node.target.id for node in stubs.body if isinstance(node, ast.AnnAssign)}
    public = {name for name in values | set(names) if not name.startswith("_")}
    assert public == {name for name in vars(_fa) if not name.startswith("_")}
    for name, node in names.items():
        members = {member.name for member in getattr(node, "body", []) if isinstance(member, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef):
            public = {member for member in members if not member.startswith("_")}
            assert public == {m for m in vars(getattr(_fa, name)) if not m.startswith("_")}, name


def test_a_program_with_types_is_accepted_and_runs(tmp_path):
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, EXAMPLE], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    ran = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.startswith("(1, 2, 32, 16)"), ran.stdout + ran.stderr
