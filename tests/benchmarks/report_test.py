"""Tests of the tables: figures, ratios, order, and the text for peers that have no figure."""

import os
import subprocess
import sys
import tempfile
import unittest

import cases
import peer_facts
import report
import results as store
from cases import SHAPES, make


def peer(best):
    return {"best": best, "median": 2 * best, "rounds": 3, "calls": 3, "rejected": 1, "error": 1e-7,
            "share_of_bound": 0.25}


def collection(*entries):
    """Returns these (case, peers, peak) triples in the form of a results file."""
    measured = {}
    for case, peers, peak in entries:
        measured[case.key] = {"case": case.request(), "flops": case.flops(), "peers": peers, "peak_gflops": peak,
                           "kernels": ["k"], "date": "2026-01-02"}
    machine = {"cpu": "A CPU", "cpus": 2, "memory_gb": 8, "system": "Linux 6", "instructions": ["avx2"]}
    return {"format": store.FORMAT, "machine": machine, "versions": {"fa": {"version": "1"}}, "cases": measured}


def case_of(shape, operation="forward", dtype="f32", mask="full", threads=2):
    return make(shape, SHAPES[shape], operation, dtype, mask, threads)


class TableTest(unittest.TestCase):
    def test_a_row_has_rates_fraction_and_the_ratio_to_the_best_other(self):
        case = case_of("B")
        unit = case.flops() * 1e-9  # seconds of the case at 1 GFLOP/s
        peers = {"fa": peer(unit / 300), "torch": peer(unit / 200), "naive": peer(unit / 150)}
        results = collection((case, peers, 400))
        text = report.rates_table(results, 2)
        self.assertIn("| shape, mask | forward f32 |\n", text)
        self.assertIn("| B: B 1, N 16, S 2048, D 128, full | 300, 75 %, 1.50 |", text)

    def test_operations_and_types_are_columns_and_most_threads_come_first(self):
        seconds = 1e-9 * case_of("B").flops()
        results = collection((case_of("B", threads=1), {"fa": peer(seconds)}, 2),
                             (case_of("B"), {"fa": peer(seconds)}, 4),
                             (case_of("B", operation="backward", dtype="bf16"), {"fa": peer(seconds)}, 10))
        lines = report.rates_table(results, 2).splitlines()
        self.assertEqual(lines[0], "| shape, mask | forward f32 | backward bf16 |")
        self.assertEqual(lines[2], "| B: B 1, N 16, S 2048, D 128, full | 1, 25 % | 2, 25 % |")
        self.assertEqual(lines[3:], ["| B: B 1, N 16, S 2048, D 128, full, 1 thread | 1, 50 % | – |"])

    def test_peers_without_a_figure_give_no_ratio(self):
        case = case_of("B")
        peers = {"fa": peer(1), "torch": {"unsupported": "mask"}, "onnxruntime": {"wrong": "error 3", "error": 3}}
        entry = collection((case, peers, 400))["cases"][case.key]
        self.assertEqual(report.rate_text({**entry, "peers": {"fa": {"unsupported": "mask"}}}), "–")
        self.assertRegex(report.rate_text(entry), "^[0-9]+, [0-9]+ %$")  # the text has no ratio

    def test_a_wrong_result_is_listed(self):
        case = case_of("B")
        results = collection((case, {"fa": peer(1), "torch": {"wrong": "error 3", "error": 3}}, 400))
        self.assertIn("forward/f32/B/full/2: PyTorch, error 3", report.checks_text(results))
        self.assertIn("took: 0.25 (fa).", report.checks_text(results))

    def test_shapes_come_in_their_order_and_full_before_causal(self):
        results = collection(*((case_of(shape, mask=mask), {"fa": peer(1)}, 400)
                               for shape in "HBA" for mask in ("causal", "full")))
        order = [(case.shape, case.mask) for case, _ in store.entries_of(results)]
        self.assertEqual(order, [(shape, mask) for shape in "ABH" for mask in ("full", "causal")])

    def test_decoding_is_told_in_bytes_of_keys_and_values(self):
        case = case_of("F")
        own = peer(case.key_value_bytes() / 30e9) | {"read_gbytes": 41.0, "read_fraction": 0.75}
        other = peer(case.key_value_bytes() / 15e9)  # a peer measured without its read rate
        text = report.decode_table(store.entries_of(collection((case, {"fa": own, "torch": other}, 400))))
        self.assertIn("| f32, 2 threads | 8.9 (75 %) | 17.9 | 30.0 | 41.0 |", text)
        self.assertIn("In brackets", report.decode_text([(case, {"peers": {"torch": other, "fa": own}})]))

    def test_decoding_without_a_read_rate_has_no_share_of_it(self):
        case = case_of("F")
        results = collection((case, {"fa": peer(case.key_value_bytes() / 30e9)}, 400))
        self.assertIn("| f32, 2 threads | 8.9 | 30.0 | – |", report.decode_table(store.entries_of(results)))
        self.assertIn("was not measured", report.decode_text(store.entries_of(results)))

    def test_rounds_thrown_away_are_told(self):
        results = collection((case_of("B"), {"fa": peer(1), "torch": peer(2)}, 400))
        self.assertIn("6 rounds count, 2 were thrown away", report.machine_text(results))


    def test_operators_are_held_against_chunks(self):
        by = {"fa": {"best": 0.01, "median": 0.02}, "torch": {"best": 0.04, "median": 0.05}}
        operators = {"paged decode/bf16/2": {"work": 4e9, "unit": "GB/s", "by": by},
                     "indexer/f32/1": {"work": 1, "unit": "GFLOP/s", "wrong": "they differ"}}
        text = report.operators_table(operators, 2)
        self.assertIn("| operator | f32 | bf16 |\n", text)
        self.assertIn("| paged decode | – | 400 GB/s, 4.00 |", text)
        self.assertIn("| indexer, 1 thread | wrong | – |", text)

    def test_operators_measured_among_other_programs_say_so(self):
        self.assertEqual(report.noise_text({"a": {"foreign": 0.1}, "b": {"wrong": "they differ"}}), "")
        self.assertIn("up to 1.3 CPUs", report.noise_text({"a": {"foreign": 0.05}, "b": {"foreign": 1.26}}))

    def test_slow_builds_and_missing_peers_are_told(self):
        results = collection((case_of("A"), {"fa": peer(1), "onednn": peer(2)}, 400))
        results["versions"]["onednn"] = {"version": "3.13.2", "runtime": "SYCL"}
        results["left_out"] = {"onednn": "not now", "torch_mkl": "no library"}
        text = peer_facts.left_out_text(results)
        self.assertIn("- oneDNN 3.13.2 (SYCL): PyPI's build", text)
        self.assertIn("- PyTorch, MKL unlocked was not measured: no library.", text)
        self.assertNotIn("not now", text)
        self.assertIn("of fa 1, measured 2026-01-02 on A CPU", report.machine_text(results))
        self.assertIn("next to oneDNN 3.13.2 (SYCL). ", report.machine_text(results))
        results["versions"]["onednn"]["runtime"] = "libgomp"
        self.assertNotIn("oneDNN", peer_facts.left_out_text(results))

    def test_what_is_missing_is_listed_until_all_is_there(self):
        some = collection((case_of("B"), {"fa": peer(1)}, 400))
        self.assertTrue(report.missing_text(some, 2).startswith("Not measured yet:\n\n- forward f32, full: A, C, D, E, F, G, H\n"))
        self.assertNotIn("given up", report.missing_text(some, 2))
        some["given_up"] = {case_of("C").key: "other programs are busy"}
        text = report.missing_text(some, 2)
        self.assertIn("- forward f32, full: A, D, E, F, G, H\n", text)
        self.assertTrue(text.endswith("because other programs were busy or a peer failed:\n\n- forward f32, full: C"))
        every = collection(*((case, {"fa": peer(1)}, 400) for case in cases.headline(2)))
        self.assertIsNone(report.missing_text(every, 2))


