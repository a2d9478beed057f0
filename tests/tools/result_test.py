"""What `bench report` prints and writes: the table, result.json and the page."""
import contextlib
import io
import json
import os
import tempfile
import unittest
import unittest.mock

from bench import charts, definitions, report
from bench.client_facts import why_invalid
from bench.console import console
from bench.ends import Failure
from bench.page import report_page
from bench.records import compact, first_failure
from bench.result import result_of
from bench.server_facts import memory_use

MIB = 1 << 20


def written():
    """120 requests, one each 0.1 s, sent 10 ms late, of two messages: one token, then two. The eighth one failed."""
    requests = []
    for i in range(120):
        requests.append({"run": 0, "index": i, "outcome": "completed", "scheduled_s": 0.1 * i, "sent_s": 0.1 * i + 0.01,
                         "lag_s": 0, "end_s": 0.1 * i + 0.16, "prompt_tokens": 9, "cached_prompt_tokens": 0,
                         "completion_tokens": 3, "arrivals": [[0.1 * i + 0.11, 1], [0.1 * i + 0.15, 2]],
                         "server_ms": {"prepare": 1, "queue": 10, "prefill": 80, "decode": 40, "preemptions": 0, "collective": 30,
                                       "sampling": 2}})
    requests[7].update(outcome="failed", error={"code": "RESOURCE_EXHAUSTED", "reason": "QUEUE_FULL",
                                                "message": "the queue is \"full\""})
    numbers = {name: "0" for name in ("max_num_queued_reqs", "num_kv_blocks")}
    numbers.update({name: 0 for name in ("max_num_seqs", "max_model_len", "max_num_batched_tokens", "block_size")})
    ranks = [{"rank": rank, "host": f"host{rank}", "device": "", "cores": "", "numa_nodes": "",
              "arenas": [{"term": "kv", "bytes": str(3 * MIB)}],
              **{name: "0" for name in ("total_bytes", "others_bytes", "reserve_bytes", "free_bytes", "stranded_bytes",
                                        "kv_bytes_per_token")}} for rank in range(2)]
    server = {"info": {"version": "1", "epoch": "e", "device": "cpu", "tensor_parallel_size": 2, "kv_cache_dtype": "f32",
                       **numbers, "provenance": {"launcher": "mpirun"},
                       "clock_offsets": [{"offset_us": 0, "error_us": 0}, {"offset_us": -12.5, "error_us": 3}]},
              "model": {"served_model_name": "<model>", "architecture": "a", "dtype": "f32", "config_sha256": "c"},
              "ranks": {"binding_rank": 1, "binding_term": "kv", "host_bytes": "0", "ranks": ranks}}
    run = {"date": "20260102-030405", "interrupted": False, "signal": 0, "allow_failures": False,
           "save_detailed": False, "null_server": False, "label": None, "metadata": {"site": "quay"},
           "percentiles": [90, 95, 99, 99.9], "goodput": {"ttft_ms": 1000, "tpot_ms": None, "e2el_ms": None},
           "workload": {"request_rate": 10, "burstiness": 1, "max_concurrency": None, "ramp_up_strategy": None},
           "client": {"version": "1", "host": "here", "threads": 2, "args": ["--request-rate", "10"],
                      "busiest_thread_share": 0, "ceiling": None},
           "durations_s": [requests[-1]["end_s"]], "server": server,
           "load": {"before": load(1, QUEUE_FULL=4), "after": load(40, QUEUE_FULL=5, blocks=64, preemptions=3),
                    "samples": [look(0), look(0, 12)]}}
    return run, requests


def sample():
    run, requests = written()
    return {**run, "unsent": 0}, [compact(request) for request in requests]


def load(peak, blocks=0, preemptions=0, devices=(), **errors):
    return {"num_kv_blocks": str(blocks), "num_kv_blocks_used_peak": str(peak), "num_preemptions_total": str(preemptions),
            "num_errors_by_reason": {reason: str(count) for reason, count in errors.items()},
            "device_allocations_after_ready": "0", "device_memory": list(devices),
            "prefix_cache_queries_total": "0", "prefix_cache_hits_total": "0"}


def look(used, time_s=0):
    return {"time_s": time_s, "kv_blocks_used": used, "requests_running": 0, "requests_waiting": 0, "resident_bytes": 0}


