"""vllm.grpc.engine.VllmEngine from outside, as a gateway uses it: the same tokens as bulkhead.v1, refusals by name, the tokenizer."""
import hashlib
import io
import os
import sys
import time
import unittest
import zipfile

import grpc

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import pb  # noqa: E402
from vllm.grpc.engine import vllm_engine_pb2 as vllm  # noqa: E402
from vllm.grpc.engine import vllm_engine_pb2_grpc as vllm_rpc  # noqa: E402


class VllmEngineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group("--enable-kv-cache-events")
        cls.stub = vllm_rpc.VllmEngineStub(cls.group.channel)

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()

    def request(self, ids, stream=True, request_id="", **params):
        params.setdefault("temperature", 0)
        return vllm.GenerateRequest(request_id=request_id, stream=stream,
                                    tokenized=vllm.TokenizedInput(original_text="x", input_ids=ids),
                                    sampling_params=vllm.SamplingParams(**params))

    def generate(self, ids, **more):
        """(ids of the chunks by index, completes by index)"""
        chunks, completes = {}, {}
        for response in self.stub.Generate(self.request(ids, **more), timeout=group.LIMIT_S):
            if response.WhichOneof("response") == "chunk":
                chunk = response.chunk
                self.assertNotIn(chunk.index, completes)
                chunks.setdefault(chunk.index, []).extend(chunk.token_ids)
                self.assertEqual(chunk.completion_tokens, len(chunks[chunk.index]))
                self.assertEqual(chunk.prompt_tokens, len(ids))
            else:
                self.assertNotIn(response.complete.index, completes)
                completes[response.complete.index] = response.complete
        return chunks, completes

    def refusal(self, code, request):
        with self.assertRaises(grpc.RpcError) as raised:
            list(self.stub.Generate(request, timeout=group.LIMIT_S))
        self.assertEqual(raised.exception.code(), code, raised.exception.details())
        return raised.exception.details()

    def test_answers_are_those_of_the_golden_file(self):
        for one in group.golden()[:4]:
            wanted = one["ids"][:16]
            for stream in (True, False):
                chunks, completes = self.generate(one["prompt_ids"], stream=stream, max_tokens=16)
                self.assertEqual(list(completes[0].output_ids), wanted)
                self.assertEqual(chunks, {0: wanted} if stream else {})
                self.assertEqual(completes[0].completion_tokens, len(wanted))
                self.assertEqual(completes[0].finish_reason, "length" if len(wanted) == 16 else "stop")

    def test_choices_have_seeds_of_their_own(self):
        ids = group.golden()[0]["prompt_ids"]
        chunks, completes = self.generate(ids, n=3, temperature=1, seed=11, max_tokens=12, ignore_eos=True)
        self.assertEqual(sorted(completes), [0, 1, 2])
        for i in range(3):
            _, alone = self.generate(ids, temperature=1, seed=11 + i, max_tokens=12, ignore_eos=True)
            self.assertEqual(list(completes[i].output_ids), list(alone[0].output_ids))
            self.assertEqual(list(completes[i].output_ids), chunks[i])

    def test_log_probabilities_are_those_of_our_own_service(self):
        ids = group.golden()[0]["prompt_ids"]
        own = self.group.generation.Generate(
            pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids), sampling=pb.Sampling(temperature=0),
                               stopping=pb.Stopping(max_tokens=5), output=pb.Output(logprobs=2, prompt_logprobs=1)),
            timeout=group.LIMIT_S)
        _, completes = self.generate(ids, stream=False, max_tokens=5, logprobs=2, prompt_logprobs=1)
        got = completes[0].output_logprobs
        self.assertEqual(list(got.token_ids), [t.id for t in own.tokens])
        self.assertEqual(list(got.token_logprobs), [t.logprob for t in own.tokens])
        self.assertEqual([list(t.token_ids) for t in got.top_logprobs], [[c.id for c in t.top] for t in own.tokens])
        prompt = completes[0].input_logprobs
        self.assertEqual(list(prompt.token_ids), ids)
        self.assertFalse(prompt.token_logprobs[0].HasField("value"))
        self.assertEqual([t.value for t in prompt.token_logprobs[1:]], [t.logprob for t in own.prompt_logprobs[1:]])

    def test_parameters_change_answers(self):
        one = group.golden()[0]
        first = one["ids"][0]
        _, completes = self.generate(one["prompt_ids"], max_tokens=3, logit_bias={first: -100})
        self.assertNotIn(first, completes[0].output_ids)
        _, completes = self.generate(one["prompt_ids"], max_tokens=8, stop_token_ids=[one["ids"][2]])
        self.assertEqual(completes[0].matched_token_id, one["ids"][2])
        word = one["text"].split()[1]
        _, completes = self.generate(one["prompt_ids"], max_tokens=32, stop=[word])
        self.assertEqual((completes[0].finish_reason, completes[0].matched_stop_str), ("stop", word))

    def test_what_cannot_be_served_is_refused_by_name(self):
        ids = [3, 4]
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        for params, named in (({"grammar": "root ::= 1"}, "sampling_params.grammar"), ({"regex": "(?=a)"}, "regex"),
                              ({"structural_tag": "{}"}, "structural_tag"), ({"choice": vllm.ChoiceConstraint()}, "choice"),
                              ({"json_schema": '{"type": "object", "patternProperties": {"a": {}}}'}, "patternProperties"),
                              ({"n": 1000}, "n: 1000"), ({"top_p": 7}, "top_p"), ({"temperature": -1}, "temperature"),
                              ({"logprobs": -1}, "logprobs"), ({"logprobs": 1000}, "1000"),
                              ({"prompt_logprobs": 1}, "prompt_logprobs"), ({"stop": [""]}, "stop[0]"),
                              ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 2049}, "2048, max_model_len"), ({"logit_bias": {1 << 30: 1}}, "logit_bias"),
                              ({"min_tokens": 9, "max_tokens": 3}, "min_tokens")):
            self.assertIn(named, self.refusal(invalid, self.request(ids, **params)))
        for bad in ([], [1 << 31]):
            self.refusal(invalid, self.request(bad))
        self.refusal(invalid, vllm.GenerateRequest(request_id="r"))
        self.refusal(invalid, self.request([3] * 5000))
        self.assertEqual(self.group.load().num_requests_running, 0)

    def test_abort_ends_every_choice_and_frees_the_blocks(self):
        ids = group.golden()[0]["prompt_ids"]
        for n in (1, 2):
            call = self.stub.Generate(self.request(ids, request_id="abort-me", n=n, max_tokens=1900, ignore_eos=True))
            next(call)
            self.assertIn("abort-me", self.refusal(grpc.StatusCode.ALREADY_EXISTS,
                                                   self.request(ids, request_id="abort-me", n=n)))
            begin = time.monotonic()
            self.stub.Abort(vllm.AbortRequest(request_ids=["abort-me", "unknown"]), timeout=group.LIMIT_S)
            with self.assertRaises(grpc.RpcError) as raised:
                list(call)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.CANCELLED)
            self.group.wait_until_idle()
            self.assertLess(time.monotonic() - begin, 10)

    def test_a_client_that_leaves_frees_the_blocks(self):
        call = self.stub.Generate(self.request(group.golden()[0]["prompt_ids"], n=3, max_tokens=1900, ignore_eos=True))
        next(call)
        call.cancel()
        self.group.wait_until_idle()

    def test_the_tokenizer_arrives_whole(self):
        chunks = list(self.stub.GetTokenizer(vllm.GetTokenizerRequest(), timeout=group.LIMIT_S))
        data = b"".join(chunk.data for chunk in chunks)
        self.assertEqual([chunk.sha256 for chunk in chunks[:-1]], [""] * (len(chunks) - 1))
        self.assertEqual(chunks[-1].sha256, hashlib.sha256(data).hexdigest())
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.assertIsNone(archive.testzip())
            wanted = {name for name in os.listdir(group.MODEL)
                      if name.endswith(".jinja") or name in ("tokenizer.json", "tokenizer_config.json", "config.json",
                                                             "generation_config.json", "special_tokens_map.json")}
            self.assertEqual(set(archive.namelist()), wanted)
            for name in wanted:
                with open(os.path.join(group.MODEL, name), "rb") as f:
                    self.assertEqual(archive.read(name), f.read())

    def test_events_name_the_blocks_of_a_prompt(self):
        events = self.stub.SubscribeKvEvents(vllm.SubscribeKvEventsRequest(start_sequence_number=1), timeout=group.LIMIT_S)
        ids = [7 + i % 900 for i in range(70)]
        self.generate(ids, max_tokens=4)
        stored, chain = {}, []
        for batch in events:
            for event in batch.events:
                parent = event.stored.parent_block_hash
                for block in event.stored.blocks:
                    stored[block.block_hash] = (parent, list(block.token_ids))
                    parent = block.block_hash
            parents = {parent: block for block, (parent, tokens) in stored.items() if tokens[0] in ids}
            chain, at = [], 0
            while at in parents and stored[parents[at]][1] == ids[16 * len(chain):16 * len(chain) + 16]:
                at = parents[at]
                chain.append(at)
            if len(chain) == 4:
                break
        events.cancel()
        self.assertEqual(len(chain), 4)  # of 16 tokens each

    def test_information(self):
        self.assertTrue(self.stub.HealthCheck(vllm.HealthCheckRequest(), timeout=group.LIMIT_S).healthy)
        model = self.stub.GetModelInfo(vllm.GetModelInfoRequest(), timeout=group.LIMIT_S)
        self.assertEqual((model.vocab_size, list(model.eos_token_ids), model.model_type, model.max_context_length),
                         (2048, [1], "llama", 2048))
        self.assertEqual(self.stub.GetServerInfo(vllm.GetServerInfoRequest(), timeout=group.LIMIT_S).max_num_seqs, 8)
        loads = self.stub.GetLoads(vllm.GetLoadsRequest(include=["core"]), timeout=group.LIMIT_S).loads
        self.assertEqual((len(loads), loads[0].max_running_requests), (1, 8))
        with self.assertRaises(grpc.RpcError) as raised:
            self.stub.Embed(vllm.EmbedRequest(tokenized=vllm.TokenizedInput(input_ids=[5])), timeout=group.LIMIT_S)
        self.assertIn("the model gives no embeddings: it has no modules.json", raised.exception.details())
        for method in (self.stub.FlushCache, self.stub.StartProfile, self.stub.StopProfile):
            with self.assertRaises(grpc.RpcError) as raised:
                method(vllm.Unserved(), timeout=group.LIMIT_S)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
            self.assertNotEqual(raised.exception.details(), "")


if __name__ == "__main__":
    unittest.main()
