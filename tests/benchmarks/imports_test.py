"""The modules of benchmarks/ import each other without a cycle, and import nothing inside a function."""

import ast
import graphlib
import os
import unittest

import cases

FOLDER = os.path.dirname(os.path.abspath(cases.__file__))


def nodes_of(path):
    with open(path, encoding="utf-8") as file:
        return list(ast.walk(ast.parse(file.read())))


def imported_by(path):
    """Returns the names of the modules that a file imports, inside its functions too."""
    nodes = nodes_of(path)
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module for node in nodes if isinstance(node, ast.ImportFrom)}


class ImportsTest(unittest.TestCase):
    def test_there_is_no_circle(self):
        modules = {name[:-3] for name in os.listdir(FOLDER) if name.endswith(".py")}
        graph = {module: imported_by(os.path.join(FOLDER, f"{module}.py")) & modules for module in modules}
        self.assertIn("plots", graph["report"])
        order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError
        self.assertLess(order.index("plots"), order.index("report"))

    def test_functions_import_nothing(self):
        inside = [f"{name}: {function.name}" for name in sorted(os.listdir(FOLDER)) if name.endswith(".py")
                  for function in nodes_of(os.path.join(FOLDER, name))
                  if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
                  if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(function))]
        self.assertEqual(inside, [])


if __name__ == "__main__":
    unittest.main()
