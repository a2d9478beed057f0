"""Percentiles, and how far they can be trusted.

An estimate is {"value", "low", "high"}: a figure and its 95 % bootstrap interval. Figures need Python alone, intervals
numpy: without it low and high are null. The same values give the same intervals."""
import math

try:
    import numpy
except ImportError:
    numpy = None

SEED = 20
MOST_REPLICATES, LEAST_REPLICATES = 1000, 200
MOST_WORK = 20_000_000  # values looked at by one bootstrap
MOST_AT_ONCE = 200_000  # likewise, by one array
BEYOND = 10  # values that a percentile wants beyond itself


def quantile(ascending, share):
    """As numpy.quantile: linear between neighbours; 0 of nothing."""
    if not ascending:
        return 0
    at = share * (len(ascending) - 1)
    below = int(at)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (at - below) * (ascending[above] - ascending[below])


def median(values):
    return quantile(sorted(values), 0.5)


def mean(values):
    return math.fsum(values) / len(values) if values else 0


def least_count(percent):
    """The least number of values that carries a percentile: ten beyond it."""
    beyond = min(percent, 100 - percent) / 100
    return math.ceil(BEYOND / beyond - 1e-6) if beyond > 0 else math.inf


def key(percent):
    """'p99', 'p99.9'."""
    return f"p{percent:g}"


def describe(values, clusters, percents):
    """A distribution: count, mean, median, std, min, max and the percentiles that the count carries.

    `clusters`: of each value whose it is. Tokens of one request are not independent: requests are drawn whole."""
    if not values:
        return {"count": 0}
    ascending = sorted(values)
    middle = mean(values)
    wanted = sorted({50, *percents})
    low_high = _intervals(values, clusters, wanted)

    def estimate(name, value):
        low, high = low_high.get(name, (None, None))
        return {"value": value, "low": low, "high": high}

    result = {"count": len(values), "mean": estimate("mean", middle), "median": estimate(50, quantile(ascending, 0.5)),
              "std": math.sqrt(math.fsum((v - middle) ** 2 for v in values) / len(values)),
              "min": ascending[0], "max": ascending[-1]}
    for percent in percents:
        if len(values) >= least_count(percent):
            result[key(percent)] = estimate(percent, quantile(ascending, percent / 100))
    return result


def mean_of(values):
    """The estimate of their mean; all zero of none."""
    if not values:
        return {"value": 0, "low": 0, "high": 0}
    low, high = _intervals(values, range(len(values)), []).get("mean", (None, None))
    return {"value": mean(values), "low": low, "high": high}


def _intervals(values, clusters, percents):
    """{"mean" or a percent: (low, high)} by the percentile bootstrap; empty without numpy."""
    if numpy is None:
        return {}
    order = numpy.argsort(values, kind="stable")
    ascending = numpy.asarray(values, dtype=float)[order]
    _, cluster = numpy.unique(numpy.asarray(clusters)[order], return_inverse=True)  # numbered without gaps
    sums, counts = numpy.bincount(cluster, ascending), numpy.bincount(cluster)
    random = numpy.random.default_rng(SEED)
    replicates = min(max(MOST_WORK // len(ascending), LEAST_REPLICATES), MOST_REPLICATES)
    at_once = max(1, MOST_AT_ONCE // len(ascending))
    drawn = []
    for first in range(0, replicates, at_once):
        rows = numpy.arange(min(at_once, replicates - first))[:, None]
        # How often each cluster was drawn: [rows, clusters].
        draws = random.integers(0, len(counts), (len(rows), len(counts)))
        weights = numpy.bincount((draws + rows * len(counts)).ravel(), minlength=draws.size).reshape(draws.shape)
        total = (weights @ counts)[:, None]
        drawn.append(numpy.hstack([(weights @ sums)[:, None] / total,
                                   _weighted(ascending, weights.astype(numpy.int32)[:, cluster], total, percents)]))
    bounds = numpy.quantile(numpy.vstack(drawn), (0.025, 0.975), axis=0).T.tolist()
    return dict(zip(["mean", *percents], map(tuple, bounds)))


def _weighted(ascending, weights, total, percents):
    """The percentiles of values that count `weights` [rows, values] times each, `total` [rows, 1] together:
    [rows, percents]."""
    if not percents:
        return numpy.empty((len(total), 0))
    # One search over all rows, each counted on from the one before.
    seen = numpy.cumsum(weights, dtype=numpy.int32)
    before, first = numpy.cumsum(total)[:, None] - total, numpy.arange(len(total))[:, None] * len(ascending)
    rank = numpy.array(percents) / 100 * (total - 1)
    below = rank.astype(numpy.int64)
    low, high = (ascending[numpy.searchsorted(seen, (before + at).astype(numpy.int32), "right") - first]
                 for at in (below, numpy.minimum(below + 1, total - 1)))
    return low + (high - low) * (rank - below)


def difference(a, b):
    """By how many halves of its own 95 % interval `b` differs from `a`; 0: they are equal."""
    by = b["value"] - a["value"]
    if by == 0:
        return 0
    half = math.hypot((a["high"] - a["low"]) / 2, (b["high"] - b["low"]) / 2)
    return by / half if half > 0 else math.copysign(math.inf, by)
