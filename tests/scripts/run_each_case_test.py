"""Tests of tests/support/run_each_case.py. A few lines of shell stand in for a GoogleTest binary."""

import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

# The fake binary lists $LISTED. A case writes its report and returns 0. But a case of Races returns 66, and a case of
# Dies is killed before it writes.
FAKE_BINARY = """\
#!/bin/sh
[ "$1" != --gtest_list_tests ] || { printf "$LISTED"; exit 0; }
name=${1#--gtest_filter=}
report=${2#--gtest_output=xml:}
case $name in Dies.*) kill -SEGV $$ ;; esac
echo "<testsuite><testcase classname='${name%%.*}' name='${name#*.}'/></testsuite>" >"$report"
case $name in Races.*) exit 66 ;; esac
"""


class RunEachCaseTest(unittest.TestCase):
    def run_cases(self, listed):
        """@return (exit status, {case: whether it failed})"""
        with tempfile.TemporaryDirectory() as folder:
            binary, report = Path(folder) / "a_test", Path(folder) / "reports/a_test.xml"
            binary.write_text(FAKE_BINARY)
            binary.chmod(0o755)
            command = [sys.executable, "-B", SOURCE / "tests/support/run_each_case.py", binary, report]
            status = subprocess.run(command, env={**os.environ, "LISTED": listed}, timeout=60, check=False).returncode
            cases = list(ElementTree.parse(report).iter("testcase"))
        return status, {f"{case.get('classname')}.{case.get('name')}": case.find("failure") is not None for case in cases}

    def test_every_case_runs_and_is_reported(self):
        listed = "Running main() from gtest_main.cc\\nA.\\n  One\\nSome/B/0.  # TypeParam = float\\n  Two/3  # GetParam() = 7\\n"
        self.assertEqual(self.run_cases(listed), (0, {"A.One": False, "Some/B/0.Two/3": False}))

    def test_a_race_fails_its_case_only(self):
        self.assertEqual(self.run_cases("Races.\\n  Here\\nA.\\n  One\\n"), (1, {"Races.Here": True, "A.One": False}))

    def test_a_case_that_dies_fails_and_does_not_end_the_others(self):
        self.assertEqual(self.run_cases("Dies.\\n  Here\\nA.\\n  One\\n"), (1, {"Dies.Here": True, "A.One": False}))

    def test_a_binary_without_cases_fails(self):
        self.assertEqual(self.run_cases("Running main() from gtest_main.cc\\n"), (1, {}))


if __name__ == "__main__":
    unittest.main()
