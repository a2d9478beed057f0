"""`bench throughput` measures the group that it runs in."""
import json
import subprocess
import unittest

import group


class BenchTest(unittest.TestCase):
    def run_bench(self, *flags):
        return subprocess.run([*group.front(), group.BINARY, "bench", "throughput", "--model", group.MODEL, *flags],
                              capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)

    def test_every_case_is_measured_and_the_memory_is_part_of_the_result(self):
        done = self.run_bench("--batch-size", "1,4", "--input-len", "16,40", "--output-len", "8", "--repeats", "2",
                              "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual([(c["batch_size"], c["input_len"]) for c in result["cases"]],
                         [(1, 16), (1, 40), (4, 16), (4, 40)])
        for case in result["cases"]:
            self.assertEqual(len(case["runs"]), 2)
            self.assertGreater(case["prefill_tokens_per_s"], 0)
            self.assertGreater(case["decode_tokens_per_s"], 0)
            for latency in (case["first_token"], case["step"]):
                self.assertGreater(latency["p50_ms"], 0)
                self.assertGreaterEqual(latency["p99_ms"], latency["p50_ms"])
        self.assertEqual(len(result["group"]["ranks"]), group.RANKS)
        for rank in result["group"]["ranks"]:
            self.assertGreater(rank["load_bytes"], 0)
            self.assertGreater(rank["decode"]["steps"], 0)
            self.assertGreater(rank["decode"]["compute_ms"], 0)
            self.assertLess(rank["decode"]["comm_share"], 1)
        memory = result["memory"]
        self.assertEqual(memory["device_allocations_after_ready"], 0)
        self.assertGreater(memory["num_kv_blocks_used_peak"], 0)
        self.assertEqual(len(memory["report"]["ranks"]), group.RANKS)

    def test_a_shared_prefix_is_computed_once(self):
        done = self.run_bench("--batch-size", "4", "--input-len", "80", "--shared-prefix-len", "64", "--output-len",
                              "4", "--repeats", "1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["shared_prefix_len"], 64)

    def test_kernels_are_measured_on_every_rank(self):
        done = subprocess.run([*group.front(), group.BINARY, "bench", "kernels", "--quick", "--json"],
                              capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        ranks = json.loads(done.stdout)["ranks"]
        self.assertEqual(len(ranks), group.RANKS)
        for results in ranks:
            kinds = {result["name"].split("/")[0] for result in results}
            self.assertEqual(kinds, {"product", "attend"})
            for result in results:
                self.assertGreater(result["microseconds"], 0)

    def test_collectives_are_checked_and_a_bare_loop_stands_beside_sums_of_two(self):
        done = subprocess.run([*group.front(), group.BINARY, "bench", "comm", "--quick", "--max-bytes", "256KiB",
                               "--model", group.MODEL, "--pairs", "--json"],
                              capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual({case["collective"] for case in result["cases"]},
                         {"all_reduce", "gather", "all_gather", "broadcast"})
        for case in result["cases"]:
            self.assertGreaterEqual(case["p99_us"], case["p50_us"])
            self.assertEqual("of_bare" in case, case["collective"] == "all_reduce")
        self.assertIn("hidden x 8", {case["message"] for case in result["cases"]})
        self.assertEqual(len(result["pairs"]), 1)

    def test_collectives_need_a_group(self):
        done = subprocess.run([group.BINARY, "bench", "comm"], capture_output=True, text=True,
                              timeout=group.LIMIT_S, env=group.ENVIRONMENT)
        self.assertEqual(done.returncode, 5)
        self.assertIn("mpirun --bind-to none -n 2 bulkhead bench comm", done.stderr)

    def test_bad_measures_are_refused(self):
        for flags in (["--batch-size", "0"], ["--batch-size", "1,,2"], ["--repeats", "0"],
                      ["--shared-prefix-len", "128"], ["--max-model-len", "64"], ["--out", "/nowhere/x"]):
            self.assertEqual(self.run_bench(*flags).returncode, 2, flags)


if __name__ == "__main__":
    unittest.main()
