"""The stubs list what the extension has."""

import ast
from pathlib import Path

from fa import _fa


def test_stubs_and_extension_have_the_same_names():
    stubs = ast.parse((Path(_fa.__file__).parent / "_fa.pyi").read_text())
    names = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert set(names) == {name for name in vars(_fa) if not name.startswith("_")}
    for name, node in names.items():
        members = {member.name for member in getattr(node, "body", []) if isinstance(member, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef):
            assert members - {"__init__"} == {m for m in vars(getattr(_fa, name)) if not m.startswith("_")}, name
