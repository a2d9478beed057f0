"""`bench throughput` measures its own group."""
import json
import os
import subprocess
import tempfile
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

    def test_a_filter_that_names_no_kernel_is_refused(self):
        done = subprocess.run([*group.front(), group.BINARY, "bench", "kernels", "--quick", "--filter", "produkt"],
                              capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--filter produkt: no measurement has a name that begins with this (--quick leaves large ones out)", done.stderr)

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
        self.assertIn("mpirun -n 2 bulkhead bench comm", done.stderr)

    def alone(self, *args):
        return subprocess.run([group.BINARY, "bench", *args], capture_output=True, text=True, timeout=group.LIMIT_S,
                              env=group.ENVIRONMENT)

    def test_scale_puts_what_was_planned_beside_what_was_measured(self):
        done = self.alone("scale", "--model", group.MODEL, "--tp", "1,2", "--batch-size", "2", "--input-len", "16",
                          "--output-len", "8", "--repeats", "1", "--device-memory", "160MiB",
                          "--cache-max-entry-count", "0.5", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        sizes = json.loads(done.stdout)["sizes"]
        self.assertEqual([size["tensor_parallel_size"] for size in sizes], [1, 2])
        for size in sizes:
            self.assertTrue(size["planned"]["fits"])
            for key in ("kv_tokens", "binding"):
                self.assertEqual(size["planned"][key], size["measured"][key])
            self.assertGreater(size["measured"]["cases"][0]["decode_tokens_per_s"], 0)
        self.assertGreater(sizes[1]["planned"]["kv_tokens"], sizes[0]["planned"]["kv_tokens"])
        self.assertGreater(sizes[1]["measured"]["decode_comm_share"], sizes[0]["measured"]["decode_comm_share"])
        self.assertEqual(sizes[0]["measured"]["cases"][0]["decode_speedup"], 1)

    def test_scale_tells_what_does_not_fit_and_why_a_group_failed(self):
        done = self.alone("scale", "--model", group.MODEL, "--tp", "1", "--device-memory", "4MiB", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertFalse(result["sizes"][0]["planned"]["fits"])
        self.assertEqual(result["model"], group.MODEL)
        self.assertRegex(result["version"], r"^\d+\.\d+")
        done = self.alone("scale", "--model", "/nowhere", "--tp", "1")
        self.assertEqual(done.returncode, 3)
        self.assertIn("/nowhere", done.stderr.splitlines()[-1])

    def test_groups_are_started_by_one_process_alone(self):
        for what in ("scale", "verify"):
            done = subprocess.run([*group.front(), group.BINARY, "bench", what, "--model", group.MODEL],
                                  capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)
            self.assertEqual(done.returncode, 2)
            self.assertIn("without mpirun", done.stderr)

    def test_verify_finds_groups_equal_and_a_changed_answer_not(self):
        few = ("--num-prompts", "4", "--input-len", "1,40", "--output-len", "6")
        done = self.alone("verify", "--model", group.MODEL, "--tp", "2", *few)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"2 ranks against 1 \(ranks 0-1 on .+\): 4 answers, 24 tokens: "
                                      "all tokens equal; all logits equal")
        with tempfile.TemporaryDirectory() as folder:
            saved = os.path.join(folder, "one.json")
            rank = ("verify", "--model", group.MODEL, *few)
            self.assertEqual(self.alone(*rank, "--save", saved).returncode, 0)
            with open(saved, encoding="utf-8") as f:
                answers = json.load(f)
            for change, word in ((lambda a: a["tokens"].__setitem__(3, 1 - a["tokens"][3]), "differ at 3"),
                                 (lambda a: a["logprob_bits"].__setitem__(0, 1), "1 answers differ in bits")):
                changed = json.loads(json.dumps(answers))
                change(changed["answers"][1])
                with open(saved, "w", encoding="utf-8") as f:
                    json.dump(changed, f)
                done = self.alone(*rank, "--against", saved)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(word, done.stdout)
            done = self.alone(*rank, "--against", saved, "--kv-cache-dtype", "int4")
            self.assertEqual(done.returncode, 2)
            self.assertIn("kv_cache_dtype", done.stderr)

    def test_simulate_counts_what_rank_0_does_for_many_ranks(self):
        done = self.alone("simulate", "--ranks", "8,512", "--max-num-seqs", "16", "--requests", "100", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = json.loads(done.stdout)["runs"]
        self.assertEqual([(run["ranks"], run["copies"]) for run in runs], [(8, 1), (512, 7)])
        for run in runs:
            self.assertGreater(run["rank0_p50_us"], 0)
        self.assertEqual(self.alone("simulate", "--measured", "/nowhere").returncode, 2)

    def test_bad_measures_are_refused(self):
        for flags in (["--batch-size", "0"], ["--batch-size", "1,,2"], ["--repeats", "0"],
                      ["--shared-prefix-len", "128"], ["--max-model-len", "64"], ["--out", "/nowhere/x"]):
            self.assertEqual(self.run_bench(*flags).returncode, 2, flags)


if __name__ == "__main__":
    unittest.main()
