"""`bench serve`, `sweep` and `compare` against a served group."""
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

import group


def bench(*flags, program=group.BINARY, **environment):
    return subprocess.run([program, "bench", *map(str, flags)], capture_output=True, text=True,
                          timeout=2 * group.LIMIT_S, env={**group.ENVIRONMENT, **environment})


def percentile(values, percent):
    """Like numpy.percentile: linear between the nearest ranks."""
    values = sorted(values)
    rank = percent / 100 * (len(values) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (rank - below)


def by_vllms_definitions(requests, duration_s):
    """vLLM's benchmark definitions for these requests: per chunk, from the time of sending."""
    done = [r for r in requests if r["outcome"] == "completed"]
    ttfts, tpots, itls, e2els, tokens = [], [], [], [], 0
    for request in done:
        times = [when for when, _ in request["arrivals"]]
        ttft, latency = times[0] - request["sent_s"], times[-1] - request["sent_s"]
        ttfts.append(ttft)
        e2els.append(latency)
        itls += [b - a for a, b in zip(times, times[1:])]
        output_len = request["completion_tokens"]
        tokens += output_len
        if output_len > 1:
            tpots.append((latency - ttft) / (output_len - 1))
    prompt_tokens = sum(r["prompt_tokens"] for r in done)
    figures = {"completed": len(done), "total_input_tokens": prompt_tokens, "total_output_tokens": tokens,
               "request_throughput": len(done) / duration_s, "output_throughput": tokens / duration_s,
               "total_token_throughput": (prompt_tokens + tokens) / duration_s}
    for name, values in (("ttft", ttfts), ("tpot", tpots), ("itl", itls), ("e2el", e2els)):
        mean = sum(values) / len(values)
        figures[f"mean_{name}_ms"] = 1e3 * mean
        figures[f"median_{name}_ms"] = 1e3 * percentile(values, 50)
        figures[f"p90_{name}_ms"] = 1e3 * percentile(values, 90)
        figures[f"std_{name}_ms"] = 1e3 * math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
    return figures


class ServeBenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group()
        cls.addClassCleanup(cls.group.__exit__)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def measure(self, *flags, code=0, what="serve"):
        done = bench(what, "--target", self.group.target, "--result-dir", self.folder, "--no-self-check",
                     "--num-warmups", 2, "--random-input-len", 24, *flags)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def result(self):
        with open(os.path.join(self.folder, "result.json"), encoding="utf-8") as f:
            return json.load(f)

    def requests(self):
        with open(os.path.join(self.folder, "requests.jsonl"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def test_the_figures_are_those_of_vllms_definitions(self):
        before = self.group.load()
        self.measure("--request-rate", 40, "--num-prompts", 120, "--random-output-len", 12)
        result = self.result()
        expected = by_vllms_definitions(self.requests(), result["duration"])
        for key, value in expected.items():
            self.assertLess(abs(result[key] - value), 0.02 * value, f"{key}: {result[key]}, not {value}")
        # The server counted the same tokens, in addition to those of the warm-up.
        after = self.group.load()
        self.assertEqual(after.generation_tokens_total - before.generation_tokens_total, 122 * 12)
        self.assertEqual(result["total_output_tokens"], 120 * 12)

    def test_times_and_memory_come_from_the_server(self):
        self.measure("--max-concurrency", 4, "--num-prompts", 40, "--random-output-len", 24, "--repeats", 2)
        ours = self.result()["x_bulkhead"]
        self.assertEqual(len(ours["runs"]), 2)
        split = ours["time_split_ms"]
        self.assertEqual(split["count"], 80)
        for part in ("prefill", "decode"):
            self.assertGreater(split[part]["value"], 0, part)
        parts = sum(split[p]["value"] for p in ("client_wait", "prepare", "queue", "prefill", "decode", "network"))
        ends = [1e3 * (r["end_s"] - r["scheduled_s"]) for r in self.requests()]
        self.assertAlmostEqual(parts, sum(ends) / len(ends), delta=0.01 * parts)
        spent = {name: part["value"] for name, part in split["of_prefill_and_decode"].items()}
        for name in ("computing", "sampling", "detokenise", "collective"):  # with one rank, too
            self.assertGreater(spent[name], 0, name)
        both = split["prefill"]["value"] + split["decode"]["value"]
        self.assertAlmostEqual(sum(spent.values()), both, delta=0.01 * both)
        memory = ours["memory"]
        self.assertEqual(len(memory["ranks"]), group.RANKS)
        for rank in memory["ranks"]:
            self.assertGreater(rank["arenas"]["kv"], 0)
            self.assertRegex(rank["cores"], r"^\d")
        clocks = ours["server"]["clock_offsets_us"]
        self.assertEqual(len(clocks), group.RANKS)
        for clock in clocks:  # all ranks read the same clock
            self.assertLessEqual(abs(clock["offset"]), clock["error"])
        provenance = ours["server"]["provenance"]
        self.assertIn("--max-num-seqs 8", provenance["command"])
        self.assertIn("Open MPI", provenance["mpi"])
        self.assertEqual(provenance.get("launcher"), "mpirun" if group.RANKS > 1 else None)
        self.assertEqual(memory["device_allocations_after_ready"], 0)
        self.assertEqual(ours["server"]["tensor_parallel_size"], group.RANKS)
        self.assertEqual(ours["client"]["args"][-2:], ["--repeats", "2"])
        page = os.path.join(self.folder, "report.html")
        with open(page, encoding="utf-8") as f:
            self.assertGreater(f.read().count("<svg"), 7)
        # The program's own two files are all that a report needs.
        result = self.result()
        for name in ("result.json", "report.html"):
            os.unlink(os.path.join(self.folder, name))
        again = bench("report", self.folder)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("Serving Benchmark Result", again.stdout)
        self.assertEqual(self.result(), result)
        self.assertTrue(os.path.exists(page))

    def test_a_second_measurement_finds_nothing_in_the_prefix_cache(self):
        for _ in range(2):
            self.measure("--max-concurrency", 2, "--num-prompts", 6, "--random-output-len", 4)
            self.assertEqual(self.result()["x_bulkhead"]["cached_prompt_tokens"], 0)
        self.measure("--max-concurrency", 1, "--num-prompts", 6, "--random-output-len", 4, "--dataset-name",
                     "prefix_repetition", "--prefix-repetition-prefix-len", 64,
                     "--prefix-repetition-num-prefixes", 2)
        self.assertEqual(self.result()["x_bulkhead"]["cached_prompt_tokens"], 4 * 64)

    def test_text_and_files_are_sent_too(self):
        self.measure("--dataset-name", "text", "--max-concurrency", 2, "--num-prompts", 4, "--random-output-len", 4)
        self.assertEqual(self.result()["total_input_tokens"], 4 * 24)
        trace = os.path.join(self.folder, "trace.jsonl")
        with open(trace, "w", encoding="utf-8") as f:
            for i in range(5):
                f.write(json.dumps({"timestamp": 20 * i, "input_length": 30 + i, "output_length": 3 + i}) + "\n")
        self.measure("--dataset-name", "trace", "--dataset-path", trace)
        self.assertEqual(self.result()["total_output_tokens"], sum(3 + i for i in range(5)))
        self.assertEqual([r["scheduled_s"] for r in self.requests()], [0, 0.02, 0.04, 0.06, 0.08])

    def test_refusals_are_failures_with_their_code(self):
        # The client knows the server's limit.
        done = self.measure("--num-prompts", 3, "--random-input-len", 2040, "--random-output-len", 9, code=2)
        self.assertIn("need max_model_len 2049; the server's is 2048", done.stderr)
        prompts = os.path.join(self.folder, "prompts.jsonl")
        with open(prompts, "w", encoding="utf-8") as f:
            f.write(json.dumps({"prompt_token_ids": [4000000], "max_tokens": 4}) + "\n")
        flags = ("--dataset-name", "custom", "--dataset-path", prompts, "--num-prompts", 3)
        done = self.measure(*flags, code=1)
        self.assertIn("3 of 3 requests failed", done.stderr)
        result = self.result()
        self.assertEqual((result["completed"], result["failed"]), (0, 3))
        self.assertEqual(sum(result["x_bulkhead"]["failures_by_code"].values()), 3)
        self.assertEqual(sum(result["x_bulkhead"]["memory"]["refusals"].values()), 3)
        self.measure(*flags, "--allow-failures")

    def test_ctrl_c_gives_the_result_so_far(self):
        process = subprocess.Popen(
            [group.BINARY, "bench", "serve", "--target", self.group.target, "--result-dir", self.folder,
             "--no-self-check", "--random-input-len", "8", "--random-output-len", "2", "--max-concurrency", "1",
             "--num-prompts", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=group.ENVIRONMENT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        before = self.group.load().generation_tokens_total
        limit = time.monotonic() + group.LIMIT_S
        while self.group.load().generation_tokens_total < before + 60 and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=group.LIMIT_S)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertRegex(stdout, r"Stopped early: \d+ requests had no end")
        result = self.result()
        self.assertGreater(result["completed"], 3)
        self.assertEqual(result["failed"], 0)
        self.assertTrue(result["x_bulkhead"]["interrupted"])
        self.group.wait_until_idle()

    def test_a_sweep_shows_every_point(self):
        done = self.measure("--max-concurrency", "1,4", "--num-prompts", 24, "--random-output-len", 8, what="sweep")
        self.assertRegex(done.stdout, r"(?m)^concurrency 1 .*\n^concurrency 4 ")
        with open(os.path.join(self.folder, "sweep.json"), encoding="utf-8") as f:
            points = json.load(f)["points"]
        self.assertEqual([p["name"] for p in points], ["concurrency 1", "concurrency 4"])
        self.assertTrue(any(p["on_frontier"] for p in points))
        for point in ("concurrency-1", "concurrency-4"):
            for name in ("result.json", "requests.jsonl", "report.html"):
                self.assertTrue(os.path.exists(os.path.join(self.folder, point, name)))

    def test_a_result_compared_with_itself_is_the_same_and_a_worse_one_is_noticed(self):
        self.measure("--max-concurrency", 2, "--num-prompts", 20, "--random-output-len", 8, "--repeats", 2)
        path = os.path.join(self.folder, "result.json")
        result = self.result()
        result["x_bulkhead"]["why_invalid"] = []  # regardless of other load on this machine
        for run in result["x_bulkhead"]["runs"]:
            run["mean_ttft_ms"] = result["x_bulkhead"]["runs"][0]["mean_ttft_ms"]
        median = result["x_bulkhead"]["latencies"]["ttft_ms"]["median"]
        median["low"], median["high"] = 0.9 * median["value"], 1.1 * median["value"]
        with open(path, "w", encoding="utf-8") as f:
            json.dump(result, f)
        same = bench("compare", path, path)
        self.assertEqual(same.returncode, 0, same.stdout + same.stderr)
        self.assertIn("verdict: no difference shown", same.stdout)
        for key in ("value", "low", "high"):
            result["x_bulkhead"]["latencies"]["ttft_ms"]["median"][key] *= 10
        slow = os.path.join(self.folder, "slow.json")
        with open(slow, "w", encoding="utf-8") as f:
            json.dump(result, f)
        worse = bench("compare", path, slow)
        self.assertEqual(worse.returncode, 1)
        self.assertRegex(worse.stdout, r"median TTFT \(ms\) .*\+900.0 %\s+worse")
        result["x_bulkhead"]["runs"] = result["x_bulkhead"]["runs"][:1]
        for one in (path, slow):
            with open(one, "w", encoding="utf-8") as f:
                json.dump(result, f)
            result["x_bulkhead"]["latencies"]["ttft_ms"]["median"] = {"value": 9e6, "low": 9e6, "high": 9e6}
        unknown = bench("compare", path, slow)
        self.assertEqual(unknown.returncode, 0, unknown.stdout + unknown.stderr)
        self.assertIn("verdict: cannot tell: one run each", unknown.stdout)
        self.assertEqual(bench("compare", path, "/nowhere/b.json").returncode, 2)


class WithoutServerTest(unittest.TestCase):
    def test_a_server_that_dies_ends_the_benchmark(self):
        with group.Group() as served:
            process = subprocess.Popen(
                [group.BINARY, "bench", "serve", "--target", served.target, "--no-self-check", "--max-concurrency",
                 "4", "--random-input-len", "8", "--random-output-len", "8", "--num-prompts", "1000000"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=group.ENVIRONMENT)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.kill)
            limit = time.monotonic() + group.LIMIT_S
            while served.load().generation_tokens_total < 100 and time.monotonic() < limit:
                time.sleep(0.05)
            os.killpg(served.process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate(timeout=group.LIMIT_S)
        self.assertEqual(process.returncode, 1, stderr)
        self.assertRegex(stdout, r"Failed requests: +[1-9]")
        self.assertIn("UNAVAILABLE", stdout)
        self.assertIn("requests failed", stderr)

    def test_no_server_is_said_at_once(self):
        done = bench("serve", "--target", "127.0.0.1:1", "--num-prompts", 3, "--no-self-check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no server answers at 127.0.0.1:1", done.stderr)

    def test_bad_flags_are_refused(self):
        for flags in (["--request-rate", "fast"], ["--num-prompts", "0"], ["--goodput", "ttft"],
                      ["--dataset-name", "trace"], ["--result-dir", "/proc/nowhere"]):
            done = bench("serve", *flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertTrue(done.stderr.startswith("bulkhead: "), done.stderr)

    def test_the_null_server_names_the_clients_ceiling(self):
        done = bench("serve", "--null-server", "--request-rate", 500, "--num-prompts", 500, "--random-input-len", 16,
                     "--random-output-len", 1, "--num-warmups", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        ceiling = re.search(r"Ceiling of the client: +(\d+) requests/s of 1 token, (\d+) tokens/s", done.stdout)
        self.assertIsNotNone(ceiling, done.stdout)
        self.assertGreater(int(ceiling[1]), 0)
        self.assertRegex(done.stdout, r"Successful requests: +500\n")

    def test_without_python_it_is_said_what_to_install_before_anything_is_measured(self):
        for flags in (["definitions"], ["compare", "a", "b"], ["serve", "--null-server", "--num-prompts", 1000000],
                      ["simulate"], ["throughput", "--model", group.MODEL]):
            done = bench(*flags, BULKHEAD_PYTHON="/nowhere/python3")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("/nowhere/python3", done.stderr)
            self.assertIn("python3-numpy and python3-matplotlib (apt install)", done.stderr.splitlines()[-1])

    def test_an_installed_program_finds_its_tool(self):
        with tempfile.TemporaryDirectory() as prefix:
            build = os.path.dirname(os.path.dirname(group.BINARY))
            subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True, capture_output=True)
            done = bench("definitions", program=os.path.join(prefix, "bin", "bulkhead"))
            self.assertEqual(done.returncode, 0, done.stderr)
            os.unlink(os.path.join(prefix, "share", "bulkhead", "tools", "bench", "__main__.py"))
            done = bench("definitions", program=os.path.join(prefix, "bin", "bulkhead"))
            self.assertEqual(done.returncode, 2)
            self.assertIn("cmake --install puts it there", done.stderr)

    def test_definitions_are_printed(self):
        done = bench("definitions")
        self.assertEqual(done.returncode, 0)
        for word in ("ttft", "vLLM", "guidellm", "AIPerf", "MLPerf"):
            self.assertIn(word, done.stdout)


if __name__ == "__main__":
    unittest.main()
