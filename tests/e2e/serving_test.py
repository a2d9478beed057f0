"""A running group as seen by a client: the same answers from every method, correct ends, typed
refusals."""
import concurrent.futures
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import Streamed, details_pb, greedy, grpc, health_pb, long_request, pb  # noqa: E402


class ServingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group()
        cls.golden = group.golden()[:6]

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()

    def tearDown(self):
        self.group.wait_until_idle()

    def stream(self, request, **options):
        return Streamed(self.group.generation.GenerateStream(request, timeout=group.LIMIT_S, **options))

    def refused(self, request):
        with self.assertRaises(grpc.RpcError) as caught:
            self.group.generation.Generate(request, timeout=group.LIMIT_S)
        return caught.exception

    def test_stream_and_unary_give_the_golden_text(self):
        for g in self.golden:
            got = self.stream(greedy(g["prompt"], 96, output=pb.Output(prompt_token_ids=True)))
            self.assertEqual(got.code, grpc.StatusCode.OK)
            self.assertEqual(list(got.accepted.prompt_token_ids.ids), g["prompt_ids"])
            self.assertEqual(got.ids, g["ids"])
            self.assertEqual(got.text, g["text"])
            self.assertEqual(got.finished.usage.completion_tokens, len(g["ids"]))
            whole = self.group.generation.Generate(greedy(g["prompt"], 96), timeout=group.LIMIT_S)
            self.assertEqual([t.id for t in whole.tokens], g["ids"])
            self.assertEqual(whole.text, g["text"])
            self.assertEqual(whole.finished.reason, got.finished.reason)
            self.assertEqual(got.epochs, {whole.epoch})

    def test_token_ids_are_taken_as_they_are(self):
        g = self.golden[0]
        request = greedy("", 96)
        request.token_ids.ids.extend(g["prompt_ids"])
        self.assertEqual(self.stream(request).ids, g["ids"])

    def test_streams_at_once_give_what_each_gives_alone(self):
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            requests = [self.golden[i % len(self.golden)] for i in range(12)]
            streams = list(pool.map(lambda g: self.stream(greedy(g["prompt"], 96)), requests))
        for g, got in zip(requests, streams):
            self.assertEqual(got.code, grpc.StatusCode.OK)
            self.assertEqual((got.ids, got.text), (g["ids"], g["text"]))

    def test_a_seed_repeats_its_text_and_a_missing_one_is_returned(self):
        def request(seed):
            return pb.GenerateRequest(text="Once upon a time", stopping=pb.Stopping(max_tokens=24),
                                      sampling=pb.Sampling(temperature=1, seed=seed))
        first = self.stream(request(None))
        again = self.stream(request(first.accepted.seed))
        self.assertEqual((first.ids, first.text), (again.ids, again.text))
        self.assertNotEqual(first.accepted.seed, self.stream(request(None)).accepted.seed)

    def test_a_resumed_stream_goes_on_as_if_never_stopped(self):
        request = pb.GenerateRequest(text="Once upon a time", sampling=pb.Sampling(temperature=1, seed=3),
                                     stopping=pb.Stopping(max_tokens=24, ignore_eos=True))
        whole = self.group.generation.Generate(request, timeout=group.LIMIT_S)
        ids = [t.id for t in whole.tokens]
        begun = pb.GenerateRequest()
        begun.CopyFrom(request)
        begun.stopping.max_tokens = 10
        sent = self.group.generation.Generate(begun, timeout=group.LIMIT_S).text
        request.resume.emitted_token_ids.extend(ids[:10])
        request.resume.text_bytes_sent = len(sent.encode())
        rest = self.group.generation.Generate(request, timeout=group.LIMIT_S)
        self.assertEqual([t.id for t in rest.tokens], ids[10:])
        self.assertEqual(sent + rest.text, whole.text)
        # All tokens are there, only the end is missing.
        del request.resume.emitted_token_ids[:]
        request.resume.emitted_token_ids.extend(ids)
        request.resume.text_bytes_sent = len(whole.text.encode())
        rest = self.group.generation.Generate(request, timeout=group.LIMIT_S)
        self.assertEqual((list(rest.tokens), rest.text), ([], ""))
        self.assertEqual(rest.finished.reason, pb.FINISH_REASON_MAX_TOKENS)

    def test_stops_are_obeyed(self):
        g = self.golden[0]
        stop = g["text"][40:44]
        request = greedy(g["prompt"], 96)
        request.stopping.stop.append(stop)
        got = self.stream(request)
        self.assertEqual(got.finished.reason, pb.FINISH_REASON_STOP_STRING)
        self.assertEqual(got.finished.stop_string, stop)
        self.assertEqual(got.text, g["text"][:g["text"].index(stop)])
        request = greedy(g["prompt"], 96)
        request.stopping.stop_token_ids.append(g["ids"][5])
        got = self.stream(request)
        self.assertEqual(got.finished.reason, pb.FINISH_REASON_STOP_TOKEN)
        self.assertEqual(got.ids, g["ids"][:g["ids"].index(g["ids"][5]) + 1])

    def test_the_models_length_ends_what_wants_more(self):
        request = pb.GenerateRequest(sampling=pb.Sampling(temperature=0),
                                     stopping=pb.Stopping(max_tokens=100000, ignore_eos=True))
        request.token_ids.ids.extend([10] * 2040)
        got = self.stream(request)
        self.assertEqual(len(got.ids), 8)
        self.assertEqual(got.accepted.max_tokens, 8)
        self.assertEqual(got.finished.reason, pb.FINISH_REASON_MODEL_LENGTH)

    def test_logprobs_are_of_the_drawn_token_and_the_best(self):
        whole = self.group.generation.Generate(
            greedy(self.golden[0]["prompt"], 4, output=pb.Output(logprobs=3)), timeout=group.LIMIT_S)
        for token in whole.tokens:
            self.assertEqual(len(token.top), 3)
            self.assertEqual((token.top[0].id, token.top[0].logprob), (token.id, token.logprob))
            self.assertLessEqual(token.logprob, 0)
            self.assertGreaterEqual(token.top[0].logprob, token.top[1].logprob)

    def test_a_cached_prefix_changes_nothing_but_the_work(self):
        g = self.golden[0]
        ids = g["prompt_ids"] + g["ids"][:60]

        def generate(ids, salt):
            request = greedy("", 24, cache_salt=salt, output=pb.Output(logprobs=5))
            request.token_ids.ids.extend(ids)
            request.stopping.ignore_eos = True
            return self.group.generation.Generate(request, timeout=group.LIMIT_S)

        before = self.group.load()
        computed, cached, apart = (generate(ids, salt) for salt in ("mine", "mine", "another"))
        self.assertEqual([r.finished.usage.cached_prompt_tokens for r in (computed, cached, apart)],
                         [0, 64, 0])  # whole blocks of 68 tokens
        self.assertEqual(list(computed.tokens), list(cached.tokens))  # and their logprobs
        self.assertEqual(computed.text, cached.text)
        self.group.wait_until_idle()  # an answer may arrive before the load is updated
        after = self.group.load()
        self.assertEqual(after.prefix_cache_queries_total - before.prefix_cache_queries_total, 3 * 68)
        self.assertEqual(after.prefix_cache_hits_total - before.prefix_cache_hits_total, 64)
        self.assertEqual(after.prompt_tokens_total - before.prompt_tokens_total, 2 * 68 + 4)
        self.assertGreaterEqual(after.num_kv_blocks_cached, 10)
        # The next turn of the conversation also hits the answer.
        ids += [t.id for t in cached.tokens] + [10, 11]
        turns = [generate(ids, salt) for salt in ("mine", "a third")]
        self.assertEqual([r.finished.usage.cached_prompt_tokens for r in turns], [80, 0])
        self.assertEqual(list(turns[0].tokens), list(turns[1].tokens))

    def test_a_cancelled_stream_frees_its_blocks(self):
        call = self.group.generation.GenerateStream(long_request())
        for event in call:
            if event.WhichOneof("event") == "delta":
                break
        self.assertGreater(self.group.load().num_kv_blocks_used, 0)
        call.cancel()
        self.group.wait_until_idle()

    def test_a_deadline_ends_the_call_and_frees_its_blocks(self):
        got = Streamed(self.group.generation.GenerateStream(long_request(), timeout=0.5))
        self.assertEqual(got.code, grpc.StatusCode.DEADLINE_EXCEEDED)
        self.group.wait_until_idle()

    def test_bad_requests_are_refused_with_their_reason(self):
        too_long = pb.GenerateRequest(stopping=pb.Stopping(max_tokens=1))
        too_long.token_ids.ids.extend([10] * 2049)
        error = self.refused(too_long)
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("2048", error.details())
        self.assertEqual(group.reason(error), "PROMPT_TOO_LONG")
        self.assertEqual(group.detail(error, details_pb.ErrorInfo).metadata["prompt_tokens"], "2049")
        rows = [("prompt", pb.GenerateRequest()),
                ("sampling.temperature", pb.GenerateRequest(text="a", sampling=pb.Sampling(temperature=-1))),
                ("sampling.temperature",
                 pb.GenerateRequest(text="a", sampling=pb.Sampling(temperature=float("nan")))),
                ("sampling.top_p", pb.GenerateRequest(text="a", sampling=pb.Sampling(top_p=0))),
                ("stopping.max_tokens", pb.GenerateRequest(text="a", stopping=pb.Stopping(max_tokens=0))),
                ("cache_salt", pb.GenerateRequest(text="a", cache_salt="s" * 129)),
                ("output.logprobs", pb.GenerateRequest(text="a", output=pb.Output(logprobs=21))),
                ("prompt.token_ids[0]",
                 pb.GenerateRequest(token_ids=pb.TokenIds(ids=[10 ** 8]))),
                ("prompt.token_ids", pb.GenerateRequest(token_ids=pb.TokenIds()))]
        for field, request in rows:
            error = self.refused(request)
            self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, field)
            bad = group.detail(error, details_pb.BadRequest)
            self.assertEqual([v.field for v in bad.field_violations], [field])
        error = self.refused(pb.GenerateRequest(text="a", model="another"))
        self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)

    def test_an_id_in_flight_is_taken(self):
        call = self.group.generation.GenerateStream(long_request("mine"))
        next(iter(call))
        error = self.refused(long_request("mine"))
        self.assertEqual(error.code(), grpc.StatusCode.ALREADY_EXISTS)
        call.cancel()

    def test_abort_ends_what_it_names(self):
        first = self.group.generation.GenerateStream(long_request("first"))
        second = self.group.generation.GenerateStream(long_request("second"))
        next(iter(first))
        next(iter(second))
        answer = self.group.control.Abort(pb.AbortRequest(request_ids=["first", "nobody"]),
                                          timeout=group.LIMIT_S)
        self.assertEqual(answer.aborted, 1)
        with self.assertRaises(grpc.RpcError) as caught:
            for _ in first:
                pass
        self.assertEqual(caught.exception.code(), grpc.StatusCode.CANCELLED)
        self.assertEqual(group.reason(caught.exception), "ABORTED")
        answer = self.group.control.Abort(pb.AbortRequest(all=True), timeout=group.LIMIT_S)
        self.assertEqual(answer.aborted, 1)
        with self.assertRaises(grpc.RpcError):
            for _ in second:
                pass

    def test_tokenize_and_detokenize(self):
        g = self.golden[0]
        ids = self.group.generation.Tokenize(pb.TokenizeRequest(text=g["prompt"]),
                                             timeout=group.LIMIT_S).token_ids
        self.assertEqual(list(ids.ids), g["prompt_ids"])
        text = self.group.generation.Detokenize(pb.DetokenizeRequest(token_ids=ids), timeout=group.LIMIT_S)
        self.assertEqual(text.text, g["prompt"])

    def test_the_server_tells_of_itself(self):
        table = self.group.control.GetRankTable(pb.GetRankTableRequest(), timeout=group.LIMIT_S)
        self.assertEqual([row.rank for row in table.ranks], list(range(group.RANKS)))
        self.assertEqual(table.device_allocations_after_ready, 0)
        for row in table.ranks:
            arenas = {arena.term: arena.bytes for arena in row.arenas}
            self.assertEqual(arenas["kv"], table.num_kv_blocks * table.block_size * row.kv_bytes_per_token)
            self.assertEqual(sum(arenas.values()) + row.others_bytes + row.reserve_bytes + row.free_bytes,
                             row.total_bytes)
        server = self.group.control.GetServerInfo(pb.GetServerInfoRequest(), timeout=group.LIMIT_S)
        self.assertEqual(server.tensor_parallel_size, group.RANKS)
        self.assertEqual((server.max_num_seqs, server.max_model_len), (8, 2048))
        self.assertEqual(server.kv_cache_dtype, "float32")
        self.assertGreater(server.num_kv_blocks, 0)
        model = self.group.control.GetModelInfo(pb.GetModelInfoRequest(), timeout=group.LIMIT_S)
        self.assertTrue(model.supports_text)
        self.assertEqual((model.vocab_size, list(model.eos_token_ids)), (2048, [1]))
        self.assertEqual(self.group.load().device_allocations_after_ready, 0)
        self.assertEqual(self.stream(greedy("a", 1, model=model.served_model_name)).code,
                         grpc.StatusCode.OK)

    def test_health_serves(self):
        for name in ("", "bulkhead.v1.Generation", "bulkhead.v1.Control", "vllm.grpc.engine.VllmEngine"):
            answer = self.group.health.Check(health_pb.HealthCheckRequest(service=name),
                                             timeout=group.LIMIT_S)
            self.assertEqual(answer.status, health_pb.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    unittest.main()
