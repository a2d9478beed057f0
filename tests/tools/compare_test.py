"""`bench compare` and the frontier of `bench sweep`."""
import contextlib
import copy
import io
import json
import os
import tempfile
import unittest

from bench import compare, sweep
from bench.compare import BETTER, MIXED, SAME, UNKNOWN, WORSE
from bench.ends import Failure


def of(value, half):
    return {"value": value, "low": value - half, "high": value + half}


def result_of(throughput, ttft_ms, half_ms):
    return {"completed": 300, "failed": 0, "x_bulkhead": {
        "format": 1, "why_invalid": [], "interrupted": False, "workload": {"input_len": 64, "repeats": 1},
        "server": {"tensor_parallel_size": 1, "epoch": "a"}, "runs": [{"duration_s": 60}, {"duration_s": 60}],
        "throughput": {"output_tokens_per_s": of(throughput, 10)},
        "latencies": {"ttft_ms": {"mean": of(ttft_ms, half_ms)}}}}


PLAIN = result_of(500, 100, 10)


def changed(result=PLAIN, **ours):
    result = copy.deepcopy(result)
    result["x_bulkhead"].update(ours)
    return result


class CompareTest(unittest.TestCase):
    def compared(self, before, after, any_workload=False):
        return compare.compare(json.dumps(before), json.dumps(after), any_workload)

    def verdict(self, before, after):
        return self.compared(before, after)["verdict"]

    def refusal(self, bad, any_workload=True):
        with self.assertRaises(Failure) as refused:
            self.compared(PLAIN, bad, any_workload)
        self.assertEqual(refused.exception.code, 2)
        return str(refused.exception)

    def printed(self, before, after):
        """What the command prints, and its failure."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("before", "after")]
            for path, result in zip(paths, (before, after)):
                with open(path, "w", encoding="utf-8") as f:
                    json.dump(result, f)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                try:
                    self.assertEqual(compare.run("bulkhead", paths), 0)
                except Failure as failure:
                    return out.getvalue(), failure
        return out.getvalue(), None

    def test_a_difference_within_the_intervals_is_none(self):
        comparison = self.compared(PLAIN, result_of(510, 110, 10))
        self.assertEqual((len(comparison["metrics"]), comparison["verdict"]), (2, SAME))
        # One and a half times both intervals together, hypot(10, 10) = 14.1, are 21.2.
        self.assertEqual(self.verdict(PLAIN, result_of(521, 100, 10)), SAME)
        self.assertEqual(self.verdict(PLAIN, result_of(522, 100, 10)), BETTER)

    def test_more_tokens_are_better_and_more_milliseconds_worse(self):
        better = self.compared(PLAIN, result_of(600, 100, 10))
        self.assertEqual((better["metrics"][0]["verdict"], better["verdict"]), (BETTER, BETTER))
        worse = self.compared(PLAIN, result_of(500, 150, 10))
        self.assertEqual((worse["metrics"][1]["verdict"], worse["verdict"]), (WORSE, WORSE))
        self.assertEqual(self.verdict(PLAIN, result_of(600, 150, 10)), MIXED)
        for after, words in ((result_of(500, 150, 10), "is worse than"), (result_of(600, 150, 10), "better in others")):
            _, failure = self.printed(PLAIN, after)
            self.assertEqual(failure.code, 1)
            self.assertIn(words, str(failure))

    def test_one_run_each_cannot_tell_what_moves_between_runs(self):
        before = changed(result_of(500, 100, 5), runs=[{"duration_s": 60}])
        after = changed(result_of(500, 150, 5), runs=[{"duration_s": 60}])
        self.assertEqual(self.verdict(before, after), UNKNOWN)
        self.assertEqual(self.verdict(before, before), SAME)
        text, failure = self.printed(before, after)
        self.assertIsNone(failure)
        self.assertIn("verdict: cannot tell: one run each", text)
        self.assertIn("--repeats", text)
        after = changed(after, runs=[{"mean_ttft_ms": 149}, {"mean_ttft_ms": 151}])
        self.assertEqual(self.verdict(before, after), WORSE)

    def test_a_median_moves_between_runs_as_its_mean_does(self):
        def of_runs(median, *means):
            return changed(latencies={"ttft_ms": {"median": of(median, 1)}}, runs=[{"mean_ttft_ms": m} for m in means])

        self.assertEqual(self.verdict(of_runs(45, 80, 120), of_runs(53, 80, 120)), SAME)
        self.assertEqual(self.verdict(of_runs(45, 99, 101), of_runs(53, 99, 101)), WORSE)

    def test_wide_intervals_leave_a_big_difference_open(self):
        self.assertEqual(self.verdict(result_of(500, 100, 40), result_of(500, 150, 40)), SAME)
        self.assertEqual(self.verdict(result_of(500, 100, 5), result_of(500, 150, 5)), WORSE)

    def test_runs_that_disagree_widen_the_interval(self):
        before = changed(result_of(500, 100, 5), runs=[{"mean_ttft_ms": 60}, {"mean_ttft_ms": 140}])
        self.assertEqual(self.verdict(before, result_of(500, 150, 5)), SAME)

    def test_other_loads_are_not_compared(self):
        other = changed(workload={"input_len": 128, "repeats": 1})
        self.assertIn("input_len: 64 -> 128", self.refusal(other, any_workload=False))
        self.assertEqual(self.compared(PLAIN, other, any_workload=True)["verdict"], SAME)
        repeated = changed(workload={"input_len": 64, "repeats": 3})  # the same load, measured more often
        self.assertEqual(self.verdict(PLAIN, repeated), SAME)

    def test_a_load_that_one_file_alone_names_is_another(self):
        more = changed(workload={"input_len": 64, "burstiness": 2})
        self.assertIn("null -> 2", self.refusal(more, any_workload=False))
        with self.assertRaisesRegex(Failure, "2 -> null"):
            self.compared(more, PLAIN)

    def test_what_differs_between_the_servers_is_listed(self):
        after = changed(server={"tensor_parallel_size": 2, "epoch": "b"})
        self.assertEqual(self.compared(PLAIN, after)["differences"], ["tensor_parallel_size: 1 -> 2"])

    def test_an_invalid_result_is_doubted(self):
        after = changed(why_invalid=["the client was the limit"], interrupted=True)
        self.assertEqual(self.compared(PLAIN, after)["doubts"], [
            "the second result is marked invalid: the client was the limit",
            "the second measurement was stopped early"])
        text, failure = self.printed(PLAIN, after)
        self.assertIn("DOUBT: the second result is marked invalid", text)
        self.assertEqual(failure.code, 1)
        after = changed(why_invalid=[{"code": 7}])
        self.assertEqual(self.compared(PLAIN, after)["doubts"], ["the second result is marked invalid: {\"code\":7}"])

    def test_what_is_no_result_is_refused(self):
        for text in ("", "[]", "{\"completed\": 3}", "{\"x_bulkhead\": 4}", "{\"x_bulkhead\": {\"format\": 2}}"):
            with self.subTest(text), self.assertRaisesRegex(Failure, "the first file is no result.json"):
                compare.compare(text, json.dumps(PLAIN), False)

    def test_a_result_that_knows_nothing_is_refused(self):
        self.assertIn("workload is missing", self.refusal({"x_bulkhead": {"format": 1}}))
        self.assertIn("workload is missing or no object", self.refusal(changed(workload=[1])))
        bad = changed()
        del bad["failed"]
        for failed in ("5", True, -1, 10 ** 400):
            self.assertIn("completed and failed requests are missing", self.refusal({**changed(), "failed": failed}))
        self.assertIn("completed and failed requests are missing", self.refusal(bad))
        self.assertIn("no metric in common", self.refusal(changed(throughput={}, latencies=[])))

    def test_figures_that_nobody_measures_are_refused(self):
        for value in (-1.0, 1e308, "5", None, True):
            with self.subTest(value):
                self.assertIn("second file's mean TTFT (ms)", self.refusal(
                    changed(latencies={"ttft_ms": {"mean": {**of(100, 10), "value": value}}})))
                self.assertIn("mean_ttft_ms", self.refusal(changed(runs=[{"mean_ttft_ms": value}])))
        bad = changed(latencies={"ttft_ms": {"mean": {"value": 5, "low": 6, "high": 4}}})
        self.assertIn("low 6 above high 4", self.refusal(bad))

    def test_a_metric_of_one_result_alone_is_named(self):
        after = changed(latencies={})
        self.assertEqual(self.compared(PLAIN, after)["not_compared"],
                         ["mean TTFT (ms): the second result does not have it"])
        self.assertEqual(self.compared(after, PLAIN)["not_compared"],
                         ["mean TTFT (ms): the first result does not have it"])

    def test_failed_requests_are_a_doubt(self):
        failing = {**PLAIN, "completed": 26, "failed": 2974}
        doubts = self.compared(failing, PLAIN)["doubts"]
        self.assertEqual(len(doubts), 1)
        self.assertIn("2974 of 3000 requests of the first measurement failed", doubts[0])
        self.assertEqual(self.compared(PLAIN, {**failing, "completed": 0})["doubts"],
                         ["no request of the second measurement completed"])
        few = {**PLAIN, "completed": 2990, "failed": 10}
        self.assertEqual(self.compared(few, few)["doubts"], [])

    def test_a_change_of_nothing_has_no_sign_and_no_base_has_no_change(self):
        text, _ = self.printed(PLAIN, result_of(500, 99.999, 10))
        self.assertIn("+0.0 %", text)
        self.assertNotIn("-0.0 %", text)
        none = changed(throughput={"output_tokens_per_s": {"value": 0, "low": 0, "high": 0}})
        self.assertRegex(self.printed(none, PLAIN)[0], r"output throughput.* - +better")

    def test_two_files_are_needed_and_a_directory_is_asked_for_its_result(self):
        for args, words in ((["a.json"], "1 were given"), ([tempfile.gettempdir()] * 2, "is a directory; name its result"),
                            (["/nowhere/a"] * 2, "cannot read"), (["a", "b", "--jsn"], "did you mean --json")):
            with self.subTest(args), self.assertRaisesRegex(Failure, words) as refused:
                compare.run("bulkhead", args)
            self.assertEqual(refused.exception.code, 2)


class SweepTest(unittest.TestCase):
    def point(self, tokens_per_s, per_user, completed=10, failed=0, interrupted=False):
        result = {"completed": completed, "failed": failed, "output_throughput": tokens_per_s, "request_throughput": 1,
                  "request_goodput": None, "model_id": "tide", "x_bulkhead": {
                      "interrupted": interrupted, "why_invalid": [],
                      "latencies": {"tpot_ms": {"count": 1, "mean": of(1e3 / per_user, 0)}, "ttft_ms": {"count": 0},
                                    "e2el_ms": {"count": 0}}}}
        return sweep.point_of("concurrency 3", result)

    def frontier(self, points):
        sweep.find_frontier(points)
        return [point["on_frontier"] for point in points]

    def test_the_frontier_holds_what_nobody_beats_in_both(self):
        points = [self.point(*figures) for figures in ((100, 50), (300, 30), (250, 30), (300, 10))]
        self.assertEqual(self.frontier(points), [True, True, False, False])
        self.assertIn("concurrency 3", sweep.sweep_table(points))
        points[1]["result"]["x_bulkhead"]["why_invalid"] = ["the client was late"]
        self.assertIn("\nconcurrency 3 is invalid: the client was late\n", sweep.sweep_table(points))
        page = sweep.sweep_page(points)
        self.assertIn("Pareto frontier", page)
        self.assertEqual(page.count("<svg"), 2)

    def test_a_point_of_failed_or_unfinished_requests_is_no_frontier(self):
        points = [self.point(100, 100), self.point(900, 900, failed=10), self.point(900, 900, interrupted=True),
                  self.point(900, 900, completed=0)]
        self.assertEqual(self.frontier(points), [True, False, False, False])

    def test_a_sweep_is_over_rates_or_concurrencies(self):
        for args, words in (([], "give the points of the sweep"), (["--request-rate", "1", "--max-concurrency", "2"], "either"),
                            (["--max-concurrency", "1,x"], "1,x"), (["--request-rate", "fast"], "fast"),
                            (["--request-rate=1", "--dataset-name", "trace"], "cannot be swept")):
            with self.subTest(args), self.assertRaisesRegex(Failure, words) as refused:
                sweep.run("bulkhead", args)
            self.assertEqual(refused.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
