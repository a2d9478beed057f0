"""LoRA adapters of a served group: requests name them as the model, and get what PEFT gives."""
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import grpc, pb  # noqa: E402

DATA = os.path.join(group.SOURCE, "tests", "data")
ADAPTER = os.path.join(DATA, "adapters", "qwen2_bf16")


def golden(folder):
    with open(os.path.join(folder, "golden.json"), encoding="utf-8") as f:
        data = json.load(f)
    return [(prompt, greedy["ids"]) for prompt, greedy in zip(data["prompts"], data["greedy_ignoring_eos"])]


def copy_of_base(folder):
    base = os.path.join(DATA, "models", "qwen2_bf16")
    for name in os.listdir(base):
        if not name.startswith("golden"):
            shutil.copy(os.path.join(base, name), folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(dict(config, max_position_embeddings=2048), f)
    return golden(base)


def command(*words):
    return subprocess.run([group.BINARY, *words], capture_output=True, encoding="utf-8", env=group.ENVIRONMENT,
                          timeout=group.LIMIT_S, check=False)


class LoraTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.of_base = copy_of_base(cls.folder)
        cls.of_adapter = golden(ADAPTER)
        group.MODEL = cls.folder
        cls.flags = ["--served-model-name", "base", "--lora-modules", f"tuned={ADAPTER}"]
        cls.group = group.Group("--http-port", 0, *cls.flags)

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()
        shutil.rmtree(cls.folder)

    def tearDown(self):
        self.group.wait_until_idle()

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(*self.group.http_target.rsplit(":", 1), timeout=group.LIMIT_S)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    def generate(self, model, prompt, generation=None, max_tokens=32):
        request = pb.GenerateRequest(model=model, token_ids=pb.TokenIds(ids=prompt), sampling=pb.Sampling(temperature=0),
                                     stopping=pb.Stopping(max_tokens=max_tokens, ignore_eos=True))
        answer = (generation or self.group.generation).Generate(request, timeout=group.LIMIT_S)
        return [token.id for token in answer.tokens]

    def test_requests_of_a_batch_have_their_own_adapters(self):
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            asked = [(pool.submit(self.generate, model, prompt), ids)
                     for _ in range(4)
                     for model, answers in (("tuned", self.of_adapter), ("base", self.of_base), ("", self.of_base))
                     for prompt, ids in answers]
            for answer, ids in asked:
                self.assertEqual(answer.result(), ids)

    def test_http_names_them_as_models(self):
        prompt, ids = self.of_adapter[2]
        body = {"model": "tuned", "prompt": prompt, "max_tokens": 32, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True}
        status, answer = self.ask("POST", "/v1/completions", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual((answer["model"], answer["choices"][0]["token_ids"]), ("tuned", ids))
        status, answer = self.ask("GET", "/v1/models")
        self.assertEqual([(m["id"], m["parent"], m["root"]) for m in answer["data"]][1:], [("tuned", "base", ADAPTER)])
        status, answer = self.ask("POST", "/v1/completions", dict(body, model="other"))
        self.assertEqual(status, 404, answer)
        self.assertIn("tuned", answer["error"]["message"])

    def test_scores_are_the_adapters(self):
        prompt = self.of_adapter[2][0]
        scores = [self.group.generation.Score(pb.ScoreRequest(model=model, token_ids=pb.TokenIds(ids=prompt)),
                                              timeout=group.LIMIT_S) for model in ("base", "tuned", "base")]
        base, tuned, again = [list(score.token_logprobs) for score in scores]
        self.assertEqual(base, again)
        self.assertNotEqual(base, tuned)

    def test_drafts_change_nothing(self):
        speculative = json.dumps({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 2})
        with group.Group("--speculative-config", speculative, *self.flags) as drafting:
            for model, answers in (("tuned", self.of_adapter), ("base", self.of_base)):
                for prompt, ids in answers:
                    self.assertEqual(self.generate(model, prompt, drafting.generation), ids)

    def test_the_plan_counts_them(self):
        def weights(*flags):
            done = command("plan", "--model", self.folder, "--device-memory", "64MiB", "--max-num-seqs", "8", "--json", *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["ranks"][0]["arenas"]["weights"]

        done = command("plan", "--model", self.folder, "--device-memory", "64MiB", "--max-num-seqs", "8", *self.flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        printed = re.search(r"LoRA adapters: tuned (\S+) KiB, a part of the weights of rank 0\n", done.stdout)
        self.assertAlmostEqual(float(printed.group(1)), (weights(*self.flags) - weights()) / 1024, delta=0.06)
        log = "".join(self.group.lines)
        self.assertIn("LoRA adapters: tuned ", log)

    def test_run_takes_them_from_the_prompts_file(self):
        prompt, ids = self.of_adapter[1]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
            json.dump({"prompt_token_ids": prompt, "model": "tuned", "temperature": 0, "max_tokens": 32, "ignore_eos": True}, prompts)
            prompts.flush()
            done = command("run", "--model", self.folder, "--prompts", prompts.name, "--lora-modules", f"tuned={ADAPTER}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout.splitlines()[0])["token_ids"], ids)

    def test_what_is_wrong_is_refused_at_the_start(self):
        for modules, code, text in [(f"tuned={self.folder}", 3, "adapter 'tuned': "), ("tuned", 2, "--lora-modules"),
                                    (f"a={ADAPTER},a={ADAPTER}", 2, "--lora-modules")]:
            done = command("plan", "--model", self.folder, "--lora-modules", modules)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
