"""The sweep of tiles: equal tiles are tried once, and the best calls count."""

import unittest

import tune


class FakePeer:
    """Answers with a tile and with times that rise from call to call, as on a machine that becomes busy."""

    clock = 0

    def __init__(self, tile, seconds):
        self.tile, self.seconds, self.closed = tile, seconds, False

    def ask(self, what, **_details):
        if what == "plan":
            return {"block_q": self.tile[0], "block_k": self.tile[1]}
        FakePeer.clock += 1
        return {"seconds": [self.seconds * (1 + 0.01 * FakePeer.clock), 9.0]}

    def close(self):
        self.closed = True


def candidate(tile, seconds):
    made = tune.Candidate.__new__(tune.Candidate)
    made.peer = FakePeer(tile, seconds)
    return made


class TuneTest(unittest.TestCase):
    def setUp(self):
        self.case = tune.all_cases(1)[0]

    def test_equal_tiles_are_tried_once(self):
        candidates = [candidate(tile, 1) for tile in ((128, 256), (64, 256), (128, 256))]
        kept = tune.distinct(self.case, "", candidates)
        self.assertEqual(list(kept), [(128, 256), (64, 256)])
        self.assertEqual([each.peer.closed for each in candidates], [False, False, True])

    def test_a_ratio_is_that_of_the_best_calls(self):
        by_tile = {(128, 256): candidate((128, 256), 1.0), (64, 256): candidate((64, 256), 0.5)}
        found = tune.ratios(by_tile, (128, 256), 0, 4)
        self.assertEqual(found[128, 256], 1)
        self.assertAlmostEqual(found[64, 256], 2, delta=0.05)

    def test_cases_have_keys_of_their_own(self):
        keys = [case.key for case in tune.all_cases(2)]
        self.assertEqual(len(keys), len(set(keys)))


if __name__ == "__main__":
    unittest.main()
