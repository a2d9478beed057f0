"""scripts/peers/compare.py on stand-ins for the engines: what is run, what is read, what the table says."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPARE = os.path.join(ROOT, "scripts/peers/compare.py")
sys.path.insert(0, os.path.dirname(COMPARE))
import timed_steps  # noqa: E402

BULKHEAD = """#!/usr/bin/env python3
import json, sys
args = sys.argv[1:]
if args == ["--version"]:
    print("bulkhead 1")
    sys.exit()
value = lambda flag: args[args.index(flag) + 1]
cases = [{"batch_size": int(b), "input_len": int(n), "prefill_tokens_per_s": 10.0 * int(n), "decode_tokens_per_s": 3.0 * int(b)}
         for b in value("--batch-size").split(",") for n in value("--input-len").split(",")]
if value("--weight-dtype") not in ("auto", "int8", "int4") or "--threads" not in args:
    sys.exit(2)
print(json.dumps({"cases": cases}))
"""
LLAMA = """#!/usr/bin/env python3
import sys
sys.stdout = sys.stderr  # as ik_llama.cpp's
args = sys.argv[1:]
value = lambda flag: args[args.index(flag) + 1]
if int(value("-c")) < max(map(int, value("-npl").split(","))) * (max(map(int, value("-npp").split(","))) + int(value("-ntg"))):
    sys.exit("too small a cache")
print("main: n_kv_max = 1")
print("|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |")
print("|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|")
for n in value("-npp").split(","):
    for b in value("-npl").split(","):
        print(f"|{n:>6} | {value('-ntg'):>6} | {b:>4} |     99 |    0.100 | {5.0 * int(n):8.2f} |    0.100 | {1.5 * int(b):8.2f} |    0.2 |  1 |")
