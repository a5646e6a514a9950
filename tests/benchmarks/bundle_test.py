"""The bundle is small enough and runs from any folder, and its report has every part."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BUILD = os.environ["FA_BUILD"]
SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "bundle.sh"


class BundleTest(unittest.TestCase):
    def test_a_bundle_of_the_build_measures_this_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            bundle = f"{folder}/bundle"
            said = subprocess.run([SCRIPT, bundle, BUILD], check=True, stdout=subprocess.PIPE, text=True).stdout
            self.assertRegex(said, "MiB, [1-9][0-9]* tests")
            self.assertLessEqual(sum(path.stat().st_size for path in pathlib.Path(bundle).iterdir()), 45 << 20)
            # Two seconds are too few for all tests and cases. The report names the tests and cases for which there was
            # no time.
            run = subprocess.run([f"{bundle}/measure", "--seconds", "2"], check=True, cwd=folder, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            report = json.loads(pathlib.Path(folder, "fa-measure.json").read_text(encoding="utf-8"))
        self.assertEqual(set(report), {"machine", "cpus", "seconds", "tests", "rates", "cases", "pytorch", "kernels"})
        self.assertEqual(set(report["cpus"]), os.sched_getaffinity(0))
        self.assertTrue({test["outcome"] for test in report["tests"]} <= {"passed", "late"})
        operators = {"forward", "backward", "prompt", "decode", "sparse-forward", "sparse-backward", "indexer",
                     "indexer-backward", "indexer-kl-loss", "dense-indexer-kl-loss"}
        self.assertEqual({case["op"] for case in report["cases"]}, operators)
        for rate in report["rates"]:
            self.assertGreater(rate["best"], 0, rate)
        for heading in ("tests ", "rate ", "operator ", "kernel alone"):
            self.assertIn(f"\n{heading}", run.stdout)

    def test_a_build_without_the_programs_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([SCRIPT, f"{folder}/bundle", folder], check=False, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("is not built", run.stderr)


if __name__ == "__main__":
    unittest.main()
