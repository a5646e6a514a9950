"""The modules of benchmarks/ import each other in one direction."""

import ast
import graphlib
import os
import unittest

import cases

FOLDER = os.path.dirname(os.path.abspath(cases.__file__))


def imported_by(path):
    """Names of the modules that a file imports, inside its functions too."""
    with open(path, encoding="utf-8") as file:
        nodes = list(ast.walk(ast.parse(file.read())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module for node in nodes if isinstance(node, ast.ImportFrom)}


class ImportsTest(unittest.TestCase):
    def test_there_is_no_circle(self):
        modules = {name[:-3] for name in os.listdir(FOLDER) if name.endswith(".py")}
        graph = {module: imported_by(os.path.join(FOLDER, f"{module}.py")) & modules for module in modules}
        self.assertIn("plots", graph["report"])
        order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError
        self.assertLess(order.index("plots"), order.index("report"))


if __name__ == "__main__":
    unittest.main()
