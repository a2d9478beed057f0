"""One host has less memory than the other: it sets the limits and is named; a rank that the kernel kills there is
reported with the kernel's count."""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
from served import FLAGS, Served, group, mpirun  # noqa: E402

CAP_BYTES = 1 << 30


def capped(cap):
    """A front that puts the ranks of hostb under the cap."""
    return ["sh", "-c", f'[ "$(hostname)" != hostb ] || echo $$ > {cap.path}/cgroup.procs; exec "$@"', "sh"]


class MemoryTest(unittest.TestCase):
    def setUp(self):
        if not hosts.MemoryCap.available():
            self.skipTest("no memory cgroup that can be written")
        self.cap = self.enterContext(hosts.MemoryCap(CAP_BYTES))
        self.enterContext(hosts.Hosts(slots=2))

    def test_the_host_with_less_memory_is_named_as_binding(self):
        report = hosts.STATE + "/report.json"
        with Served(mpirun(4, "--map-by", "ppr:2:node", *capped(self.cap)), "-v", "--max-num-seqs", "64", "--report",
                    report) as served:
            # The log and READY come over two streams, in any order.
            limited = hosts.until(lambda: [line for line in served.lines if "limited by rank" in line], "no report")
            self.assertRegex(limited[0], "limited by rank [23] on hostb")  # whichever measured less
            marked = [line for line in served.lines if " < " in line]
            self.assertEqual(len(marked), 1)
            self.assertIn(" hostb cpu ", marked[0])
            doctor = subprocess.run([group.BINARY, "doctor", "--report", report], check=True, stdout=subprocess.PIPE,
                                    encoding="utf-8").stdout
            self.assertIn("hostb", doctor)

    def test_a_plan_for_two_nodes_is_what_then_runs(self):
        report, budget = hosts.STATE + "/report.json", "0=300MiB,1=300MiB,2=200MiB,3=200MiB"
        with Served(mpirun(4, "--map-by", "ppr:2:node"), "--device-memory", budget, "--report", report):
            with open(report, encoding="utf-8") as f:
                ran = json.load(f)
        planned = json.loads(subprocess.run(
            [group.BINARY, "plan", "--model", group.MODEL, *FLAGS, "--nodes", "2", "--tensor-parallel-size", "4",
             "--device-memory", budget, "--json"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout)
        for key in ("max_num_seqs", "max_model_len", "max_num_batched_tokens", "num_kv_blocks"):
            self.assertEqual(planned[key], ran[key], key)
        self.assertEqual([rank["arenas"] for rank in planned["ranks"]], [rank["arenas"] for rank in ran["ranks"]])
        self.assertEqual([rank["host"] for rank in planned["ranks"]], ["node0", "node0", "node1", "node1"])
        self.assertEqual(planned["binding"]["rank"], ran["binding"]["rank"])

    def test_a_rank_that_the_kernel_kills_for_memory_is_reported_with_its_count(self):
        report = hosts.STATE + "/report.json"
        with Served(mpirun(4, "--map-by", "ppr:2:node", *capped(self.cap)), "--report", report) as served:
            call = served.generation.GenerateStream(group.long_request())
            next(iter(call))
            # The kernel shall choose rank 3 when somebody else in its cgroup takes too much.
            with open(f"/proc/{served.pids[3]}/oom_score_adj", "w", encoding="ascii") as f:
                f.write("1000")
            hog = subprocess.Popen(self.cap.command(sys.executable, "-c",
                                                    f"import time; b = b'x' * {CAP_BYTES - (1 << 26)}; time.sleep(60)"))
            served.ends([0, 1, 2, 3], 30)
            hog.kill()
            hog.wait()
            with self.assertRaises(group.grpc.RpcError) as raised:
                list(call)
            self.assertIn("rank 3 (host hostb", raised.exception.details())
            self.assertIn("the kernel killed", raised.exception.details())
            self.assertIn("oom_kill", raised.exception.details())
            served.exit_code()
            doctor = subprocess.run([group.BINARY, "doctor", "--report", report], check=True, stdout=subprocess.PIPE,
                                    encoding="utf-8").stdout
            self.assertIn("the kernel killed", doctor)


if __name__ == "__main__":
    hosts.contain()
    unittest.main()
