"""External connections can end no group: to whatever port of it, of mpirun or of its daemons, from the launch on, held
open or with whatever bytes; clients get the same tokens."""
import os
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
import slurm  # noqa: E402
from served import Served, group, mpirun, srun  # noqa: E402
import external_connections  # noqa: E402

ROUNDS = int(os.environ.get("BULKHEAD_ROUNDS", "5"))  # of what a race decides
MPI_PORTS = range(1024, 1032)  # where Open MPI's ranks listen, the first that is free
FRONT = mpirun(4, "--map-by", "ppr:2:node")
# Lets a program be refused copies of others' descriptors (pidfd_getfd, 438), as container runtimes do.
WITHOUT_COPIES = [sys.executable, "-B", "-c", """
import ctypes, errno, os, struct, sys
rules = struct.pack("=" + 4 * "HBBI", 0x20, 0, 0, 0, 0x15, 0, 1, 438, 6, 0, 0, 0x50000 | errno.EPERM, 6, 0, 0, 0x7fff0000)
program = ctypes.create_string_buffer(rules, len(rules))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(program)))) == 0
os.execvp(sys.argv[1], sys.argv[1:])"""]


class ExternalConnectionsTest(unittest.TestCase):
    def setUp(self):
        self.case = group.golden()[0]

    def check_tokens(self, served, times=5):
        for _ in range(times):
            ask = group.greedy(self.case["prompt"], len(self.case["ids"]))
            answer = group.Streamed(served.generation.GenerateStream(ask, timeout=60))
            self.assertEqual(answer.code, group.grpc.StatusCode.OK, answer.error)
            self.assertEqual(answer.ids, self.case["ids"])

    def drain(self, served):
        served.control.Drain(group.pb.DrainRequest(), timeout=group.LIMIT_S)
        self.assertEqual(served.exit_code(), 0, served.lines[-10:])

    def processes(self, names):
        """(name, pid) of every process of the launch that may listen."""
        return [(name, pid) for name in names for pid in hosts.processes(name)]

    def attack(self, two, served, names):
        """A crowd on each host against every port of the group; the ports that took a connection."""
        found = {(name, pid): external_connections.listening_ports(pid) for name, pid in self.processes(names)}
        ports = sorted(set().union(*found.values()))
        self.assertGreaterEqual(len(found), len(names))
        targets = ports + [f"{hosts.ADDRESS['hostb']}:{p}" for p in ports]
        with external_connections.Elsewhere(lambda *c: two.command("hosta", *c), targets) as here, \
             external_connections.Elsewhere(lambda *c: two.command("hostb", *c), ports) as there:
            begin = time.monotonic()
            self.check_tokens(served)
            took = {port: [key for key, of in found.items() if port in of] for port in here.took | there.took}
            print(f"\n  {sum(map(len, found.values()))} ports of {len(found)} processes; took connections: {took}; "
                  f"5 answers in {time.monotonic() - begin:.1f} s", end=" ", flush=True)
        self.check_tokens(served)
        return found, took

    def test_of_all_ports_of_a_group_under_mpirun_only_those_of_ready_take_connections(self):
        with hosts.Hosts(slots=2) as two, Served(FRONT) as served:
            found, took = self.attack(two, served, ["bulkhead", *hosts.LAUNCHERS])
            self.assertEqual(set(took), external_connections.ready_ports(served.lines))
            self.assertTrue(all(found.values()), found)  # each rank and launcher does listen
            self.assertEqual([line for line in served.lines if "WARNING" in line], [])
            self.drain(served)

    def test_under_srun_only_those_of_ready_and_slurms_take_connections(self):
        with hosts.Hosts() as two, slurm.Slurm(two), Served(srun(4)) as served:
            found, took = self.attack(two, served, ["bulkhead", "slurmstepd"])
            # A rank inherits the port of its slurmstepd's PMIx server, which is that one's to answer.
            slurms = set().union(*(ports for (name, _), ports in found.items() if name != "bulkhead"))
            self.assertEqual(set(took) - slurms, external_connections.ready_ports(served.lines))
            self.drain(served)

    def test_half_handshakes_from_the_launch_on(self):
        for _ in range(ROUNDS):
            with self.subTest(), hosts.Hosts(slots=2):
                rogue = Rogue([(a, p) for a in list(hosts.ADDRESS.values())[:2] for p in MPI_PORTS])
                try:
                    begin = time.monotonic()
                    with Served(FRONT, "--step-timeout", "20s") as served:
                        print(f"\n  ready after {time.monotonic() - begin:.1f} s, {len(rogue.held)} connections made;",
                              sum("dropped" in line for line in served.lines), "times dropped", end=" ")
                        self.check_tokens(served)
                        rogue.speak()
                        self.check_tokens(served)
                        self.drain(served)
                finally:
                    rogue.stop()

    def test_where_a_launchers_ports_stay_open_that_is_said_and_junk_ends_nobody(self):
        front = ["sh", "-c", 'exec "$@"', "sh", *FRONT, *WITHOUT_COPIES]
        if subprocess.run([*WITHOUT_COPIES, "true"], check=False).returncode != 0:
            self.skipTest("this machine lets no process restrict itself (seccomp)")
        with hosts.Hosts(slots=2) as two, Served(front) as served:
            for name in hosts.LAUNCHERS:
                (pid,) = hosts.processes(name)
                def lines(name=name):
                    return [line for line in served.lines if f" {name} (host host" in line]
                said = hosts.until(lines, f"nothing is said of {name}")
                self.assertEqual(len(said), 1, served.lines)
                self.assertIn("pidfd_getfd: Operation not permitted", said[0])
                self.assertIn("iptables -I INPUT", said[0])
                for port in external_connections.listening_ports(pid):
                    self.assertRegex(said[0], rf"\b{port}\b")
            self.attack(two, served, ["bulkhead", *hosts.LAUNCHERS])
            self.drain(served)


class Rogue:
    """Connects to each target again and again, as soon as somebody listens there, and holds what it gets: half of them
    say half a handshake at once, the others when they are told to."""

    def __init__(self, targets, most=40):
        self.held, self._most, self._stop = [], most, threading.Event()
        self._thread = threading.Thread(target=self._run, args=(targets,))
        self._thread.start()

    def _run(self, targets):
        while not self._stop.wait(0.002) and len(self.held) < self._most:
            for target in targets:
                try:
                    made = external_connections.socket.create_connection(target, timeout=0.05)
                except OSError:
                    continue
                self.held.append(made)
                if len(self.held) % 2 == 0:
                    made.sendall(external_connections.MAGIC[:8])

    def speak(self):
        for made in self.held[::2]:
            try:
                made.sendall(external_connections.MAGIC[:8])
            except OSError:
                pass  # hung up on

    def stop(self):
        self._stop.set()
        self._thread.join()
        for made in self.held:
            made.close()


if __name__ == "__main__":
    hosts.contain(*slurm.TOOLS)
    unittest.main()
