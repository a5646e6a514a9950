"""Tests the double-precision reference with which peers are compared. The reference must agree with plain loops and
with finite differences, and must find planted errors.
"""

import unittest
from dataclasses import replace

import numpy as np

import reference
from cases import make


def attention(q, k, v, mask):
    """Computes one head by plain loops. @return output rows"""
    out = np.zeros((len(q), v.shape[1]))
    for i, row in enumerate(q):
        scores = {}
        for j, key in enumerate(k):
            last = i + len(k) - len(q)
            back = {"full": None, "causal": len(k)}.get(mask, 2)
            if back is None or last - back <= j <= last:
                scores[j] = float(row @ key) / np.sqrt(len(row))
        total = sum(np.exp(score) for score in scores.values())
        out[i] = sum(np.exp(score) / total * v[j] for j, score in scores.items())
    return out


class ReferenceTest(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(7)
        self.q, self.d_out = random.standard_normal((2, 4, 3))
        self.k, self.v = random.standard_normal((2, 6, 3))

    def head(self, mask, q=None, k=None, v=None):
        q, k, v = self.q if q is None else q, self.k if k is None else k, self.v if v is None else v
        return reference.Head(q, k, v, mask, "f32", self.d_out)

    def slope(self, which, row, mask):
        """Returns the derivative of sum(out * d_out) with respect to a row of an operand, from central differences."""
        tensors = {"q": self.q, "k": self.k, "v": self.v}
        step, slopes = 1e-5, []
        for column in range(3):
            sides = []
            for sign in (1, -1):
                moved = {name: tensor.copy() for name, tensor in tensors.items()}
                moved[which][row, column] += sign * step
                sides.append(np.sum(attention(mask=mask, **moved) * self.d_out))
            slopes.append((sides[0] - sides[1]) / (2 * step))
        return slopes

    def test_forward_equals_plain_loops(self):
        for mask in ("full", "causal", "window2"):
            out, bound, _, _ = self.head(mask).forward(np.arange(4))
            np.testing.assert_allclose(out, attention(self.q, self.k, self.v, mask), rtol=1e-12)
            self.assertTrue((bound > 0).all() and (bound < 1e-3).all())

    def test_gradients_equal_finite_differences(self):
        for mask in ("full", "causal", "window2"):
            head = self.head(mask)
            for row in range(4):
                dq, _ = head.query_gradients(np.array([row]))
                np.testing.assert_allclose(dq[0], self.slope("q", row, mask), atol=1e-8)
            for key in range(2, 6):
                dk, _, dv, _ = reference.key_gradients([head], key)
                np.testing.assert_allclose(dk, self.slope("k", key, mask), atol=1e-8)
                np.testing.assert_allclose(dv, self.slope("v", key, mask), atol=1e-8)

    def test_bf16_is_rounded_to_even_and_back(self):
        values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -2.5], np.float32)
        bits = reference.from_float(values, "bf16")
        np.testing.assert_array_equal(reference.to_double(bits, "bf16"), [1.0, 1.0, 1 + 2**-6, -2.5])


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.case = make("x", (1, 4, 2, 5, 7, 3), "backward", "f32", "causal", 1)
        random = np.random.default_rng(8)
        shapes = {"q": (1, 4, 5, 3), "k": (1, 2, 7, 3), "v": (1, 2, 7, 3), "d_out": (1, 4, 5, 3)}
        self.inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        self.expected = reference.expected_rows(self.case, self.inputs)

    def exact(self):
        """Returns results that equal the expected ones exactly."""
        shapes = {"dq": "q", "dk": "k", "dv": "v"}
        results = {name: np.full_like(self.inputs[like], np.nan) for name, like in shapes.items()}
        for row in self.expected:
            results[row.name][row.batch, row.head, row.row] = row.value
        return results

    def test_every_gradient_is_looked_at_the_last_row_among_them(self):
        self.assertEqual({row.name for row in self.expected}, {"dq", "dk", "dv"})
        self.assertTrue(any((row.name, row.head, row.row) == ("dq", 3, 4) for row in self.expected))
        self.assertTrue(any((row.name, row.head, row.row) == ("dk", 1, 6) for row in self.expected))

    def test_rounding_passes(self):
        self.assertLess(reference.compare(self.expected, self.exact(), "f32")[1], 1)

    def test_an_error_and_a_nan_do_not_pass(self):
        for row in self.expected:
            for wrong in (row.value[0] + 1e-3, np.nan):
                results = self.exact()
                results[row.name][row.batch, row.head, row.row, 0] = wrong
                self.assertGreater(reference.compare(self.expected, results, "f32")[1], 1, row.name)

    def test_an_exact_zero_of_bound_zero_hides_no_error_beside_it(self):
        row = replace(self.expected[0], value=np.zeros(3), bound=np.array([0.0, 1e-6, 1e-6]))
        for wrong, share in ((0.0, 0.0), (5e-6, 5.0), (np.nan, np.inf)):
            results = self.exact()
            results[row.name][row.batch, row.head, row.row] = [0.0, wrong, 0.0]
            self.assertAlmostEqual(reference.compare([row], results, "f32")[1], share, places=5)

    def test_a_nan_in_what_is_expected_does_not_pass(self):
        nan = np.full(3, np.nan)
        for row in (replace(self.expected[0], value=nan), replace(self.expected[0], bound=nan)):
            self.assertEqual(reference.compare([row], self.exact(), "f32")[1], np.inf)


if __name__ == "__main__":
    unittest.main()
