"""Percentiles and intervals."""
import math
import random
import unittest
import unittest.mock

import numpy

from bench import estimates
from bench.estimates import describe, difference, least_count, mean_of, median, quantile


def independent(values, percents=()):
    return describe(values, range(len(values)), percents)


def normal(count, mean, deviation, seed):
    draw = random.Random(seed)
    return [draw.gauss(mean, deviation) for _ in range(count)]


def estimate(value, low, high):
    return {"value": value, "low": low, "high": high}


class QuantileTest(unittest.TestCase):
    def test_quantiles_lie_between_neighbours(self):
        self.assertEqual(quantile([], 0.5), 0)
        self.assertEqual(quantile([7], 0.99), 7)
        self.assertEqual(median([4, 1, 3, 2]), 2.5)
        self.assertEqual(quantile([1, 2, 3, 4], 1), 4)
        self.assertEqual(quantile([1, 2, 3, 4], 0), 1)
        self.assertAlmostEqual(quantile([0, 10], 0.99), 9.9)
        # numpy.percentile([1, 2, 4, 8], [25, 50, 90])
        for share, value in ((0.25, 1.75), (0.5, 3), (0.9, 6.8)):
            self.assertAlmostEqual(quantile([1, 2, 4, 8], share), value)


class DescribeTest(unittest.TestCase):
    def test_a_percentile_wants_ten_observations_beyond_it(self):
        for percent, count in ((50, 20), (90, 100), (95, 200), (99, 1000), (99.9, 10000), (5, 200)):
            self.assertEqual(least_count(percent), count)
        few = independent(normal(999, 0, 1, 1), [90, 99])
        self.assertIn("p90", few)
        self.assertNotIn("p99", few)
        self.assertIn("p99", independent(normal(1000, 0, 1, 1), [99]))

    def test_describes_what_it_is_given(self):
        values = independent([3, 1, 2, 6])
        self.assertEqual(values["count"], 4)
        self.assertEqual(values["mean"]["value"], 3)
        self.assertEqual(values["median"]["value"], 2.5)
        self.assertAlmostEqual(values["std"], math.sqrt(3.5))
        self.assertEqual((values["min"], values["max"]), (1, 6))
        self.assertLessEqual(values["mean"]["low"], 3)
        self.assertGreaterEqual(values["mean"]["high"], 3)
        self.assertEqual(independent([], [99]), {"count": 0})

    def test_the_interval_of_a_mean_is_that_of_the_normal_approximation(self):
        values = independent(normal(2000, 10, 3, 5), [90])
        half = 1.96 * values["std"] / math.sqrt(2000)
        mean = values["mean"]
        self.assertAlmostEqual(mean["high"] - mean["value"], half, delta=0.15 * half)
        self.assertAlmostEqual(mean["value"] - mean["low"], half, delta=0.15 * half)
        # The 90th percentile's standard error is sqrt(p (1 - p) / n) / density.
        density = math.exp(-0.5 * 1.2816 ** 2) / math.sqrt(2 * math.pi) / 3
        error = math.sqrt(0.09 / 2000) / density
        p90 = values["p90"]
        self.assertAlmostEqual((p90["high"] - p90["low"]) / 2, 1.96 * error, delta=0.35 * 1.96 * error)

    def test_intervals_hold_the_truth_about_nineteen_times_in_twenty(self):
        held = 0
        for trial in range(300):
            mean = mean_of(normal(60, 4, 2, 100 + trial))
            held += mean["low"] <= 4 <= mean["high"]
        self.assertGreater(held, 0.90 * 300)
        self.assertLess(held, 0.985 * 300)

    def test_tokens_of_one_request_are_not_independent(self):
        # 100 requests of 50 equal tokens say as much as 100 values, not as 5000.
        levels = normal(100, 10, 2, 9)
        values = [level for level in levels for _ in range(50)]
        honest = describe(values, [i // 50 for i in range(5000)], [])["mean"]
        vain, expected = independent(values)["mean"], mean_of(levels)
        widths = [one["high"] - one["low"] for one in (honest, vain, expected)]
        self.assertAlmostEqual(widths[0], widths[2], delta=0.15 * widths[2])
        self.assertGreater(widths[0], 5 * widths[1])

    def test_a_percentile_of_drawn_requests_counts_each_as_often_as_it_was_drawn(self):
        # 40 requests of one value each, and one of 60 values: without it the median is 1, with it 9.
        values, clusters = [1] * 40 + [9] * 60, [*range(40), *[40] * 60]
        self.assertEqual(describe(values, clusters, [])["median"], estimate(9, 1, 9))

    def test_percentiles_of_weighted_values_are_numpys_of_the_repeated_ones(self):
        draw = numpy.random.default_rng(3)
        ascending = numpy.sort(draw.normal(size=30))
        weights = draw.integers(0, 4, (20, 30)).astype(numpy.int32)
        percents = [1, 25, 50, 90, 99.9]
        got = estimates._weighted(ascending, weights, weights.sum(axis=1)[:, None], percents)
        for row, counts in zip(got, weights, strict=True):
            numpy.testing.assert_allclose(row, numpy.percentile(numpy.repeat(ascending, counts), percents))

    def test_clusters_may_have_gaps_in_their_numbers(self):
        self.assertEqual(describe([1, 3], [7, 900], [])["mean"], estimate(2, 1, 3))

    def test_the_same_observations_give_the_same_interval(self):
        values = normal(50, 1, 1, 2)
        self.assertEqual(mean_of(values), mean_of(values))
        self.assertEqual(mean_of([]), estimate(0, 0, 0))

    def test_without_numpy_there_are_figures_and_no_intervals(self):
        with unittest.mock.patch.object(estimates, "numpy", None):
            self.assertEqual(independent([3, 1, 2, 6])["median"], estimate(2.5, None, None))


class DifferenceTest(unittest.TestCase):
    def test_a_difference_counts_in_units_of_both_intervals(self):
        self.assertEqual(difference(estimate(10, 7, 13), estimate(15, 11, 19)), 1)
        self.assertEqual(difference(estimate(10, 7, 13), estimate(5, 1, 9)), -1)
        self.assertEqual(difference(estimate(10, 10, 10), estimate(10, 10, 10)), 0)
        self.assertEqual(difference(estimate(10, 10, 10), estimate(11, 11, 11)), math.inf)


if __name__ == "__main__":
    unittest.main()
