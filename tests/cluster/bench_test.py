"""Every `bulkhead bench` on two hosts: by deploy/slurm's scripts as a user submits them, and by mpirun."""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
import slurm  # noqa: E402
from served import group  # noqa: E402

SCRIPTS = os.path.join(group.SOURCE, "deploy", "slurm")
LOG = hosts.STATE + "/job.log"
RESULTS = hosts.STATE + "/results"
TWO_HOSTS = "ranks 0 on hosta, 1 on hostb"
FOUR_ON_TWO_HOSTS = "ranks 0-1 on hosta, 2-3 on hostb"
SCALE = ("scale", "--model", group.MODEL, "--tp", "1,2,4", "--batch-size", "1", "--input-len", "16", "--output-len",
         "8", "--repeats", "1", "--device-memory", "1GiB")
VERIFY = ("verify", "--model", group.MODEL, "--tp", "2,4", "--num-prompts", "4", "--output-len", "8")
EQUAL_BITS = "4 answers, 32 tokens: all tokens equal; all logits equal, bit by bit"


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class BenchTest(unittest.TestCase):
    def check_words(self, text, words):
        for word in words:
            self.assertIn(word, text)

    def check_scale(self, text):
        self.check_words(text, ("KV tokens planned", "rank 0 on hosta", TWO_HOSTS, FOUR_ON_TWO_HOSTS))

    def check_verify(self, text):
        self.check_words(text, (f"2 ranks against 1 ({TWO_HOSTS}): {EQUAL_BITS}",
                                f"4 ranks against 1 ({FOUR_ON_TWO_HOSTS}): {EQUAL_BITS}"))


class SlurmBenchTest(BenchTest):
    @classmethod
    def setUpClass(cls):
        cls.slurm = cls.enterClassContext(slurm.Slurm(cls.enterClassContext(hosts.Hosts())))

    def submit(self, script, *arguments, exit_codes=("0:0",)):
        """What the job wrote, which ended with one of these."""
        if os.path.exists(LOG):
            os.unlink(LOG)
        job = self.slurm.submit(f"{SCRIPTS}/{script}", *arguments, options=(f"--output={LOG}",))
        record = self.slurm.ended(job)
        self.assertIn(record["ExitCode"], exit_codes, read(LOG))
        return read(LOG)

    def measure_server(self, *arguments):
        """By bench_serve.sbatch, from a node that serves nothing."""
        return self.submit("bench_serve.sbatch", "--client-nodes", "1", "--model", group.MODEL, "--port", "0", "--",
                           *arguments, "--random-input-len", "16", "--random-output-len", "8",
                           "--result-dir", RESULTS)

    def test_groups_measure_themselves(self):
        for arguments, words in (
                (("throughput", "--model", group.MODEL, "--batch-size", "1", "--repeats", "1"),
                 ("decode tokens/s", "hosta", "hostb")),
                (("comm", "--quick", "--max-bytes", "64KiB"),
                 (TWO_HOSTS, "all_reduce", "all_gather", "gather", "broadcast", "every answer checked"))):
            with self.subTest(arguments[0]):
                self.check_words(self.submit("bench.sbatch", *arguments), words)

    def test_groups_of_every_size_are_started_on_the_jobs_nodes(self):
        self.check_scale(self.submit("bench.sbatch", *SCALE))
        self.check_verify(self.submit("bench.sbatch", *VERIFY))

    def test_a_group_is_compared_with_answers_that_another_one_saved(self):
        saved = hosts.STATE + "/saved.json"
        flags = ("verify", "--model", group.MODEL, "--num-prompts", "2", "--output-len", "4")
        self.submit("bench.sbatch", *flags, "--save", saved)
        self.check_words(self.submit("bench.sbatch", *flags, "--against", saved),
                         ("2 ranks against 2", TWO_HOSTS, "bit by bit"))

    def test_what_needs_no_group_is_one_process(self):
        for arguments, words in (
                (("simulate", "--ranks", "8,512", "--max-num-seqs", "8", "--requests", "50"), ("512", "copies")),
                (("kernels", "--quick", "--filter", "attend"), ("attend/",)),
                (("definitions",), ("ttft_from_send", "guidellm"))):
            with self.subTest(arguments[0]):
                self.check_words(self.submit("bench.sbatch", *arguments), words)

    def test_a_server_is_measured_from_a_node_of_the_clients_own(self):
        text = self.measure_server("--num-prompts", "20", "--request-rate", "20")
        self.assertRegex(text, r"Successful requests: +20")
        ours = json.loads(read(RESULTS + "/result.json"))["x_bulkhead"]
        self.assertEqual(ours["client"]["host"], "hostb")
        self.assertEqual([rank["host"] for rank in ours["memory"]["ranks"]], ["hosta"])

    def test_a_sweep_draws_its_curve_and_its_points_compare(self):
        text = self.measure_server("sweep", "--num-prompts", "10", "--max-concurrency", "1,2")
        self.check_words(text, ("concurrency 1", "concurrency 2", "frontier", "wrote sweep.json"))
        points = json.loads(read(RESULTS + "/sweep.json"))["points"]
        self.assertEqual([point["result"]["completed"] for point in points], [10, 10])
        point = RESULTS + "/concurrency-2/result.json"
        # 1 where this machine was too busy to send in time, which the comparison doubts.
        text = self.submit("bench.sbatch", "compare", point, point, exit_codes=("0:0", "1:0"))
        self.assertIn("verdict: no difference shown", text)


class MpirunBenchTest(BenchTest):
    def setUp(self):
        self.enterContext(hosts.Hosts(slots=2))

    def bench(self, *arguments, front=()):
        done = subprocess.run([*front, group.BINARY, "bench", *arguments], check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", timeout=hosts.LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_collectives_are_measured_with_the_placement_shown(self):
        for placement, words in (("ppr:2:node", FOUR_ON_TWO_HOSTS),
                                 ("node", "ranks 0 on hosta, 1 on hostb, 2 on hosta, 3 on hostb")):
            front = ("mpirun", "-n", "4", "--map-by", placement)
            text = self.bench("comm", "--quick", "--max-bytes", "4KiB", front=front)
            self.check_words(text, (words, "all_reduce", "every answer checked"))

    def test_groups_of_every_size_are_started_on_the_hosts_named(self):
        self.check_scale(self.bench(*SCALE, "--hosts", "hosta,hostb"))
        self.check_verify(self.bench(*VERIFY, "--hosts", "hosta,hostb"))


if __name__ == "__main__":
    hosts.contain(*slurm.TOOLS)
    unittest.main()
