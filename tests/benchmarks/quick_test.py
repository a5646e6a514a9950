"""The table of compare.py --quick has ratios, and names the cases without a figure. Without PyTorch on MKL on an AMD
CPU, it says how to build libmkl_unlock.so."""

import unittest

import quick
from cases import SHAPES, make


def results_of(case, peers, **more):
    entry = {"case": case.request(), "flops": case.flops(), "peers": peers, "peak_gflops": 400.0}
    machine = {"cpu": "A CPU", "cpus": 2, "vendor": "AuthenticAMD"}
    versions = {"fa": {"version": "1"}, "torch": {"version": "2"}}
    return {"machine": machine, "versions": versions, "cases": {case.key: entry}, **more}


def peer(seconds):
    return {"best": seconds, "rounds": 2, "rejected": 1}


class QuickTest(unittest.TestCase):
    def setUp(self):
        self.case = make("E", SHAPES["E"], "forward", "bf16", "causal", 2)
        self.unit = self.case.flops() * 1e-9  # seconds that the case takes at 1 GFLOP/s

    def test_a_row_is_held_against_the_faster_pytorch_and_the_product(self):
        peers = {"fa": peer(self.unit / 300), "torch": peer(self.unit / 100), "torch_mkl": peer(self.unit / 200)}
        text = quick.report(results_of(self.case, peers), [self.case])
        line = next(line for line in text.splitlines() if line.startswith("E bf16 causal B 1, N 32/8, S 2048, D 128 "))
        milliseconds = [f"{1e3 * self.unit / rate:.2f}" for rate in (300, 200)]
        self.assertEqual(line.split()[-6:], [*milliseconds, "1.50", "300", "75", "%"])
        self.assertIn("6 rounds count; 3 were thrown away", text)
        self.assertIn("A CPU, 2 CPUs; fa 1, PyTorch 2", text)
        self.assertIn("ONNX Runtime", text)
        self.assertNotIn("backward", text)

    def test_what_has_no_figure_is_told(self):
        busy = make("A", SHAPES["A"], "backward", "f32", "full", 2)
        results = results_of(self.case, {"fa": peer(1.0), "torch": {"wrong": "error 3"}}, given_up={busy.key: "busy here"})
        text = quick.report(results, [self.case, busy])
        self.assertIn("forward/bf16/E/causal/2, torch: error 3", text)
        self.assertIn("backward/f32/A/full/2: busy here", text)
        line = next(line for line in text.splitlines() if line.startswith("E bf16"))
        self.assertEqual(line.split()[-6:-3], ["1000.00", "–", "–"])

    def test_mkl_that_is_locked_is_told_with_the_remedy(self):
        peers = {"fa": peer(1.0), "torch": peer(2.0)}
        locked = results_of(self.case, peers, left_out={"torch_mkl": "is not built"})
        self.assertIn("benchmarks/peers/mkl_unlock.cc -o build/release/benchmarks/libmkl_unlock.so", quick.report(locked, []))
        self.assertNotIn("mkl_unlock", quick.report(results_of(self.case, peers), []))
        locked["machine"]["vendor"] = "GenuineIntel"
        self.assertNotIn("mkl_unlock", quick.report(locked, []))

    def test_nothing_measured_is_no_error(self):
        self.assertIn("Nothing was measured", quick.report(results_of(self.case, {}, given_up={}), []))


if __name__ == "__main__":
    unittest.main()
