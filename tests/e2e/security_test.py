"""API keys with roles on every port, what the program's own clients make of them, and files that are refused at start."""
import contextlib
import os
import socket
import subprocess
import sys
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
import raw_http2  # noqa: E402
from callers import (ALL, COMPLETION, CONTROL, DENIED, GENERATE, KEYS, METRICS, NEEDS, UNAUTHENTICATED, Folder, Tls, address, ask,  # noqa: E402
                     bulkhead, ended, gate, metadata, probes)
from group import grpc, pb, rpc  # noqa: E402


class ApiKeysTest(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = cls.write("keys", KEYS)
        cls.group = group.Group("--http-port", 0, "--metrics-port", 0, "--api-key-file", cls.keys,
                                "--allowed-origins", '["https://page.example"]')
        cls.channel = grpc.insecure_channel(cls.group.target)
        cls.control_channel = grpc.insecure_channel(cls.group.control_target)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.control_channel.close()
        cls.group.__exit__()
        super().tearDownClass()

    def http(self, *args, **more):
        return ask(self.group.http_target, *args, **more)

    def test_http_answers_who_has_the_role(self):
        for path, body, key, wrong in (("/v1/models", None, GENERATE, METRICS), ("/v1/completions", COMPLETION, GENERATE, CONTROL),
                                       ("/tokenize", {"prompt": "Once"}, GENERATE, CONTROL), ("/metrics", None, METRICS, GENERATE)):
            with self.subTest(path=path):
                status, error, headers = self.http(path, body)
                self.assertEqual((status, error["error"]["code"]), (401, "UNAUTHENTICATED"))
                self.assertEqual(headers["WWW-Authenticate"], "Bearer")
                self.assertEqual(self.http(path, body, key="not-a-key-of-this-server")[0], 401)
                self.assertEqual(self.http(path, body, headers={"Authorization": f"Basic {key}"})[0], 401)
                status, error, _ = self.http(path, body, key=wrong)
                self.assertEqual((status, error["error"]["code"]), (403, "PERMISSION_DENIED"))
                self.assertEqual(self.http(path, body, key=key)[0], 200)
                self.assertEqual(self.http(path, body, key=ALL)[0], 200)

    def test_probes_are_open_and_what_there_is_not_is_not_said(self):
        for path in ("/health", "/ready", "/ping", "/live"):
            self.assertEqual(self.http(path)[0], 200, path)
        self.assertEqual(self.http("/version")[0], 401)
        self.assertEqual(self.http("/version", key=METRICS)[0], 200)
        self.assertEqual(self.http("/nothing")[0], 401)
        self.assertEqual(self.http("/nothing", key=METRICS)[0], 404)
        metrics = self.group.metrics_target
        self.assertEqual([ask(metrics, "/metrics")[0], ask(metrics, "/metrics", key=GENERATE)[0],
                          ask(metrics, "/metrics", key=METRICS)[0]], [401, 403, 200])

    def test_pages_of_an_allowed_origin_may_ask_and_read(self):
        page = {"Origin": "https://page.example"}
        status, _, headers = self.http("/v1/models", method="OPTIONS", headers={**page, "Access-Control-Request-Method": "GET"})
        self.assertEqual((status, headers["Access-Control-Allow-Headers"]), (200, "*, Authorization"))
        for key, status in ((ALL, 200), (None, 401)):
            got, _, headers = self.http("/v1/models", key=key, headers=page)
            self.assertEqual((got, headers["Access-Control-Allow-Origin"], headers["Vary"]), (status, page["Origin"], "Origin"))
        metrics = ask(self.group.metrics_target, "/metrics", key=METRICS, headers=page)[2]
        self.assertNotIn("Access-Control-Allow-Origin", metrics)

    def test_no_cross_origin_headers_are_sent(self):
        _, _, headers = self.http("/v1/models", key=ALL, headers={"Origin": "https://example.com"})
        self.assertEqual([name for name in headers if name.lower().startswith("access-control")], [])

    def test_a_body_is_not_taken_before_the_key(self):
        with socket.create_connection(address(self.group.http_target), group.LIMIT_S) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                      b"Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
            self.assertEqual(s.recv(4096)[:13], b"HTTP/1.1 401 ")

    def test_bodies_without_a_key_shut_no_client_out(self):
        """More bytes than all bodies may take together, on a path that needs no key: none is held, each is answered at once."""
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(address(self.group.http_target), group.LIMIT_S)) for _ in range(80)]
            for client in clients:
                client.sendall(b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
            begin = time.monotonic()
            self.assertEqual(self.http("/v1/completions", COMPLETION, key=GENERATE)[0], 200)
            self.assertEqual({client.recv(4096)[:13] for client in clients}, {b"HTTP/1.1 405 "})
            self.assertLess(time.monotonic() - begin, 8)

    def test_grpc_answers_who_has_the_role_on_both_ports(self):
        calls = gate(self.channel)
        for name, key in NEEDS.items():
            with self.subTest(call=name):
                self.assertEqual(ended(lambda: calls[name](None)), UNAUTHENTICATED)
                self.assertEqual(ended(lambda: calls[name]("not-a-key-of-this-server")), UNAUTHENTICATED)
                self.assertEqual(ended(lambda: calls[name](METRICS)), DENIED)
                self.assertEqual(ended(lambda: calls[name](key)), ("OK", ""))
        self.assertEqual([ended(lambda: calls["model"](key))[0] for key in (GENERATE, CONTROL, METRICS)],
                         ["OK", "OK", "PERMISSION_DENIED"])
        self.assertEqual(ended(lambda: calls["unknown"](None)), UNAUTHENTICATED)
        self.assertEqual(ended(lambda: calls["unknown"](METRICS))[0], "UNIMPLEMENTED")
        calls = gate(self.control_channel)
        self.assertEqual(ended(lambda: calls["load"](None)), UNAUTHENTICATED)
        self.assertEqual(ended(lambda: calls["load"](GENERATE)), DENIED)
        self.assertEqual(ended(lambda: calls["load"](CONTROL)), ("OK", ""))
        for name, probe in probes(self.channel).items():
            self.assertEqual(ended(probe), ("OK", ""), name)
        self.assertEqual(ended(probes(self.control_channel)["health"]), ("OK", ""))

    def test_a_refused_body_takes_no_memory_of_others(self):
        """Bodies of 1 MiB without a key, more than all bodies may take together: none is held, and one with a key is taken."""
        text = "a " * (1 << 19)
        refused = [rpc.GenerationStub(self.channel).Generate.future(group.greedy(text, 1), timeout=group.LIMIT_S)
                   for _ in range(40)]
        self.assertEqual(ended(lambda: gate(self.channel)["generate"](GENERATE)), ("OK", ""))
        self.assertEqual({call.exception().code().name for call in refused}, {"UNAUTHENTICATED"})

    def wait_until_closed(self, connection):
        limit = time.monotonic() + group.LIMIT_S
        while not connection.closed and time.monotonic() < limit:
            connection.read(0.1)
        self.assertTrue(connection.closed)

    def test_no_frames_of_headers_get_around_the_key(self):
        """gRPC decodes the padding of HEADERS, whose last :path is the one that counts, and takes blocks in several frames."""
        secret, probe = b"/bulkhead.v1.Control/GetServerInfo", b"/grpc.health.v1.Health/Check"
        padding = raw_http2.header(b":path", secret)
        padding += raw_http2.header(b"x", b"a" * (0x83 - len(padding) - 4))
        for target in (self.group.target, self.group.control_target):
            c = raw_http2.Connection(target)
            block = raw_http2.request_headers(probe).replace(raw_http2.header(b":method", b"POST"), b"")
            c.send(raw_http2.frame(raw_http2.HEADERS, raw_http2.END_HEADERS | 8, 1, b"\x83" + block + padding)
                   + raw_http2.frame(raw_http2.DATA, raw_http2.END_STREAM, 1, raw_http2.message(b"")))
            self.wait_until_closed(c)
            self.assertEqual(c.answers, {})
            c = raw_http2.Connection(target)
            block = raw_http2.request_headers(secret)
            for stream in range(1, 400, 2):
                c.send(raw_http2.frame(raw_http2.HEADERS, raw_http2.END_STREAM, stream, block[:20])
                       + raw_http2.frame(raw_http2.CONTINUATION, raw_http2.END_HEADERS, stream, block[20:]))
                c.read(0.01)
            self.wait_until_closed(c)
            self.assertEqual(c.answers, {})

    def test_a_caller_who_goes_on_without_a_key_is_cut_off(self):
        own = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self.group.target, own) as channel:
            calls = gate(channel)
            codes = {ended(lambda: calls["tokenize"](None))[0] for _ in range(80)}
        self.assertIn("UNAUTHENTICATED", codes)
        control = rpc.ControlStub(self.channel)
        load = control.GetLoad(pb.GetLoadRequest(), metadata=metadata(CONTROL), timeout=group.LIMIT_S)
        self.assertGreaterEqual(load.host.num_connections_closed_by_reason["UNAUTHENTICATED"], 1)

    def test_the_clients_of_the_program_send_a_key(self):
        target = ("--target", self.group.target)
        code, text = bulkhead("limits", *target)
        self.assertEqual(code, 1, text)
        self.assertIn("API key", text)
        self.assertEqual(bulkhead("limits", *target, BULKHEAD_API_KEY=CONTROL)[0], 0)
        self.assertEqual(bulkhead("doctor", *target, "--api-key-file", self.write("one", CONTROL + "\n"))[0], 0)
        code, text = bulkhead("generate", *target, "--max-tokens", 4, "Once upon a time", BULKHEAD_API_KEY=GENERATE)
        self.assertEqual(code, 0, text)
        code, text = bulkhead("generate", *target, "Once", BULKHEAD_API_KEY=METRICS)
        self.assertEqual(code, 1, text)
        self.assertIn("role generate", text)
        code, text = bulkhead("bench", "serve", *target, "--num-prompts", 2, "--random-input-len", 8, "--random-output-len", 2,
                              BULKHEAD_API_KEY=ALL)
        self.assertEqual(code, 0, text)

    def test_keys_are_nowhere_to_be_read(self):
        self.http("/v1/models", key=ALL)
        self.http("/v1/models", key="unknown-key-0123456789")
        capture = os.path.join(self.folder.name, "capture")
        self.assertEqual(bulkhead("doctor", "--target", self.group.target, "--capture", capture, BULKHEAD_API_KEY=ALL)[0], 0)
        texts = ["\n".join(self.group.lines)]
        for name in os.listdir(capture):
            with open(os.path.join(capture, name), encoding="utf-8") as f:
                texts.append(f.read())
        code, text = bulkhead("serve", "--model", group.MODEL, "--api-key-file", self.keys, "--print-config", BULKHEAD_API_KEY=ALL)
        self.assertEqual(code, 0, text)
        texts.append(text)
        for key in (GENERATE, CONTROL, METRICS, ALL, "unknown-key-0123456789"):
            self.assertFalse(any(key in text for text in texts), key)


