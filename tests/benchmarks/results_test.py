"""The results file: runs continue it, reject a file of another format, and read figures from it."""

import json
import os
import tempfile
import unittest

import results
from cases import SHAPES, make


class ResultsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "deep", "results.json")

    def tearDown(self):
        self.folder.cleanup()

    def test_what_is_saved_is_there_again(self):
        stored = results.load(self.path)
        stored["cases"]["x"] = {"flops": 8.0}
        results.save(self.path, stored)
        self.assertEqual(results.load(self.path), stored)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["results.json"])

    def test_another_format_is_refused(self):
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"format": 99}, file)
        with self.assertRaisesRegex(ValueError, "format 99"):
            results.load(self.path)

    def test_a_case_is_done_when_it_was_measured_with_all_these_peers(self):
        case = make("A", SHAPES["A"], "forward", "f32", "full", 2)
        stored = results.load(self.path)
        self.assertFalse(results.is_done(stored, case, ["fa"]))
        stored["cases"][case.key] = {"peers": {"fa": {}, "torch": {"unsupported": "why"}}}
        self.assertTrue(results.is_done(stored, case, ["fa", "torch"]))
        self.assertFalse(results.is_done(stored, case, ["fa", "naive"]))

    def test_rates_are_of_the_case_s_work(self):
        entry = {"flops": 6e9, "peers": {"fa": {"best": 0.5, "median": 1.0}, "torch": {"unsupported": "why"}}}
        self.assertEqual(results.gflops(entry, "fa"), 12)
        self.assertEqual(results.gflops(entry, "fa", "median"), 6)
        self.assertIsNone(results.gflops(entry, "torch"))
        self.assertIsNone(results.gflops(entry, "naive"))


if __name__ == "__main__":
    unittest.main()
