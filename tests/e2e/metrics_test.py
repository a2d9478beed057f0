"""/metrics from outside: names, counters that advance by what was asked, and what is made of them."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import group
from group import pb

sys.path.append(os.path.join(group.SOURCE, "scripts"))
import metrics_page  # noqa: E402

DEPLOY = os.path.join(group.SOURCE, "deploy")
# What vLLM's board, production-stack and the endpoint pickers of GAIE and llm-d query.
ASKED_FOR = {
    "vllm:" + name for name in """
    e2e_request_latency_seconds_bucket e2e_request_latency_seconds_sum e2e_request_latency_seconds_count prompt_tokens_total
    generation_tokens_total inter_token_latency_seconds_bucket inter_token_latency_seconds_sum inter_token_latency_seconds_count
    num_requests_running num_requests_waiting time_to_first_token_seconds_bucket time_to_first_token_seconds_sum
    time_to_first_token_seconds_count kv_cache_usage_perc request_success_total request_queue_time_seconds_sum
    request_prefill_time_seconds_sum request_decode_time_seconds_sum request_prompt_tokens_bucket request_generation_tokens_bucket
    request_max_num_generation_tokens_sum gpu_cache_usage_perc gpu_prefix_cache_hits_total gpu_prefix_cache_queries_total
    num_requests_swapped cache_config_info lora_requests_info iteration_tokens_total_count time_per_output_token_seconds_bucket
    """.split()}


def scrape(target):
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=group.LIMIT_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
        return answer.read().decode()


def samples(text):
    """name -> {labels as a frozenset of pairs: value}."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? (\S+)", line).groups()
        key = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))
        assert key not in found.setdefault(name, {}), f"twice: {line}"
        found[name][key] = float(value)
    return found


def total(read, name, **labels):
    return sum(value for key, value in read[name].items() if set(labels.items()) <= key)


def queried(text):
    return set(re.findall(r"\b(?:vllm:|bulkhead_)\w+", text))


class MetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group("--http-port", 0, "--metrics-port", 0, "--served-model-name", "sample", "--log-requests")
        cls.group.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__(None, None, None)

    def text(self):
        return scrape(self.group.metrics_target)

    def read(self):
        return samples(self.text())

    def wait_for(self, done):
        limit = time.monotonic() + group.LIMIT_S
        while not done(self.read()):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.02)

    def test_every_name_that_boards_ask_for_is_there_with_its_labels(self):
        read = self.read()
        self.assertEqual(ASKED_FOR - set(read), set())
        for name, values in read.items():
            for key in values:
                labels = dict(key)
                self.assertEqual(labels["model_name"], "sample", name)
                if name.startswith("vllm:"):
                    self.assertEqual(labels["engine"], "0", name)

    def test_the_http_port_answers_the_same_names_and_the_metrics_port_nothing_else(self):
        self.assertEqual(set(samples(scrape(self.group.http_target))), set(self.read()))
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{self.group.metrics_target}/v1/models", timeout=group.LIMIT_S)
        self.assertEqual(refused.exception.code, 404)

    def test_counters_advance_by_what_was_asked(self):
        self.group.wait_until_idle()
        before = self.read()
        prompt = 0
        for count in (5, 6, 7):
            request = pb.GenerateRequest(text="Once upon a time, there was a fox." * count,
                                         stopping=pb.Stopping(max_tokens=count, ignore_eos=True))
            prompt += self.group.generation.Generate(request, timeout=group.LIMIT_S).finished.usage.prompt_tokens
        self.group.wait_until_idle()
        self.wait_for(lambda read: total(read, "bulkhead_steps_total") - total(before, "bulkhead_steps_total") >= 18)
        after = self.read()

        def grown(name, **labels):
            return total(after, name, **labels) - total(before, name, **labels)
        self.assertEqual(grown("vllm:generation_tokens_total"), 18)
        self.assertEqual(grown("vllm:prompt_tokens_total"), prompt)
        self.assertEqual(grown("vllm:prompt_tokens_by_source_total"), prompt)
        self.assertEqual(grown("vllm:request_success_total", finished_reason="length"), 3)
        self.assertEqual(grown("vllm:request_success_total"), 3)
        for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
                     "request_prefill_time_seconds", "request_decode_time_seconds", "request_inference_time_seconds"):
            self.assertEqual(grown(f"vllm:{name}_count"), 3, name)
            self.assertEqual(grown(f"vllm:{name}_bucket", le="+Inf"), 3, name)
        self.assertEqual(grown("vllm:inter_token_latency_seconds_count"), 15)
        self.assertEqual(grown("vllm:request_generation_tokens_sum"), 18)
        self.assertEqual(grown("vllm:request_params_max_tokens_sum"), 18)
        self.assertEqual(grown("vllm:request_prompt_tokens_sum"), prompt)
        self.assertEqual(grown("bulkhead_time_to_first_token_seconds_count"), 3)
        steps = grown("bulkhead_steps_total")
        self.assertEqual(grown("vllm:iteration_tokens_total_count"), steps)
        self.assertEqual(grown("vllm:iteration_tokens_total_sum"),
                         18 + prompt - grown("vllm:prompt_tokens_cached_total"))
        self.assertEqual(total(after, "bulkhead_allocations_after_ready_total"), 0)

    def test_get_load_has_the_same_histograms(self):
        self.group.generation.Generate(group.greedy("Once upon a time", 4))
        self.group.wait_until_idle()
        read, histograms = self.read(), self.group.load().histograms
        names = [field.name for field in histograms.DESCRIPTOR.fields]
        self.assertEqual(len(names), 6)
        for name in names:
            histogram = getattr(histograms, name)
            self.assertEqual(sum(histogram.counts), total(read, f"vllm:{name}_count"), name)
            self.assertGreater(sum(histogram.counts), 0, name)
            self.assertAlmostEqual(histogram.sum, total(read, f"vllm:{name}_sum"), places=5)
            self.assertEqual(list(histogram.bounds), sorted(histogram.bounds))
            self.assertEqual(len(histogram.counts), len(histogram.bounds) + 1)

    def test_every_step_is_told_while_a_request_runs_and_nothing_runs_after_clients_hung_up(self):
        calls = [self.group.generation.GenerateStream(group.long_request(max_tokens=1900)) for _ in range(16)]
        try:
            self.wait_for(lambda read: (total(read, "vllm:num_requests_running"),
                                        total(read, "vllm:num_requests_waiting")) == (8, 8))
            before = self.read()
            self.assertGreater(total(before, "bulkhead_queue_oldest_age_seconds"), 0)
            self.assertGreater(total(before, "vllm:kv_cache_usage_perc"), 0)
            self.wait_for(lambda read: total(read, "vllm:iteration_tokens_total_count") >
                          total(before, "vllm:iteration_tokens_total_count"))
            self.wait_for(lambda read: total(read, "vllm:generation_tokens_total") >
                          total(before, "vllm:generation_tokens_total"))
        finally:
            for call in calls:
                call.cancel()
        begun = time.monotonic()
        self.wait_for(lambda read: total(read, "vllm:num_requests_running") == 0)
        self.assertLess(time.monotonic() - begun, 10)
        self.group.wait_until_idle()
        after = self.read()
        self.assertEqual(total(after, "vllm:request_success_total", finished_reason="abort") -
                         total(before, "vllm:request_success_total", finished_reason="abort"), 16)
        self.assertEqual(total(after, "bulkhead_last_step_age_seconds"), 0)

    def test_refusals_are_counted_by_reason(self):
        before = self.read()
        with self.assertRaises(group.grpc.RpcError) as refused:
            self.group.generation.Generate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=[1] * 3000)), timeout=group.LIMIT_S)
        word = group.reason(refused.exception)
        self.assertEqual(total(self.read(), "bulkhead_rejects_total", reason=word) -
                         total(before, "bulkhead_rejects_total", reason=word), 1)

    def test_ranks_arenas_are_those_of_the_rank_table(self):
        table = self.group.control.GetRankTable(pb.GetRankTableRequest(), timeout=group.LIMIT_S)
        read = self.read()
        for rank in table.ranks:
            for arena in rank.arenas:
                self.assertEqual(total(read, "bulkhead_rank_arena_bytes", rank=str(rank.rank), arena=arena.term), arena.bytes)
            self.assertEqual(total(read, "bulkhead_rank_free_bytes", rank=str(rank.rank)), rank.free_bytes)
        self.assertEqual(total(read, "bulkhead_binding_rank", term=table.binding_term), table.binding_rank)
        self.assertEqual(total(read, "bulkhead_host_budget_bytes"), table.host.total_bytes)

    def test_the_page_lists_what_the_server_answers(self):
        old, new = metrics_page.page(self.text())
        self.assertEqual(old, new, "run scripts/metrics_page.py on a running server")

    def test_board_and_alerts_ask_for_nothing_else(self):
        served = set(self.read()) | set(metrics_page.families(self.text()))
        with open(os.path.join(DEPLOY, "grafana", "bulkhead.json"), encoding="utf-8") as file:
            board = json.load(file)
        asked = set()
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                asked |= queried(target["expr"])
        for variable in board["templating"]["list"]:
            asked |= queried(variable["query"])
        self.assertGreater(len(asked), 20)
        for path in glob.glob(os.path.join(DEPLOY, "prometheus", "*.rules.yml")):
            with open(path, encoding="utf-8") as file:
                asked |= queried(file.read())
        self.assertEqual(asked - served, set())

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not there: apt install prometheus")
    def test_promtool_accepts_the_page(self):
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.text(), capture_output=True, text=True,
                                 timeout=group.LIMIT_S)
        # Names of vLLM are as they are: with colons, and with _total where a histogram has none.
        ours = [line for line in (checked.stdout + checked.stderr).splitlines() if not line.startswith("vllm:")]
        self.assertEqual(ours, [])
        self.assertIn(checked.returncode, (0, 3))  # 3: remarks, of which there are none of ours

    def test_a_line_tells_each_request_that_ended(self):
        request = group.greedy("Once upon a time", 9, request_id="told=now")
        usage = self.group.generation.Generate(request, timeout=group.LIMIT_S).finished.usage
        self.group.wait_until_idle()
        limit = time.monotonic() + group.LIMIT_S
        while not any("id=told=now" in line for line in self.group.lines):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.02)
        line = next(line for line in self.group.lines if "id=told=now" in line)
        self.assertRegex(line, rf"request_end id=\S+ input_tokens={usage.prompt_tokens} output_tokens=9 cached_tokens=\d+ "
                               r"queue_ms=[\d.]+ ttft_ms=[\d.]+ e2e_ms=[\d.]+ status=length$")
        script = os.path.join(group.SOURCE, "scripts", "request_profile.sh")
        told = subprocess.run([script], input="\n".join([line] * 3), capture_output=True, text=True, check=True).stdout
        self.assertRegex(told.splitlines()[1], r"^ +<=\d+ +3 +0 +[\d.]+ +9 +9 ")


