"""The Python package of clients/python, built as a wheel, with a running group and with servers that refuse."""
import asyncio
import concurrent.futures
import dataclasses
import gc
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

WHEEL = os.environ["BULKHEAD_PYTHON_CLIENT"]  # where it is installed
sys.path.insert(0, WHEEL)
sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))
import grpc  # noqa: E402
from google.protobuf import any_pb2, duration_pb2  # noqa: E402

import bulkhead_client  # noqa: E402
import group  # noqa: E402
import raw_http2  # noqa: E402
from bulkhead_client import (AsyncClient, BulkheadError, Client, FinishReason, RetryPolicy, SamplingParams,  # noqa: E402
                             _channel, _client)
from group import details_pb, pb, rpc  # noqa: E402

EXAMPLES = os.path.join(group.SOURCE, "clients", "python", "examples")
GREEDY = SamplingParams(max_tokens=16, temperature=0)


class WithAGroupTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group("--max-num-queued-reqs", 1)
        cls.client = Client(cls.group.target)
        cls.golden = group.golden()[0]

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.group.__exit__()

    def tearDown(self):
        self.group.wait_until_idle()

    def test_it_is_the_wheel(self):
        self.assertTrue(bulkhead_client.__file__.startswith(WHEEL + os.sep))
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(bulkhead_client.__file__), "py.typed")))

    def test_an_answer_is_the_same_whole_streamed_and_from_ids(self):
        params = SamplingParams(max_tokens=len(self.golden["ids"]), temperature=0)
        whole = self.client.generate(self.golden["prompt"], params)
        self.assertEqual((whole.text, list(whole.token_ids)), (self.golden["text"], self.golden["ids"]))
        self.assertEqual(whole.usage.prompt_tokens, len(self.golden["prompt_ids"]))
        self.assertEqual(self.client.generate(self.golden["prompt_ids"], params).text, whole.text)
        with self.client.stream(self.golden["prompt"], params) as stream:
            deltas = list(stream)
        self.assertGreater(len(deltas), 4)
        self.assertEqual("".join(delta.text for delta in deltas), whole.text)
        self.assertEqual(stream.completion.token_ids, whole.token_ids)
        self.assertEqual(stream.completion.finish_reason, FinishReason.MAX_TOKENS)
        request = group.greedy(self.golden["prompt"], params.max_tokens)
        self.assertEqual(self.client.generate(request).text, whole.text)
        with self.assertRaises(ValueError):
            self.client.generate(request, params)

    def test_parameters_arrive(self):
        answer = self.client.generate("Once upon a time", SamplingParams(
            max_tokens=8, temperature=0, logprobs=2, prompt_logprobs=1, prompt_token_ids=True, logit_bias={5: -1.0},
            stop=["\x01"], seed=7, cache_salt="salt", time_limit_ms=60_000, top_k=3, request_id="mine", text=False))
        self.assertEqual((answer.request_id, answer.text), ("mine", ""))
        self.assertEqual((answer.seed, len(answer.tokens)), (7, 8))
        self.assertEqual(len(answer.tokens[0].top), 2)
        self.assertEqual(answer.tokens[0].rank, 1)
        self.assertLess(answer.tokens[0].logprob, 0)
        self.assertEqual(len(answer.prompt_logprobs), len(answer.prompt_token_ids))
        stop = self.golden["text"][40:44]
        stopped = self.client.generate(self.golden["prompt"], SamplingParams(max_tokens=96, temperature=0, stop=[stop]))
        self.assertEqual((stopped.finish_reason, stopped.stop_string), (FinishReason.STOP_STRING, stop))
        with self.assertRaisesRegex(TypeError, "stop: a list"):
            self.client.generate("x", SamplingParams(stop="ab"))

    def test_params_have_every_field_that_is_no_message_of_its_own(self):
        wanted = {field.name for message in (pb.Sampling, pb.Stopping, pb.Output) for field in message.DESCRIPTOR.fields}
        wanted |= {field.name for field in pb.GenerateRequest.DESCRIPTOR.fields
                   if field.message_type is None and field.name != "text"}  # the prompt's
        self.assertEqual({field.name for field in dataclasses.fields(SamplingParams)}, wanted)

    def test_a_broken_answer_is_continued_with_what_the_stream_knows(self):
        params = SamplingParams(max_tokens=24, temperature=1.5, prompt_token_ids=True)
        with self.client.stream("Once upon a time", params) as stream:
            self.assertEqual((stream.seed, stream.request_id, stream.prompt_token_ids), (None, None, ()))
            begun = [next(stream) for _ in range(3)]
            self.assertNotEqual(stream.request_id, "")
            self.assertEqual(list(stream.prompt_token_ids), list(self.client.tokenize("Once upon a time")))
        request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=stream.prompt_token_ids), stopping=pb.Stopping(max_tokens=24),
                                     sampling=pb.Sampling(temperature=1.5, seed=stream.seed))
        whole = self.client.generate(request)
        request.resume.emitted_token_ids.extend(token.id for delta in begun for token in delta.tokens)
        text = "".join(delta.text for delta in begun)
        request.resume.text_bytes_sent = len(text.encode())
        rest = self.client.generate(request)
        self.assertEqual(text + rest.text, whole.text)
        self.assertEqual((*request.resume.emitted_token_ids, *rest.token_ids), whole.token_ids)

    def test_the_other_calls(self):
        ids = self.client.tokenize(self.golden["prompt"])
        self.assertEqual(list(ids), self.golden["prompt_ids"])
        self.assertEqual(self.client.detokenize(ids), self.golden["prompt"])
        score = self.client.score(self.golden["prompt"])
        self.assertEqual(len(score.token_logprobs), len(ids) - 1)
        self.assertGreater(score.perplexity, 1)
        self.assertTrue(self.client.health())
        self.group.wait_until_idle()
        self.assertEqual(self.client.load().running, 0)
        self.assertGreater(self.client.load().kv_blocks, 0)
        self.assertGreater(self.client.model_info().vocab_size, 0)

    def test_a_stream_that_is_left_is_cancelled(self):
        for leave in ("close", "with", "collected"):
            stream = self.client.stream(group.long_request())
            next(stream)
            self.assertEqual(self.client.load().running, 1)
            if leave == "close":
                stream.close()
                self.assertEqual(list(stream), [])
            elif leave == "with":
                with stream:
                    pass
            del stream
            gc.collect()
            self.group.wait_until_idle()

    def test_refusals_are_typed_and_not_retried(self):
        begin = time.monotonic()
        for call, reason in ((lambda: self.client.generate("x", SamplingParams(top_p=2)), "INVALID_VALUE"),
                             (lambda: next(self.client.stream("word " * 4000)), "PROMPT_TOO_LONG"),
                             (lambda: self.client.generate("x", SamplingParams(embedding=True)), "UNSUPPORTED_PARAMETER"),
                             (lambda: self.client.generate("x", SamplingParams(model="other")), "MODEL_NOT_FOUND")):
            with self.assertRaises(BulkheadError) as caught:
                call()
            self.assertEqual(caught.exception.reason, reason)
            self.assertFalse(caught.exception.is_retryable)
        with self.assertRaises(BulkheadError) as caught:
            self.client.generate(group.long_request(), timeout_s=0.2)
        self.assertEqual(caught.exception.code, grpc.StatusCode.DEADLINE_EXCEEDED)
        with Client("127.0.0.1:1") as client, self.assertRaises(BulkheadError) as caught:
            client.generate("x")
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.UNAVAILABLE, ""))
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_full_queue_is_waited_for(self):
        requests = 24  # more than run and wait at once
        with concurrent.futures.ThreadPoolExecutor(requests) as pool:
            texts = list(pool.map(lambda _: self.client.generate("Once upon a time", GREEDY).text, range(requests)))
        self.assertEqual(len(set(texts)), 1)
        with Client(self.group.target, retry=None) as hasty, concurrent.futures.ThreadPoolExecutor(requests) as pool:
            def ask(_):
                try:
                    return hasty.generate(group.long_request(max_tokens=400)).text
                except BulkheadError as error:
                    self.assertTrue(error.is_retryable)
                    return error.reason
            self.assertIn("QUEUE_FULL", set(pool.map(ask, range(requests))))

    def test_the_asynchronous_client_says_the_same(self):
        async def main():
            async with AsyncClient(self.group.target) as client:
                answers = await asyncio.gather(*(client.generate("Once upon a time", GREEDY) for _ in range(20)))
                async with client.stream("Once upon a time", GREEDY) as stream:
                    text = "".join([delta.text async for delta in stream])
                self.assertEqual({answer.text for answer in answers}, {text})
                self.assertEqual(stream.completion.text, text)
                left = client.stream(group.long_request())
                await left.__anext__()
                left.close()
                self.assertTrue(await client.health())
                self.assertEqual(await client.detokenize(await client.tokenize("a b")), "a b")
                self.assertGreater((await client.score("a b c")).perplexity, 0)
                self.assertGreater((await client.load()).kv_blocks, 0)
                with self.assertRaises(BulkheadError) as caught:
                    await client.generate("x", SamplingParams(top_p=2))
                self.assertEqual(caught.exception.reason, "INVALID_VALUE")
        asyncio.run(main())

    def test_the_examples_run(self):
        for name, words in (("stream.py", "MAX_TOKENS|EOS"), ("many.py", "'One day' -> '"), ("score.py", "tokens  One day")):
            done = subprocess.run([sys.executable, os.path.join(EXAMPLES, name), self.group.target], input="One day\nTwo\n",
                                  capture_output=True, text=True, timeout=group.LIMIT_S, env=dict(os.environ, PYTHONPATH=WHEEL))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, words)


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
