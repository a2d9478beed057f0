"""deploy/slurm/serve.sbatch, as a user submits it. bench_test.py has the others."""
import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
import slurm  # noqa: E402
from served import group  # noqa: E402

SCRIPTS = os.path.join(group.SOURCE, "deploy", "slurm")
LOG = hosts.STATE + "/job.log"


def log():
    try:
        with open(LOG, encoding="utf-8") as f:
            return f.read()
    except OSError:
        return ""


class SlurmTest(unittest.TestCase):
    def setUp(self):
        if os.path.exists(LOG):
            os.unlink(LOG)
        self.two = self.enterContext(hosts.Hosts())
        self.slurm = self.enterContext(slurm.Slurm(self.two))

    def serve(self, *flags):
        job = self.slurm.submit(f"{SCRIPTS}/serve.sbatch", "--model", group.MODEL, "--port", "0", *flags,
                                options=(f"--output={LOG}", "--ntasks-per-node=2"))
        return job, self.ready(1)

    def ready(self, nth):
        """The target of the nth READY line."""
        def target():
            found = re.findall(r"READY grpc=(\S+)", log())
            return found[nth - 1] if len(found) >= nth else None
        try:
            return hosts.until(target, "the job does not serve")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log()}") from None

    def check_answers(self, target):
        case = group.golden()[0]
        with group.grpc.insecure_channel(target) as channel:
            stub = group.rpc.GenerationStub(channel)
            answer = group.Streamed(stub.GenerateStream(group.greedy(case["prompt"], len(case["ids"]))))
        self.assertEqual(answer.ids, case["ids"], answer.error)

    def test_a_served_job_answers_and_drains_on_its_warning_signal(self):
        job, target = self.serve("--kv-cache-dtype", "f32")
        self.check_answers(target)
        with group.grpc.insecure_channel(target) as channel:
            call = group.rpc.GenerationStub(channel).GenerateStream(group.long_request(max_tokens=300))
            next(iter(call))
            self.two.run("hosta", "scancel", "--batch", "--signal=USR1", job)
            streamed = [event for event in call if event.WhichOneof("event") == "finished"]
        self.assertEqual(len(streamed), 1, "the running request was not finished")
        record = self.slurm.ended(job)
        self.assertEqual((record["JobState"], record["ExitCode"]), ("COMPLETED", "0:0"), log())
        self.assertIn("serve.sbatch: draining", log())
        self.assertIn(f'serve.sbatch: on hosta itself: bulkhead generate --target {target} "Hello"', log())

    def test_a_cancelled_job_ends_at_once_and_does_not_say_that_it_drains(self):
        job, target = self.serve()
        with group.grpc.insecure_channel(target) as channel:
            call = group.rpc.GenerationStub(channel).GenerateStream(group.long_request())
            next(iter(call))
            self.two.run("hosta", "scancel", job)
            self.assertEqual(self.slurm.ended(job)["JobState"], "CANCELLED", log())
            with self.assertRaises(group.grpc.RpcError):
                list(call)
        self.assertNotIn("draining", log())

    def test_a_wrong_flag_ends_a_job_with_the_programs_code(self):
        job = self.slurm.submit(f"{SCRIPTS}/bench.sbatch", "throughput", "--nonsense",
                                options=(f"--output={LOG}", "--ntasks-per-node=2"))
        record = self.slurm.ended(job)
        self.assertEqual((record["JobState"], record["ExitCode"]), ("FAILED", "2:0"), log())
        self.assertEqual(log().count("bulkhead: "), 1, log())

    def test_a_lost_rank_sends_the_job_back_to_the_queue_and_it_serves_again(self):
        job, _ = self.serve()
        os.kill(hosts.ranks()[3], signal.SIGKILL)
        hosts.until(lambda: "back to the queue" in log(), "the job was not requeued")
        self.assertIn("rank 3 (host hostb", log())
        # Slurm holds a requeued job back for two minutes; what it does then is its own affair.
        record = hosts.until(lambda: self.slurm.job(job) if self.slurm.job(job)["JobState"] == "PENDING" else None,
                             "the job is not pending")
        self.assertEqual(record["Restarts"], "1")


if __name__ == "__main__":
    hosts.contain(*slurm.TOOLS)
    unittest.main()
