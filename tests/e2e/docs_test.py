"""The documents are as the program is: their commands run, their links and paths exist."""
import glob
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import unittest

SOURCE = os.environ["BULKHEAD_SOURCE"]
PROGRAM = os.environ["BULKHEAD"]
MODEL = os.path.join(SOURCE, "examples", "models", "sample")
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1")
LIMIT_S = 240


def page(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def pages():
    files = subprocess.run(["git", "-C", SOURCE, "ls-files", "-co", "--exclude-standard", "*.md"], capture_output=True,
                           text=True, check=False).stdout.split()
    return files or [os.path.relpath(f, SOURCE) for f in glob.glob(os.path.join(SOURCE, "**", "*.md"), recursive=True)]


def shell_lines(text):
    """The lines of the blocks without a language, each a command; comments taken off."""
    for language, block in re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", text):
        for line in ("" if language else block).replace("\\\n", " ").splitlines():
            line = re.sub(r"(^|\s+)# .*", "", line).strip()
            if line:
                yield line


class OutOfMemoryPageTest(unittest.TestCase):
    # In the order of the page: the exit code, and a pattern of what is printed.
    EXPECTED = [
        (4, r"lacks .* for workspace"),
        (0, r"holds [1-9]\d* sequences?"),
        (4, r"lacks .* for kv"),
        (4, r"lacks .* for kv"),
        (0, r"(?m)^ranks +1 +2$"),
        (4, r"lacks .* for workspace"),
        (0, r"change first: --max-num-batched-tokens"),
    ]

    def test_every_command_does_what_the_page_says(self):
        commands = re.findall(r"(?m)^bulkhead (?:plan|doctor) .*$", page("docs", "out-of-memory.md"))
        self.assertEqual(len(commands), len(self.EXPECTED))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.symlink(os.path.join(SOURCE, "examples"), os.path.join(folder.name, "examples"))
        program = f"bulkhead() {{ {shlex.quote(PROGRAM)} \"$@\"; }}; "
        for command, (code, pattern) in zip(commands, self.EXPECTED):
            done = subprocess.run(["bash", "-c", program + command], capture_output=True, text=True,
                                  cwd=folder.name, timeout=LIMIT_S)
            self.assertEqual(done.returncode, code, command)
            self.assertRegex(done.stdout + done.stderr, pattern, command)
            if "for kv" in pattern:
                self.assertNotIn("a group of", done.stdout, command)


# What the README shows and this test cannot run: how it begins, and what runs it.
ELSEWHERE = {
    "scripts/demo.sh": "scripts/demo.sh",
    "scripts/test.sh": ".ci/run",
    "scripts/install_packages.sh": "scripts/demo.sh",
    "scripts/build.sh release bulkhead": "scripts/demo.sh",
    "export PATH=": "scripts/demo.sh",
    "sudo cmake --install build/release": "tests/e2e/install_test.py",
    "srun -n 4 --mpi=pmix bulkhead serve": "tests/cluster/slurm_test.py",
    "mpirun --host a:2,b:2 ": "tests/cluster/serve_test.py",
    "curl localhost:8000/v1/chat/completions": "tests/e2e/http_test.py",
}

# `hf download NAME` puts the sample model where the real one puts that model.
HF = """#!/bin/bash
[[ $1 == download ]] || exit 2
repo=$HF_HOME/hub/models--${2//\\//--}
mkdir -p "$repo/refs" "$repo/snapshots"
ln -s "$MODEL" "$repo/snapshots/1"
printf 1 >"$repo/refs/main"
echo "$repo/snapshots/1"
"""
# The program, with a free port in place of the default one.
BULKHEAD = """#!/bin/bash
case "$1 $2" in
  *--help) exec "$PROGRAM" "$@" ;;
  serve*) exec "$PROGRAM" "$@" --port 0 ;;
  generate* | drain* | limits* | doctor* | "bench serve") exec "$PROGRAM" "$@" --target "$(cat target)" ;;
esac
exec "$PROGRAM" "$@"
"""


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.server = None
        self.addCleanup(self.stop)
        for name, text in (("hf", HF), ("bulkhead", BULKHEAD)):
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)
        for name, line in (("prompts.jsonl", '{"prompt": "Once", "max_tokens": 8}'), ("texts.jsonl", '{"text": "One day"}'),
                           ("lines.jsonl", '{"text": "Hello"}')):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(line + "\n")
        self.environment = dict(ENVIRONMENT, PATH=f"{self.folder}:{ENVIRONMENT['PATH']}", PROGRAM=PROGRAM, MODEL=MODEL,
                                HF_HOME=os.path.join(self.folder, "hf_home"))

    def stop(self):
        if self.server is None:
            return
        self.server.terminate()
        self.server.wait(LIMIT_S)
        self.server.stdout.close()
        self.server = None

    def serve(self, line):
        """Returns once the server of this line is ready."""
        self.stop()
        self.server = subprocess.Popen(["bash", "-c", "exec " + line], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True, cwd=self.folder, env=self.environment)
        timer = threading.Timer(LIMIT_S, self.server.kill)
        timer.start()
        ready = self.server.stdout.readline()
        timer.cancel()
        self.assertRegex(ready, r"^READY grpc=127\.0\.0\.1:\d+ ", line)
        with open(os.path.join(self.folder, "target"), "w", encoding="ascii") as file:
            file.write(re.search(r"grpc=(\S+)", ready).group(1))

    def run_line(self, line):
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=self.folder, env=self.environment,
                              timeout=LIMIT_S)

    def test_every_command_does_what_it_says(self):
        names = set()
        for line in shell_lines(page("README.md")):
            elsewhere = [where for begin, where in ELSEWHERE.items() if line.startswith(begin)]
            if elsewhere:
                self.assertTrue(os.path.exists(os.path.join(SOURCE, elsewhere[0])), line)
                continue
            line = re.sub(r"\bDIR\b", MODEL, line)
            name = re.search(r"\b(bulkhead \w+|hf)\b", line).group(1)
            names.add(name)
            with self.subTest(line=line):
                if name == "bulkhead serve":
                    self.serve(line)
                    continue
                if self.server is None and name in ("bulkhead generate", "bulkhead bench", "bulkhead doctor"):
                    self.serve(f"bulkhead serve --model {MODEL}")
                done = self.run_line(line)
                self.assertEqual(done.returncode, 0, done.stderr)
                if name == "bulkhead drain":
                    self.assertEqual(self.server.wait(LIMIT_S), 0)
                    self.stop()
        self.assertLessEqual({"hf", "bulkhead serve", "bulkhead plan", "bulkhead generate", "bulkhead drain"}, names)
        for name in ("results.jsonl", "scores.jsonl", "logits.safetensors", "plan.svg", "handover/summary.txt"):
            self.assertGreater(os.path.getsize(os.path.join(self.folder, name)), 0, name)

    def test_the_plan_that_is_shown_is_the_one_that_is_printed(self):
        command, *shown = re.search(r"(?ms)^```text\n\$ (bulkhead plan .*?)^```$", page("README.md")).group(1).splitlines()
        name = re.search(r"--model (\S+)", command).group(1)
        os.mkdir(os.path.join(self.folder, name))
        shutil.copy(os.path.join(SOURCE, "tests", "data", "configs", name + ".json"),
                    os.path.join(self.folder, name, "config.json"))
        done = self.run_line(command)
        self.assertEqual(done.returncode, 0, done.stderr)
        printed = [line.rstrip() for line in done.stdout.splitlines()]
        self.assertGreater(len(shown), 5)
        self.assertEqual([line for line in shown if line not in printed], [])

    def test_the_python_client_prints_what_the_model_writes(self):
        self.serve(f"bulkhead serve --model {MODEL} --default-max-tokens 8")
        with open(os.path.join(self.folder, "target"), encoding="ascii") as file:
            target = file.read()
        for name in ("README.md", "docs/clients.md", "clients/python/README.md"):
            code, *others = re.findall(r"(?ms)^```python\n(.*?)^```$", page(name))
            for other in others:
                compile(other, name, "exec")  # the package of OpenAI is not Debian's
            done = subprocess.run(["/usr/bin/python3", "-c", code.replace("127.0.0.1:50051", target)], capture_output=True,
                                  text=True, timeout=LIMIT_S,
                                  env=dict(self.environment, PYTHONPATH=os.environ["BULKHEAD_PYTHON_CLIENT"]))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(len(done.stdout), 8, name)


