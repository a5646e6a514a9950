"""Every benchmark program runs to its end, and prints only measurements."""

import json
import math
import os
import subprocess
import unittest

BUILD = os.environ["FA_BUILD"]
RATES = ("GFLOP/s", "GOP/s", "GB/s", "Gelem/s", "of_peak")


def run(program, *flags):
    """@return the benchmarks of a run as in Google Benchmark's JSON; raises CalledProcessError"""
    command = [program, "--benchmark_format=json", "--benchmark_min_time=0.0001", *flags]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout)["benchmarks"]


class RunsTest(unittest.TestCase):
    def check(self, benchmarks):
        self.assertTrue(benchmarks)
        for line in benchmarks:
            with self.subTest(line["name"]):
                self.assertFalse(line.get("error_occurred"), line.get("error_message"))
                rates = {rate: line[rate] for rate in RATES if rate in line}
                self.assertTrue(rates)
                self.assertTrue(all(math.isfinite(rate) and rate > 0 for rate in rates.values()), rates)
                self.assertLessEqual(rates.get("of_peak", 0), 1)
        self.assertTrue(any("of_peak" in line for line in benchmarks))

    def test_every_kernel(self):
        self.check(run(f"{BUILD}/benchmarks/kernels_benchmark"))

    def test_an_operator(self):
        self.check(run(f"{BUILD}/benchmarks/operators_benchmark", "--benchmark_filter=/G_.*/full/BNSD/threads:1"))

    def test_calls(self):
        lines = run(f"{BUILD}/benchmarks/calls_benchmark", "--benchmark_filter=rows:8|2.10")
        self.assertEqual([line["name"] for line in lines], ["BM_Call/rows:8", "BM_Run/rows:8", "BM_Plan/sequences:2^10",
                                                            "BM_Run/sequences:2^10"])
        for line in lines:
            self.assertFalse(line.get("error_occurred"), line)
            self.assertTrue(0 < line["real_time"] < math.inf, line)

    def test_a_program_that_fails_is_not_one_that_ran(self):
        with self.assertRaises(subprocess.CalledProcessError):
            run("false")


if __name__ == "__main__":
    unittest.main()
