"""gpu_check.sh and gpu_bench.sh, in a folder laid out as a bundle, with stand-ins for the programs
they run: whatever fails, they end in time with a table and valid JSON that report it."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

SCRIPTS = os.path.join(os.environ["BULKHEAD_SOURCE"], "scripts")
GPU_TEST = os.path.join(os.path.dirname(os.environ["BULKHEAD"]), "..", "tests", "gpu", "gpu_test")


def bundled_scripts():
    """The files that bundle.sh copies, so that a script missing there is missing here, too."""
    with open(os.path.join(SCRIPTS, "bundle.sh"), encoding="utf-8") as f:
        line, = (line for line in f if line.startswith("cp scripts/gpu_"))
    names = subprocess.run(["bash", "-c", "echo " + line.split(None, 1)[1].rsplit(None, 1)[0]], capture_output=True, text=True,
                           check=True).stdout
    return [os.path.basename(name) for name in names.split()]


def tests_of(pattern):
    """Those of the real gpu_test that a filter chooses."""
    text = subprocess.run([GPU_TEST, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True, text=True,
                          check=True, timeout=60).stdout
    suite, tests = "", set()
    for line in text.splitlines()[1:]:
        name = line.split("#")[0].strip()
        if line.startswith(" "):
            tests.add(suite + name)
        else:
            suite = name
    return tests


FINE = "exit 0"
A_GPU = 'echo "NVIDIA H100 80GB HBM3, 580.65.06, 81559 MiB"'
# Like the program, writes the requested file.
ANSWERS = 'echo "KV cache: large"; while [ $# -gt 0 ]; do [ "$1" != --out ] || echo "{}" >"$2"; shift; done; echo fine'
KERNELS = 'if [ "$2" = kernels ]; then echo "launch/1x64   -   1.5"; exit; fi\n'
# Refusals have their own exit codes, everything else succeeds. A server that sees another's memory,
# detects it later, and stops when told to.
A_SERVER = """if [ "$1" = serve ]; then
  trap 'exit 0' TERM
  report=/dev/null
  case "$*" in *--report*) report=$(echo "$*" | sed 's/.*--report \\([^ ]*\\).*/\\1/') ;; esac
  echo '{"others_bytes": 1073741824}' >"$report"
  echo READY
  echo "warning: a GPU has 1 MiB free, 2 MiB less than when the ledger was sealed" >&2
  while :; do sleep 0.1; done
fi
"""
# A measurement of the server: its GPU's free memory, and the number of tokens.
A_CLIENT = """if [ "$1 $2" = "bench serve" ]; then
  folder=$(echo "$*" | sed 's/.*--result-dir \\([^ ]*\\).*/\\1/')
  mkdir -p "$folder"
  printf '"devices": [\\n{\\n"free_bytes": 5000,\\n"free_bytes_at_ready": 5000,\\n"free_bytes_least": 5000\\n' >"$folder/result.json"
  echo "Total generated tokens: 80000"
  exit