def save_some(path, **of_machine):
    """Returns the results of two cases on a machine."""
    results = collection((case_of("B"), {"fa": peer(1)}, 400), (case_of("F"), {"fa": peer(1)}, 400))
    results["machine"] |= of_machine
    store.save(path, results)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path, self.out = os.path.join(folder.name, "in.json"), os.path.join(folder.name, "out")

    def run_report(self, *arguments):
        command = [sys.executable, "-B", report.__file__, "--tables-only", self.path, self.out, *arguments]
        return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)

    def read(self, *names):
        with open(os.path.join(self.out, *names), encoding="utf-8") as file:
            return file.read()

    def test_tables_need_no_matplotlib(self):
        save_some(self.path)
        self.assertEqual(self.run_report().returncode, 0)
        page = self.read("a-cpu", "README.md")
        self.assertIn("| B: B 1, N 16, S 2048, D 128, full |", page)
        self.assertIn("## Decode", page)
        self.assertNotIn("png", page)
        self.assertEqual(store.load(os.path.join(self.out, "a-cpu", "results.json")), store.load(self.path))

    def test_every_cpu_has_a_folder_and_a_line_in_the_list(self):
        for cores in (None, "Zen 4"):
            save_some(self.path, microarchitecture=cores)
            self.assertEqual(self.run_report().returncode, 0)
        self.assertEqual(sorted(os.listdir(self.out)), ["README.md", "a-cpu", "a-cpu-zen-4"])
        self.assertIn("| [A CPU](a-cpu/README.md), 2 CPUs; avx2 | 1 | 2026-01-02 |", self.read("README.md"))
        self.assertIn("[A CPU (Zen 4)](a-cpu-zen-4/README.md)", self.read("README.md"))

    def test_results_of_another_machine_are_not_overwritten(self):
        save_some(self.path)
        self.run_report()
        save_some(self.path, cpus=16)
        self.assertIn("another machine", self.run_report().stderr)
        self.assertEqual(store.load(os.path.join(self.out, "a-cpu", "results.json"))["machine"]["cpus"], 2)
        self.assertEqual(self.run_report("--name", "a-cpu-16").returncode, 0)
        self.assertIn("(a-cpu-16/README.md), 16 CPUs", self.read("README.md"))


if __name__ == "__main__":
    unittest.main()
