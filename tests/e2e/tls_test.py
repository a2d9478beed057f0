"""TLS on every port of clients, and client certificates with their roles."""
import os
import socket
import ssl
import sys
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import certificates  # noqa: E402
import group  # noqa: E402
from callers import ALL, UNAUTHENTICATED, Tls, address, ask, bulkhead, ended, gate, metadata, probes  # noqa: E402
from group import grpc, pb, rpc  # noqa: E402


class TlsTest(Tls):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with mock.patch.dict(group.ENVIRONMENT, BULKHEAD_API_KEY=ALL):
            # Listens on every address: TLS and a key are there.
            cls.group = group.Group("--host", "0.0.0.0", "--http-port", 0, "--metrics-port", 0, "--ssl-certfile", cls.certificate,
                                    "--ssl-keyfile", cls.key)
        cls.target, cls.http_target, cls.metrics_target = (
            t.replace("0.0.0.0", "127.0.0.1") for t in (cls.group.target, cls.group.http_target, cls.group.metrics_target))
        cls.silent = [socket.create_connection(address(t), group.LIMIT_S) for t in (cls.target, cls.http_target)]
        cls.silent_since = time.monotonic()
        cls.channel = cls.secure(cls.target)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        for s in cls.silent:
            s.close()
        cls.group.__exit__()
        super().tearDownClass()

    def test_the_same_tokens_over_tls(self):
        case = group.golden()[0]
        ask_for = group.greedy(case["prompt"], len(case["ids"]))
        stub = rpc.GenerationStub(self.channel)
        answer = group.Streamed(stub.GenerateStream(ask_for, metadata=metadata(ALL), timeout=group.LIMIT_S))
        self.assertEqual((answer.code.name, answer.ids), ("OK", case["ids"]))
        self.assertEqual(ended(lambda: stub.Generate(ask_for, timeout=group.LIMIT_S)), UNAUTHENTICATED)
        body = {"prompt": case["prompt"], "max_tokens": len(case["ids"]), "temperature": 0}
        status, done, _ = ask(self.http_target, "/v1/completions", body, key=ALL, context=self.context())
        self.assertEqual((status, done["choices"][0]["text"]), (200, case["text"]))
        self.assertEqual(ask(self.http_target, "/health", context=self.context())[0], 200)
        self.assertEqual(ask(self.http_target, "/v1/models", context=self.context())[0], 401)
        self.assertEqual(ask(self.metrics_target, "/metrics", key=ALL, context=self.context())[0], 200)

    def test_large_bodies_and_answers_pass_whole(self):
        text = "a b " * 50_000  # several records, and more than the sockets hold
        count = rpc.GenerationStub(self.channel).Tokenize(pb.TokenizeRequest(text=text), metadata=metadata(ALL), timeout=group.LIMIT_S)
        status, answer, _ = ask(self.http_target, "/tokenize", {"prompt": text}, key=ALL, context=self.context())
        self.assertEqual(status, 200)
        self.assertEqual(answer["tokens"], list(count.token_ids.ids))
        self.assertGreater(len(answer["tokens"]), 50_000)

    def test_what_is_not_tls_or_too_old_is_refused(self):
        with socket.create_connection(address(self.http_target), group.LIMIT_S) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            try:
                self.assertNotIn(b"HTTP/1.1", s.recv(4096))
            except ConnectionResetError:
                pass
        old = self.context()
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with self.assertRaises(OSError):
            ask(self.http_target, "/health", context=old)
        other = self.context()
        other.set_alpn_protocols(["http/1.1"])  # to the port of gRPC
        with self.assertRaises(OSError):
            ask(self.target, "/health", context=other)
        for offered, chosen in ((["h2", "http/1.1"], "http/1.1"), (["http/1.1"], "http/1.1")):
            context = self.context()
            context.set_alpn_protocols(offered)
            with socket.create_connection(address(self.http_target), group.LIMIT_S) as s:
                with context.wrap_socket(s, server_hostname="localhost") as tls:
                    self.assertEqual(tls.selected_alpn_protocol(), chosen)
                    self.assertIn(tls.version(), ("TLSv1.2", "TLSv1.3"))

    def test_the_clients_of_the_program_talk_tls(self):
        flags = ("--target", self.target, "--ssl-ca-certs", self.authority.certificate)
        code, text = bulkhead("generate", *flags, "--max-tokens", 4, "Once upon a time", BULKHEAD_API_KEY=ALL)
        self.assertEqual(code, 0, text)
        code, text = bulkhead("limits", "--target", self.target, BULKHEAD_API_KEY=ALL)
        self.assertEqual(code, 1, text)
        self.assertIn("--ssl-ca-certs", text)
        other = certificates.Authority(self.folder.name, "other")
        code, text = bulkhead("limits", "--target", self.target, "--ssl-ca-certs", other.certificate, BULKHEAD_API_KEY=ALL)
        self.assertEqual(code, 1, text)
        self.assertIn("authority", text)

    def test_who_does_not_shake_hands_is_cut_off(self):
        for s in self.silent:
            self.assertEqual(s.recv(1), b"")
        self.assertLess(time.monotonic() - self.silent_since, group.LIMIT_S)
        # A flood of them keeps no one out.
        flood = [socket.create_connection(address(self.http_target), group.LIMIT_S) for _ in range(600)]
        self.assertEqual(ask(self.http_target, "/health", context=self.context())[0], 200)
        for s in flood:
            s.close()


