#!/usr/bin/python3
"""Random answers along the masks of random grammars: each validates with python3-jsonschema, or matches with Python's re.
STRUCTURED_COUNT (schemas) and STRUCTURED_SEED widen it. Skipped without python3-jsonschema."""
import datetime
import json
import os
import random
import re
import subprocess
import sys
import unittest
import warnings

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed")
    sys.exit(77)

warnings.simplefilter("ignore")
MATCH_LINES = os.environ["MATCH_LINES"]
COUNT = int(os.environ.get("STRUCTURED_COUNT", "300"))
SEED = int(os.environ.get("STRUCTURED_SEED", "1"))


def format_checker():
    checker = jsonschema.FormatChecker(("date", "uuid", "ipv4", "ipv6", "email"))
    # Those of python3-jsonschema are an older draft's, or need further packages.
    for name, parse in (("time", datetime.time.fromisoformat), ("date-time", datetime.datetime.fromisoformat)):
        checker.checkers[name] = (lambda value, parse=parse: not isinstance(value, str) or parse(value) is not None, ValueError)
    return checker


class Matcher:
    def __enter__(self):
        self.process = subprocess.Popen([MATCH_LINES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *unused):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def __call__(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Schemas:
    """Random schemas of the supported subset."""
    KEYS = ["a", "b", "name", "a b", "é", "quo\"te", "ab", "nam", "", "long_property_name", "\n"]
    VALUES = [None, True, False, 0, 1, -5, 2.5, "", "a", "ab", "x\"y", "日本", [], [1, "a"], {}, {"a": 1}]
    PATTERNS = ["^[a-z]{2,5}$", "a+b", "^(foo|bar)-\\d{3}$", "[^a-z]", "^\\w+@\\w+\\.com$", "x?y*z$", "^é+", "^$", "\\S \\S",
                "^[A-F0-9]{4}(-[A-F0-9]{2}){1,3}$", "^.{3}$", "\"", "\\\\"]

    def __init__(self, rng):
        self.rng = rng
        self.names = []

    def make(self):
        rng = self.rng
        definitions = rng.choice([0, 0, 1, 2])
        self.names = [f"d{i}" for i in range(definitions)]
        schema = self.schema(0)
        if self.names:
            if schema is True:
                schema = {}
            schema["$defs"] = {name: self.object(1, recursive=True) for name in self.names}
        return schema if isinstance(schema, dict) else {"type": "object"}

    def schema(self, depth):
        rng = self.rng
        kinds = ["string", "string", "integer", "number", "boolean", "null", "enum", "const", "union", "untyped"]
        if depth < 3:
            kinds += ["object"] * 5 + ["array"] * 4 + ["anyOf", "oneOf", "allOf"]
        if self.names:
            kinds += ["ref"] * 3
        kind = rng.choice(kinds)
        schema = getattr(self, kind)(depth)
        if isinstance(schema, dict) and rng.random() < 0.1:
            schema.update(title="t", description="d", default=None)
        return schema

    def object(self, depth, recursive=False):
        rng = self.rng
        keys = rng.sample(self.KEYS, rng.randint(0, 4))
        schema = {"type": "object"}
        if keys or rng.random() < 0.5:
            schema["properties"] = {key: self.schema(depth + 1) for key in keys}
        schema["required"] = [key for key in keys if rng.random() < 0.5]
        if recursive:  # such that an end can be reached
            schema["required"] = []
        elif rng.random() < 0.1:
            schema["required"].append("other")
            schema["additionalProperties"] = True
        if rng.random() < 0.3 and "additionalProperties" not in schema:
            schema["additionalProperties"] = rng.choice([True, False, self.schema(depth + 1)])
        return schema

    def array(self, depth):
        rng = self.rng
        schema = {"type": "array"}
        if rng.random() < 0.8:
            schema["items"] = self.schema(depth + 1)
        if rng.random() < 0.3:
            schema["prefixItems"] = [self.schema(depth + 1) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.4:
            schema["minItems"] = rng.randint(0, 4)
        if rng.random() < 0.4:
            schema["maxItems"] = schema.get("minItems", 0) + rng.randint(0, 40)
        if schema.get("items") is False and schema.get("minItems", 0) > 0:
            del schema["items"]
        return schema

    def string(self, depth):
        rng = self.rng
        schema = {"type": "string"}
        choice = rng.random()
        if choice < 0.3:
            schema["minLength"] = rng.randint(0, 30)
        if choice < 0.4:
            schema["maxLength"] = schema.get("minLength", 0) + rng.randint(0, 40)
        elif choice < 0.6:
            schema["pattern"] = rng.choice(self.PATTERNS)
        elif choice < 0.7:
            schema["format"] = rng.choice(["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email"])
        return schema

    def bounds(self, make):
        rng = self.rng
        schema = {}
        low = make()
        if rng.random() < 0.5:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.5:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([2, 3, 10, 12345])
        return schema

    def integer(self, depth):
        rng = self.rng
        return {"type": "integer", **self.bounds(lambda: rng.choice([0, 1, -1, 7, -10, 99, 100, -12345, rng.randint(-10**6, 10**6)]))}

    def number(self, depth):
        rng = self.rng
        return {"type": "number", **self.bounds(lambda: rng.choice([0, 0.5, -0.25, 1e-3, 3.14159, -99.99, rng.uniform(-100, 100)]))}

    def boolean(self, depth):
        return {"type": "boolean"}

    def null(self, depth):
        return {"type": "null"}

    def enum(self, depth):
        return {"enum": self.rng.sample(self.VALUES, self.rng.randint(1, 5))}

    def const(self, depth):
        return {"const": self.rng.choice(self.VALUES)}

    def union(self, depth):
        return {"type": self.rng.sample(["string", "null", "integer", "boolean", "array", "object"], self.rng.randint(1, 3))}

    def untyped(self, depth):
        return self.rng.choice([{}, True, {"minLength": 2}, {"properties": {"a": {"type": "integer"}}}, {"description": "any"}])

    def anyOf(self, depth):
        return {"anyOf": [self.schema(depth + 1) for _ in range(self.rng.randint(1, 3))]}

    def oneOf(self, depth):  # of types that exclude each other
        makers = self.rng.sample([self.object, self.array, self.string, self.integer, self.null], 2)
        return {"oneOf": [make(depth + 1) for make in makers]}

    def allOf(self, depth):
        return {"allOf": [self.schema(depth + 1)]}

    def ref(self, depth):
        return {"$ref": "#/$defs/" + self.rng.choice(self.names)}


class Regexes:
    """Random regular expressions over few characters, so that random texts match some."""

    def __init__(self, rng):
        self.rng = rng

    def make(self, depth=0):
        rng = self.rng
        choice = rng.random()
        if depth > 3 or choice < 0.3:
            return rng.choice(["a", "b", "c", ".", "[ab]", "[^a]", "\\d", "\\w", "\\s", "[a-c1]", "\\.", "[^\\W\\d]", "\\D", "\\W"])
        if choice < 0.6:
            return "".join(self.make(depth + 1) for _ in range(rng.randint(1, 3)))
        if choice < 0.75:
            return "(" + "|".join(self.make(depth + 1) for _ in range(rng.randint(1, 3))) + ")"
        quantifier = rng.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}", "*?", "{3,5}"])
        return "(?:" + self.make(depth + 1) + ")" + quantifier


class StructuredTest(unittest.TestCase):
    def check_answer(self, answer, request):
        self.assertEqual(answer["wrong_masks"], 0, request)

    def test_random_schemas_give_valid_answers(self):
        num_texts = refused = unfinished = 0
        with Matcher() as matcher:
            for i in range(COUNT):
                rng = random.Random(f"{SEED}/{i}")
                schema = Schemas(rng).make()
                answer = matcher(kind="json_schema", grammar=schema, seed=i, answers=4)
                if "error" in answer:
                    self.assertRegex(answer["error"], "allows no answer|leads to itself", schema)
                    refused += 1
                    continue
                self.check_answer(answer, schema)
                unfinished += answer["unfinished"]
                validator = jsonschema.Draft202012Validator(schema, format_checker=format_checker())
                for text in answer["texts"]:
                    num_texts += 1
                    value = json.loads(text)
                    errors = list(validator.iter_errors(value))
                    self.assertFalse(errors, f"schema {i}: {json.dumps(schema)}\nanswer {text}\n{errors[:1]}")
        print(f"{COUNT} schemas: {num_texts} answers, {unfinished} unfinished, {refused} schemas refused")
        self.assertLess(refused, COUNT / 10)
        self.assertGreater(num_texts, 9 * unfinished)
        self.assertGreater(num_texts, 3 * COUNT)

    def test_json_object_gives_objects(self):
        with Matcher() as matcher:
            answer = matcher(kind="json_object", seed=SEED, answers=100)
        self.check_answer(answer, "json_object")
        self.assertGreater(len(answer["texts"]), 60)
        for text in answer["texts"]:
            self.assertIsInstance(json.loads(text), dict)

    def test_values_of_a_schema_are_accepted(self):
        schema = {"type": "object", "properties": {"a": {"type": "number", "minimum": -0.5, "exclusiveMaximum": 100},
                                                   "b": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2}},
                  "required": ["a"], "additionalProperties": {"type": "null"}}
        valid = [{"a": 0}, {"a": -0.5}, {"a": 99.999}, {"a": 7, "b": []}, {"a": 7, "b": ["é\"", "日本語"]}, {"a": 1, "x": None}]
        invalid = [{}, {"a": 100}, {"a": -0.51}, {"a": "1"}, {"a": 7, "b": ["abcd"]}, {"a": 7, "b": ["", "", ""]}, {"a": 1, "x": 1}, []]
        texts = [json.dumps(value, ensure_ascii=False) for value in valid + invalid]
        texts += [json.dumps(value, separators=(",", ":")) for value in valid + invalid]
        with Matcher() as matcher:
            answer = matcher(kind="json_schema", grammar=schema, accepts=texts)
        for text, accepted in zip(texts, answer["accepts"]):
            value = json.loads(text)
            self.assertEqual(accepted, jsonschema.Draft202012Validator(schema).is_valid(value), text)

    def test_numbers_between_bounds_are_accepted_exactly(self):
        rng = random.Random(SEED)
        with Matcher() as matcher:
            for _ in range(100):
                kind = rng.choice(["integer", "number"])
                maker = Schemas(rng)
                schema = getattr(maker, kind)(0)
                points = [v for k, v in schema.items() if k != "type"] + [0]
                values = {rng.choice(points) + rng.choice([0, 1, -1, 0.5, -0.001, 10, -100, rng.randint(-50, 50)]) for _ in range(40)}
                texts = [json.dumps(value) for value in values]
                texts = [t for t in texts if "e" not in t and len(t) < 16 and (kind == "number" or "." not in t)]
                answer = matcher(kind="json_schema", grammar=schema, accepts=texts)
                if "error" in answer:
                    continue
                for text, accepted in zip(texts, answer["accepts"]):
                    valid = jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
                    self.assertEqual(accepted, valid, f"{schema} {text}")

    def test_regular_expressions_match_as_in_python(self):
        rng = random.Random(SEED)
        matched = skipped = 0
        with Matcher() as matcher:
            for i in range(COUNT):
                pattern = Regexes(rng).make()
                texts = ["".join(rng.choice("aabbc1. _") for _ in range(rng.randint(0, 7))) for _ in range(30)]
                answer = matcher(kind="regex", grammar=pattern, seed=i, answers=3, accepts=texts)
                if "error" in answer:
                    self.assertRegex(answer["error"], "too ambiguous", pattern)
                    skipped += 1
                    continue
                self.check_answer(answer, pattern)
                for text in answer["texts"]:
                    # Python's time for repetitions inside each other grows exponentially with the text.
                    if pattern.count("(?:") < 2 or len(text) <= 12:
                        self.assertTrue(re.fullmatch(pattern, text), f"{pattern!r} {text!r}")
                for text, accepted in zip(texts, answer["accepts"]):
                    self.assertEqual(accepted, re.fullmatch(pattern, text) is not None, f"{pattern!r} {text!r}")
                    matched += accepted
        print(f"{COUNT} regular expressions: {matched} random texts match, {skipped} skipped")
        self.assertGreater(matched, COUNT / 2)
        self.assertLess(skipped, COUNT / 20)

    def test_a_choice_is_one_of_its_texts(self):
        texts = ["yes", "no", "yes, but", "日本", "a\"b", "\n"]
        with Matcher() as matcher:
            answer = matcher(kind="choice", grammar=texts, seed=SEED, answers=200, accepts=texts + ["ye", "yes,", "x", ""])
        self.check_answer(answer, texts)
        self.assertEqual(set(answer["texts"]), set(texts))
        self.assertEqual(answer["accepts"], [True] * len(texts) + [False] * 4)


if __name__ == "__main__":
    unittest.main()