class RefusedTest(Tls):
    def refusal(self, *flags, **environment):
        """The message of a server that does not start."""
        with mock.patch.dict(group.ENVIRONMENT, environment):
            done = subprocess.run(group.serve_command("--port", 0, *flags), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  encoding="utf-8", env=group.ENVIRONMENT, timeout=group.LIMIT_S)
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stdout

    def test_keys_that_are_none(self):
        for name, text, said in (("empty", "# nothing\n", "has no key"), ("short", "generate 0123456789\n", "line 1: the API key has 10"),
                                 ("role", "wizard 0123456789abcdef\n", "roles are generate, control and metrics"),
                                 ("words", "generate 0123456789abcdef x\n", "line 1")):
            message = self.refusal("--api-key-file", self.write(name, text))
            self.assertIn(said, message)
            self.assertNotIn("0123456789", message)
        self.assertIn("cannot", self.refusal("--api-key-file", os.path.join(self.folder.name, "absent")).lower())
        self.assertIn("BULKHEAD_API_KEY", self.refusal(BULKHEAD_API_KEY="short"))

    def test_certificates_that_cannot_be_used(self):
        tls = ("--ssl-certfile", self.certificate, "--ssl-keyfile")
        _, other = self.authority.sign("other")
        text = self.write("text", "not PEM\n")
        self.assertIn("is not the key of", self.refusal(*tls, other))
        self.assertIn("has no private key", self.refusal(*tls, text))
        self.assertIn("cannot be read: No such file", self.refusal(*tls, "/nowhere.pem"))
        self.assertIn("has no certificate", self.refusal("--ssl-certfile", text, "--ssl-keyfile", self.key))
        self.assertIn("has no certificate", self.refusal(*tls, self.key, "--ssl-ca-certs", text))
        old, old_key = self.authority.sign("old", expired=True)
        self.assertIn("expired on", self.refusal("--ssl-certfile", old, "--ssl-keyfile", old_key))

    def test_a_public_host_needs_tls_and_a_way_to_know_callers(self):
        tls = ("--host", "0.0.0.0", "--ssl-certfile", self.certificate, "--ssl-keyfile", self.key)
        self.assertIn("callers are not authenticated", self.refusal(*tls))
        message = self.refusal("--host", "0.0.0.0", "--api-key-file", self.write("keys", KEYS))
        self.assertIn("traffic is not encrypted", message)
        self.assertIn("--insecure", message)
        self.assertIn("belong together", self.refusal("--ssl-certfile", self.certificate))
        self.assertIn("need TLS", self.refusal("--ssl-ca-certs", self.certificate))
        self.assertIn("--ssl-ca-certs", self.refusal("--ssl-client-roles", self.key))


if __name__ == "__main__":
    unittest.main()
