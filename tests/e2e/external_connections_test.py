"""Of all ports of a group on one host, including its launcher's, only those named by READY accept
connections; whatever external connections send there or elsewhere, clients get the same tokens."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
import external_connections  # noqa: E402


class ExternalConnectionsTest(unittest.TestCase):
    def test_external_connections_change_no_tokens(self):
        case = group.golden()[0]
        with group.Group() as served:
            ports = {pid: external_connections.listening_ports(pid) for pid in external_connections.family(served.process.pid)}
            # rank 0's, and mpirun's
            self.assertGreaterEqual(sum(map(bool, ports.values())), min(group.RANKS, 2), ports)
            targets = [(a, p) for p in set().union(*ports.values()) for a in ("127.0.0.1", "::1")]
            with external_connections.Crowd(targets) as crowd:
                self.assertEqual(crowd.took, external_connections.ready_ports(served.lines), ports)
                for _ in range(5):
                    ask = group.greedy(case["prompt"], len(case["ids"]))
                    answer = group.Streamed(served.generation.GenerateStream(ask, timeout=group.LIMIT_S))
                    self.assertEqual(answer.code, group.grpc.StatusCode.OK, answer.error)
                    self.assertEqual(answer.ids, case["ids"])
            served.control.Drain(group.pb.DrainRequest(), timeout=group.LIMIT_S)
            self.assertEqual(served.exit_code(), 0, served.lines[-10:])


if __name__ == "__main__":
    unittest.main()
