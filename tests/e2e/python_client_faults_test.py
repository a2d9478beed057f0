"""The Python package of clients/python with servers that refuse, break, stay silent or have a certificate."""
import asyncio
import concurrent.futures
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, os.environ["BULKHEAD_PYTHON_CLIENT"])
sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))
import grpc  # noqa: E402
from google.protobuf import any_pb2, duration_pb2  # noqa: E402

import raw_http2  # noqa: E402
from bulkhead_client import AsyncClient, BulkheadError, Client, FinishReason, RetryPolicy, _channel, _client  # noqa: E402
from group import details_pb, pb, rpc  # noqa: E402


class Refuses(rpc.GenerationServicer):
    """Refuses the first calls, or breaks in the middle of an answer."""

    def __init__(self):
        self.calls, self.keys = 0, []
        self.refusals = []  # one for each of the next calls
        self.breaks = False
        self.holds = False  # the answer's end, until the call is cancelled
        self.finished = pb.Finished(reason=99)

    def refuse(self, context):
        self.calls += 1
        self.keys.append(dict(context.invocation_metadata()).get("authorization"))
        if not self.refusals:
            return
        code, reason, retry_s = self.refusals.pop(0)
        status = details_pb.Status(code=code.value[0], message="refused")
        details = [details_pb.ErrorInfo(reason=reason, domain="bulkhead", metadata={"limit": "8"})]
        if retry_s is not None:
            details.append(details_pb.RetryInfo(retry_delay=duration_pb2.Duration(seconds=int(retry_s), nanos=int(retry_s % 1 * 1e9))))
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, "refused")

    def hold(self, context):
        while self.holds and context.is_active():
            time.sleep(0.02)

    def Generate(self, request, context):
        self.refuse(context)
        self.hold(context)
        return pb.GenerateResponse(text="ok", finished=self.finished)

    def GenerateStream(self, request, context):
        if not self.breaks:
            self.refuse(context)
        yield pb.GenerateEvent(request_id="r", accepted=pb.Accepted(seed=3, prompt_token_ids=pb.TokenIds(ids=[1, 2])))
        yield pb.GenerateEvent(delta=pb.Delta(text="a"))
        if self.breaks:
            self.refusals = [(grpc.StatusCode.UNAVAILABLE, "STARTING", None)]
            self.refuse(context)
        self.hold(context)
        yield pb.GenerateEvent(finished=self.finished)


