"""Checkpoints that contradict their config.json: which values are used, computed and logged."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from sample_model import tensors_of_sample, write_model  # noqa: E402

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def bulkhead(*args, ranks=1):
    launcher = [] if ranks == 1 else ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(ranks)]
    return subprocess.run([*launcher, group.BINARY, *map(str, args)], capture_output=True, text=True,
                          timeout=group.LIMIT_S, env=group.ENVIRONMENT)


class TiedEmbeddingsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def model(self, name, tensors, **changes):
        path = os.path.join(self.folder.name, name)
        os.mkdir(path)
        return write_model(path, tensors, **changes)

    def answers(self, model, ranks=1):
        """Tokens, the bits of all prompt logits, and the log."""
        prompts = os.path.join(self.folder.name, "prompts.jsonl")
        logits = os.path.join(self.folder.name, "logits.safetensors")
        with open(prompts, "w", encoding="utf-8") as f:
            for one in group.golden()[:3]:
                f.write(json.dumps({"prompt": one["prompt"], "max_tokens": 8, "temperature": 0}) + "\n")
        done = bulkhead("run", "--model", model, "--prompts", prompts, "--out", "-", "--logits", logits, "--max-model-len",
                        512, "--max-num-seqs", 4, "--kv-cache-dtype", "f32", ranks=ranks)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(logits, "rb") as f:
            bits = f.read()
        return [json.loads(line)["token_ids"] for line in done.stdout.splitlines()], bits, done.stderr

    def weights(self, model):
        done = bulkhead("plan", "--model", model, "--device-memory", "1GiB", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["ranks"][0]["arenas"]["weights"], done.stderr

    def test_an_lm_head_of_other_values_is_not_tied_whatever_the_config_says(self):
        tensors = tensors_of_sample()
        said = self.model("said", tensors, tie_word_embeddings=True)
        plain = self.model("plain", tensors, tie_word_embeddings=False)
        tokens, bits, _ = self.answers(plain)
        for ranks in (1, 2):
            found = self.answers(said, ranks)
            self.assertEqual(found[:2], (tokens, bits), f"{ranks} ranks")
            self.assertIn("they are not tied", found[2])
        planned, warned = self.weights(said)
        self.assertEqual(planned, self.weights(plain)[0])
        self.assertIn("they are not tied", warned)

    def test_an_lm_head_that_is_the_embedding_is_tied(self):
        tensors = tensors_of_sample()
        tensors[HEAD] = (tensors[HEAD][0], tensors[EMBEDDING][1])
        both = self.model("both", tensors, tie_word_embeddings=True)
        apart = self.model("apart", tensors, tie_word_embeddings=False)
        del tensors[HEAD]
        one = self.model("one", tensors, tie_word_embeddings=True)
        expected = self.answers(apart)[:2]
        for model in (both, one):
            tokens, bits, said = self.answers(model)
            self.assertEqual((tokens, bits), expected)
            self.assertNotIn("tied", said)
        self.assertEqual(self.weights(both)[0], self.weights(one)[0])
        self.assertLess(self.weights(both)[0], self.weights(apart)[0])


class WarningsTest(unittest.TestCase):
    def test_plan_says_what_serve_would(self):
        with tempfile.TemporaryDirectory() as folder:
            write_model(folder, tensors_of_sample(), attention_sinks=True, auto_map={"AutoModel": "x.X"})
            done = bulkhead("plan", "--model", folder, "--device-memory", "1GiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("attention_sinks is not a known field", done.stderr)
        self.assertIn("auto_map names custom code", done.stderr)

    def test_a_length_beyond_the_models_is_bad_usage(self):
        done = bulkhead("plan", "--model", group.MODEL, "--max-model-len", 1000000, "--device-memory", "1GiB")
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
