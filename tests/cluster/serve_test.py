"""A group over two hosts answers what one process answers, to the bit, under mpirun and under srun."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
import slurm  # noqa: E402
from served import Served, group, mpirun, srun  # noqa: E402


class ServeTest(unittest.TestCase):
    def check_tokens(self, served):
        for case in group.golden():
            ask = group.greedy(case["prompt"], len(case["ids"]))
            answer = group.Streamed(served.generation.GenerateStream(ask))
            self.assertEqual(answer.code, group.grpc.StatusCode.OK, answer.error)
            self.assertEqual(answer.ids, case["ids"])

    def drain(self, served):
        served.control.Drain(group.pb.DrainRequest(), timeout=group.LIMIT_S)
        self.assertEqual(served.exit_code(), 0, served.lines[-10:])

    def test_mpirun_over_two_hosts_serves_the_tokens_of_one_process(self):
        with hosts.Hosts(slots=2):
            for ranks in (2, 4):
                with self.subTest(ranks=ranks), Served(mpirun(ranks, "--map-by", f"ppr:{ranks // 2}:node")) as served:
                    self.assertEqual(len(served.pids), ranks)
                    self.check_tokens(served)
                    self.drain(served)

    def test_srun_over_two_nodes_serves_the_tokens_of_one_process(self):
        with hosts.Hosts() as two, slurm.Slurm(two):
            for ranks in (2, 4):
                with self.subTest(ranks=ranks), Served(srun(ranks)) as served:
                    self.assertEqual(len(served.pids), ranks)
                    self.check_tokens(served)
                    self.drain(served)

    def logits(self, front):
        out = f"{hosts.STATE}/logits.safetensors"
        prompts = f"{hosts.STATE}/prompts.jsonl"
        with open(prompts, "w", encoding="utf-8") as f:
            f.write('{"prompt": "Once upon a time, there was a little girl", "max_tokens": 8, "temperature": 0}\n' * 3)
        subprocess.run([*front, group.BINARY, "run", "--model", group.MODEL, "--prompts", prompts, "--out",
                        f"{hosts.STATE}/out.jsonl", "--logits", out, "--max-model-len", "256", "--max-num-seqs", "4"],
                       check=True, timeout=group.LIMIT_S)
        with open(out, "rb") as f:
            return f.read()

    def test_logits_have_the_bits_of_one_process_however_ranks_lie_on_hosts(self):
        with hosts.Hosts(slots=3):
            alone = self.logits([])
            self.assertGreater(len(alone), 1000)
            for ranks, placement in ((2, "ppr:1:node"), (4, "ppr:2:node"), (4, "node"), (4, "slot")):
                with self.subTest(ranks=ranks, placement=placement):
                    self.assertEqual(alone, self.logits(mpirun(ranks, "--map-by", placement)))

    def test_logits_have_these_bits_on_three_and_four_hosts_too(self):
        alone = self.logits([])
        for count, ranks, placement in ((3, 4, ("--host", "hosta:2,hostb:1,hostc:1")),  # all to all
                                        (3, 4, ("--map-by", "node")),
                                        (4, 4, ("--map-by", "ppr:1:node")),  # in pairs
                                        (4, 8, ("--map-by", "ppr:2:node")),
                                        (4, 8, ("--map-by", "node"))):
            with self.subTest(count=count, placement=placement), hosts.Hosts(slots=2, count=count):
                self.assertEqual(alone, self.logits(mpirun(ranks, *placement)))


if __name__ == "__main__":
    hosts.contain(*slurm.TOOLS)
    unittest.main()