class TableTest(unittest.TestCase):
    def table(self, run, requests):
        return console(run, result_of(run, requests))

    def test_without_a_completed_request_no_latency_is_told(self):
        run, requests = sample()
        for request in requests:
            request.update(outcome="failed", error={"code": "X", "reason": "", "message": ""})
        table = self.table(run, requests)
        self.assertRegex(table, r"Counted from Sending-+\nMean TTFT \(ms\): +none\nMean E2EL \(ms\): +none\n")

    def test_the_table_has_the_rows_that_users_know_in_their_order(self):
        table, at = self.table(*sample()), 0
        for row in ("============ Serving Benchmark Result ============", "Successful requests:", "Failed requests:",
                    "Request rate configured (RPS):", "Benchmark duration (s):", "Total input tokens:",
                    "Total generated tokens:", "Request throughput (req/s):", "Request goodput (req/s):",
                    "Output token throughput (tok/s):", "Peak output token throughput (tok/s):",
                    "Peak concurrent requests:", "Total token throughput (tok/s):",
                    "---------------Time to First Token----------------", "Mean TTFT (ms):", "Median TTFT (ms):",
                    "P99 TTFT (ms):", "-----Time per Output Token (excl. 1st token)------", "Mean TPOT (ms):",
                    "---------------Inter-token Latency----------------", "Mean ITL (ms):",
                    "----------------End-to-end Latency----------------", "Mean E2EL (ms):"):
            self.assertIn(row, table[at:])
            at = table.index(row, at)
        for row in ("P99 TTFT (ms):                           n = 119, needs 1000\n",
                    "Mean TTFT (ms):                          110.00 ",
                    "Rank 1 on host1:                         3.0 MiB taken", "40 of 64\n", "QUEUE_FULL 1\n",
                    "Collectives (ms):                        30.00\n", "-12.5 +- 3.0"):
            self.assertIn(row, table)
        for row in ("INVALID", "Detokenising", "GPU of rank"):
            self.assertNotIn(row, table)

    def test_results_of_nothing_can_be_written(self):
        run, _ = sample()
        run.update(server=None, load=None, durations_s=[0])
        result = result_of(run, [])
        self.assertIn("Mean TTFT (ms):                          none\n", console(run, result))
        self.assertEqual(result["completed"], 0)
        self.assertNotIn("nan", report_page(run, [], result))


class ResultTest(unittest.TestCase):
    def test_vllms_keys_have_vllms_meaning(self):
        result = result_of(*sample())
        expected = {"completed": 119, "failed": 1, "total_output_tokens": 3 * 119, "request_rate": 10, "site": "quay",
                    "p99_ttft_ms": None}
        self.assertEqual({key: result[key] for key in expected}, expected)
        # From sending; between messages.
        for name, value in (("ttft", 100), ("itl", 40), ("tpot", 20), ("e2el", 140)):
            self.assertAlmostEqual(result[f"mean_{name}_ms"], value)
        for key in ("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "burstiness",
                    "max_concurrency", "duration", "total_input_tokens", "request_throughput", "request_goodput",
                    "output_throughput", "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
                    "median_ttft_ms", "std_ttft_ms", "p90_ttft_ms"):
            self.assertIn(key, result)
        self.assertNotIn("ttfts", result)
        self.assertIn("p99.9_ttft_ms", result)

    def test_our_keys_count_from_the_scheduled_arrival_and_by_token(self):
        ours = result_of(*sample())["x_bulkhead"]
        self.assertIs(ours["valid"], True)
        self.assertAlmostEqual(ours["latencies"]["ttft_ms"]["mean"]["value"], 110)
        self.assertAlmostEqual(ours["latencies"]["itl_ms"]["mean"]["value"], 20)
        self.assertEqual(ours["latencies"]["itl_ms"]["count"], 2 * 119)
        self.assertNotIn("p99", ours["latencies"]["ttft_ms"])
        memory = ours["memory"]
        self.assertEqual((memory["kv_blocks_used_peak"], memory["preemptions"]), (40, 3))
        self.assertEqual(memory["refusals"], {"QUEUE_FULL": 1})
        self.assertEqual(memory["ranks"][1]["arenas"]["kv"], 3 * MIB)
        self.assertEqual(ours["server"]["provenance"]["launcher"], "mpirun")
        self.assertEqual(ours["server"]["clock_offsets_us"][1], {"offset": -12.5, "error": 3})
        self.assertEqual(ours["failures_by_code"], {"RESOURCE_EXHAUSTED": 1})
        self.assertAlmostEqual(ours["time_split_ms"]["prefill"]["value"], 80)
        parts = ours["time_split_ms"]["of_prefill_and_decode"]
        self.assertEqual({name: part and round(part["value"], 9) for name, part in parts.items()},
                         {"computing": 88, "collective": 30, "sampling": 2, "detokenise": None})
        self.assertEqual(ours["client"]["args"], ["--request-rate", "10"])
        self.assertEqual(ours["definitions"]["itl"], definitions.DEFINITIONS[3].formula)

    def test_drafts_of_the_measurement_have_vllms_keys_where_the_server_speculates(self):
        run, requests = sample()
        self.assertNotIn("spec_decode_num_drafts", result_of(run, requests))
        self.assertNotIn("Speculative", console(run, result_of(run, requests)))
        names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_accepted_tokens_per_pos")
        for when, counts in (("before", ("10", "30", "9", ["6", "2", "1"])), ("after", ("14", "40", "17", ["10", "5", "2"]))):
            run["load"][when]["drafts"] = dict(zip(names, counts))
        result = result_of(run, requests)
        expected = {"acceptance_rate": 80, "acceptance_length": 3, "num_drafts": 4, "draft_tokens": 10, "accepted_tokens": 8,
                    "per_position_acceptance_rates": [1, 0.75, 0.25]}
        self.assertEqual({name: result["spec_decode_" + name] for name in expected}, expected)
        self.assertRegex(console(run, result), r"-Speculative Decoding-+\nAcceptance rate \(%\): +80.00\nAcceptance length: +3.00\n"
                         r"Drafts: +4\nDraft tokens: +10\nAccepted tokens: +8\nPer-position acceptance \(%\): *\n"
                         r"  Position 0: +100.00\n  Position 1: +75.00\n  Position 2: +25.00\n")
        run["load"]["after"]["drafts"] = run["load"]["before"]["drafts"]  # speculates, and drafted nothing
        self.assertNotIn("spec_decode_num_drafts", result_of(run, requests))

    def test_details_are_one_entry_per_request(self):
        run, requests = sample()
        result = result_of({**run, "save_detailed": True}, requests)
        for key in ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors"):
            self.assertEqual(len(result[key]), 120, key)
        self.assertAlmostEqual(result["ttfts"][3], 0.1)
        self.assertAlmostEqual(result["queue_times"][3], 0.01)
        self.assertEqual(result["output_lens"][7], 0)
        self.assertEqual(result["errors"][7], "the queue is \"full\"")


