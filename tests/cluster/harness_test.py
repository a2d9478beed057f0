"""The hosts are what they claim to be: two names, one cable that can be cut, a Slurm that starts on both."""
import contextlib
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
import slurm  # noqa: E402


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8", timeout=hosts.LIMIT_S).stdout


class HostsTest(unittest.TestCase):
    def test_mpirun_starts_a_rank_on_each(self):
        with hosts.Hosts():
            self.assertEqual(sorted(output("mpirun", "-n", "2", "hostname").split()), ["hosta", "hostb"])

    def test_srun_starts_a_rank_on_each(self):
        with hosts.Hosts() as two, slurm.Slurm(two):
            names = output("srun", "-N2", "-n2", "--mpi=pmix", "hostname")
            self.assertEqual(sorted(names.split()), ["hosta", "hostb"])

    def test_a_cut_and_a_drop_part_the_hosts_and_heal_joins_them(self):
        with hosts.Hosts() as two:
            def connected():
                probe = "import socket; s=socket.create_server(('10.77.0.2',7)); print('up',flush=True); s.accept()"
                server = subprocess.Popen(two.command("hostb", sys.executable, "-c", probe), stdout=subprocess.PIPE)
                server.stdout.readline()
                connect = "import socket; socket.create_connection(('hostb',7),1)"
                done = subprocess.run([sys.executable, "-c", connect], check=False, stderr=subprocess.DEVNULL)
                for pid in hosts.children(server.pid):
                    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                        os.kill(pid, 9)
                server.wait()
                server.stdout.close()
                return done.returncode == 0
            self.assertTrue(connected())
            for fault in (two.cut, two.drop):
                fault()
                self.assertFalse(connected())
                two.heal()
                hosts.until(connected, "the cable did not heal")

    def test_a_memory_cap_kills_and_counts(self):
        if not hosts.MemoryCap.available():
            self.skipTest("no memory cgroup that can be written")
        with hosts.MemoryCap(64 << 20) as cap:
            hog = cap.command(sys.executable, "-c", "b = bytearray(1 << 28)")
            self.assertEqual(subprocess.run(hog, check=False).returncode, -9)
            self.assertEqual(cap.oom_kills(), 1)


if __name__ == "__main__":
    hosts.contain(*slurm.TOOLS)
    unittest.main()