"""
PYTHON = """#!/usr/bin/env python3
import json, os, sys
assert os.path.basename(sys.argv[1]) == "vllm_engine.py", sys.argv
work = json.loads(sys.argv[2])
print("a line of a log")
figures = {f"decode {b}": 2.0 * b for b in work["batch_size"]}
figures.update({f"prefill {n}": 20.0 * n for n in work["input_len"]})
print(json.dumps({**figures, "version": "0.99"}))
"""


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.bulkhead = self.program("bulkhead", BULKHEAD)
        self.llama = os.path.dirname(self.program("llama-batched-bench", LLAMA))
        self.python = self.program("python", PYTHON)
        self.weights = self.program("weights", "")

    def program(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("#!/usr/bin/env python3", f"#!{sys.executable}"))
        os.chmod(path, 0o755)
        return path

    def compare(self, *args):
        return subprocess.run([sys.executable, COMPARE, "--model", self.folder.name, "--bulkhead", self.bulkhead, "--threads", "2",
                               "--batch-size", "1,8", "--input-len", "16,512", *args], capture_output=True, text=True, check=False)

    def with_peers(self, *args):
        return self.compare("--peer", f"vllm={self.python}", "--peer", f"ik_llama={self.llama}", "--weights",
                            f"vllm:bf16={self.weights}", "--weights", f"ik_llama:bf16={self.weights}", *args)

    def test_the_ratio_is_that_to_the_best_peer_of_each_case(self):
        out = os.path.join(self.folder.name, "out.json")
        done = self.with_peers("--rounds", "2", "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| bf16, tokens/s | bulkhead | vllm | ik_llama | ours / best |", done.stdout)
        self.assertIn("| prefill 512 | 5,120 | 10,240 | 2,560 | 0.50 |", done.stdout)
        self.assertIn("| decode 8 | 24.0 | 16.0 | 12.0 | 1.50 |", done.stdout)
        self.assertIn("vllm: 0.99", done.stdout)
        with open(out, encoding="utf-8") as f:
            figures = json.load(f)["figures"]
        self.assertEqual({(f["format"], f["engine"]): f["cases"]["decode 1"] for f in figures},
                         {("bf16", "bulkhead"): [3, 3], ("bf16", "vllm"): [2, 2], ("bf16", "ik_llama"): [1.5, 1.5]})

    def test_engines_take_turns_at_being_first(self):
        done = self.with_peers("--rounds", "2")
        turns = [line.split(", ")[-1] for line in done.stderr.splitlines() if line.startswith("round")]
        self.assertEqual(turns, ["bulkhead", "vllm", "ik_llama", "vllm", "ik_llama", "bulkhead"])

    def test_an_engine_that_fails_is_named_and_the_others_are_compared(self):
        self.python = self.program("python", "#!/usr/bin/env python3\nraise SystemExit('no such instruction')\n")
        done = self.with_peers("--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such instruction", done.stderr)
        self.assertIn("| bf16, tokens/s | bulkhead | ik_llama | ours / best |", done.stdout)
        self.assertIn("| decode 8 | 24.0 | 12.0 | 2.00 |", done.stdout)

    def test_an_interrupted_run_shows_what_it_has(self):
        self.python = self.program("python", "#!/usr/bin/env python3\nimport os, signal\nos.kill(os.getppid(), signal.SIGTERM)\n"
                                   "signal.pause()\n")
        out = os.path.join(self.folder.name, "out.json")
        done = self.with_peers("--out", out)
        self.assertEqual(done.returncode, 1)
        self.assertIn("interrupted", done.stderr)
        self.assertIn("| decode 8 | 24.0 | - |", done.stdout)
        with open(out, encoding="utf-8") as f:
            self.assertEqual([f["engine"] for f in json.load(f)["figures"]], ["bulkhead"])

    def test_a_llama_that_prints_no_table_has_failed(self):
        self.llama = os.path.dirname(self.program("llama-batched-bench", "#!/usr/bin/env python3\nprint('nothing')\n"))
        done = self.with_peers("--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no row of its table", done.stderr)

    def test_a_peer_is_left_out_of_formats_that_it_has_no_weights_of(self):
        done = self.with_peers("--formats", "int8", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| int8, tokens/s | bulkhead | ours / best |", done.stdout)
        self.assertIn("| decode 8 | 24.0 | - |", done.stdout)

    def test_wrong_flags_are_named(self):
        for args, text in ((["--peer", "sglang=/"], "sglang=/"), (["--peer", "vllm=/no/such"], "/no/such"),
                           (["--formats", "fp3"], "fp3"), (["--weights", "vllm:bf16=/"], "vllm:bf16=/"),
                           (["--rounds", "0"], "at least 1")):
            with self.subTest(args):
                done = self.compare(*args)
                self.assertEqual(done.returncode, 2)
                self.assertIn(text, done.stderr)


class TimedSteps(unittest.TestCase):
    """An engine that begins with two prompts a step: a step takes 1 s for each prompt it begins, and 0.5 s."""

    def setUp(self):
        self.now, self.waiting, self.left = 0.0, [], []

    def submit(self, prompts, tokens):
        self.waiting = [tokens] * len(prompts)

    def step(self):
        new, self.waiting = self.waiting[:2], self.waiting[2:]
        self.now += 0.5 + len(new)
        self.left = [n - 1 for n in self.left + new if n > 1]
        return bool(self.left or self.waiting)

    def test_decode_is_counted_while_all_generate_and_prefill_until_the_first_token(self):
        work = {"batch_size": [1, 4, 8], "context": 16, "output_len": 4, "input_len": [128]}
        with mock.patch("time.perf_counter", lambda: self.now):
            figures = timed_steps.figures_of(work, 100, self.submit, self.step)
        # Of 8 prompts the first two end with the step in which the last two begin.
        self.assertEqual(figures, {"decode 1": 2.0, "decode 4": 8.0, "prefill 128": 128 / 1.5})


if __name__ == "__main__":
    unittest.main()
