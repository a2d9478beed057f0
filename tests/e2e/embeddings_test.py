"""Embeddings over HTTP and both gRPC services, of a model saved as sentence-transformers does: without its head, and with
modules.json."""
import base64
import http.client
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import grpc, pb  # noqa: E402
from vllm.grpc.engine import vllm_engine_pb2 as vllm  # noqa: E402
from vllm.grpc.engine import vllm_engine_pb2_grpc as vllm_rpc  # noqa: E402

IDS = [17, 5, 300, 42, 9, 111, 7, 383, 64, 2]
# torch.nn.functional.normalize(AutoModel(...)(IDS).last_hidden_state[0, -1]) of transformers 5, in float32.
GOLDEN = [
    0.323214, -0.084887, 0.00189, 0.025954, 0.059557, 0.087239, -0.28925, -0.253363, -0.057209, 0.398488, -0.015098,
    0.16471, 0.243925, -0.27024, 0.024685, 0.050323, 0.031558, 0.083962, -0.005387, 0.022643, -0.213677, 0.069102,
    0.052112, -0.056911, 0.015477, -0.114547, 0.00179, -0.007415, -0.142359, 0.047988, -0.101045, -0.215888, 0.03945,
    0.022655, -0.172203, -0.077846, -0.002059, -0.00891, 0.026189, 0.171672, -0.008995, -0.016701, -0.054937,
    0.055668, 0.031529, -0.035192, 0.040753, 0.03821, -0.042822, 0.032576, 0.085212, 0.091519, -0.0349, -0.137129,
    -0.116602, 0.101384, 0.163505, 0.082921, 0.127016, -0.205761, 0.060375, -0.009423, 0.072789, 0.048622,
]


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


def without_head(source, target):
    """The tensors of all files in one, named as those of the model inside."""
    tensors, data = {}, b""
    with open(os.path.join(source, "model.safetensors.index.json"), encoding="utf-8") as f:
        files = sorted(set(json.load(f)["weight_map"].values()))
    for name in files:
        with open(os.path.join(source, name), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            content = f.read()
        for tensor, at in header.items():
            if tensor == "__metadata__":
                continue
            begin, end = at["data_offsets"]
            tensors[tensor.removeprefix("model.")] = dict(at, data_offsets=[len(data), len(data) + end - begin])
            data += content[begin:end]
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    with open(os.path.join(target, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)


def embedding_model(folder, tied=True, **pooling):
    source = os.path.join(group.SOURCE, "tests", "data", "models", "qwen3_tied_f32")
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    write_json(os.path.join(folder, "config.json"), dict(config, max_position_embeddings=2048, tie_word_embeddings=tied))
    without_head(source, folder)
    write_json(os.path.join(folder, "modules.json"),
               [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])])
    write_json(os.path.join(folder, "1_Pooling", "config.json"),
               {"word_embedding_dimension": 64, **(pooling or {"pooling_mode_cls_token": False, "pooling_mode_lasttoken": True})})