class RetryTest(unittest.TestCase):
    def setUp(self):
        self.service = Refuses()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        rpc.add_GenerationServicer_to_server(self.service, self.server)
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()
        self.addCleanup(lambda: self.server.stop(None).wait())

    def asks(self, *refusals, retry=RetryPolicy(initial_s=0.01), **more):
        """Calls made, and what came of them, for a call whose first tries are refused so."""
        results = []
        for how in ("generate", "stream", "async", "async stream"):
            self.service.calls, self.service.refusals = 0, list(refusals)
            try:
                results.append((self.ask(how, retry, **more), self.service.calls))
            except BulkheadError as error:
                results.append((error.reason, self.service.calls))
        self.assertEqual(len(set(results)), 1, results)
        return results[0]

    def ask(self, how, retry, **more):
        async def main():
            async with AsyncClient(self.target, retry=retry, **more) as client:
                if how == "async":
                    return (await client.generate("x")).text
                return "ok" if [delta.text async for delta in client.stream("x")] == ["a"] else "?"
        if how.startswith("async"):
            return asyncio.run(main())
        with Client(self.target, retry=retry, **more) as client:
            if how == "generate":
                return client.generate("x").text
            return "ok" if [delta.text for delta in client.stream("x")] == ["a"] else "?"

    def test_what_passes_is_retried(self):
        starting = (grpc.StatusCode.UNAVAILABLE, "STARTING", None)
        draining = (grpc.StatusCode.UNAVAILABLE, "DRAINING", 0.01)
        full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", 0.01)
        calls = (grpc.StatusCode.UNAVAILABLE, "TOO_MANY_CALLS", 0.01)
        self.assertEqual(self.asks(starting, draining, full, calls), ("ok", 5))
        self.assertEqual(self.asks(full, full, retry=None), ("QUEUE_FULL", 1))
        self.assertEqual(self.asks(full, full, full, retry=RetryPolicy(max_attempts=2)), ("QUEUE_FULL", 2))

    def test_the_servers_hint_is_waited_for(self):
        full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", 0.3)
        begin = time.monotonic()
        self.assertEqual(self.ask("generate", RetryPolicy(initial_s=0.001)) and self.asks(full), ("ok", 2))
        self.assertGreater(time.monotonic() - begin, 4 * 0.3)
        self.assertEqual(self.asks(full, retry=RetryPolicy(max_wait_s=0.2)), ("QUEUE_FULL", 1))
        later = (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", 600)  # behind the deadline
        self.assertEqual(self.asks(later, retry=RetryPolicy(max_wait_s=1000), timeout_s=60), ("QUEUE_FULL", 1))

    def test_what_does_not_pass_is_not_retried(self):
        for code, reason in (("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE"), ("UNAVAILABLE", "RANK_LOST"),
                             ("INVALID_ARGUMENT", "INVALID_VALUE"), ("INTERNAL", "INTERNAL"), ("UNAVAILABLE", "")):
            self.assertEqual(self.asks((grpc.StatusCode[code], reason, None)), (reason, 1))

    def test_nothing_is_retried_once_an_answer_has_begun(self):
        self.service.breaks = True
        for how in ("stream", "async stream"):
            self.service.calls = 0
            with self.assertRaises(BulkheadError) as caught:
                self.ask(how, RetryPolicy(initial_s=0.01))
            self.assertEqual((caught.exception.reason, self.service.calls), ("STARTING", 1))

    def test_what_a_stream_was_accepted_with_is_known_when_it_breaks(self):
        self.service.breaks = True

        async def read_asynchronously(stream):
            async for _ in stream:
                pass

        async def main():
            async with AsyncClient(self.target) as client:
                stream = client.stream("x")
                with self.assertRaises(BulkheadError):
                    await read_asynchronously(stream)
                return stream
        with Client(self.target) as client:
            stream = client.stream("x")
            with self.assertRaises(BulkheadError):
                list(stream)
        for each in (stream, asyncio.run(main())):
            self.assertEqual((each.seed, each.request_id, each.prompt_token_ids, each.completion), (3, "r", (1, 2), None))

    def test_an_answer_has_its_embedding_and_what_else_its_end_says(self):
        self.service.finished = pb.Finished(embedding=[0.5, 2], timings=pb.Timings(queue_ns=7))
        with Client(self.target) as client, client.stream("x") as stream:
            list(stream)
            for answer in (client.generate("x"), stream.completion):
                self.assertEqual((answer.embedding, answer.raw.timings.queue_ns), ((0.5, 2.0), 7))
                hash(answer)

    def test_who_waits_when_a_stream_or_client_is_closed_hears_it_and_who_is_cancelled_is(self):
        async def end_of(how, closings):
            async with AsyncClient(self.target) as client:
                stream = client.stream("x")
                if how == "next":
                    await stream.__anext__()
                waiting = asyncio.ensure_future(client.generate("x") if how == "call" else stream.__anext__())
                await asyncio.sleep(0.1)
                for closing in closings:
                    done = {"task": waiting.cancel, "stream": stream.close, "client": client.close}[closing]()
                    if asyncio.iscoroutine(done):
                        await done
                await asyncio.wait([waiting], timeout=60)
            return "cancelled" if waiting.cancelled() else waiting.exception().code

        async def main():
            for how, closings, expected in (
                    ("next", ["stream"], grpc.StatusCode.CANCELLED), ("next", ["client"], grpc.StatusCode.CANCELLED),
                    ("call", ["client"], grpc.StatusCode.CANCELLED), ("next", ["task"], "cancelled"),
                    ("call", ["task"], "cancelled"), ("next", ["task", "stream"], "cancelled")):
                self.assertEqual(await end_of(how, closings), expected, (how, closings))
        self.service.holds = True
        asyncio.run(main())

    def test_a_stream_that_is_closed_before_another_try_makes_none(self):
        class Closing(RetryPolicy):
            def delay_s(self, *arguments):
                stream.close()  # as another thread would while this one sleeps
                return super().delay_s(*arguments)

        def ask():
            nonlocal stream
            with Client(self.target, retry=Closing()) as client:
                stream = client.stream("x")
                next(stream)

        async def ask_asynchronously():
            nonlocal stream
            async with AsyncClient(self.target, retry=Closing()) as client:
                stream = client.stream("x")
                await stream.__anext__()
        stream = None
        for call in (ask, lambda: asyncio.run(ask_asynchronously())):
            self.service.calls, self.service.refusals = 0, [(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", 0.01)]
            with self.assertRaises(BulkheadError) as caught:
                call()
            self.assertEqual((caught.exception.code, self.service.calls), (grpc.StatusCode.CANCELLED, 1))

    def test_a_stream_that_is_closed_as_its_call_starts_cancels_the_call(self):
        with Client(self.target) as client:
            stream = client.stream("x")
            start = stream._start

            def start_and_close():
                call = start()
                stream.close()
                return call
            stream._start = start_and_close
            with self.assertRaises(BulkheadError) as caught:
                next(stream)
            self.assertEqual(caught.exception.code, grpc.StatusCode.CANCELLED)

    def test_errors_have_what_the_server_says(self):
        self.service.refusals = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", 0.5)]
        with Client(self.target, retry=None) as client, self.assertRaises(BulkheadError) as caught:
            client.generate("x")
        error = caught.exception
        self.assertEqual((error.code, error.reason, error.metadata, error.retry_after_s),
                         (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", {"limit": "8"}, 0.5))
        self.assertEqual(str(error), "QUEUE_FULL: refused")
        with Client(self.target) as client, client.stream("x") as stream:
            list(stream)
        self.assertEqual((stream.completion.finish_reason, stream.completion.seed), (FinishReason.OTHER, 3))

    def test_the_key_is_sent(self):
        self.assertEqual(self.asks(api_key="secret"), ("ok", 1))
        os.environ["BULKHEAD_API_KEY"] = "other"
        self.addCleanup(os.environ.pop, "BULKHEAD_API_KEY")
        self.assertEqual(self.asks(), ("ok", 1))
        self.assertEqual(set(self.service.keys), {"Bearer secret", "Bearer other"})
        with self.assertRaisesRegex(ValueError, "visible ASCII"):
            Client(self.target, api_key="a b")
        with self.assertRaisesRegex(ValueError, "give both"):
            Client(self.target, tls_cert=b"x")


class SilentServerTest(unittest.TestCase):
    def test_a_silent_server_is_asked_whether_it_is_there_for_as_long_as_the_call_waits(self):
        options = dict(_channel.OPTIONS) | {"grpc.keepalive_time_ms": 100, "grpc.keepalive_timeout_ms": 120_000}
        listener = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        with unittest.mock.patch.object(_client, "OPTIONS", list(options.items())):
            client = self.enterContext(Client(f"127.0.0.1:{listener.getsockname()[1]}"))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.generate, "x")
            server = raw_http2.SilentServer(listener)
            limit = time.monotonic() + 60
            while server.pings < 3 and not answer.done() and time.monotonic() < limit:
                server.read(0.1)
            server.close()
            self.assertEqual(answer.exception().code, grpc.StatusCode.UNAVAILABLE)
        self.assertGreaterEqual(server.pings, 3)  # gRPC's default allows 2


class TlsTest(unittest.TestCase):
    def test_a_certificate_is_checked(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        key, cert = os.path.join(folder, "key.pem"), os.path.join(folder, "cert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        with open(key, "rb") as file, open(cert, "rb") as other:
            credentials = grpc.ssl_server_credentials([(file.read(), other.read())])
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        rpc.add_GenerationServicer_to_server(Refuses(), server)
        target = f"localhost:{server.add_secure_port('localhost:0', credentials)}"
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        with Client(target, tls_ca=cert) as client:
            self.assertEqual(client.generate("x").text, "ok")
        for other in ({"tls_ca": None}, {"tls_ca": b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"}):
            with Client(target, **other) as client, self.assertRaises(BulkheadError) as caught:
                client.generate("x", timeout_s=20)
            self.assertEqual(caught.exception.code, grpc.StatusCode.UNAVAILABLE)


if __name__ == "__main__":
    unittest.main()
