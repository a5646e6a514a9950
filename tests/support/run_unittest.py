"""Runs one file of unittest cases and writes a JUnit report of them.

    run_unittest.py a_test.py report.xml

The exit status is 0 only if there are cases and none failed. Modules are imported from PYTHONPATH, not from the file's
folder.
"""

import importlib.util
import os
import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path


class ReportedResult(unittest.TextTestResult):
    """Makes a <testcase> per case, with the names "module.Class" and "test_name", as pytest does."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.report = ElementTree.Element("testsuite")

    def _note(self, test, tag=None, message=""):
        group, _, name = test.id().rpartition(".")
        case = ElementTree.SubElement(self.report, "testcase", classname=group, name=name)
        if tag:
            ElementTree.SubElement(case, tag, message=message)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._note(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note(test, "failure", str(err[1]))

    def addError(self, test, err):
        super().addError(test, err)
        self._note(test, "error", str(err[1]))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self._note(test, "failure", f"{subtest}: {err[1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._note(test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._note(test, "failure", "succeeds, though it is marked as an expected failure")


def load(path):
    """@return the module in the file `path`, named by its stem"""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def main(path, report):
    suite = unittest.defaultTestLoader.loadTestsFromModule(load(Path(path).resolve()))
    result = unittest.TextTestRunner(resultclass=ReportedResult, verbosity=2).run(suite)
    os.makedirs(os.path.dirname(os.path.abspath(report)), exist_ok=True)
    ElementTree.ElementTree(result.report).write(report)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
