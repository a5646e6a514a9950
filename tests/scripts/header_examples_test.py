"""Tests of include/fa: every header begins with a summary and an example of use, and the examples compile."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[2] / "include"
HEADERS = sorted((INCLUDE / "fa").glob("*.h"))
BEGINNING = re.compile(r"#ifndef \w+\n#define \w+\n\n/// @file\n((?:///.*\n)+)\n")
EXAMPLE = re.compile(r"/// @code\{\.cpp\}\n((?:///.*\n)+?)/// @endcode\n")
# An example with such a line is compiled at namespace scope; other examples become the body of a function.
DECLARATIONS = re.compile(r"^(struct|int main|static_assert|fa::Status \w+\()", re.MULTILINE)
# Stand-ins for headers that the build or MPI provides. Declarations are enough, because the compiler only checks
# syntax.
STUBS = {"fa/export.h": "#define FA_API\n",
         "mpi.h": "using MPI_Comm = int;\ninline constexpr MPI_Comm MPI_COMM_WORLD = 0;\n"}
STANDARD = ("algorithm", "cstdio", "string", "string_view", "utility", "vector")


def example_of(header):
    """@return the lines of the example with which a header begins"""
    lines = EXAMPLE.search(BEGINNING.search(header)[1])[1].splitlines()
    return "\n".join(line.removeprefix("///").removeprefix(" ") for line in lines)


def program(examples):
    """@return a program made of the examples {header name: example}"""
    parts = [f"#include <{name}>" for name in STANDARD]
    parts += [f'#include "fa/{name}.h"' for name in ("fa", "mpi", "torch")]
    for name, example in examples.items():
        example = example.replace('#include "fa/fa.h"\n', "")
        if not DECLARATIONS.search(example):
            example = f"fa::Status Example() {{\n#line 1 \"{name}.h\"\n{example}\nreturn fa::Status::Ok();\n}}"
        parts.append(f"namespace {name}_example {{\n{example}\n}}")
    return "\n".join(parts) + "\n"


def errors_of(examples):
    """@return the compiler's messages about the examples, or an empty text"""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in STUBS.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        source = Path(folder) / "examples.cc"
        source.write_text(program(examples))
        compiler = [os.environ.get("FA_CXX", "c++"), "-std=c++20", "-w", "-fsyntax-only"]
        command = [*compiler, f"-I{INCLUDE}", f"-I{folder}", str(source)]
        return subprocess.run(command, stderr=subprocess.PIPE, text=True).stderr


class HeaderExamplesTest(unittest.TestCase):
    def test_every_header_begins_with_a_summary_and_an_example(self):
        for path in HEADERS:
            beginning = BEGINNING.match(path.read_text())
            self.assertIsNotNone(beginning, path.name)
            self.assertRegex(beginning[1], r"^/// (?!.*: )[A-Z].*\.\n", path.name)
            self.assertRegex(beginning[1], EXAMPLE, path.name)

    def test_the_examples_compile(self):
        self.assertEqual(errors_of({path.stem: example_of(path.read_text()) for path in HEADERS}), "")

    def test_an_example_that_does_not_compile_is_found(self):
        self.assertIn("merge.h:1", errors_of({"merge": "return fa::MergePartials({});"}))


if __name__ == "__main__":
    unittest.main()
