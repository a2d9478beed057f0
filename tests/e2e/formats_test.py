"""The quality loss of quantised weights and a quantised KV cache on a trained model: the log
probabilities of held-out texts, and that the flags select the formats."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402

TEXTS = 16


def heldout():
    with open(os.path.join(group.SOURCE, "tests", "data", "sample", "golden.json"), encoding="utf-8") as f:
        return json.load(f)["heldout"][:TEXTS]


def nll(*flags, texts=None):
    """The sum of -ln p over all texts."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for text in texts or heldout():
            file.write(json.dumps({"text": text["text"]}) + "\n")
        file.flush()
        done = subprocess.run(
            [*group.front(), group.BINARY, "score", "--model", group.MODEL, "--texts", file.name, *map(str, flags)],
            capture_output=True, text=True, timeout=group.LIMIT_S, check=True, env=group.ENVIRONMENT)
    return sum(json.loads(line)["nll"] for line in done.stdout.splitlines())


class FormatsTest(unittest.TestCase):
    def test_quantised_weights_lose_little_with_either_activations(self):
        expected = sum(text["nll"] for text in heldout())
        for dtype, bound in (("int8", 2e-3), ("int4", 1.5e-2)):
            for activations in ("f32", "int8"):
                loss = nll("--kv-cache-dtype", "f32", "--weight-dtype", dtype, "--activation-dtype", activations)
                self.assertAlmostEqual(loss, expected, delta=bound * expected, msg=(dtype, activations))
        self.assertEqual(nll("--weight-dtype", "int4"), nll("--weight-dtype", "int4", "--weight-group-size", 128))
        self.assertNotEqual(nll("--weight-dtype", "int4"), nll("--weight-dtype", "int4", "--weight-group-size", 32))

    def test_activations_in_bf16_lose_next_to_nothing(self):
        expected = sum(text["nll"] for text in heldout())
        loss = nll("--kv-cache-dtype", "f32", "--dtype", "bfloat16", "--activation-dtype", "bf16")
        self.assertAlmostEqual(loss, expected, delta=2e-4 * expected)
        self.assertNotEqual(loss, nll("--kv-cache-dtype", "f32", "--dtype", "bfloat16"))

    def test_attention_in_bf16_loses_little_with_the_same_bits_on_every_cpu_and_two_ranks(self):
        flags = ("--kv-cache-dtype", "bf16", "--attention-dtype", "bf16")
        texts = heldout()[:3]
        expected = sum(text["nll"] for text in texts)
        alone = nll(*flags, texts=texts)
        self.assertAlmostEqual(alone, expected, delta=1e-3 * expected)
        self.assertNotEqual(alone, nll("--kv-cache-dtype", "bf16", texts=texts))
        self.assertEqual(nll(*flags, "--cpu-isa", "plain", texts=texts), alone)
        with unittest.mock.patch.object(group, "RANKS", 2):
            self.assertEqual(nll(*flags, "--cpu-isa", "avx2", texts=texts), alone)

    def test_bf16_in_emulated_tiles_loses_little_with_the_same_bits_on_one_rank_and_two(self):
        flags = ("--kv-cache-dtype", "bf16", "--activation-dtype", "bf16-amx", "--cpu-isa", "plain_amx")
        texts = heldout()[:2]
        expected = sum(text["nll"] for text in texts)
        alone = nll(*flags, texts=texts)
        self.assertAlmostEqual(alone, expected, delta=1e-3 * expected)
        self.assertNotEqual(alone, nll("--kv-cache-dtype", "bf16", "--activation-dtype", "bf16", texts=texts))
        with unittest.mock.patch.object(group, "RANKS", 2):
            self.assertEqual(nll(*flags, texts=texts), alone)

    def test_bf16_in_tiles_is_refused_on_a_cpu_without_them(self):
        with open("/proc/cpuinfo", encoding="utf-8") as cpu:
            if "amx_bf16" in cpu.read():
                self.skipTest("this CPU has amx_bf16")
        for ranks in (1, 2):
            with unittest.mock.patch.object(group, "RANKS", ranks):
                done = subprocess.run(
                    [*group.front(), group.BINARY, "score", "--model", group.MODEL, "--texts", os.devnull,
                     "--activation-dtype", "bf16-amx"], capture_output=True, text=True, timeout=group.LIMIT_S,
                    env=group.ENVIRONMENT)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"--activation-dtype bf16-amx: this CPU \(.+\) has no (AMX|amx_bf16)")
            if ranks > 1:
                self.assertRegex(done.stderr, r"rank [01]")
        planned = subprocess.run([group.BINARY, "plan", "--model", group.MODEL, "--activation-dtype", "bf16-amx"],
                                 capture_output=True, text=True, timeout=group.LIMIT_S, check=True)
        self.assertIn("serve would not start on this machine: --activation-dtype bf16-amx: ", planned.stderr)

    def test_f32_keys_and_values_give_the_golden_probabilities(self):
        expected = sum(text["nll"] for text in heldout())
        self.assertAlmostEqual(nll("--kv-cache-dtype", "f32"), expected, delta=1e-4 * expected)

    def test_int8_loses_next_to_nothing_and_fp8_and_int4_little(self):
        expected = sum(text["nll"] for text in heldout())
        self.assertAlmostEqual(nll("--kv-cache-dtype", "int8"), expected, delta=1e-3 * expected)
        self.assertAlmostEqual(nll("--kv-cache-dtype", "fp8"), expected, delta=5e-3 * expected)
        self.assertAlmostEqual(nll("--kv-cache-dtype", "int4"), expected, delta=2e-2 * expected)

    def test_a_text_longer_than_the_limit_is_refused_and_not_cut(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as texts:
            for count in (32, 33):
                texts.write(json.dumps({"prompt_token_ids": [5] * count}) + "\n")
            texts.flush()
            done = subprocess.run(
                [*group.front(), group.BINARY, "score", "--model", group.MODEL, "--texts", texts.name,
                 "--max-model-len", "32"], capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)
        fits, refused = map(json.loads, done.stdout.splitlines())
        self.assertEqual((done.returncode, fits["tokens"]), (1, 32), done.stderr)
        self.assertRegex(refused["error"]["message"],
                         "^line 2: .*33 tokens; .*max_model_len 32 leaves 32 for a prompt; shorten it, or start with")

    def test_the_quant_policy_is_another_name(self):
        for policy, name in (("8", "int8"), ("4", "int4"), ("0", "auto")):
            self.assertEqual(nll("--quant-policy", policy), nll("--kv-cache-dtype", name))


if __name__ == "__main__":
    unittest.main()
