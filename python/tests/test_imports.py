"""The modules of fa import each other without cycles, both at their heads and inside functions."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import fa
import pytest

ROOT = Path(fa.__file__).parent


def imports_of(sources):
    """Returns, for each module, the set of modules that it imports. `sources` maps names of modules to source texts.
    The name of a package ends in .__init__."""
    modules = {name.removesuffix(".__init__"): name for name in sources}
    graph = {}
    for name, text in sources.items():
        found = graph[name] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found.update(modules[alias.name] for alias in node.names if alias.name in modules)
            elif isinstance(node, ast.ImportFrom):
                above = ".".join(name.split(".")[: -node.level]) if node.level else ""
                base = ".".join(filter(None, (above, node.module)))
                for alias in node.names:  # a module, or else a name in the module `base`; _fa is the extension
                    given = f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                    found.update([modules[given]] if given in modules and alias.name != "_fa" else [])
        found.discard(name)
    return graph


def circle_of(sources):
    """Returns the modules of an import cycle, or None if there is none."""
    try:
        TopologicalSorter(imports_of(sources)).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_module_imports_itself_through_others():
    files = [path for path in ROOT.rglob("*.py") if path.name != "__main__.py"]
    sources = {".".join(("fa", *path.relative_to(ROOT).with_suffix("").parts)): path.read_text() for path in files}
    graph = imports_of(sources)
    assert "fa._errors" in graph["fa._attention"] and "fa._torch.call" in graph["fa._torch.ops"]
    circle = circle_of(sources)
    assert circle is None


BACK = ["from .a import x", "from . import a", "def f():\n    from fa.p import a", "import fa.p.a"]


@pytest.mark.parametrize("back", BACK)
def test_circles_are_found(back):
    sources = {"fa.p.__init__": "", "fa.p.a": "from .b import y", "fa.p.b": back}
    assert set(circle_of(sources)) == {"fa.p.a", "fa.p.b"}
    assert circle_of(sources | {"fa.p.b": "import json"}) is None
