"""Ranks that differ, or that cannot meet, never serve: all end at once with exit code 5, and who differs is named."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
import slurm  # noqa: E402
from served import group  # noqa: E402


def run(*command):
    return subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                          timeout=hosts.LIMIT_S)


class AgreementTest(unittest.TestCase):
    def check(self, done, *words):
        self.assertEqual(done.returncode, 5, done.stdout)
        for word in words:
            self.assertIn(word, done.stdout)
        self.assertNotIn("READY", done.stdout)
        hosts.until(lambda: not hosts.ranks(), "a rank is left")

    def serve(self, *flags, model=group.MODEL):
        return [group.BINARY, "serve", "--model", model, "--port", "0", *flags]

    def test_other_flags_on_one_host(self):
        with hosts.Hosts():
            done = run("mpirun", "-n", "2", *group.by_rank(self.serve("--block-size", "16"), self.serve("--block-size", "32")))
            self.check(done, "rank 1 (host hostb): --block-size is 32 where rank 0 has 16")

    def test_a_stale_copy_of_the_weights_on_one_host(self):
        stale, path = hosts.STATE + "/stale", hosts.STATE + "/model"
        shutil.copytree(group.MODEL, path)
        shutil.copytree(group.MODEL, stale)
        name = next(n for n in os.listdir(stale) if n.endswith(".safetensors"))
        with open(f"{stale}/{name}", "r+b") as f:
            f.seek(-2048, os.SEEK_END)
            tail = f.read()
            f.seek(-2048, os.SEEK_END)
            f.write(bytes(b ^ 1 for b in tail))
        with hosts.Hosts(slots=2) as two:
            two.run("hostb", "mount", "--bind", stale, path)
            done = run("mpirun", "-n", "4", "--map-by", "ppr:2:node", *self.serve(model=path))
            self.check(done, f"rank 2 (host hostb), rank 3 (host hostb) have weights {name}=")

    def test_what_all_agree_on_is_said_once(self):
        with hosts.Hosts(slots=2):
            done = run("mpirun", "-n", "4", "--map-by", "ppr:2:node", *self.serve(model="/no/such"))
            self.assertEqual(done.returncode, 3, done.stdout)
            said = [line for line in done.stdout.splitlines() if line.startswith("bulkhead: ")]
            self.assertEqual(said, ["bulkhead: rank 0 (host hosta): no such model folder: /no/such"])

    def test_another_program_on_one_host(self):
        other = hosts.STATE + "/other"
        with open(group.BINARY, "rb") as f:
            program = f.read()
        commit = run(group.BINARY, "--version").stdout.split("(")[1].split(")")[0].encode()
        with open(other, "wb") as f:
            f.write(program.replace(b"(" + commit + b")", b"(" + b"0" * len(commit) + b")"))
        os.chmod(other, 0o755)
        with hosts.Hosts():
            done = run("mpirun", "-n", "2", *group.by_rank(self.serve(), [other, *self.serve()[1:]]))
            self.check(done, "rank 1 (host hostb) has build=", "(0000000)")

    def test_srun_without_pmix_is_refused_with_the_right_command(self):
        with hosts.Hosts() as two, slurm.Slurm(two):
            done = run("srun", "-N2", "-n2", "--mpi=none", *self.serve())
            self.check(done, "srun started 2 ranks, but offers no PMIx server", "srun --mpi=pmix -n 2")

    def test_hosts_that_cannot_reach_each_other_beside_mpi(self):
        with hosts.Hosts(slots=1) as two:
            # MPI gets ports of its own; those that the kernel picks for others are closed.
            two.run("hosta", "sysctl", "-qw", "net.ipv4.ip_local_port_range=32768 40000")
            ports = "OMPI_MCA_btl_tcp_port_min_v4=41000", "OMPI_MCA_btl_tcp_port_range_v4=100"
            two.run("hostb", "iptables", "-A", "OUTPUT", "-p", "tcp", "--syn", "-d", hosts.ADDRESS["hosta"], "--dport",
                    "32768:40999", "-j", "REJECT", "--reject-with", "tcp-reset")
            done = run("env", *ports, "mpirun", "-x", "OMPI_MCA_btl_tcp_port_min_v4", "-x",
                       "OMPI_MCA_btl_tcp_port_range_v4", "--mca", "oob_tcp_dynamic_ipv4_ports", "42000-42100", "-n", "2",
                       *self.serve())
            self.check(done, "cannot reach rank 0 (host hosta", "10.77.0.1", "OMPI_MCA_btl_tcp_if_include")


if __name__ == "__main__":
    hosts.contain(*slurm.TOOLS)
    unittest.main()
