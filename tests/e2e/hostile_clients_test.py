"""Clients that attack the server by HTTP/2: it keeps running, within its memory, and answers others
meanwhile."""
import os
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
import raw_http2 as h2  # noqa: E402
from group import greedy, grpc, health_pb, health_rpc, pb, rpc  # noqa: E402

MIB = 1 << 20
PATIENCE_S = 15  # for operations of milliseconds: a loaded machine may need more
# Maximum growth of the server due to clients if it does not report one itself.
MOST_HELD_BYTES = 512 * MIB
MOST_OPEN_CALLS = 3584  # host_budget.cc, of a host that is not small
GENERATE, DETOKENIZE = b"/bulkhead.v1.Generation/Generate", b"/bulkhead.v1.Generation/Detokenize"


def body(request):
    return request.SerializeToString()


class Bystander(threading.Thread):
    """Polls with another client and on the control port, and records the longest wait."""

    def __init__(self, served):
        super().__init__(daemon=True)
        self.served, self.longest_s, self.errors, self.stopping = served, {}, [], False
        self.start()

    def run(self):
        own = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self.served.target, own) as main, \
                grpc.insecure_channel(self.served.control_target, own) as control:
            calls = {"generate": lambda: rpc.GenerationStub(main).Generate(greedy("Once", 2), timeout=60),
                     "health": lambda: health_rpc.HealthStub(control).Check(health_pb.HealthCheckRequest(), timeout=60),
                     "load": lambda: rpc.ControlStub(control).GetLoad(pb.GetLoadRequest(), timeout=60)}
            while not self.stopping:
                for name, call in calls.items():
                    begin = time.monotonic()
                    try:
                        call()
                    except grpc.RpcError as error:
                        self.errors.append(f"{name}: {error.code()} {error.details()}")
                    self.longest_s[name] = max(self.longest_s.get(name, 0), time.monotonic() - begin)
                time.sleep(0.02)

    def stop(self):
        self.stopping = True
        self.join()


class HostileClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group()
        cls.channel = grpc.insecure_channel(cls.group.control_target)
        cls.control = rpc.ControlStub(cls.channel)
        cls.expected = cls.generate()

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.group.__exit__()

    @classmethod
    def generate(cls):
        return cls.group.generation.Generate(greedy("Once upon a time", 24), timeout=group.LIMIT_S).text

    def load(self):
        return self.control.GetLoad(pb.GetLoadRequest(), timeout=group.LIMIT_S)

    def setUp(self):
        self.connections = []
        self.bystander = Bystander(self.group)

    def tearDown(self):
        """Regardless of the attack."""
        self.bystander.stop()
        load = self.load()
        at_ready = load.host.resident_bytes_at_ready
        bound = load.host.bound_bytes if load.host.bound_bytes > at_ready else at_ready + MOST_HELD_BYTES
        self.assertLessEqual(load.host.resident_bytes_peak, bound)
        self.assertEqual(self.bystander.errors, [])
        for name, longest_s in self.bystander.longest_s.items():
            self.assertLess(longest_s, PATIENCE_S, name)
        print(f"  {self.id().rsplit('.', 1)[1]}: others waited "
              + ", ".join(f"{n} {s * 1000:.0f} ms" for n, s in self.bystander.longest_s.items())
              + f"; resident {load.resident_bytes // MIB} MiB, peak {load.host.resident_bytes_peak // MIB},"
              f" at READY {load.host.resident_bytes_at_ready // MIB}", file=sys.stderr)
        for connection in self.connections:
            connection.close()
        self.assertEqual(self.generate(), self.expected)
        self.group.wait_until_idle()

    def connect(self, **options):
        self.connections.append(h2.Connection(self.group.target, **options))
        return self.connections[-1]

    def wait_for(self, condition, what):
        limit = time.monotonic() + group.LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), limit, what)
            time.sleep(0.1)

    def flood(self, connections, next_bytes, seconds):
        """Each sends the output of next_bytes(connection) for the given time, or until
        disconnected."""
        def send(connection):
            end = time.monotonic() + seconds
            connection.socket.settimeout(1)
            while time.monotonic() < end and connection.send(next_bytes(connection)):
                connection.read(0)
        threads = [threading.Thread(target=send, args=(c,)) for c in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_whole_requests_that_are_reset_do_not_pile_up(self):
        request = pb.GenerateRequest(stopping=pb.Stopping(max_tokens=500, ignore_eos=True))
        request.token_ids.ids.extend([10] * 50)
        sent = h2.message(body(request))

        def fifty(connection):
            out = b""
            for _ in range(50):
                stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
                out += (h2.frame(h2.HEADERS, h2.END_HEADERS, stream, h2.request_headers(GENERATE))
                        + h2.frame(h2.DATA, h2.END_STREAM, stream, sent) + h2.frame(h2.RST_STREAM, 0, stream, h2.CANCEL))
            return out
        self.flood([self.connect() for _ in range(3)], fifty, 5)
        self.assertLessEqual(self.load().host.open_calls.now, MOST_OPEN_CALLS)

    def test_calls_without_a_body_end_by_themselves(self):
        for _ in range(3):
            connection = self.connect()
            for i in range(4000):
                connection.open(GENERATE)
                if i % 100 == 0:
                    connection.read(0)
        peak = self.load().host.open_calls.peak
        self.assertGreater(peak, MOST_OPEN_CALLS * 3 // 4)  # the last eighth is for others
        self.assertLessEqual(peak, MOST_OPEN_CALLS)
        self.wait_for(lambda: self.load().host.open_calls.now < 100, "calls without a body stay open")
        self.assertFalse(any(c.closed for c in self.connections))

    def test_calls_that_are_not_whole_take_little_and_may_end_in_any_order(self):
        begin = h2.short_request_headers(GENERATE)
        for more in (b"", b"\0"):
            before, sent = self.load().resident_bytes, 0
            for _ in range(2):
                connection = self.connect()
                for stream in range(1, 2800, 2):
                    frames = h2.frame(h2.HEADERS, h2.END_HEADERS, stream, begin)
                    frames += h2.frame(h2.DATA, 0, stream, more) if more else b""
                    connection.send(frames)
                    sent += len(frames)
                    connection.read(0)
            self.wait_for(lambda: self.load().host.open_calls.now >= 2800, "calls do not arrive")
            self.assertLess(self.load().resident_bytes - before, 100 * sent)
            for connection in self.connections:
                connection.close()
            self.wait_for(lambda: self.load().host.open_calls.now < 100, "calls of a closed connection stay")
        connection = self.connect()
        lengths = {stream: 1 + stream % 7 for stream in range(1, 40, 2)}
        for stream in lengths:
            connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, stream, begin))
        for stream in reversed(lengths):
            request = body(greedy("Once upon a time", lengths[stream]))
            connection.send(h2.frame(h2.DATA, h2.END_STREAM, stream, h2.message(request)))
        while len(connection.ended) < len(lengths) and not connection.closed:
            connection.read(1)
        for stream, length in lengths.items():
            answer = pb.GenerateResponse.FromString(connection.answers[stream][5:])
            self.assertEqual(len(answer.tokens), length)
            self.assertTrue(self.expected.startswith(answer.text), answer.text)

    def test_endless_header_blocks_are_hung_up_on(self):
        begin = h2.request_headers(GENERATE) + b"\x00\x01x" + h2.integer(2 ** 31 - 1)
        for _ in range(8):
            connection = self.connect()
            connection.send(h2.frame(h2.HEADERS, 0, 1, begin))
        self.flood(self.connections, lambda c: h2.frame(h2.CONTINUATION, 0, 1, b"a" * 16384), 5)
        self.assertTrue(all(c.closed for c in self.connections))
        self.assertGreaterEqual(self.load().host.num_connections_closed_by_reason["HEADERS_TOO_LARGE"], 8)

    def test_half_messages_are_bounded_and_end(self):
        half = b"\x1a" + h2.integer(0) + b"a" * (4 * MIB - 100)
        for _ in range(40):
            connection = self.connect()
            connection.send_body(connection.open(b"/bulkhead.v1.Generation/Score"), half, keep_back=16)
            self.assertLessEqual(self.load().host.request_bytes.now, 64 * MIB + MIB)
        self.wait_for(lambda: self.load().host.request_bytes.now == 0, "half messages stay")

    def test_answers_that_nobody_reads_do_not_stop_the_server(self):
        connection = self.connect(window=0)
        request = pb.DetokenizeRequest(token_ids=pb.TokenIds(ids=[500] * 200_000))
        for _ in range(20):
            connection.send_body(connection.open(DETOKENIZE), body(request))

    def test_a_thousand_silent_connections_lock_nobody_out(self):
        for i in range(1000):
            silent = self.connect(greet=False)
            if i % 2:
                silent.send(h2.PREFACE[:10])
        self.wait_for(lambda: self.load().host.connections.now < 100, "silent connections stay")

    def test_floods_of_small_frames_slow_nobody_down(self):
        kinds = [h2.frame(h2.PING, 0, 0, b"12345678"), h2.frame(h2.SETTINGS, 0, 0, b"\0\4\0\0\xff\xff"),
                 h2.frame(h2.SETTINGS, 0, 0), h2.frame(h2.WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
                 h2.frame(2, 0, 1, b"\0\0\0\0\x10"), h2.frame(0xfe, 0, 0, b"x" * 100),
                 h2.frame(h2.RST_STREAM, 0, 1, h2.CANCEL)]
        kind_of = {self.connect(): kind for kind in kinds}
        self.flood(self.connections, lambda c: kind_of[c] * 500, 3)


class ControlPortTest(unittest.TestCase):
    def test_it_drains_and_tells_of_itself(self):
        with group.Group() as served, grpc.insecure_channel(served.control_target) as channel:
            self.assertTrue(served.control_target.startswith("127.0.0.1:"))
            self.assertNotEqual(served.control_target, served.target)
            control, health = rpc.ControlStub(channel), health_rpc.HealthStub(channel)
            watch = health.Watch(health_pb.HealthCheckRequest(), timeout=group.LIMIT_S)
            self.assertEqual(next(watch).status, health_pb.HealthCheckResponse.SERVING)
            self.assertEqual(control.GetServerInfo(pb.GetServerInfoRequest()).max_num_seqs, 8)
            self.assertEqual(control.SetLimits(pb.SetLimitsRequest(max_num_seqs=2)).now.max_num_seqs, 2)
            told = subprocess.run([group.BINARY, "drain", "--target", served.control_target, "--timeout", "1"],
                                  capture_output=True, text=True, timeout=group.LIMIT_S, check=True).stdout
            self.assertIn("draining: 0 running, 0 waiting", told)
            self.assertIn("drained: 0 finished, 0 cut", told)
            self.assertEqual(served.exit_code(), 0)
            for said in ("limits changed by 127.0.0.1:", "drain requested by 127.0.0.1:"):
                self.assertTrue(any(said in line for line in served.lines), said)

    def test_it_shortens_a_drain_that_has_begun(self):
        with group.Group() as served, grpc.insecure_channel(served.control_target) as channel:
            # Enough of them to take longer than the one second of the shorter drain.
            streams = [served.generation.GenerateStream(group.long_request(str(i))) for i in range(8)]
            for stream in streams:
                next(iter(stream))
            rpc.ControlStub(channel).Drain(pb.DrainRequest(timeout_s=10 * group.LIMIT_S))
            subprocess.run([group.BINARY, "drain", "--target", served.control_target, "--timeout", "1"],
                           stdout=subprocess.DEVNULL, timeout=group.LIMIT_S, check=True)
            for stream in streams:
                with self.assertRaises(grpc.RpcError):  # it is cut
                    list(stream)
            self.assertEqual(served.exit_code(), 0)


if __name__ == "__main__":
    unittest.main()
