"""Structured output of a running group: every answer is of its form, over gRPC, HTTP and vLLM's service; what is outside is refused
by name; a request that fails ends alone; answers are the same at any number of ranks."""
import concurrent.futures
import http.client
import json
import os
import re
import sys
import unittest

import grpc

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import pb  # noqa: E402
from vllm.grpc.engine import vllm_engine_pb2 as vllm  # noqa: E402
from vllm.grpc.engine import vllm_engine_pb2_grpc as vllm_rpc  # noqa: E402

try:
    import jsonschema
except ImportError:
    jsonschema = None

PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2}},
    "required": ["name", "age"], "additionalProperties": False}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
    "v": {"type": "boolean"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
    "required": ["v", "next"], "additionalProperties": False}}}
# As gateways ask for calls.
CALLS = {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "object", "anyOf": [
    {"type": "object", "properties": {"name": {"const": "add"}, "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}},
     "required": ["name", "parameters"], "additionalProperties": False}]}}
SCHEMAS = [PERSON, CALLS, TREE, {"type": "array", "items": {"type": "number", "minimum": -3, "maximum": 9.5}, "minItems": 1, "maxItems": 4},
           {"type": "string", "pattern": "^[a-c]{2,5}$"}, {"enum": ["a", 1, None, {"b": [True]}]}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}}, "required": ["a", "b"],
    "additionalProperties": False, "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}}},
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]


def structured(**form):
    if "choice" in form:
        form["choice"] = pb.Choices(texts=form["choice"])
    if "json_schema" in form:
        form["json_schema"] = json.dumps(form["json_schema"])
    return pb.StructuredOutput(**form)


def request(form, seed=1, temperature=1.0, max_tokens=400, **more):
    return pb.GenerateRequest(text="Once upon a time", sampling=pb.Sampling(temperature=temperature, seed=seed),
                              stopping=pb.Stopping(max_tokens=max_tokens), structured=form, **more)


class StructuredOutputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group("--http-port", 0, "--tool-call-parser", "hermes")
        cls.vllm = vllm_rpc.VllmEngineStub(cls.group.channel)

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()

    def tearDown(self):
        self.group.wait_until_idle()

    def generate(self, *args, **more):
        return self.group.generation.Generate(request(*args, **more), timeout=group.LIMIT_S)

    def refusal(self, message):
        """Status code, reason and text."""
        with self.assertRaises(grpc.RpcError) as raised:
            self.group.generation.Generate(message, timeout=group.LIMIT_S)
        details = dict(raised.exception.trailing_metadata())["grpc-status-details-bin"]
        reasons = re.findall(rb"[A-Z]+(?:_[A-Z]+)+", details)
        return raised.exception.code(), {r.decode() for r in reasons}, raised.exception.details()

    def ask(self, path, **body):
        host, port = self.group.http_target.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=group.LIMIT_S)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, data if body.get("stream") else json.loads(data)

    def chat(self, **more):
        return self.ask("/v1/chat/completions", messages=[{"role": "user", "content": "Tell me a story."}],
                        **{"max_tokens": 400, "temperature": 1, **more})

    def check(self, schema, text):
        value = json.loads(text)
        if jsonschema is not None:
            jsonschema.Draft202012Validator(schema).validate(value)
        return value

    def test_every_answer_is_of_its_form_whatever_is_beside_it(self):
        golden = group.golden()[0]
        plain = pb.GenerateRequest(text=golden["prompt"], sampling=pb.Sampling(temperature=0), stopping=pb.Stopping(max_tokens=48))
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = [(schema, pool.submit(self.generate, structured(json_schema=schema), seed, temperature))
                       for seed, temperature in ((1, 1.0), (2, 1.5), (3, 0.0)) for schema in SCHEMAS]
            plains = [pool.submit(self.group.generation.Generate, plain, timeout=group.LIMIT_S) for _ in range(4)]
            choices = [pool.submit(self.generate, structured(choice=["north", "south-west"]), seed) for seed in range(4)]
            matches = [pool.submit(self.generate, structured(regex=r"[A-Z][a-z]{2,8} \d{1,3}(\.\d{1,3})?!"), seed) for seed in range(4)]
            objects = [pool.submit(self.generate, structured(json_object=True), seed) for seed in range(4)]
        for schema, answer in answers:
            answer = answer.result()
            if answer.finished.reason == pb.FINISH_REASON_EOS:
                self.check(schema, answer.text)
            else:
                self.assertEqual(answer.finished.reason, pb.FINISH_REASON_MAX_TOKENS)
        ended = sum(answer.result().finished.reason == pb.FINISH_REASON_EOS for _, answer in answers)
        self.assertGreaterEqual(ended, len(answers) - 3)  # trees and lists of numbers may be long
        for answer in plains:
            self.assertTrue(golden["text"].startswith(answer.result().text))
        for answer in choices:
            self.assertIn(answer.result().text, ("north", "south-west"))
            self.assertEqual(answer.result().finished.reason, pb.FINISH_REASON_EOS)
        for answer in matches:
            self.assertRegex(answer.result().text, r"^[A-Z][a-z]{2,8} \d{1,3}(\.\d{1,3})?!$")
        for answer in objects:
            if answer.result().finished.reason == pb.FINISH_REASON_EOS:
                self.assertIsInstance(json.loads(answer.result().text), dict)

    def test_forms_of_the_http_api(self):
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
        for seed in range(3):
            status, answer = self.chat(response_format=form, seed=seed)
            self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, "stop"), answer)
            self.check(PERSON, answer["choices"][0]["message"]["content"])
        _, events = self.chat(response_format=form, seed=2, stream=True)
        deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in events.decode().split("\n\n")
                  if line.startswith("data: {")]
        self.assertEqual("".join(delta.get("content") or "" for delta in deltas), answer["choices"][0]["message"]["content"])
        status, answer = self.chat(response_format=form, n=3, seed=5)
        self.assertEqual([self.check(PERSON, choice["message"]["content"]) is None for choice in answer["choices"]], [False] * 3)
        complete = {"prompt": "One", "max_tokens": 300, "temperature": 1, "seed": 1}
        for field in ({"structured_outputs": {"choice": ["yes", "no"]}}, {"guided_choice": ["yes", "no"]},
                      {"guided_regex": "yes|no"}, {"structured_outputs": {"json": {"enum": ["yes", "no"]}}}):
            status, answer = self.ask("/v1/completions", **complete, **field)
            self.assertIn(answer["choices"][0]["text"].strip('"'), ("yes", "no"))

    def test_a_call_that_is_required_is_made(self):
        for choice in ("required", {"type": "function", "function": {"name": "add"}}):
            for seed in range(3):
                status, answer = self.chat(tools=TOOLS, tool_choice=choice, seed=seed)
                self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, "tool_calls"), answer)
                call, = answer["choices"][0]["message"]["tool_calls"]
                function = next(t["function"] for t in TOOLS if t["function"]["name"] == call["function"]["name"])
                self.check(function["parameters"], call["function"]["arguments"])
                if choice != "required":
                    self.assertEqual(call["function"]["name"], "add")

    def test_constraints_of_vllm_are_forms(self):
        for params, pattern in (({"json_schema": json.dumps(PERSON)}, None), ({"regex": "[ab]{3}"}, "^[ab]{3}$"),
                                ({"choice": vllm.ChoiceConstraint(choices=["x1", "x2"])}, "^x[12]$")):
            asked = vllm.GenerateRequest(
                text="One", stream=False, sampling_params=vllm.SamplingParams(temperature=1, seed=3, max_tokens=300, **params))
            complete, = self.vllm.Generate(asked, timeout=group.LIMIT_S)
            self.assertEqual(complete.complete.finish_reason, "stop")
            ids = pb.DetokenizeRequest(token_ids=pb.TokenIds(ids=complete.complete.output_ids))
            text = self.group.generation.Detokenize(ids, timeout=group.LIMIT_S).text
            if pattern is None:
                self.check(PERSON, text)
            else:
                self.assertRegex(text.strip(), pattern)

    def test_a_resumed_answer_goes_on_in_its_form_and_others_fail_alone(self):
        whole = self.generate(structured(json_schema=PERSON), 7)
        ids = [token.id for token in whole.tokens]
        for emitted in (1, len(ids) // 2, len(ids) - 1):
            resumed = self.generate(structured(json_schema=PERSON), 7, resume=pb.Resume(emitted_token_ids=ids[:emitted]))
            self.assertEqual([token.id for token in resumed.tokens], ids[emitted:])
        code, reasons, text = self.refusal(request(structured(choice=["yes"]), 7, resume=pb.Resume(emitted_token_ids=ids[:3])))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, text)
        self.assertIn("STRUCTURED_OUTPUT", reasons)

    def test_a_grammar_that_takes_too_much_work_ends_its_request_alone(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            beside = [pool.submit(self.generate, structured(json_schema=PERSON), seed) for seed in range(3)]
            hard = request(structured(regex="((a{0,90}b?){1,16}a{0,90}){1,16}c"), max_tokens=200)
            only_a = self.group.generation.Tokenize(pb.TokenizeRequest(text="a", add_special_tokens=False), timeout=group.LIMIT_S)
            hard.sampling.allowed_token_ids.extend(only_a.token_ids.ids)
            code, reasons, text = self.refusal(hard)
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, text)
        self.assertIn("STRUCTURED_OUTPUT", reasons)
        for answer in beside:
            self.check(PERSON, answer.result().text)

    def test_what_is_outside_is_refused_by_name(self):
        for form, named in ((structured(regex="a(?=b)"), "byte 4"), (structured(regex=r"(a)\1"), "structured.regex"),
                            (structured(json_schema={"type": "object", "patternProperties": {"a": {}}}), "patternProperties"),
                            (structured(json_schema={"properties": {"a": {"not": {}}}}), "#/properties/a"),
                            (structured(choice=[]), "structured.choice"), (pb.StructuredOutput(), "no form"),
                            (structured(regex="a" * 70000), "65536")):
            code, _, text = self.refusal(request(form))
            self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn(named, text)
        for body, param in (({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
                             "response_format.json_schema.schema"),
                            ({"guided_json": {"not": {}}}, "guided_json"),
                            ({"structured_outputs": {"regex": "a(?=b)"}}, "structured_outputs.regex"),
                            ({"response_format": {"type": "structural_tag"}}, "response_format.type"),
                            ({"guided_grammar": "root ::= 1"}, "guided_grammar"),
                            ({"tool_choice": "required"}, "tool_choice")):
            status, answer = self.chat(**body)
            self.assertEqual((status, answer["error"]["param"]), (400, param), answer)

    def test_answers_are_the_same_at_another_number_of_ranks(self):
        asked = [request(structured(json_schema=schema), seed) for seed in (11, 12) for schema in (PERSON, TREE)]
        here = [self.group.generation.Generate(one, timeout=group.LIMIT_S).text for one in asked]
        ranks = group.RANKS
        group.RANKS = 3 - ranks  # 1 or 2
        try:
            with group.Group() as other:
                there = [other.generation.Generate(one, timeout=group.LIMIT_S).text for one in asked]
        finally:
            group.RANKS = ranks
        self.assertEqual(here, there)


if __name__ == "__main__":
    unittest.main()
