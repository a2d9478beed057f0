"""The metrics' definitions, on traces made by hand."""
import copy
import unittest

from bench.records import compact, inter_token_gaps, time_per_output_token
from bench.summary import steady_window, summarize

NO_LIMITS = {"ttft_ms": None, "tpot_ms": None, "e2el_ms": None}


def one_request(**more):
    """Due at 1 s, sent at 1.1 s; tokens: one at 1.5 s, three at 1.8 s, one at 2.0 s; ended at 2.01 s."""
    return compact({"run": 0, "index": 0, "outcome": "completed", "scheduled_s": 1.0, "sent_s": 1.1, "lag_s": 0,
                    "end_s": 2.01, "prompt_tokens": 40, "cached_prompt_tokens": 0, "completion_tokens": 5,
                    "arrivals": [[1.5, 1], [1.8, 3], [2.0, 1]],
                    "server_ms": {"prepare": 20, "queue": 50, "prefill": 300, "decode": 500, "preemptions": 2}, **more})


def summary_of(requests, duration_s, **limits):
    return summarize(requests, [duration_s], [90, 95, 99, 99.9], {**NO_LIMITS, **limits})


def steady_run(run):
    """One request every 0.1 s for 10 s; each answers after a second with one token."""
    return [one_request(run=run, scheduled_s=0.1 * i, sent_s=0.1 * i, end_s=0.1 * i + 1, arrivals=[[0.1 * i + 1, 1]])
            for i in range(100)]


