"""Tests of rounds: which rounds count, their order, and their summary."""

import unittest

from rounds import (TICKS_SECONDS, CpuUse, foreign_seconds, foreign_share, is_bracketed, is_quiet, order_of, read_fraction,
                    summarize)


class QuietTest(unittest.TestCase):
    def test_what_the_peers_use_is_not_foreign(self):
        before, after = CpuUse(100, 10, 0), CpuUse(102, 12, 1)
        self.assertEqual(foreign_seconds(before, after), 0)
        self.assertTrue(is_quiet(before, after, 0.05))

    def test_a_busy_neighbour_is_noticed(self):
        before, after = CpuUse(100, 10, 0), CpuUse(102, 11.5, 1)
        self.assertEqual(foreign_seconds(before, after), 0.5)
        self.assertEqual(foreign_share(before, CpuUse(104, 12, 2)), 1)
        self.assertFalse(is_quiet(before, after, 0.05))
        self.assertTrue(is_quiet(before, after, 0.6))

    def test_the_coarseness_of_ticks_is_not_foreign(self):
        self.assertTrue(is_quiet(CpuUse(0, 0, 0), CpuUse(TICKS_SECONDS, 0, 0.01), 0))
        self.assertFalse(is_quiet(CpuUse(0, 0, 0), CpuUse(3 * TICKS_SECONDS, 0, 0.01), 0.05))

    def test_own_time_ahead_of_the_total_is_no_negative_load(self):
        self.assertEqual(foreign_seconds(CpuUse(0, 0, 0), CpuUse(1, 1.01, 1)), 0)


class BracketTest(unittest.TestCase):
    def test_rates_around_a_quiet_round_agree(self):
        self.assertTrue(is_bracketed(50, [1.0], (100, 103), 0.03))
        self.assertFalse(is_bracketed(50, [1.0], (100, 104), 0.03))
        self.assertTrue(is_bracketed(50, [1.0], (100, 60)))

    def test_no_call_beats_the_rates_around_it(self):
        self.assertTrue(is_bracketed(100, [2.0, 1.0], (99, 100), 0.03))
        self.assertFalse(is_bracketed(100, [2.0, 0.99], (99, 100), 0.03))


class OrderTest(unittest.TestCase):
    def test_each_peer_leads_and_each_follows_once_in_as_many_rounds(self):
        peers = ["a", "b", "c"]
        self.assertEqual([order_of(peers, n)[0] for n in range(4)], ["a", "b", "c", "a"])
        self.assertEqual([sorted(order_of(peers, n)) for n in range(3)], [peers] * 3)


class SummaryTest(unittest.TestCase):
    def test_best_and_median_are_of_all_samples(self):
        self.assertEqual(summarize([[3.0, 1.0], [2.0], [10.0, 5.0]]),
                         {"best": 1.0, "median": 3.0, "rounds": 3, "calls": 5})

    def test_a_call_is_held_against_the_read_rate_around_it(self):
        # 10 GB in 1, 0.5 and 2 s are 10, 20 and 5 GB/s.
        rounds, reads = [[3.0, 1.0], [0.5], [2.0]], [(20.0, 10.0), (20.0, 25.0), (10.0, 1.0)]
        self.assertAlmostEqual(read_fraction(10e9, rounds, reads), 0.5)  # the median of 0.5, 0.8 and 0.5
        # One round whose read rate was disturbed does not move the result.
        self.assertAlmostEqual(read_fraction(10e9, rounds, [reads[0], (2.0, 2.0), reads[2]]), 0.5)
        with self.assertRaises(ValueError):
            read_fraction(10e9, rounds, reads[:2])


if __name__ == "__main__":
    unittest.main()
