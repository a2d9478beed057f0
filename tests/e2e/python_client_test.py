"""The Python package of clients/python, built as a wheel, with a running group."""
import asyncio
import concurrent.futures
import dataclasses
import gc
import os
import subprocess
import sys
import time
import unittest

WHEEL = os.environ["BULKHEAD_PYTHON_CLIENT"]  # where it is installed
sys.path.insert(0, WHEEL)
sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))
import grpc  # noqa: E402
import numpy  # noqa: E402

import bulkhead_client  # noqa: E402
import group  # noqa: E402
from bulkhead_client import AsyncClient, BulkheadError, Client, FinishReason, SamplingParams  # noqa: E402
from group import pb  # noqa: E402

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
        for no_list in ("ab", 5):
            with self.assertRaisesRegex(TypeError, "stop: a list"):
                self.client.generate("x", SamplingParams(stop=no_list))

    def test_parameters_may_be_of_any_type_that_is_like_theirs(self):
        limits = SamplingParams(max_tokens=numpy.int64(3), temperature=numpy.float32(0), stop_token_ids=range(5), bad_words={"zz"})
        self.assertEqual(len(self.client.generate("Once upon a time", limits).tokens), 3)

    def test_params_have_every_field_that_is_no_message_of_its_own(self):
        wanted = {field.name for message in (pb.Sampling, pb.Stopping, pb.Output) for field in message.DESCRIPTOR.fields}
        wanted |= {field.name for field in pb.GenerateRequest.DESCRIPTOR.fields
                   if field.message_type is None and field.name != "text"}  # the prompt's
        self.assertEqual({field.name for field in dataclasses.fields(SamplingParams)}, wanted)

    def test_a_broken_answer_is_continued_with_what_the_stream_knows(self):
        params = SamplingParams(max_tokens=200, temperature=1.5, ignore_eos=True, prompt_token_ids=True)
        with self.client.stream("Once upon a time", params) as stream:
            self.assertEqual((stream.seed, stream.request_id, stream.prompt_token_ids), (None, None, ()))
            begun = [next(stream)]  # on a busy machine the next one may have all the others' tokens
            self.assertNotEqual(stream.request_id, "")
            self.assertEqual(list(stream.prompt_token_ids), list(self.client.tokenize("Once upon a time")))
        request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=stream.prompt_token_ids),
                                     stopping=pb.Stopping(max_tokens=200, ignore_eos=True),
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


if __name__ == "__main__":
    unittest.main()
