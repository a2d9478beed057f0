#!/usr/bin/env python3
"""lint.py [--checks CHECK,...] [--since COMMIT] [FILE ...]: what clang-format, clang and clang-tidy say about FILES, or
about those that differ from COMMIT, or about the whole project. The checks:

format   clang-format would change nothing
headers  every header compiles by itself; only those that are not the first include of a .cc need to be compiled
locks    clang++ -Wthread-safety: what is declared ABSL_GUARDED_BY is used with its lock held
tidy     clang-tidy with .clang-tidy: 15 to 40 s of a core for each .cc, hours for the project, so the gate leaves it out

What has passed is not checked again while the file, the project's headers that it includes, its command and the
tool stay the same (~/.cache/bulkhead/lint). Compile commands come from build/release. Exits with 77 if a tool or the
build is missing, or the tools are not Debian 12's: others format and warn differently."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

CHECKS = ("format", "headers", "locks", "tidy")
TOOLS = ("clang-format", "clang++", "clang-tidy")
CLANG = 14
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
FIRST_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', re.MULTILINE)
LOCK = re.compile(r"absl::(Mutex|CondVar)|ABSL_GUARDED_BY")
CLASS = re.compile(r"^(?:class|struct) (?:ABSL_\w+ )?(\w+)", re.MULTILINE)
UNITY = re.compile(r"/Unity/unity_\w+_cxx\.cxx$")
FOR_DEVICES = re.compile(r"kernels/cuda/device/")  # compiled by nvcc and, with other flags, by the emulator


def each_source(entries):
    """The compile commands of the sources themselves, also of those that a unity build compiles together."""
    for entry in entries:
        if UNITY.search(entry["file"]):
            with open(entry["file"], encoding="utf-8") as f:
                for source in INCLUDE.findall(f.read()):
                    yield {**entry, "file": source, "command": entry["command"].replace(entry["file"], source)}
        else:
            yield entry


class Project:
    """The files of a work tree and how each .cc is compiled."""

    def __init__(self, root):
        self.root = root
        listed = subprocess.run(["git", "-C", root, "ls-files", "*.h", "*.cc", "*.cu", "*.cuh"], capture_output=True, text=True)
        self.files = [f for f in listed.stdout.split() if os.path.exists(os.path.join(root, f))]
        with open(os.path.join(root, "build", "release", "compile_commands.json"), encoding="utf-8") as f:
            self.commands = {os.path.relpath(entry["file"], root): entry for entry in each_source(json.load(f))}
        self.texts = {}
        self.closures = {}

    def text(self, path):
        if path not in self.texts:
            try:
                with open(os.path.join(self.root, path), encoding="utf-8") as f:
                    self.texts[path] = f.read()
            except FileNotFoundError:  # a system's or a generated header
                self.texts[path] = ""
        return self.texts[path]

    def closure(self, path):
        """The project's files that `path` includes, however far around, and itself."""
        if path not in self.closures:
            found, left = {path}, [path]
            while left:
                for include in INCLUDE.findall(self.text(left.pop())):
                    if include not in found and self.text(include):
                        found.add(include)
                        left.append(include)
            self.closures[path] = found
        return self.closures[path]

    def flags(self, path):
        """Of the compiler, for a .cc, or for a header as one of the .cc that include it."""
        entry = self.commands.get(path)
        if entry is None:
            folder = os.path.dirname(path)
            users = [user for user in self.commands if path in self.closure(user)]
            users.sort(key=lambda user: (os.path.commonprefix([user, folder]) != folder, user))
            if not users:
                return None
            entry = self.commands[users[0]]
        words = shlex.split(entry["command"])
        first = next(i for i, word in enumerate(words) if word.startswith("-"))
        end = words.index("-o")
        return words[first:end]

    def lone_headers(self):
        """Headers that are not the first include of any .cc."""
        firsts = set()
        for path in self.commands:
            match = FIRST_INCLUDE.search(self.text(path))
            firsts.add(match.group(1) if match else "")
        return [f for f in self.files if f.endswith(".h") and f not in firsts and not FOR_DEVICES.match(f)]

    def with_locks(self):
        """The .cc files whose functions may use what a lock guards."""
        classes = {name for f in self.files if f.endswith(".h") and "ABSL_GUARDED_BY" in self.text(f)
                   for name in CLASS.findall(self.text(f))}
        member = re.compile(r"\b(%s)::" % "|".join(sorted(classes) or ["-"]))
        return [f for f in self.commands if LOCK.search(self.text(f)) or member.search(self.text(f))]


