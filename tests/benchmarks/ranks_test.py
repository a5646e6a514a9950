"""What ranks_load.py and ranks_simulation.py say of measurements and of predictions."""

import unittest

import ranks_load
import ranks_simulation


class LoadTest(unittest.TestCase):
    def test_both_sides_have_as_many_threads(self):
        options = ranks_load.parse_options(["--build", "b", "--ranks", "2"])
        case = {"op": "forward", "dtype": "bf16"}
        one = ranks_load.command_of(ranks_load.ONE, case, options)
        many = ranks_load.command_of(ranks_load.RANKS, case, options)
        self.assertEqual(one[one.index("--threads") + 1], "2")
        self.assertEqual(many[many.index("--threads") + 1], "1")
        self.assertEqual(many[many.index("-n") + 1], "2")
        self.assertEqual(one[one.index("--shape") + 1], many[many.index("--shape") + 1])

    def test_a_ratio_below_one_is_what_ranks_lose(self):
        rounds = {ranks_load.ONE: [{"best": 1, "median": 2}, {"best": 3, "median": 3}],
                  ranks_load.RANKS: [{"best": 2, "median": 4}, {"best": 4, "median": 3}]}
        self.assertEqual(ranks_load.ratios(rounds), {"best": 0.5, "median": 0.75})


class SimulationTest(unittest.TestCase):
    def test_every_number_of_ranks_has_a_line_and_every_cut_and_network_a_column(self):
        facts = {("forward", scaling, ranks, cut, network):
                 {"seconds": 1, "efficiency": 0.5, "hidden": 1, "strategy": "heads", "received": 2**30, "staged": 0}
                 for scaling in ranks_simulation.SCALINGS for ranks in ranks_simulation.RANKS
                 for cut in ranks_simulation.CUTS for network in ranks_simulation.NETWORKS}
        lines = ranks_simulation.report(facts, {}).splitlines()
        rows = [line for line in lines if line.startswith("| ") and not line.startswith("| ranks")]
        self.assertEqual(len(rows), 2 * len(ranks_simulation.RANKS))
        columns = len(ranks_simulation.CUTS) * len(ranks_simulation.NETWORKS)
        self.assertTrue(all(row.count("50.0 %") == columns for row in rows))
        self.assertTrue(rows[-1].startswith("| 1024 | 1 | heads | 1.00 | 0.00 |"))
        self.assertFalse(any("Backward" in line for line in lines))  # what was not predicted is not told

    def test_weak_scaling_keeps_the_rows_of_a_rank(self):
        self.assertEqual(ranks_simulation.rows_of("weak", 64), 64 * 16384)
        self.assertEqual(ranks_simulation.rows_of("strong", 64), ranks_simulation.rows_of("strong", 1))


if __name__ == "__main__":
    unittest.main()
