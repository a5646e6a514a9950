"""Tests of the cases: their work, their keys, and how patterns select them."""

import unittest

import cases
from cases import Case, make


class CaseTest(unittest.TestCase):
    def test_kept_pairs_equal_a_count_pair_by_pair(self):
        for mask in ("full", "causal", "window0", "window2", "window9"):
            for sq in range(1, 6):
                for sk in range(1, 8):
                    back = int(mask.removeprefix("window")) if mask.startswith("window") else sk + sq
                    kept = 0
                    for i in range(sq):
                        for j in range(sk):
                            last = i + sk - sq
                            kept += mask == "full" or (last - back <= j <= last)
                    case = make("x", (1, 1, 1, sq, sk, 1), "forward", "f32", mask, 1)
                    self.assertEqual(case.kept_pairs(), kept, (mask, sq, sk))

    def test_flops_are_those_of_two_and_of_five_products(self):
        sizes = (2, 4, 2, 8, 8, 16)
        self.assertEqual(make("x", sizes, "forward", "f32", "full", 1).flops(), 4 * 2 * 4 * 64 * 16)
        self.assertEqual(make("x", sizes, "backward", "f32", "full", 1).flops(), 10 * 2 * 4 * 64 * 16)
        self.assertEqual(make("x", sizes, "forward", "f32", "causal", 1).flops(), 4 * 2 * 4 * 36 * 16)

    def test_a_request_is_the_case_again(self):
        case = make("A", cases.SHAPES["A"], "backward", "bf16", "causal", 2)
        self.assertEqual(Case(**case.request()), case)

    def test_bytes_of_16_bit_types_are_half(self):
        wide = make("E", cases.SHAPES["E"], "forward", "f32", "full", 1)
        narrow = make("E", cases.SHAPES["E"], "forward", "bf16", "full", 1)
        self.assertEqual(wide.tensor_bytes(), 2 * narrow.tensor_bytes())
        self.assertEqual(wide.tensor_bytes(), 4 * (2 * 32 + 2 * 8) * 2048 * 128)
        self.assertEqual(wide.key_value_bytes(), 4 * 2 * 8 * 2048 * 128)


class SelectTest(unittest.TestCase):
    def test_every_case_comes_once_and_patterns_choose(self):
        every = cases.select(["headline", "scaling"], 2, [])
        self.assertEqual(len({case.key for case in every}), len(every))
        causal = cases.select(["headline"], 2, ["forward/f32/*/causal/2"])
        self.assertEqual([case.shape for case in causal], list("ABCDEGH"))

    def test_decoding_is_neither_masked_nor_differentiated(self):
        decode = [case for case in cases.select(["headline"], 1, []) if case.shape == "F"]
        self.assertEqual({(case.operation, case.mask) for case in decode}, {("forward", "full")})

    def test_threads_double_up_to_all(self):
        counts = {case.threads for case in cases.select(["scaling"], 6, [])}
        self.assertEqual(counts, {1, 2, 4, 6})


if __name__ == "__main__":
    unittest.main()