class AllPagesTest(unittest.TestCase):
    def test_every_command_has_known_flags(self):
        tried = 0
        for name in pages():
            for line in shell_lines(page(name)):
                found = re.search(r"(?:^|\s)bulkhead (\w.*)", line)
                if not found:
                    continue
                words = shlex.split(re.split(r"\s[<>|&]|\.\.\.", found.group(1))[0])
                done = subprocess.run([PROGRAM, *words, "--help"], capture_output=True, text=True, timeout=LIMIT_S)
                self.assertEqual(done.returncode, 0, f"{name}: {line}: {done.stderr}")
                tried += 1
        self.assertGreater(tried, 60)

    def test_every_link_and_path_leads_somewhere(self):
        tops = "|".join(name for name in os.listdir(SOURCE) if os.path.isdir(os.path.join(SOURCE, name)) and name[0] != ".")
        for name in pages():
            text, here = page(name), os.path.dirname(os.path.join(SOURCE, name))
            for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
                if "://" not in link:
                    self.assertTrue(os.path.exists(os.path.join(here, link)), f"{name}: {link}")
            for path in re.findall(rf"`((?:{tops})/[\w./-]*)`", text):
                known = "NAME" in path or path.startswith("build/") or os.path.exists(os.path.join(SOURCE, path))
                self.assertTrue(known or os.path.exists(os.path.join(here, path)), f"{name}: {path}")

    def test_every_anchor_is_a_heading(self):
        for name in pages():
            here = os.path.dirname(os.path.join(SOURCE, name))
            for link, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page(name)):
                target = os.path.relpath(os.path.join(here, link), SOURCE) if link else name
                headings = re.findall(r"(?m)^#+ (.*)$", page(target))
                anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
                self.assertIn(anchor, anchors, f"{name}: {link}#{anchor}")

    def test_the_models_page_is_what_the_families_files_say(self):
        subprocess.run([os.path.join(SOURCE, "scripts", "models_page.py"), "--check"], check=True)

    def test_the_capacity_page_is_what_plan_says(self):
        subprocess.run([os.path.join(SOURCE, "scripts", "capacity_table.py"), PROGRAM, "--check"], check=True)

    def test_every_folder_says_what_it_is(self):
        folders = {os.path.dirname(path) for path in subprocess.run(
            ["git", "-C", SOURCE, "ls-files"], capture_output=True, text=True, check=True).stdout.split()}
        tops = {folder.split("/")[0] for folder in folders} - {"", ".ci"}
        for folder in tops | {f for f in folders if f.startswith(("runtime/", "launcher/"))}:
            self.assertTrue(os.path.exists(os.path.join(SOURCE, folder, "README.md")), folder)


if __name__ == "__main__":
    unittest.main()