class SummaryTest(unittest.TestCase):
    def assert_mean(self, values, expected):
        self.assertAlmostEqual(values["mean"]["value"], expected)

    def test_latencies_count_from_the_scheduled_arrival_and_from_sending(self):
        latencies = summary_of([one_request()], 2.01)["latencies"]
        for name, expected in (("ttft_ms", 500), ("ttft_from_send_ms", 400), ("e2el_ms", 1000),
                               ("e2el_from_send_ms", 900), ("send_delay_ms", 100)):
            self.assert_mean(latencies[name], expected)

    def test_a_message_of_several_tokens_is_several_tokens(self):
        request = one_request()
        for gap, expected in zip(inter_token_gaps(request), (0.1, 0.1, 0.1, 0.2), strict=True):
            self.assertAlmostEqual(gap, expected)
        self.assertAlmostEqual(time_per_output_token(request), 0.5 / 4)
        latencies = summary_of([request], 2.01)["latencies"]
        self.assertEqual(latencies["itl_ms"]["count"], 4)
        self.assert_mean(latencies["itl_ms"], 125)
        self.assertEqual(latencies["chunk_gap_ms"]["count"], 2)  # vLLM's: one per message
        self.assert_mean(latencies["chunk_gap_ms"], 250)

    def test_one_token_has_no_time_per_output_token(self):
        request = one_request(arrivals=[[1.5, 1]])
        self.assertIsNone(time_per_output_token(request))
        latencies = summary_of([request], 2.01)["latencies"]
        self.assertEqual((latencies["tpot_ms"]["count"], latencies["ttft_ms"]["count"]), (0, 1))
        none = summary_of([one_request(arrivals=[])], 2.01)["latencies"]  # an answer without a token ends with its status
        self.assertEqual(none["ttft_ms"]["count"], 0)
        self.assert_mean(none["e2el_ms"], 1010)

    def test_throughput_is_over_the_whole_run(self):
        second = one_request(scheduled_s=2, sent_s=2, end_s=4, arrivals=[[3, 1], [4, 1]])
        summary = summary_of([one_request(), second], 4)
        self.assertEqual((summary["completed"], summary["input_tokens"], summary["output_tokens"]), (2, 80, 7))
        throughput = summary["throughput"]
        self.assertEqual(throughput["duration_s"], 4)
        self.assertEqual([throughput[name]["value"] for name in (
            "requests_per_s", "output_tokens_per_s", "total_tokens_per_s")], [0.5, 7 / 4, 87 / 4])
        # Seconds since the first was sent, at 1.1: [1.1, 2.1) holds five tokens.
        self.assertEqual(summary["peak_tokens_per_s"], 5)
        self.assertEqual(summary["peak_concurrency"], 1)  # one ended when the other was sent

    def test_failures_and_what_had_no_end_do_not_count_as_answers(self):
        failed = one_request(outcome="failed", error={"code": "RESOURCE_EXHAUSTED", "reason": "QUEUE_FULL",
                                                      "message": ""})
        unfinished = one_request(outcome="unfinished")
        unsent = one_request(outcome="unfinished", sent_s=None, arrivals=[])
        summary = summary_of([one_request(), failed, failed, unfinished, unsent], 3)
        self.assertEqual((summary["completed"], summary["failed"], summary["unfinished"]), (1, 2, 2))
        self.assertEqual(summary["output_tokens"], 5)
        self.assertEqual(summary["latencies"]["ttft_ms"]["count"], 1)
        self.assertEqual(summary["failures_by_code"], {"RESOURCE_EXHAUSTED": 2})
        self.assertEqual(summary["failures_by_reason"], {"QUEUE_FULL": 2})

    def test_a_good_request_keeps_every_limit_from_its_scheduled_arrival(self):
        # 400 ms from sending, 500 from the scheduled arrival
        self.assertEqual(summary_of([one_request()], 2, ttft_ms=450)["good"], 0)
        kept = {"ttft_ms": 500.001, "tpot_ms": 125.001, "e2el_ms": 1000.001}
        good = summary_of([one_request()], 4, **kept)
        self.assertEqual(good["good"], 1)
        self.assertEqual(good["throughput"]["good_requests_per_s"], 0.25)
        self.assertEqual(summary_of([one_request()], 2, **{**kept, "tpot_ms": 124})["good"], 0)
        self.assertEqual(summary_of([one_request()], 2, ttft_ms=0)["throughput"]["good_requests_per_s"], 0)
        self.assertIsNone(summary_of([one_request()], 2)["throughput"]["good_requests_per_s"])

    def test_the_time_split_leaves_the_rest_to_the_network(self):
        split = summary_of([one_request()], 2.01)["split"]
        self.assertEqual(split["count"], 1)
        for name, expected in (("client_wait", 100), ("prepare", 20), ("queue", 50), ("prefill", 300),
                               ("decode", 500), ("network", 40)):  # 910 from sending to the end - 870
            self.assertAlmostEqual(split[name]["value"], expected)

    def test_prefill_and_decode_are_cut_into_what_they_were_spent_on(self):
        request = one_request()
        request["server_ms"].update(collective=100, sampling=20)
        parts = summary_of([request], 2.01)["split"]["of_prefill_and_decode"]
        self.assertEqual([parts[name]["value"] for name in ("collective", "sampling", "computing")], [100, 20, 680])
        self.assertIsNone(parts["detokenise"])  # the server did not say

    def test_the_steady_window_is_from_the_first_end_to_the_last_arrival(self):
        requests = steady_run(0)
        begin, end = steady_window(requests)
        self.assertAlmostEqual(begin, 1)
        self.assertAlmostEqual(end, 9.9)
        summary = summary_of(requests, 10.9)
        self.assertAlmostEqual(summary["steady"]["requests"], 89, delta=1)
        # 10 tokens/s once full, where the whole run has 100 in 10.9 s.
        self.assertAlmostEqual(summary["steady"]["throughput"]["output_tokens_per_s"]["value"], 10, delta=0.15)
        self.assertAlmostEqual(summary["throughput"]["output_tokens_per_s"]["value"], 100 / 10.9)

    def test_what_comes_all_at_once_has_no_steady_window(self):
        requests = [{**request, "scheduled_s": 0, "sent_s": 0} for request in steady_run(0)]
        self.assertIsNone(summary_of(requests, 10.9)["steady"])

    def test_runs_are_counted_together_and_shown_apart(self):
        slow = copy.deepcopy(steady_run(1))
        for request in slow:
            request["times"][0] += 1
            request["end_s"] += 1
        summary = summarize(steady_run(0) + slow, [10.9, 11.9], [], NO_LIMITS)
        self.assertEqual(summary["completed"], 200)
        self.assertAlmostEqual(summary["throughput"]["duration_s"], 22.8)
        self.assert_mean(summary["latencies"]["ttft_ms"], 1500)
        for run, expected in zip(summary["runs"], (1000, 2000), strict=True):
            self.assertAlmostEqual(run["mean_ttft_ms"], expected)
        self.assertAlmostEqual(summary["peak_concurrency"], 20, delta=1)  # where an end meets a begin, rounding decides

    def test_nothing_completed_is_no_reason_to_stumble(self):
        summary = summary_of([one_request(outcome="unfinished", sent_s=None, arrivals=[])], 0)
        self.assertEqual((summary["completed"], summary["unfinished"]), (0, 1))
        self.assertEqual(summary["throughput"]["requests_per_s"]["value"], 0)
        self.assertEqual(summarize([], [], [], NO_LIMITS)["completed"], 0)


if __name__ == "__main__":
    unittest.main()