class Run:
    """Commands, some at a time, with a memory of those that have passed."""

    def __init__(self, project, cache):
        self.project = project
        self.cache = cache
        self.versions = {tool: subprocess.run([tool, "--version"], capture_output=True, text=True).stdout for tool in TOOLS}
        self.failed = []
        os.makedirs(cache, exist_ok=True)

    def key(self, path, command):
        digest = hashlib.sha256(json.dumps([self.versions[command[0]], command]).encode())
        for file in sorted(self.project.closure(path)) + [".clang-tidy"]:
            digest.update(f"\0{file}\0{self.project.text(file)}".encode())
        return os.path.join(self.cache, digest.hexdigest())

    def one(self, path, command):
        key = self.key(path, command)
        if os.path.exists(key):
            return
        done = subprocess.run(command, cwd=self.project.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0:
            open(key, "w", encoding="utf-8").close()
        else:
            self.failed.append(path)
            print(f"{path}: {command[0]}\n{done.stdout}", flush=True)

    def all(self, name, work):
        """work: {path: command}."""
        begin, before = time.monotonic(), len(self.failed)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda path: self.one(path, work[path]), work))
        print(f"{name}: {len(work)} files, {len(self.failed) - before} bad, {time.monotonic() - begin:.0f} s", flush=True)


def lint(root, checks, files, cache):
    project = Project(root)
    run = Run(project, cache)
    chosen = set(project.files if files is None else files)
    commands = [f for f in project.commands if f in chosen]

    if "format" in checks:
        sources = [f for f in project.files if f in chosen]
        batches = [sources[i:i + 40] for i in range(0, len(sources), 40)]
        bad = [subprocess.run(["clang-format", "--dry-run", "-Werror", *batch], cwd=root).returncode for batch in batches]
        run.failed += ["format"] * sum(code != 0 for code in bad)
        print(f"format: {len(sources)} files", flush=True)
    if "headers" in checks:
        work = {}
        for header in project.lone_headers():
            flags = project.flags(header) if header in chosen else None
            if flags is not None:
                work[header] = ["clang++", "-fsyntax-only", *flags, "-Wno-everything", "-x", "c++", header]
        run.all("headers", work)
    if "locks" in checks:
        run.all("locks", {f: ["clang++", "-fsyntax-only", *project.flags(f), "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety", f]
                          for f in project.with_locks() if f in chosen})
    if "tidy" in checks:
        run.all("tidy", {f: ["clang-tidy", "--quiet", f, "--", "-Wno-unknown-warning-option", *project.flags(f)] for f in commands})
    return run.failed


def missing_tools():
    """Those that are not there, or of another version."""
    missing = []
    for tool in (*TOOLS, "git"):
        if shutil.which(tool) is None:
            missing.append(tool)
        elif tool != "git" and f"version {CLANG}." not in subprocess.run([tool, "--version"], capture_output=True, text=True).stdout:
            missing.append(f"{tool} {CLANG}")
    return missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", default=",".join(CHECKS))
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--cache", default=os.path.expanduser("~/.cache/bulkhead/lint"))
    parser.add_argument("--since")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    missing = missing_tools()
    if not os.path.exists(os.path.join(options.root, "build", "release", "compile_commands.json")):
        missing.append("build/release/compile_commands.json")
    if shutil.which("git") and subprocess.run(["git", "-C", options.root, "rev-parse"], capture_output=True).returncode != 0:
        missing.append("a git work tree")
    if missing:
        print(f"lint: skipped: {', '.join(missing)} not found (scripts/install_packages.sh --tests)")
        return 77
    files = options.files or None
    if options.since is not None:
        differ = subprocess.run(["git", "-C", options.root, "diff", "--name-only", "--relative", options.since],
                                capture_output=True, text=True, check=True)
        files = options.files + differ.stdout.split()
    failed = lint(options.root, options.checks.split(","), files, options.cache)
    if failed:
        print(f"lint: {len(failed)} failed: {' '.join(sorted(set(failed)))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
