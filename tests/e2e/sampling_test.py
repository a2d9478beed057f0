"""Penalties, biases, bans, prompt log probabilities: the same bits at any number of ranks, chunking and resumption."""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import pb  # noqa: E402
from sample_model import with_layers, with_mtp_layer  # noqa: E402

CHANGES = [{}, {"repetition_penalty": 1.3}, {"presence_penalty": 1.5, "frequency_penalty": 0.5},
           {"logit_bias": {"10": 5, "11": -100}, "frequency_penalty": -0.5},
           {"bad_words": ["a", "to the"]}, {"allowed_token_ids": list(range(20, 400))}]

LAYERS = 6  # of the sample model
DRAFTS = json.dumps({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3, "prompt_lookup_min": 1})


def lines():
    out = []
    for i, one in enumerate(group.golden()[:3]):
        for changes in CHANGES:
            for temperature in (0, 0.9):
                out.append({"prompt": one["prompt"], "max_tokens": 40, "ignore_eos": True, "temperature": temperature,
                            "seed": 7 + i, "logprobs": 2, "prompt_logprobs": 3, **changes})
    return out


def copying_lines(count):
    """Prompts that repeat themselves, with any of the settings."""
    draw = random.Random(20261124)
    texts = ["Tom had a blue car. Tom liked his blue car very much. ", "One two three. One two three. Four. ",
             *(one["prompt"] for one in group.golden()[:4])]
    settings = {"top_k": [1, 20], "top_p": [0.5, 0.95], "min_p": [0.1], "repetition_penalty": [0.8, 1.2],
                "presence_penalty": [-1, 1], "frequency_penalty": [-0.5, 0.5], "logit_bias": [{"10": 5, "11": -100}],
                "bad_words": [["the"], [" a", "to the"]], "allowed_token_ids": [[20, 30], list(range(20, 400))],
                "stop": [["."], [" the", "blue car"]], "stop_token_ids": [[20, 21, 22]], "min_tokens": [1, 9],
                "ignore_eos": [True], "logprobs": [0, 3], "prompt_logprobs": [1]}
    forms = [{"regex": "(Tom|One)( [a-z]{1,9}){2,40}"}, {"choice": ["One two three. One two three. Four.", "One two"]},
             {"json_schema": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "names": {
                 "type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 4, "maxItems": 6}},
                 "required": ["name", "names"], "additionalProperties": False}}]
    out = []
    for i in range(count):
        line = {"prompt": draw.choice(texts) * draw.randint(1, 3), "max_tokens": draw.choice([10, 30, 60]), "seed": i,
                "temperature": draw.choice([0, 0, 0.5, 1.0])}
        for name, values in settings.items():
            if draw.random() < 0.2:
                line[name] = draw.choice(values)
        if draw.random() < 0.25:
            for name in ("bad_words", "allowed_token_ids", "min_tokens", "ignore_eos"):  # excluded, or may leave nothing
                line.pop(name, None)
            line.update(draw.choice(forms))
        out.append(line)
    return out


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def answers(self, ranks, *flags, of=None, model=group.MODEL):
        prompts = os.path.join(self.folder.name, "prompts.jsonl")
        with open(prompts, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(line) + "\n" for line in of or lines())
        front = [] if ranks == 1 else ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(ranks)]
        out = os.path.join(self.folder.name, "out.jsonl")  # mpirun of Open MPI 5 may mix standard output with the log
        done = subprocess.run([*front, group.BINARY, "run", "--model", model, "--prompts", prompts, "--out", out,
                               "--max-model-len", "512", "--kv-cache-dtype", "f32", *map(str, flags)],
                              capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.log = done.stderr
        with open(out, encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def test_answers_have_the_same_bits_at_any_number_of_ranks_and_in_any_chunks(self):
        want = self.answers(1, "--max-num-seqs", 8)
        for ranks, flags in ((1, ("--max-num-seqs", 3, "--max-num-batched-tokens", 7)),
                             (1, ("--max-num-seqs", 8, "--admission", "optimistic")),
                             (2, ("--max-num-seqs", 8)), (4, ("--max-num-seqs", 5)), (8, ("--max-num-seqs", 8))):
            self.assertEqual(self.answers(ranks, *flags), want, f"{ranks} ranks, {flags}")

    def test_drafts_change_no_bit(self):
        requests = copying_lines(120)
        want = self.answers(1, "--max-num-seqs", 8, of=requests)
        for ranks, flags in ((1, ("--max-num-seqs", 1)), (1, ("--max-num-seqs", 8, "--max-num-batched-tokens", 20)),
                             (1, ("--max-num-seqs", 8, "--admission", "optimistic", "--cache-max-entry-count", 40)),
                             (2, ("--max-num-seqs", 4))):
            self.assertEqual(self.answers(ranks, *flags, "--speculative-config", DRAFTS, of=requests), want,
                             f"{ranks} ranks, {flags}")

    def drafted(self):
        """Accepted and drafted tokens of the last run."""
        found = re.search(r"([\d,]+) of ([\d,]+) drafted tokens were accepted", self.log)
        return [int(number.replace(",", "")) for number in found.groups()]

    def test_a_draft_model_changes_no_bit(self):
        requests = copying_lines(120)
        want = self.answers(1, "--max-num-seqs", 8, of=requests)
        shallow = with_layers(os.path.join(self.folder.name, "shallow"), range(2))
        for ranks, draft, flags in ((1, shallow, ("--max-num-seqs", 1)), (2, shallow, ("--max-num-seqs", 4)),
                                    (1, shallow, ("--max-num-seqs", 8, "--max-num-batched-tokens", 20)),
                                    (1, shallow, ("--max-num-seqs", 8, "--admission", "optimistic",
                                                  "--cache-max-entry-count", 40)),
                                    (1, group.MODEL, ("--max-num-seqs", 8)), (2, group.MODEL, ("--max-num-seqs", 2))):
            config = json.dumps({"model": draft, "num_speculative_tokens": 5})
            self.assertEqual(self.answers(ranks, *flags, "--speculative-config", config, of=requests), want,
                             f"{ranks} ranks, {draft}, {flags}")
            accepted, drafted = self.drafted()
            self.assertGreater(drafted, 10)  # as many as the steps' times say
            if draft == group.MODEL:
                self.assertEqual(accepted, drafted)

    def test_a_draft_model_that_computes_the_same_saves_most_steps(self):
        # The model is the sample with 18 layers that add nothing; the sample, a quarter as large, is always right.
        deep = with_layers(os.path.join(self.folder.name, "deep"), [*range(LAYERS), *[None] * 18])
        requests = [dict(line, max_tokens=150, ignore_eos=True) for line in lines()[:12:2]]
        want = self.answers(1, "--max-num-seqs", 1, of=requests, model=deep)
        for ranks in (1, 2):
            config = json.dumps({"method": "draft_model", "model": group.MODEL, "num_speculative_tokens": 5})
            self.assertEqual(self.answers(ranks, "--max-num-seqs", 1, "--speculative-config", config, of=requests,
                                          model=deep), want)
            accepted, drafted = self.drafted()
            self.assertEqual(accepted, drafted)
            self.assertGreater(accepted, sum(len(answer["token_ids"]) for answer in want) / 4)

    def test_an_mtp_layer_changes_no_bit(self):
        requests = copying_lines(120)
        config = json.dumps({"method": "mtp", "num_speculative_tokens": 3})
        for name, layers in (("wrong", range(LAYERS)), ("right", [None] * LAYERS)):
            model = with_mtp_layer(os.path.join(self.folder.name, name), layers)
            want = self.answers(1, "--max-num-seqs", 8, of=requests, model=model)
            for ranks, flags in ((1, ("--max-num-seqs", 1)), (2, ("--max-num-seqs", 4)),
                                 (1, ("--max-num-seqs", 8, "--max-num-batched-tokens", 20)),
                                 (1, ("--max-num-seqs", 8, "--admission", "optimistic", "--cache-max-entry-count", 40))):
                self.assertEqual(self.answers(ranks, *flags, "--speculative-config", config, of=requests, model=model), want,
                                 f"{ranks} ranks, {name}, {flags}")
                accepted, drafted = self.drafted()
                self.assertGreater(drafted, 10)
                if name == "right":  # but for the rounding of one more norm
                    self.assertGreater(accepted, 0.99 * drafted)

    def test_a_draft_model_that_cannot_be_is_refused_by_name(self):
        other = with_layers(os.path.join(self.folder.name, "other"), range(1))
        path = os.path.join(other, "tokenizer.json")
        with open(path, encoding="utf-8") as f:
            tokenizer = json.load(f)
        vocabulary = tokenizer["model"]["vocab"]
        first, second = [token for token, i in vocabulary.items() if i in (300, 301)]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        os.unlink(path)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(tokenizer, f)
        prompts = os.path.join(self.folder.name, "prompts.jsonl")
        with open(prompts, "w", encoding="utf-8") as f:
            f.write('{"prompt": "x"}\n')
        wide = with_layers(os.path.join(self.folder.name, "wide"), range(1), dtype="float32")
        run, plan = ("run", "--prompts", prompts), ("plan", "--gpu", "h100")
        small = os.path.join(group.SOURCE, "tests", "data", "models", "llama3_gqa_bf16")
        for command, draft, code, says in (
                (run, other, 2, f"the draft model's tokenizer {path} has another token for id 300 than the model's"),
                (run, small, 2, f"the draft model {small}: its vocab_size is 384, and the model's 2048"),
                (run, "/nowhere", 3, "the draft model /nowhere: no such model folder"),
                (plan, wide, 2, f"--speculative-config: the draft model {wide}: ")):
            done = subprocess.run([group.BINARY, *command, "--model", group.MODEL, "--speculative-config",
                                   json.dumps({"model": draft, "num_speculative_tokens": 2})],
                                  capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stderr)

    def test_answers_are_as_asked(self):
        plain_answers, changed = {}, set()
        for line, answer in zip(lines(), self.answers(1, "--max-num-seqs", 8)):
            ids = answer["token_ids"]
            plain = plain_answers.setdefault((line["prompt"], line["temperature"]), ids)  # of CHANGES[0]
            prompt = answer["prompt_logprobs"]
            self.assertEqual([token["id"] for token in prompt], answer["prompt_token_ids"])
            self.assertNotIn("rank", prompt[0])
            self.assertEqual({len(token["top"]) for token in prompt[1:]}, {3})
            for token in prompt[1:] + answer["logprobs"]:
                best = [top["id"] for top in token["top"]]
                if token["rank"] <= len(best):
                    self.assertEqual(best[token["rank"] - 1], token["id"])
                else:
                    self.assertNotIn(token["id"], best)
            if "logit_bias" in line:
                self.assertNotIn(11, ids)
            if "bad_words" in line:
                self.assertNotRegex(answer["text"], " a | to the")
            if "allowed_token_ids" in line:
                self.assertLessEqual(set(ids), set(line["allowed_token_ids"]))
            if ids != plain:
                changed.update(set(line) & {name for changes in CHANGES for name in changes})
        # Of a model this sure of itself, some answers only.
        self.assertEqual(changed, {name for changes in CHANGES for name in changes})


class ServedTest(unittest.TestCase):
    def setUp(self):
        started = group.Group()
        self.addCleanup(started.__exit__)
        self.group = started

    def generate(self, request):
        return self.group.generation.Generate(request, timeout=group.LIMIT_S)

    def test_resumed_answers_behind_a_cached_prefix_go_on_with_the_same_bits(self):
        one = group.golden()[0]
        request = pb.GenerateRequest(
            stopping=pb.Stopping(max_tokens=48, ignore_eos=True), output=pb.Output(logprobs=3),
            sampling=pb.Sampling(temperature=0.8, seed=5, repetition_penalty=1.2, presence_penalty=0.7,
                                 frequency_penalty=0.3, logit_bias={30: 2.5}, bad_words=["the"]))
        request.token_ids.ids.extend(one["prompt_ids"] + one["ids"][:40])
        whole = self.generate(request)
        again = self.generate(request)
        self.assertGreater(again.finished.usage.cached_prompt_tokens, 0)
        self.assertEqual(list(again.tokens), list(whole.tokens))
        for emitted in (1, 20, 47):
            request.resume.Clear()
            request.resume.emitted_token_ids.extend(token.id for token in whole.tokens[:emitted])
            self.assertEqual(list(self.generate(request).tokens), list(whole.tokens[emitted:]), emitted)

    def test_a_time_limit_ends_an_answer_that_has_begun(self):
        request = pb.GenerateRequest(text="Once upon a time", time_limit_ms=150, sampling=pb.Sampling(temperature=0),
                                     stopping=pb.Stopping(max_tokens=2000, ignore_eos=True))
        got = self.generate(request)
        self.assertEqual(got.finished.reason, pb.FINISH_REASON_TIME_LIMIT)
        self.assertEqual(len(got.tokens), got.finished.usage.completion_tokens)
        self.assertLess(len(got.tokens), 2000)
        self.group.wait_until_idle()

    def test_a_prompt_is_scored_without_generating(self):
        text = group.golden()[0]["prompt"]
        request = pb.GenerateRequest(text=text, output=pb.Output(prompt_logprobs=0), stopping=pb.Stopping(max_tokens=0))
        got = self.generate(request)
        want = self.group.generation.Score(pb.ScoreRequest(text=text), timeout=group.LIMIT_S)
        self.assertEqual([token.id for token in got.prompt_logprobs], list(want.token_ids.ids))
        for token, logprob in zip(got.prompt_logprobs[1:], want.token_logprobs):
            self.assertAlmostEqual(token.logprob, logprob, places=4)
        self.assertEqual(len(got.tokens), 0)
        request.truncate_prompt_tokens = 3
        self.assertEqual([token.id for token in self.generate(request).prompt_logprobs], list(want.token_ids.ids)[-3:])


if __name__ == "__main__":
    unittest.main()