def ask(target, **body):
    connection = http.client.HTTPConnection(*target.rsplit(":", 1), timeout=group.LIMIT_S)
    connection.request("POST", "/v1/embeddings", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


class EmbeddingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        embedding_model(cls.folder)
        group.MODEL = cls.folder
        cls.group = group.Group("--http-port", 0, "--served-model-name", "embedder")

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()
        shutil.rmtree(cls.folder)

    def tearDown(self):
        self.group.wait_until_idle()

    def embed(self, **body):
        status, answer = ask(self.group.http_target, **body)
        self.assertEqual(status, 200, answer)
        return answer

    def test_the_vector_is_that_of_transformers(self):
        answer = self.embed(input=IDS, model="embedder")
        self.assertEqual([d["index"] for d in answer["data"]], [0])
        self.assertEqual(answer["usage"]["prompt_tokens"], len(IDS))
        vector = answer["data"][0]["embedding"]
        self.assertEqual(len(vector), len(GOLDEN))
        for ours, theirs in zip(vector, GOLDEN):
            self.assertAlmostEqual(ours, theirs, delta=2e-5)
        self.assertAlmostEqual(math.fsum(x * x for x in vector), 1, places=5)

    def test_a_vector_is_the_same_in_a_list_in_base64_and_from_the_prefix_cache(self):
        alone = self.embed(input=IDS)["data"][0]["embedding"]
        many = self.embed(input=[[5, 6, 7], IDS, IDS * 20], encoding_format="base64")["data"]
        vectors = [list(struct.unpack("<64f", base64.b64decode(d["embedding"]))) for d in many]
        self.assertEqual(vectors[1], [struct.unpack("<f", struct.pack("<f", x))[0] for x in alone])
        again = self.embed(input=[IDS * 20])
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 100)
        self.assertEqual([struct.unpack("<f", struct.pack("<f", x))[0] for x in again["data"][0]["embedding"]], vectors[2])

    def test_fewer_dimensions_are_the_first_ones_normalised(self):
        whole = self.embed(input=IDS)["data"][0]["embedding"]
        first = self.embed(input=IDS, dimensions=16)["data"][0]["embedding"]
        norm = math.sqrt(math.fsum(x * x for x in whole[:16]))
        self.assertEqual(len(first), 16)
        for a, b in zip(first, whole):
            self.assertAlmostEqual(a, b / norm, places=5)

    def test_both_grpc_services_give_the_same_vector(self):
        over_http = self.embed(input=IDS)["data"][0]["embedding"]
        request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=IDS), output=pb.Output(embedding=True))
        response = self.group.generation.Generate(request, timeout=group.LIMIT_S)
        self.assertEqual(len(response.tokens), 0)
        ours = list(response.finished.embedding)
        self.assertEqual([float(f"{x:.9g}") for x in ours], over_http)
        last = list(self.group.generation.GenerateStream(request, timeout=group.LIMIT_S))[-1]
        self.assertEqual(list(last.finished.embedding), ours)
        stub = vllm_rpc.VllmEngineStub(self.group.channel)
        answer = stub.Embed(vllm.EmbedRequest(request_id="e", tokenized=vllm.TokenizedInput(input_ids=IDS)), timeout=group.LIMIT_S)
        self.assertEqual((list(answer.embedding), answer.prompt_tokens, answer.embedding_dim), (ours, len(IDS), 64))

    def test_a_whole_context_is_embedded_and_no_more(self):
        answer = self.embed(input=[7] * 2048)
        self.assertEqual(answer["usage"]["total_tokens"], 2048)
        status, answer = ask(self.group.http_target, input=[7] * 2049)
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"), answer)

    def test_as_many_inputs_as_langchain_sends_are_embedded_at_once(self):
        answer = self.embed(input=[IDS] * 1000)
        self.assertEqual(len(answer["data"]), 1000)
        self.assertEqual(answer["data"][999]["embedding"], answer["data"][0]["embedding"])
        status, answer = ask(self.group.http_target, input=[IDS] * 2049)
        self.assertEqual((status, answer["error"]["param"]), (400, "input"), answer)

    def test_a_refused_input_is_named_by_its_place(self):
        for wrong, name in [([5, 99999], "input[1]"), ([[5], [6, 99999]], "input[1][1]"), ([[5], [7] * 2049], "input[1]")]:
            status, answer = ask(self.group.http_target, input=wrong)
            self.assertEqual((status, answer["error"]["param"]), (400, name), answer)

    def test_fields_of_vllm_are_taken_with_the_value_that_asks_for_nothing(self):
        for field, nothing, wrong in [("priority", 0, 1), ("embed_dtype", "float32", "float16"), ("endianness", "native", "big"),
                                      ("endianness", "little", "big"), ("padding", "do_not_pad", "max_length"),
                                      ("use_activation", True, False), ("truncation_side", "left", "right")]:
            self.embed(**{"input": IDS, field: nothing})
            status, answer = ask(self.group.http_target, **{"input": IDS, field: wrong})
            self.assertEqual((status, answer["error"].get("param")), (400, field), answer)

    def test_what_is_wrong_is_refused_by_name(self):
        for field, value in [("dimensions", 65), ("dimensions", 0), ("encoding_format", "hex"), ("input", 5), ("input", []),
                             ("input", [[1], [400]]), ("temperature", 1)]:
            status, answer = ask(self.group.http_target, **{"input": IDS, field: value})
            self.assertEqual(status, 400, (field, value, answer))
        for more in [{"stopping": pb.Stopping(max_tokens=1)}, {"output": pb.Output(embedding=True, logprobs=1)}]:
            request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=IDS), **{"output": pb.Output(embedding=True), **more})
            with self.assertRaises(grpc.RpcError) as caught:
                self.group.generation.Generate(request, timeout=group.LIMIT_S)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn("embedding", caught.exception.details())


class WithoutHeadTest(unittest.TestCase):
    """As Qwen3-Embedding-8B: saved without the head that config.json says it has."""

    def test_it_gives_embeddings_and_refuses_all_else(self):
        with tempfile.TemporaryDirectory() as folder:
            embedding_model(folder, tied=False)
            group.MODEL = folder
            with group.Group("--http-port", 0) as g:
                status, answer = ask(g.http_target, input=IDS)
                self.assertEqual(status, 200, answer)
                for ours, theirs in zip(answer["data"][0]["embedding"], GOLDEN):
                    self.assertAlmostEqual(ours, theirs, delta=2e-5)
                tokens = pb.TokenIds(ids=IDS)
                for call, request in ((g.generation.Generate, pb.GenerateRequest(token_ids=tokens)),
                                      (g.generation.Score, pb.ScoreRequest(token_ids=tokens))):
                    with self.assertRaises(grpc.RpcError) as caught:
                        response = call(request, timeout=group.LIMIT_S)
                        list(response if hasattr(response, "__next__") else [])
                    self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
                    self.assertIn("has no lm_head: it gives embeddings alone", caught.exception.details())
            prompts = os.path.join(folder, "prompts.jsonl")
            write_json(prompts, {"prompt_token_ids": IDS})
            done = subprocess.run([group.BINARY, "run", "--model", folder, "--prompts", prompts], capture_output=True,
                                  encoding="utf-8", env=group.ENVIRONMENT, timeout=group.LIMIT_S, check=False)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("has no lm_head", done.stderr)


class OtherPoolingTest(unittest.TestCase):
    def test_a_model_that_pools_otherwise_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            embedding_model(folder, pooling_mode_mean_tokens=True)
            group.MODEL = folder
            with group.Group("--http-port", 0) as g:
                status, answer = ask(g.http_target, input=IDS)
                self.assertEqual(status, 400, answer)
                self.assertIn("pooling of 'mean_tokens' is not supported; only lasttoken is", answer["error"]["message"])
                generated = g.generation.Generate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=IDS),
                                                                     stopping=pb.Stopping(max_tokens=2, ignore_eos=True)),
                                                  timeout=group.LIMIT_S)
                self.assertEqual(len(generated.tokens), 2)


if __name__ == "__main__":
    unittest.main()