class ClientCertificatesTest(Tls):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.writer = cls.authority.sign("writer", "DNS:writer.example")
        cls.operator = cls.authority.sign("operator", "URI:spiffe://example/operator")
        cls.stranger = cls.authority.sign("stranger", "DNS:stranger.example")
        roles = cls.write("roles", "generate writer.example\ncontrol,metrics spiffe://example/operator\n")
        cls.group = group.Group("--http-port", 0, "--ssl-certfile", cls.certificate, "--ssl-keyfile", cls.key,
                                "--ssl-ca-certs", cls.authority.certificate, "--ssl-client-roles", roles)

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()
        super().tearDownClass()

    def test_a_certificate_has_its_roles_on_grpc_and_http(self):
        expected = {"writer": ("OK", "PERMISSION_DENIED", 200, 403), "operator": ("PERMISSION_DENIED", "OK", 403, 200),
                    "stranger": ("UNAUTHENTICATED", "UNAUTHENTICATED", 401, 401)}
        for name, seen in expected.items():
            with self.subTest(name), self.secure(self.group.target, getattr(self, name)) as channel:
                calls, context = gate(channel), self.context(getattr(self, name))
                self.assertEqual((ended(lambda: calls["generate"](None))[0], ended(lambda: calls["load"](None))[0],
                                  ask(self.group.http_target, "/v1/models", context=context)[0],
                                  ask(self.group.http_target, "/metrics", context=context)[0]), seen)
                self.assertEqual(ended(probes(channel)["health"]), ("OK", ""))

    def test_without_a_certificate_there_is_no_connection(self):
        with self.secure(self.group.target) as channel:
            self.assertEqual(ended(probes(channel)["health"])[0], "UNAVAILABLE")
        with self.assertRaises(OSError):
            ask(self.group.http_target, "/health", context=self.context())
        folder = os.path.join(self.folder.name, "others")
        os.mkdir(folder)
        foreign = certificates.Authority(folder, "ca").sign("writer", "DNS:writer.example")
        with self.assertRaises(OSError):
            ask(self.group.http_target, "/health", context=self.context(foreign))

    def test_the_control_port_knows_no_certificates(self):
        with grpc.insecure_channel(self.group.control_target) as channel:
            self.assertEqual(ended(lambda: gate(channel)["load"](None)), UNAUTHENTICATED)
            self.assertEqual(ended(probes(channel)["health"]), ("OK", ""))

    def test_the_clients_of_the_program_show_a_certificate(self):
        certificate, key = self.operator
        flags = ("--target", self.group.target, "--ssl-ca-certs", self.authority.certificate)
        code, text = bulkhead("limits", *flags, "--ssl-certfile", certificate, "--ssl-keyfile", key)
        self.assertEqual(code, 0, text)
        self.assertEqual(bulkhead("limits", *flags)[0], 1)
        code, text = bulkhead("limits", *flags, "--ssl-certfile", certificate)
        self.assertEqual((code, "--ssl-keyfile" in text), (2, True), text)


if __name__ == "__main__":
    unittest.main()
