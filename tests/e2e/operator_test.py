"""What an operator does to a running group: diagnoses it, lowers limits, captures its state."""
import hashlib
import json
import os
import subprocess
import tempfile
import unittest

import group
from group import pb


def command(name, served, *flags):
    return subprocess.run([group.BINARY, name, "--target", served.target, *map(str, flags)], capture_output=True,
                          text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)


class OperatorTest(unittest.TestCase):
    # The last rank of a group has 30 % less.
    CAPS_MIB = [f"{80 if rank == 0 or rank < group.RANKS - 1 else 56}MiB" for rank in range(group.RANKS)]

    @classmethod
    def setUpClass(cls):
        cls.report = tempfile.NamedTemporaryFile(suffix=".json")
        cls.group = group.Group("--max-num-seqs", 4, "--max-num-queued-reqs", 20, "--device-memory", 
                                ",".join(f"{rank}={size}" for rank, size in enumerate(cls.CAPS_MIB)),
                                "--report", cls.report.name)
        cls.group.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__(None, None, None)
        cls.report.close()

    def tearDown(self):
        self.assertEqual(command("limits", self.group, "--reset").returncode, 0)

    def generate(self, max_tokens):
        request = pb.GenerateRequest(text="Once upon a time")
        request.stopping.max_tokens = max_tokens
        request.stopping.ignore_eos = True
        return self.group.generation.Generate.future(request, timeout=group.LIMIT_S)

    def test_fewer_sequences_run_from_the_next_step_on_and_all_of_them_end(self):
        self.assertEqual(command("limits", self.group, "--max-num-seqs", 1).returncode, 0)
        calls = [self.generate(60) for _ in range(6)]
        most = 0
        while not all(call.done() for call in calls):
            most = max(most, self.group.load().num_requests_running)
        self.assertEqual(most, 1)
        self.assertEqual([len(call.result().tokens) for call in calls], [60] * 6)
        shown = command("doctor", self.group).stdout
        self.assertIn("slots full", shown)
        self.assertIn("device out of memory since READY: 0", shown)
        self.assertRegex(shown, r"time to first token +\d+ +[\d.]+ m?s ")

    def test_every_ranks_steps_are_told(self):
        self.generate(80).result()
        told = self.group.load().rank_steps
        self.assertEqual(len(told), group.RANKS)
        for rank in told:
            self.assertEqual((rank.decode_steps, rank.prefill_steps), (told[0].decode_steps, told[0].prefill_steps))
            self.assertEqual((rank.decode_steps + rank.prefill_steps) % 32, 0)
            self.assertGreaterEqual(rank.decode_steps, 32)
            self.assertGreater(rank.decode_compute_s, 0)
            self.assertGreater(rank.decode_comm_s, 0)

    def test_limits_go_no_higher_than_what_was_sealed(self):
        for flags in (["--max-num-seqs", 5], ["--max-model-len", 1 << 20], ["--max-num-queued-reqs", 21]):
            refused = command("limits", self.group, *flags)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("restart it", refused.stderr)
        self.assertEqual(command("limits", self.group, "--max-num-seqs", 0).returncode, 2)

    def test_a_shorter_length_refuses_and_shortens_what_comes_then(self):
        self.assertEqual(command("limits", self.group, "--max-model-len", 16).returncode, 0)
        self.assertLess(len(self.generate(60).result().tokens), 16)
        self.assertEqual(self.group.control.GetServerInfo(pb.GetServerInfoRequest()).max_model_len, 16)
        self.assertEqual(command("limits", self.group, "--reset").returncode, 0)
        self.assertEqual(len(self.generate(60).result().tokens), 60)

    def test_the_score_is_the_golden_one(self):
        with open(os.path.join(group.SOURCE, "tests", "data", "sample", "golden.json"), encoding="utf-8") as f:
            text = json.load(f)["heldout"][0]
        request = pb.ScoreRequest(text=text["text"])
        score = self.group.generation.Score(request, timeout=group.LIMIT_S)
        self.assertEqual(len(score.token_logprobs) + 1, len(score.token_ids.ids))
        self.assertAlmostEqual(-sum(score.token_logprobs), score.nll, delta=1e-3 * score.nll)
        self.assertAlmostEqual(score.nll, text["nll"], delta=5e-3 * text["nll"])
        again = self.group.generation.Score(request, timeout=group.LIMIT_S)  # with a warm prefix cache
        self.assertEqual(list(again.token_logprobs), list(score.token_logprobs))

    def test_doctor_and_limits_print_json(self):
        told = json.loads(command("doctor", self.group, "--json").stdout)
        self.assertEqual(len(told["rank_table"]["ranks"]), group.RANKS)
        self.assertEqual(told["limits"]["sealed"]["max_num_seqs"], 4)
        self.assertEqual(told["load"]["device_allocations_after_ready"], 0)
        self.assertIsInstance(told["findings"], list)
        self.assertEqual(command("doctor", self.group, "--json", "--watch", "1s").returncode, 2)
        limits = json.loads(command("limits", self.group, "--json", "--max-num-seqs", 2).stdout)
        self.assertEqual([limits[when]["max_num_seqs"] for when in ("before", "now", "sealed")], [4, 2, 4])

    def test_a_capture_holds_what_another_one_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            done = command("doctor", self.group, "--capture", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(command("doctor", self.group, "--capture", folder).returncode, 2)  # not empty
            with open(os.path.join(folder, "ledger.json"), encoding="utf-8") as f:
                ledger = json.load(f)
            self.assertEqual(len(ledger["ranks"]), group.RANKS)
            with open(os.path.join(folder, "counters.json"), encoding="utf-8") as f:
                counters = json.load(f)
            self.assertEqual(len(counters["num_requests_by_log2_tokens"]), 32)
            self.assertIsInstance(counters["resident_bytes"], int)
            with open(os.path.join(folder, "config.json"), "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
            with open(os.path.join(folder, "model.json"), encoding="utf-8") as f:
                self.assertEqual(json.load(f)["config_sha256"], digest)
            with open(os.path.join(group.MODEL, "config.json"), "rb") as f:
                self.assertEqual(hashlib.sha256(f.read()).hexdigest(), digest)

    def test_the_smaller_rank_is_named_and_nobody_exceeds_its_cap(self):
        table = self.group.control.GetRankTable(pb.GetRankTableRequest())
        self.assertEqual(table.binding_rank, group.RANKS - 1)
        self.assertIn(f"limited by rank {group.RANKS - 1}", "\n".join(self.group.lines))
        for row, cap in zip(table.ranks, self.CAPS_MIB):
            self.assertEqual(row.total_bytes, int(cap[:-3]) << 20)
            self.assertLessEqual(sum(arena.bytes for arena in row.arenas), row.total_bytes)
            self.assertGreaterEqual(row.free_bytes, 0)
        if group.RANKS > 1:
            self.assertGreater(table.ranks[0].stranded_bytes, 0)
        self.assertGreater(table.host_bytes, 0)
        self.assertEqual(table.host_bytes, table.host.total_bytes)
        self.assertEqual(sum(term.bytes for term in table.host.terms), table.host_bytes)
        log = "\n".join(self.group.lines)
        self.assertIn("host: at most ", log)
        self.assertNotIn("heap at READY", log)
        self.assertEqual(table.device_allocations_after_ready, 0)

    def test_a_watch_ends_with_a_verdict(self):
        done = command("doctor", self.group, "--watch", "0.05s", "--for", "0.5s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("KV blocks: ", done.stdout)

    def test_a_report_is_explained_without_a_server(self):
        done = subprocess.run([group.BINARY, "doctor", "--report", self.report.name], capture_output=True, text=True,
                              timeout=group.LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("It fits.", done.stdout)


if __name__ == "__main__":
    unittest.main()
