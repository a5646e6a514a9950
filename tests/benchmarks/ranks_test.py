"""Tests the reports of ranks_load.py, ranks_simulation.py and ranks_orders.py on measurements and predictions."""

import unittest

import ranks_load
import ranks_orders
import ranks_simulation


class LoadTest(unittest.TestCase):
    def test_both_sides_have_as_many_threads(self):
        for threads, of_one in (("1", "2"), ("3", "6")):
            options = ranks_load.parse_options(["--build", "b", "--ranks", "2", "--threads", threads])
            case = {"op": "forward", "dtype": "bf16"}
            one = ranks_load.command_of(ranks_load.ONE, case, options)
            many = ranks_load.command_of(ranks_load.RANKS, case, options)
            self.assertEqual(one[one.index("--threads") + 1], of_one)
            self.assertEqual(many[many.index("--threads") + 1], threads)
        self.assertEqual(many[many.index("-n") + 1], "2")
        self.assertEqual(one[one.index("--shape") + 1], many[many.index("--shape") + 1])

    def test_a_ratio_below_one_is_what_ranks_lose(self):
        rounds = {ranks_load.ONE: [{"best": 1, "median": 2}, {"best": 3, "median": 3}],
                  ranks_load.RANKS: [{"best": 2, "median": 4}, {"best": 4, "median": 3}]}
        self.assertEqual(ranks_load.ratios(rounds), {"best": 0.5, "median": 0.75})


class SimulationTest(unittest.TestCase):
    def test_numbers_of_ranks_are_lines_and_pairs_of_cut_and_network_are_columns(self):
        facts = {("forward", scaling, ranks, cut, network):
                 {"seconds": 1, "efficiency": 0.5, "hidden": 1, "strategy": "heads", "received": 2**30, "staged": 0}
                 for scaling in ranks_simulation.SCALINGS for ranks in ranks_simulation.RANKS
                 for cut in ranks_simulation.CUTS for network in ranks_simulation.NETWORKS}
        lines = ranks_simulation.report(facts, {}).splitlines()
        rows = [line for line in lines if line.startswith("| ") and not line.startswith("| ranks")]
        self.assertEqual(len(rows), 2 * len(ranks_simulation.TABLE_RANKS))
        self.assertTrue(all(row.count("50.0 %") == len(ranks_simulation.TABLE_COLUMNS) for row in rows))
        self.assertTrue(rows[-1].startswith("| 1024 | 1 | heads | 1.00 | 0.00 |"))
        self.assertFalse(any("Backward" in line for line in lines))  # no section without predictions

    def test_weak_scaling_keeps_the_rows_of_a_rank(self):
        self.assertEqual(ranks_simulation.rows_of("weak", 64), 64 * 16384)
        self.assertEqual(ranks_simulation.rows_of("strong", 64), ranks_simulation.rows_of("strong", 1))


class OrdersTest(unittest.TestCase):
    def test_pairs_that_a_causal_mask_keeps(self):
        for begin in range(6):
            for end in range(begin, 6):
                for key_begin in range(6):
                    for key_end in range(key_begin, 6):
                        want = sum(key <= row for row in range(begin, end) for key in range(key_begin, key_end))
                        self.assertEqual(ranks_orders.kept_pairs(begin, end, key_begin, key_end), want)

    def test_chunks_cover_all_keys_once(self):
        for ranks in ranks_orders.RANKS:
            chunks = ranks_orders.key_chunks(ranks)[::-1]
            self.assertEqual([begin for begin, _ in chunks], [0, *(end for _, end in chunks[:-1])])
            self.assertEqual(chunks[-1][1], ranks_orders.ROWS * ranks)

    def test_who_waits_for_nobody_waits_less(self):
        (one, _), (other, sent) = ranks_orders.travelling(8), ranks_orders.chunked(8)
        self.assertTrue(0.9 < one < other < 1)
        self.assertGreater(sent, 0)

    def test_every_block_runs_once_and_after_those_that_it_waits_for(self):
        blocks = ranks_orders.Blocks(8, range(16), lambda part: 0)
        order = blocks.order()
        self.assertEqual(sorted(order), list(range(len(blocks.rank))))
        at = {block: i for i, block in enumerate(order)}
        for block in order:
            for behind in (blocks.in_chunk[block], blocks.in_rows[block]):
                self.assertTrue(behind < 0 or at[block] < at[behind])

    def test_a_line_of_more_ranks_than_are_simulated_has_no_figure_of_them(self):
        self.assertEqual(ranks_orders.table([(512, 0.5, None, (1, 2))])[-1], "| 512 | 50.0 % | – | – | 100.0 % | 2.0 |")


if __name__ == "__main__":
    unittest.main()
