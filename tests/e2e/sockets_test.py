"""Every listening socket of every process of a group, its launcher's too, and what a caller without a key gets on each. A socket
that is not in the table fails the test."""
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import external_connections  # noqa: E402
import group  # noqa: E402
from group import grpc, pb, rpc, health_pb, health_rpc  # noqa: E402

KEY = "a-key-of-the-sockets-test"
LISTENS_TCP = "0A"
LISTENS_UNIX = 0x10000  # __SO_ACCEPTCON
CONNECT_S = 2  # on one machine it takes microseconds


def owners(pid):
    """Socket inode -> (process, "rank N" or "launcher"), of the process and its descendants."""
    found = {}
    for one in external_connections.family(pid):
        with open(f"/proc/{one}/environ", "rb") as f:
            ranks = [e.split(b"=")[1].decode() for e in f.read().split(b"\0") if e.startswith(b"OMPI_COMM_WORLD_RANK=")]
        who = f"rank {ranks[0]}" if ranks else "rank 0" if group.RANKS == 1 else "launcher"
        for inode in external_connections.socket_inodes(one):
            found[inode] = who
    return found


def unpacked(text, is_v6):
    raw = bytes.fromhex(text)
    raw = b"".join(raw[i:i + 4][::-1] for i in range(0, len(raw), 4))
    return socket.inet_ntop(socket.AF_INET6 if is_v6 else socket.AF_INET, raw)


def listening(pid):
    """A list of (who, kind, address): kind tcp, udp or unix."""
    found, owner = [], owners(pid)
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as f:
            for words in map(str.split, f.readlines()[1:]):
                if words[9] not in owner or (table.startswith("tcp") and words[3] != LISTENS_TCP):
                    continue
                host, port = words[1].rsplit(":", 1)
                found.append((owner[words[9]], table[:3], (unpacked(host, table.endswith("6")), int(port, 16))))
    with open(f"/proc/{pid}/net/unix", encoding="utf-8") as f:
        for line in f.readlines()[1:]:
            words = line.split()
            if words[6] in owner and int(words[3], 16) & LISTENS_UNIX:
                found.append((owner[words[6]], "unix", words[7] if len(words) > 7 else ""))
    return found


class SocketsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        keys = os.path.join(cls.folder.name, "keys")
        with open(keys, "w", encoding="ascii") as f:
            f.write(KEY + "\n")
        os.chmod(keys, 0o600)
        cls.group = group.Group("--http-port", 0, "--metrics-port", 0, "--api-key-file", keys)
        cls.sockets = listening(cls.group.process.pid)

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()
        cls.folder.cleanup()

    # What a caller without a key gets, by what listens.

    def grpc_port(self, target):
        with grpc.insecure_channel(target) as channel:
            self.assertEqual(health_rpc.HealthStub(channel).Check(health_pb.HealthCheckRequest(), timeout=group.LIMIT_S).status,
                             health_pb.HealthCheckResponse.SERVING)
            generation, control = rpc.GenerationStub(channel), rpc.ControlStub(channel)
            for call, request in ((generation.Generate, group.greedy("Once", 1)), (control.GetLoad, pb.GetLoadRequest()),
                                  (control.SetLimits, pb.SetLimitsRequest(max_num_seqs=1)), (control.Drain, pb.DrainRequest())):
                with self.assertRaises(grpc.RpcError) as caught:
                    call(request, timeout=group.LIMIT_S)
                self.assertIs(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED, target)

    def http_port(self, target, paths, open_paths):
        host, port = target.rsplit(":", 1)
        for path, status in [(path, 401) for path in paths] + [(path, 200) for path in open_paths]:
            connection = http.client.HTTPConnection(host, int(port), timeout=group.LIMIT_S)
            connection.request("GET", path)
            self.assertEqual(connection.getresponse().status, status, (target, path))
            connection.close()

    def launchers_port(self, where):
        """Open MPI's own, on every address: the ranks let no one connect any more once they are connected (comm/mpi/mpi_ports.h)."""
        host = "::1" if ":" in where[0] else "127.0.0.1"
        with self.assertRaises((TimeoutError, ConnectionRefusedError)):
            socket.create_connection((host, where[1]), CONNECT_S).close()

    def check(self, who, kind, where):
        """False for a socket that is not known."""
        served = {t.rsplit(":", 1)[1]: name for name, t in (
            ("grpc", self.group.target), ("control", self.group.control_target), ("http", self.group.http_target),
            ("metrics", self.group.metrics_target))}
        if kind == "tcp" and who == "rank 0" and str(where[1]) in served:
            self.assertEqual(where[0], "127.0.0.1")
            target, name = f"{where[0]}:{where[1]}", served[str(where[1])]
            if name in ("grpc", "control"):
                self.grpc_port(target)
            elif name == "http":
                self.http_port(target, ("/v1/models", "/metrics", "/version", "/load", "/status", "/v1/embeddings"),
                               ("/health", "/live", "/ready", "/", "/page.js"))
            else:
                self.http_port(target, ("/metrics", "/health"), ())
            return True
        if kind == "tcp" and who == "launcher":
            self.launchers_port(where)
            return True
        return False

    def test_every_socket_is_known_and_gives_nothing_away(self):
        ports = [where for who, kind, where in self.sockets if (who, kind) == ("rank 0", "tcp")]
        self.assertEqual(len(ports), 4, self.sockets)  # gRPC, control, HTTP, metrics
        for found in self.sockets:
            with self.subTest(found):
                self.assertTrue(self.check(*found), "an unknown socket listens")
        # What was tried changed nothing.
        stub = rpc.ControlStub(self.group.channel)
        info = stub.GetServerInfo(pb.GetServerInfoRequest(), metadata=[("authorization", f"Bearer {KEY}")], timeout=group.LIMIT_S)
        self.assertEqual(info.tensor_parallel_size, group.RANKS)
        self.assertFalse([line for line in self.group.lines if re.search("draining|max_num_seqs 1", line)])


@unittest.skipIf(group.RANKS > 1, "one server is enough")
@unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip"), "needs root and iproute2")
class Ipv6OnlyTest(unittest.TestCase):
    def test_the_control_port_is_on_the_other_loopback_where_there_is_no_127_0_0_1(self):
        alone = 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"'
        with group.Group("--host", "::1", front=lambda *command: ("unshare", "-n", "sh", "-c", alone, "sh", *command)) as g:
            self.assertRegex(g.control_target, r"^\[::1\]:\d+$")
            done = subprocess.run(["nsenter", f"--net=/proc/{g.process.pid}/ns/net", group.BINARY, "drain", "--target",
                                   g.control_target], capture_output=True, text=True, timeout=group.LIMIT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("drained: 0 finished, 0 cut", done.stdout)
            self.assertEqual(g.exit_code(), 0)


if __name__ == "__main__":
    unittest.main()