class PageTest(unittest.TestCase):
    def test_the_page_is_complete_in_itself(self):
        run, requests = sample()
        result = result_of(run, requests)
        result["x_bulkhead"]["why_invalid"] = ["the client was slow & old"]
        page = report_page(run, requests, result)
        self.assertGreater(page.count("<svg"), 7)
        for part in ("slow &amp; old", "&lt;model&gt;", "-12.5 +- 3.0", "Time to first token</text>"):
            self.assertIn(part, page)
        for part in ("<model>", "href=\"http", "src=", "<script", "nan", "purl.org"):
            self.assertNotIn(part, page)


class MemoryUseTest(unittest.TestCase):
    def test_a_peak_that_the_server_did_not_exceed_is_what_was_seen(self):
        use = memory_use({"before": load(50), "after": load(50), "samples": [look(0), look(12), look(0)]})
        self.assertEqual((use["kv_blocks_used_peak"], use["kv_blocks_used_peak_is_exact"]), (12, False))

    def test_gpus_are_told_with_what_they_had_free_at_the_least(self):
        run, requests = sample()
        run["load"]["after"]["device_memory"] = [
            {"free_bytes": str(5 * MIB), "free_bytes_at_ready": str(5 * MIB), "free_bytes_least": str(least * MIB)}
            for least in (5, 4)]
        result = result_of(run, requests)
        table = console(run, result)
        self.assertIn("GPU of rank 0, free at the least:        5.0 MiB, as at READY\n", table)
        self.assertIn("4.0 MiB, 1.0 MiB less than at READY\n", table)
        devices = result["x_bulkhead"]["memory"]["devices"]
        self.assertEqual([device["free_bytes_least"] for device in devices], [5 * MIB, 4 * MIB])


class WhyInvalidTest(unittest.TestCase):
    def test_a_result_that_the_client_limited_is_said_to_be(self):
        summary = {"latencies": {"ttft_ms": {"median": {"value": 100}}}, "peak_tokens_per_s": 100,
                   "throughput": {"duration_s": 10, "requests_per_s": {"value": 10}}}
        fine = {"send_lag_p99_ms": 0, "busiest_thread_share": 0.1,
                "ceiling": {"requests_per_s": 1000, "tokens_per_s": 10000}}
        self.assertEqual(why_invalid(summary, fine), [])
        fast = {**summary, "peak_tokens_per_s": 6000}
        for figures, client, words in (
                (summary, {"send_lag_p99_ms": 5.1}, "5.10 ms later"),  # 5 % of 100 are 5
                (summary, {"send_lag_p99_ms": 4.9, "busiest_thread_share": 0.9}, "busy 90 %"),
                (fast, {}, "60 % of what this client")):
            reasons = why_invalid(figures, {**fine, **client})
            self.assertEqual(len(reasons), 1, reasons)
            self.assertIn(words, reasons[0])