fi
"""
A_RIGHT_PROGRAM = 'case "$*" in *10TiB*) exit 4 ;; esac\n' + A_SERVER + A_CLIENT + ANSWERS
RUNS_ALL_BUT_UNASKED_SHARERS = 'case "$*" in *--comm*|*"device cpu"*) ;; *) exit 2 ;; esac\nshift 4; exec "$@"'


class Machine:
    """A folder laid out like a bundle, and a PATH that finds its programs first."""

    def __init__(self, folder, **programs):
        self.folder = folder
        self.bin = os.path.join(folder, "bin")
        self.out = os.path.join(folder, "results")
        os.makedirs(self.bin)
        os.makedirs(os.path.join(folder, "data", "models"))
        for name in bundled_scripts():
            shutil.copy(os.path.join(SCRIPTS, name), folder)
        with open(os.path.join(folder, "commit"), "w", encoding="ascii") as f:
            f.write("abcdef0\n")
        stand_ins = {"bulkhead": A_RIGHT_PROGRAM, "gpu_test": FINE, "mpirun": RUNS_ALL_BUT_UNASKED_SHARERS,
                     "nvidia-smi": A_GPU, "compute-sanitizer": FINE, **programs}
        for name, script in stand_ins.items():
            at = self.bin if name in ("nvidia-smi", "compute-sanitizer", "python3") else folder
            self.write(os.path.join(at, name), script)

    @staticmethod
    def write(path, script):
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)

    def start(self, script, **environment):
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "OUT": self.out, "LOOK_S": "1", **environment}
        return subprocess.Popen([os.path.join(self.folder, script)], env=environment, cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def result(self, script):
        with open(os.path.join(self.out, script.replace(".sh", ".json")), encoding="ascii") as f:
            return json.load(f)


class GpuScriptsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "bundle")

    def run_script(self, script, limit_s=450, environment=None, **programs):
        """Exit code, the rows by name as {"state", "text"}, the table."""
        machine = Machine(self.folder, **programs)
        running = machine.start(script, LIMIT_S=str(limit_s), **(environment or {}))
        table, errors = running.communicate(timeout=240)
        self.assertEqual(errors, "")
        rows = {row["name"]: row for row in machine.result(script)["results"]}
        for row in rows.values():
            self.assertIn(f"{row['name']:36s} {row['state']:8s} {row['text']}".rstrip(), table)
        return running.returncode, rows, table

    def states(self, rows):
        return {row["state"] for row in rows.values()}

    def test_on_a_machine_where_all_is_well_every_check_runs(self):
        code, rows, table = self.run_script("gpu_check.sh")
        self.assertEqual(self.states(rows), {"ok"}, table)
        self.assertEqual(code, 0)
        self.assertIn("NVIDIA H100 80GB HBM3", table)

    @unittest.skipUnless(os.path.exists(GPU_TEST), "gpu_test is built where nvcc is")
    def test_the_filters_of_the_steps_choose_every_test_and_none_of_their_patterns_is_in_vain(self):
        with open(os.path.join(SCRIPTS, "gpu_check.sh"), encoding="utf-8") as file:
            filters = re.findall(r"--gtest_filter='([^']+)'", file.read())
        steps = [text for text in filters if not text.startswith("-")]
        for pattern in ":".join(filters).replace("-", "").split(":"):
            self.assertTrue(tests_of(pattern), f"{pattern} is no test's name")
        self.assertEqual(tests_of("*"), set().union(*(tests_of(step) for step in steps)))

    def test_a_bundle_has_machine_code_for_every_gpu_that_nvcc_knows_of_four(self):
        for known, expected in (("75 80 86 87 89 90 100 103 110 120 121", "80;90;100;120"), ("70 80 86 90", "80;90"), ("75 100 1200", "100")):
            with tempfile.TemporaryDirectory() as folder:
                nvcc = os.path.join(folder, "nvcc")
                Machine.write(nvcc, "\n".join(f"echo sm_{code}" for code in known.split()))
                done = subprocess.run([os.path.join(SCRIPTS, "bundle_architectures.sh"), nvcc], text=True, capture_output=True,
                                      check=True, timeout=60)
            self.assertEqual(done.stdout, expected + "\n")

    def test_two_gpus_are_compared_with_and_without_early_launches(self):
        code, rows, table = self.run_script("gpu_check.sh", **{"nvidia-smi": A_GPU + "; " + A_GPU})
        self.assertEqual((code, self.states(rows)), (0, {"ok"}), table)
        self.assertIn("tp 2 on two GPUs, NCCL, the same with kernels one by one, and without one-shot sums", rows)

    def test_without_a_gpu_the_cpus_part_runs_and_the_rest_is_absent(self):
        code, rows, table = self.run_script("gpu_check.sh", **{"nvidia-smi": "echo NVIDIA-SMI has failed; exit 9"})
        self.assertEqual(code, 77, table)
        for name, row in rows.items():
            cpu = name.startswith("CPU") or name == "a plan for an H100"
            self.assertEqual(row["state"], "ok" if cpu else "absent", name)
        self.assertIn("NVIDIA-SMI has failed", rows["memory against the GPU"]["text"])

    def test_a_wrong_program_fails_by_name_and_with_its_last_words(self):
        code, rows, _ = self.run_script("gpu_check.sh", gpu_test='echo " 3 FAILED TESTS"; exit 1', bulkhead=ANSWERS)
        self.assertEqual(code, 1)
        self.assertEqual(rows["models at tp 1 against the CPU"]["state"], "FAILED")
        self.assertIn("3 FAILED TESTS", rows["models at tp 1 against the CPU"]["text"])
        self.assertEqual(rows["a cap beyond the GPU is refused"]["state"], "FAILED")
        self.assertEqual(rows["CPU: one rank"]["state"], "ok")

    def test_a_server_that_does_not_notice_another_process_fails_the_drill(self):
        blind = A_RIGHT_PROGRAM.replace("less than when", "as when")
        unseen = A_RIGHT_PROGRAM.replace("1073741824", "500000000")
        for program, says in ((blind, "did not notice"), (unseen, "did not see"),
                              (A_RIGHT_PROGRAM.replace("echo READY", "echo no room >&2; exit 4"), "before READY: no room"),
                              (A_RIGHT_PROGRAM.replace("exit 0", "exit 70"), "did not end well")):
            with tempfile.TemporaryDirectory() as folder:
                bulkhead = os.path.join(folder, "bulkhead")
                Machine.write(bulkhead, program)
                done = subprocess.run([os.path.join(SCRIPTS, "gpu_drill.sh"), bulkhead, "model", folder], text=True,
                                      capture_output=True, timeout=120, env={**os.environ, "LOOK_S": "2"})
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(says, done.stdout)

    def test_free_memory_that_moves_fails_the_steps(self):
        for program, code, says in ((A_RIGHT_PROGRAM, 0, "5000 bytes free before and after 80000 tokens"),
                                    (A_RIGHT_PROGRAM.replace('least": 5000', 'least": 4096'), 1, "differ: 4096 5000"),
                                    (A_RIGHT_PROGRAM.replace('"devices"', '"none"'), 1, "does not say"),
                                    (A_RIGHT_PROGRAM.replace("exit 0", "exit 70"), 1, "did not end well")):
            with tempfile.TemporaryDirectory() as folder:
                bulkhead = os.path.join(folder, "bulkhead")
                Machine.write(bulkhead, program)
                done = subprocess.run([os.path.join(SCRIPTS, "gpu_steps.sh"), bulkhead, "model", folder], text=True,
                                      capture_output=True, timeout=120, env={**os.environ, "LOOK_S": "0"})
                self.assertEqual(done.returncode, code, done.stdout)
                self.assertIn(says, done.stdout)

    def test_whatever_a_program_says_the_json_is_valid(self):
        code, rows, _ = self.run_script(
            "gpu_check.sh", **{"gpu_test": r'''printf 'a "word" \\ and a\ttab \033[1m\377\n\n'; exit 1''',
                               "nvidia-smi": r'''printf 'a "GPU"\\ \001\n' '''})
        self.assertEqual(code, 1)
        self.assertEqual(rows["words against the emulator"]["text"], 'exit code 1: a "word" \\ and a tab [1m')

    def test_what_hangs_is_cut_off_and_what_no_time_is_left_for_is_skipped(self):
        begin = time.monotonic()
        code, rows, table = self.run_script("gpu_check.sh", limit_s=45, bulkhead="echo busy >&2; exec sleep 1000")
        self.assertLess(time.monotonic() - begin, 200)
        self.assertEqual(code, 1)
        first = rows["a plan for an H100"]
        self.assertEqual(first["state"], "FAILED")
        self.assertRegex(first["text"], r"cut off after \d+ s: busy")
        self.assertIn("skipped", self.states(rows), table)

    def test_an_interrupted_script_still_says_what_it_knows(self):
        machine = Machine(self.folder, gpu_test='echo $$ >"$OUT/pid"; exec sleep 1000')
        running = machine.start("gpu_check.sh")
        while not os.path.exists(os.path.join(machine.out, "pid")):
            self.assertIsNone(running.poll())
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        table, _ = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1)
        rows = {row["name"]: row for row in machine.result("gpu_check.sh")["results"]}
        self.assertEqual(rows["CPU: one rank"]["state"], "ok")
        self.assertEqual(rows["the script"]["text"], "interrupted")
        self.assertIn("interrupted", table)
        with open(os.path.join(machine.out, "pid"), encoding="ascii") as f:
            left_behind = int(f.read())
        end = time.monotonic() + 60
        while os.path.exists(f"/proc/{left_behind}"):
            self.assertLess(time.monotonic(), end, "the step still runs")
            time.sleep(0.1)

    def test_the_benchmark_runs_everything_and_removes_its_weights(self):
        scratch = os.path.join(os.path.dirname(self.folder), "scratch")
        python = f'case "$*" in *random_model.py*) mkdir -p "$2"; ls {scratch};; *) echo fine;; esac'
        code, rows, table = self.run_script("gpu_bench.sh", environment={"SCRATCH": scratch}, python3=python,
                                            bulkhead=KERNELS + ANSWERS)
        self.assertEqual((code, self.states(rows)), (0, {"ok"}), table)
        self.assertEqual(rows["a launch"]["text"], "launch/1x64 - 1.5")
        self.assertEqual(rows["decode attention, 64 x 4k"]["text"], "not measured")
        self.assertIn("random_8b", rows["random weights"]["text"])
        self.assertEqual(os.listdir(scratch), [])

    def test_an_interrupted_benchmark_removes_its_weights_too(self):
        scratch = os.path.join(os.path.dirname(self.folder), "scratch")
        machine = Machine(self.folder, python3='mkdir -p "$2"',
                          bulkhead=KERNELS + ': >"$OUT/begun"; exec sleep 1000')
        running = machine.start("gpu_bench.sh", SCRATCH=scratch)
        while not os.path.exists(os.path.join(machine.out, "begun")):
            self.assertIsNone(running.poll())
            time.sleep(0.1)
        self.assertEqual(len(os.listdir(scratch)), 1)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1)
        self.assertEqual(os.listdir(scratch), [])

    def test_the_benchmark_without_a_gpu_measures_nothing(self):
        code, rows, table = self.run_script("gpu_bench.sh", **{"nvidia-smi": "exit 9"})
        self.assertEqual((code, self.states(rows)), (77, {"absent"}), table)

    def test_the_benchmark_runs_with_the_real_program_on_a_cpu(self):
        program = os.environ["BULKHEAD"]
        code, rows, table = self.run_script("gpu_bench.sh", environment={"DEVICE": "cpu"},
                                            **{"bulkhead": f'exec "{program}" "$@"', "nvidia-smi": "exit 9"})
        self.assertEqual(code, 77, table)
        self.assertEqual({row["state"] for name, row in rows.items() if "PyTorch" not in name}, {"ok"}, table)


if __name__ == "__main__":
    unittest.main()