class HangingGroupTest(unittest.TestCase):
    @unittest.skipIf(group.RANKS == 1, "needs a rank to stop")
    def test_metrics_answer_while_a_rank_hangs_and_the_last_steps_age_grows(self):
        for last in (False, False, True):
            with group.Group("--metrics-port", 0) as served:
                call = served.generation.GenerateStream(group.long_request(max_tokens=1900))
                next(call)
                stopped = time.monotonic()
                os.kill(served.rank_pids()[1], signal.SIGSTOP)
                try:
                    age = 0
                    while age < 1:
                        read = samples(scrape(served.metrics_target))
                        age = total(read, "bulkhead_last_step_age_seconds")
                        time.sleep(0.1)
                    self.assertEqual(total(read, "vllm:num_requests_running"), 1)
                    return
                except OSError:  # the watchdog ends the group after 3 s, and this process may stand still for longer
                    if last or time.monotonic() - stopped < 2:
                        raise


class AlertsTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("promtool"), "promtool is not there: apt install prometheus")
    def test_alerts_fire_when_they_should(self):
        rules = os.path.join(DEPLOY, "prometheus", "bulkhead.rules.yml")
        one = {"instance": "a", "job": "bulkhead"}

        def series(name, values, **labels):
            return {"series": name + "{" + ",".join(f'{k}="{v}"' for k, v in {**one, **labels}.items()) + "}", "values": values}

        def case(alert, at, series_of, fires):
            return {"interval": "1m", "input_series": series_of, "promql_expr_test": [{
                "expr": f'sum(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)', "eval_time": at,
                "exp_samples": [{"labels": "{}", "value": fires}]}]}
        step_age = "bulkhead_last_step_age_seconds"
        cases = [
            case("BulkheadStepHangs", "3m", [series(step_age, "0 0 31 60")], 1),
            case("BulkheadStepHangs", "3m", [series(step_age, "0 0 3 6")], 0),
            case("BulkheadKvCacheFull", "10m", [series("vllm:kv_cache_usage_perc", "0.97x10"),
                                                series("vllm:num_requests_waiting", "4x10")], 1),
            case("BulkheadKvCacheFull", "10m", [series("vllm:kv_cache_usage_perc", "0.97x10"),
                                                series("vllm:num_requests_waiting", "0x10")], 0),
            case("BulkheadAllocationsAfterReady", "1m", [series("bulkhead_allocations_after_ready_total", "0 1")], 1),
            case("BulkheadRejects", "15m", [series("vllm:admission_rejections_total", "0+60x15", reason="STRUCTURED_OUTPUT")], 1),
            case("BulkheadRejects", "15m", [series("vllm:admission_rejections_total", "0+5x15", reason="QUEUE_FULL"),
                                            series("bulkhead_rejects_total", "0+60x15", reason="INVALID_VALUE")], 0),
            case("BulkheadQueueAge", "5m", [series("bulkhead_queue_oldest_age_seconds", "0 61 121 181 241 301")], 1),
            case("BulkheadSlowFirstToken", "30m",
                 [series("bulkhead_time_to_first_token_seconds_bucket", "0+1x30", lane="short", le="5"),
                  series("bulkhead_time_to_first_token_seconds_bucket", "0+9x30", lane="short", le="10"),
                  series("bulkhead_time_to_first_token_seconds_bucket", "0+9x30", lane="short", le="+Inf")], 1),
            case("BulkheadLongPrompts", "90m",
                 [series("bulkhead_time_to_first_token_seconds_count", "0+9x90", lane="long"),
                  series("bulkhead_time_to_first_token_seconds_count", "0+1x90", lane="short")], 1),
            case("BulkheadRestarts", "30m", [series("bulkhead_start_time_seconds", "1x9 2x9 3x9 4x9")], 1),
            case("BulkheadRestarts", "30m", [series("bulkhead_start_time_seconds", "1x40")], 0),
            case("BulkheadDown", "5m", [series("up", "1 0 0 0 0 0")], 1),
        ]
        with open(rules, encoding="utf-8") as file:
            self.assertEqual(set(re.findall(r"alert: (\w+)", file.read())),
                             {re.search(r'alertname="(\w+)"', c["promql_expr_test"][0]["expr"]).group(1) for c in cases})
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:  # JSON is YAML
            json.dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": cases}, file)
            file.flush()
            for command in (["check", "rules", rules], ["test", "rules", file.name]):
                done = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=group.LIMIT_S)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class DraftMetricsTest(unittest.TestCase):
    def test_drafts_are_counted_and_accepted_tokens_take_no_steps(self):
        config = json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2})
        with group.Group("--metrics-port", 0, "--http-port", 0, "--speculative-config", config) as started:
            request = pb.GenerateRequest(text="One two. One two. One two.", sampling=pb.Sampling(temperature=0),
                                         stopping=pb.Stopping(max_tokens=200, ignore_eos=True))
            got = started.generation.Generate(request, timeout=group.LIMIT_S)
            self.assertEqual(len(got.tokens), 200)
            started.wait_until_idle()
            read = samples(scrape(started.metrics_target))
            told = started.load().drafts
            doctor = subprocess.run([group.BINARY, "doctor", "--target", started.target], capture_output=True, text=True,
                                    timeout=group.LIMIT_S, env=group.ENVIRONMENT).stdout
            with urllib.request.urlopen(f"http://{started.http_target}/status", timeout=group.LIMIT_S) as got:
                status = json.load(got)["drafts"]
        name = "vllm:spec_decode_num_"
        accepted = total(read, name + "accepted_tokens_total")
        self.assertGreater(accepted, 5)
        self.assertLessEqual(accepted, total(read, name + "draft_tokens_total"))
        self.assertEqual(total(read, name + "accepted_tokens_per_pos_total"), accepted)
        self.assertEqual({dict(key)["position"] for key in read[name + "accepted_tokens_per_pos_total"]}, set("012"))
        first = total(read, name + "accepted_tokens_per_pos_total", position="0")
        self.assertLessEqual(first, total(read, name + "drafts_total"))
        self.assertEqual((told.num_drafts, told.num_draft_tokens, told.num_accepted_tokens),
                         tuple(total(read, name + what) for what in ("drafts_total", "draft_tokens_total",
                                                                     "accepted_tokens_total")))
        self.assertEqual(told.num_accepted_tokens_per_pos[0], first)
        self.assertEqual(len(told.num_accepted_tokens_per_pos), 3)
        self.assertEqual(status["num_accepted_tokens"], accepted)
        self.assertIn(f"speculative decoding: {told.num_accepted_tokens} of {told.num_draft_tokens} drafted tokens", doctor)
        # One step for the prompt, and one for each token that no draft had right.
        self.assertEqual(total(read, "bulkhead_steps_total"), 200 - accepted)


class StepsTest(unittest.TestCase):
    def large_steps(self, target_itl):
        """Of more than 512 tokens, where a prompt of 1,200 comes while an answer is generated."""
        with group.Group("--http-port", 0, "--target-itl", target_itl) as served:
            answer = served.generation.GenerateStream(pb.GenerateRequest(
                text="Once upon a time", stopping=pb.Stopping(max_tokens=1500, ignore_eos=True)), timeout=group.LIMIT_S)
            next(answer)
            prompt = [20 + 7 * i % 200 for i in range(1200)]
            served.generation.Generate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=prompt), stopping=pb.Stopping(max_tokens=1)),
                                       timeout=group.LIMIT_S)
            read = samples(scrape(served.http_target))
            answer.cancel()
        return total(read, "vllm:iteration_tokens_total_count") - total(read, "vllm:iteration_tokens_total_bucket", le="512")

    def test_a_prompt_beside_an_answer_is_computed_in_chunks_by_the_target_itl(self):
        self.assertEqual(self.large_steps("1ms"), 0)
        self.assertEqual(self.large_steps("1h"), 1)


if __name__ == "__main__":
    unittest.main()