class ReportTest(unittest.TestCase):
    def report(self, run, requests, *flags):
        """What it prints, the files that it leaves, and how it ends."""
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/run.json", "w", encoding="utf-8") as f:
                json.dump(run, f)
            with open(folder + "/requests.jsonl", "w", encoding="utf-8") as f:
                f.writelines(json.dumps(request, separators=(",", ":")) + "\n" for request in requests)
            out, end = io.StringIO(), None
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                try:
                    report.run("bulkhead", [folder, *flags])
                except Failure as failure:
                    end = (failure.code, str(failure))
            files = os.listdir(folder) if os.path.isdir(folder) else None
            if "result.json" in (files or []):
                with open(folder + "/result.json", encoding="utf-8") as f:
                    self.result = json.load(f)
            os.makedirs(folder, exist_ok=True)
        return out.getvalue(), files, end

    def test_failed_requests_and_signals_are_the_exit_code(self):
        run, requests = written()
        out, files, end = self.report(run, requests)
        self.assertEqual(end, (1, "1 of 120 requests failed (--allow-failures accepts it); first: RESOURCE_EXHAUSTED: "
                                  "the queue is \"full\""))
        self.assertCountEqual(files, ["run.json", "requests.jsonl", "result.json", "report.html"])
        self.assertIn("Successful requests:                     119\n", out)
        self.assertIsNone(self.report({**run, "allow_failures": True}, requests)[2])
        self.assertEqual(self.report({**run, "signal": 2}, requests)[2][0], 130)

    def test_the_first_failure_is_the_one_that_came_first_in_the_first_run_that_has_one(self):
        requests = [{"run": run, "outcome": outcome, "end_s": end_s} for run, outcome, end_s in (
            (0, "completed", 1), (0, "unfinished", 0), (1, "failed", 9), (1, "failed", 3), (2, "failed", 1))]
        self.assertEqual(first_failure(requests)["end_s"], 3)
        self.assertIsNone(first_failure(requests[:2]))

    def test_requests_that_were_never_sent_are_counted_alone(self):
        run, requests = written()
        run.update(allow_failures=True, interrupted=True)
        unsent = {**requests[0], "outcome": "unfinished", "sent_s": None, "arrivals": []}
        for detailed in (False, True):
            out, _, _ = self.report({**run, "save_detailed": detailed}, requests + [unsent] * 3)
            self.assertIn("Stopped early: 3 requests had no end.", out)
            self.assertEqual(self.result["num_prompts"], 123)
            self.assertEqual(len(self.result.get("ttfts", [])), 123 if detailed else 0)

    def test_a_folder_of_nobodys_is_removed(self):
        run, requests = written()
        out, files, _ = self.report(run, requests, "--remove")
        self.assertIsNone(files)
        self.assertNotIn("wrote", out)

    def test_without_matplotlib_there_is_no_page_and_the_package_is_named(self):
        run, requests = written()
        with unittest.mock.patch.object(charts, "library", lambda: None):
            out, files, _ = self.report(run, requests)
        self.assertNotIn("report.html", files)
        self.assertIn("apt install python3-matplotlib", out)

    def test_what_is_no_measurement_is_refused(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(Failure) as refused:
            report.run("bulkhead", [folder])
        self.assertEqual(refused.exception.code, 2)

    def test_what_another_program_wrote_is_refused_by_its_name(self):
        run, requests = written()
        for other_run, other_requests in (([], requests), ({**run, "client": None}, requests), ({**run, "goodput": 1.5}, requests),
                                          ({**run, "durations_s": [10 ** 400]}, requests), (run, [5]), (run, [{}]),
                                          (run, [{**requests[0], "arrivals": [[1, 2 ** 64]]}]),
                                          (run, [{**requests[0], "scheduled_s": "soon"}])):
            _, files, end = self.report(other_run, other_requests)
            self.assertEqual((end or [0])[0], 2, (other_run, other_requests[:1]))
            self.assertIn("run.json or requests.jsonl is not as this version of 'bulkhead bench serve' writes it", end[1])
            self.assertNotIn("result.json", files)


class DefinitionsTest(unittest.TestCase):
    def test_every_metric_is_explained_and_mapped(self):
        text = definitions.text()
        for one in definitions.DEFINITIONS:
            self.assertIn(f"\n{one.name}\n  {one.formula}\n", text)
        for tool in ("vLLM", "guidellm", "AIPerf", "MLPerf"):
            self.assertIn(tool, text)


if __name__ == "__main__":
    unittest.main()
