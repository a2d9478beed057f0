#!/usr/bin/python3
"""The rules of this project that a script can check, and a proof that violations are detected.

layering_test.py checks this project; LAYERING_ROOT names another tree.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.environ.get("LAYERING_ROOT", os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Allowed includes by folder, longest matching folder first. "proto" stands for generated messages.
ALLOWED = {
    "base": {"base"},
    "memory": {"memory", "base"},
    "kernels": {"kernels", "memory", "base"},
    "comm": {"comm", "memory", "base"},
    "shard": {"shard", "memory", "base"},
    "runtime/tokenizer": {"runtime/tokenizer", "base"},
    "runtime/chat": {"runtime/chat", "base"},
    "runtime/structured": {"runtime/structured", "base"},
    "runtime/engine": {"runtime/engine", "runtime/structured", "runtime/tokenizer", "comm", "memory", "base", "proto"},
    "runtime/model": {"runtime/model", "runtime/tokenizer", "kernels", "comm", "shard", "memory", "base", "proto"},
    "runtime/service": {"runtime/service", "runtime/engine", "runtime/structured", "runtime/tokenizer", "runtime/chat", "shard", "memory", "base", "proto"},
    "launcher": {"launcher", "runtime/tokenizer", "runtime/structured", "runtime/chat", "runtime/engine", "runtime/model", "runtime/service", "kernels", "comm",
                 "shard", "memory", "base", "proto"},
}
# The only interface between model and engine: what a model implements, how rank 0 samples, how
# decodes are padded.
ALSO_ALLOWED = {
    "runtime/model": {"runtime/engine/step_runner.h", "runtime/engine/request.h", "runtime/engine/sampler.h",
                      "runtime/engine/candidates.h", "runtime/engine/decode_rows.h", "runtime/engine/shared_samples.h"},
}

# Headers that only some files may include: (what is included, where it may be, what it is).
CONFINED = [
    (re.compile(r"mpi\.h$"), re.compile(r"comm/mpi/"), "MPI"),
    (re.compile(r"nccl\.h$"), re.compile(r"comm/nccl/"), "NCCL"),
    (re.compile(r"(grpcpp|grpc\+\+|grpc)/|.*\.grpc\.pb\.h$"),
     re.compile(r"runtime/service/grpc/|launcher/clients/|launcher/bench/serve/"), "gRPC"),
    (re.compile(r"runtime/service/grpc/"), re.compile(r"runtime/service/grpc/|launcher/group/serve\.cc$"), "the gRPC front end"),
    (re.compile(r"boost/"), re.compile(r"runtime/service/http/|launcher/clients/http_call\.cc$"), "Boost"),
    (re.compile(r"histedit\.h$"), re.compile(r"launcher/clients/line_editor\.cc$"), "libedit"),
    (re.compile(r"nghttp2/"), re.compile(r"runtime/service/guard/"), "nghttp2"),
    (re.compile(r"prometheus/"), re.compile(r"runtime/service/metrics/"), "prometheus-cpp"),
    (re.compile(r"runtime/service/http/"), re.compile(r"runtime/service/http/|launcher/group/serve\.cc$"), "the HTTP front end"),
    (re.compile(r"launcher/bench/"), re.compile(r"launcher/(bench/|main\.cc$)"), "a benchmark"),
    (re.compile(r"(cuda|cublas|cuda_runtime|cuda_fp16|cuda_bf16)[^/]*\.h$"),
     re.compile(r"memory/cuda_runtime_|comm/nccl/|kernels/cuda/"), "CUDA"),
]
# Only the composition root names concrete backends and groups.
CONCRETE = re.compile(r"(kernels/(?!backend\.h|sample/op\.h|bench/)|comm/[a-z]+/[a-z_]+_group\.h)")
CONCRETE_USER = re.compile(r"launcher/wire\.cc$|kernels/|comm/")

# setenv is for the start of main, while the process has one thread.
SETENV = re.compile(r"\b(un)?setenv\(")
SETENV_USER = re.compile(r"tests/|launcher/process_environment\.cc$|comm/launch_environment\.cc$")

# Lines of code that a folder may have. They only fall, or the commit says why one rises.
LINE_BUDGETS = {"base": 2622, "memory": 5186, "comm": 7219, "kernels": 30704, "shard": 6604, "runtime": 51308, "launcher": 22161,
                "proto": 977, "tools": 2476}

LONGEST_FILE = 400
LONGEST_FUNCTION = 70
SOURCE = (".h", ".cc", ".cu", ".cuh")
SIZED = SOURCE + (".py", ".sh", ".cmake", ".proto")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b")
NOT_A_FUNCTION = re.compile(r"(namespace|class|struct|enum|union|extern|template|#|//|/\*|\})")


def folder_of(path):
    """The rule's folder for a project path, or None."""
    for folder in sorted(ALLOWED, key=len, reverse=True):
        if path.startswith(folder + "/"):
            return folder
    return None


def target_of(include):
    """The folder of an include, "proto" for generated messages, None for external headers."""
    if re.search(r"^(?!google/protobuf/).*\.pb\.h$", include):
        return "proto"
    return folder_of(include)


def project_files(root):
    for base, dirs, names in os.walk(root):
        relative = os.path.relpath(base, root)
        dirs[:] = sorted(d for d in dirs if not d.startswith(".") and d not in ("build", "__pycache__", "data"))
        for name in sorted(names):
            path = os.path.normpath(os.path.join(relative, name))
            if name.endswith(SIZED) or name == "CMakeLists.txt":
                with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
                    yield path, f.read().splitlines()


def include_violations(path, lines):
    source = folder_of(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        include, where = match.group(1), f"{path}:{number}"
        target = target_of(include)
        if source and target and target not in ALLOWED[source] and include not in ALSO_ALLOWED.get(source, ()):
            yield f"{where}: {source} must not include {include}"
        if source:
            for header, allowed_in, what in CONFINED:
                if header.match(include) and not allowed_in.match(path):
                    yield f"{where}: {what} does not belong here ({include})"
            if CONCRETE.match(include) and not CONCRETE_USER.match(path):
                yield f"{where}: only launcher/wire.cc names concrete classes ({include})"


def inner_edges(files):
    """(from, to, file): includes between the parts of one top folder. A part is a sub-folder, or a file beside them.
    What only a .cc includes does not count for the files beside, nor in kernels, where an op's .cc defines backends' members."""
    def part(path):
        folders = path.split("/")
        return "/".join(folders[:2]) if len(folders) > 2 else os.path.splitext(path)[0]

    for path, lines in files:
        top = path.split("/")[0]
        counts = path.endswith((".h", ".cuh")) or (path.count("/") > 1 and top != "kernels")
        if top not in {folder.split("/")[0] for folder in ALLOWED} or not path.endswith(SOURCE) or not counts:
            continue
        for line in lines:
            match = INCLUDE.match(line)
            if match and match.group(1).startswith(top + "/") and part(path) != part(match.group(1)):
                yield part(path), part(match.group(1)), path


def cycle_violations(files):
    """Arrows inside a folder point down: what includes a part is not included by it, however far around."""
    targets = {}
    for source, target, path in inner_edges(files):
        targets.setdefault(source, {}).setdefault(target, path)

    def way(source, wanted, seen):
        for target in sorted(targets.get(source, ())):
            if target == wanted:
                return [target]
            if target not in seen:
                seen.add(target)
                rest = way(target, wanted, seen)
                if rest:
                    return [target] + rest
        return None

    told = set()
    for source in sorted(targets):
        circle = way(source, source, set())
        if circle and not told & set(circle):
            told.update(circle)
            yield f"{targets[source][circle[0]]}: a circle of includes: {' -> '.join([source] + circle)}"


def budget_violations(files):
    """Lines of code in each folder, which only fall; a commit that raises one says why."""
    lines_of = dict.fromkeys(LINE_BUDGETS, 0)
    for path, lines in files:
        folder = path.split("/")[0]
        if folder in lines_of and path.endswith(SOURCE + (".proto", ".py")):
            lines_of[folder] += len(lines)
    for folder, count in lines_of.items():
        if count > LINE_BUDGETS[folder]:
            yield f"{folder}: {count} lines (its budget is {LINE_BUDGETS[folder]}); delete some, or argue for more"


def function_violations(path, lines):
    """Functions at namespace scope, as formatted by clang-format: from column 0 to a brace in
    column 0."""
    begin = None
    for number, line in enumerate(lines, 1):
        if line == "}":
            if begin and number - begin + 1 > LONGEST_FUNCTION:
                yield f"{path}:{begin}: a function of {number - begin + 1} lines (at most {LONGEST_FUNCTION})"
            begin = None
        elif line and not line[0].isspace():
            if NOT_A_FUNCTION.match(line):
                begin = None
            elif begin is None or not lines[number - 2]:
                begin = number


def violations(root):
    files = list(project_files(root))
    found = [*cycle_violations(files), *budget_violations(files)]
    for path, lines in files:
        if len(lines) > LONGEST_FILE:
            found.append(f"{path}: {len(lines)} lines (at most {LONGEST_FILE})")
        if not path.endswith(SOURCE):
            continue
        found.extend(include_violations(path, lines))
        if path.endswith((".h", ".cc")):
            found.extend(f"{path}:{n}: conditional compilation" for n, l in enumerate(lines, 1) if CONDITIONAL.match(l))
            found.extend(function_violations(path, lines))
        if not SETENV_USER.match(path):
            found.extend(f"{path}:{n}: setenv outside of the first lines of main" for n, l in enumerate(lines, 1) if SETENV.search(l))
        if path.endswith(".h"):
            code = [l for l in lines if l.strip() and not l.startswith("//")]
            if not code or code[0] != "#pragma once":
                found.append(f"{path}: does not begin with #pragma once")
    return found


class ThisProject(unittest.TestCase):
    def test_keeps_the_rules(self):
        self.assertEqual([], violations(ROOT), "\n" + "\n".join(violations(ROOT)))

    def test_has_every_folder_of_the_rules(self):
        for folder in ALLOWED:
            self.assertTrue(os.path.isdir(os.path.join(ROOT, folder)), folder)


    def picture(self, name):
        """docs/NAME.svg, which is as docs/draw_NAME.py draws it."""
        program = os.path.join(ROOT, "docs", f"draw_{name}.py")
        with tempfile.TemporaryDirectory() as folder:
            drawn = os.path.join(folder, "drawn.svg")
            subprocess.run([sys.executable, "-B", program, drawn], check=True)
            with open(drawn, encoding="utf-8") as f, open(os.path.join(ROOT, "docs", f"{name}.svg"), encoding="utf-8") as g:
                text = f.read()
                self.assertEqual(text, g.read(), f"run {program}")
        return text

    def test_has_a_picture_of_what_was_measured_that_is_as_drawn(self):
        self.assertIn("prefill of 512 tokens", self.picture("performance"))

    def test_has_a_picture_that_is_as_drawn_and_names_every_folder(self):
        text = self.picture("architecture")
        for folder in list(ALLOWED) + ["proto", "cpu", "cuda"]:
            self.assertIn(folder + "/", text)


class PlantedViolation(unittest.TestCase):
    def found(self, path, text):
        with tempfile.TemporaryDirectory() as root:
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
            return violations(root)

    def assert_found(self, path, text, word):
        found = self.found(path, text)
        self.assertEqual(1, len(found), found)
        self.assertIn(word, found[0])
        self.assertIn(path, found[0])

    def test_an_include_against_the_direction(self):
        for path, include in (
                ("memory/a.cc", "kernels/backend.h"), ("memory/a.cc", "runtime/engine/request.h"),
                ("kernels/cpu/a.cc", "comm/communicator.h"), ("kernels/a.cc", "shard/shard_plan.h"),
                ("comm/a.cc", "shard/shard_plan.h"), ("comm/a.cc", "bulkhead/internal/step_plan.pb.h"),
                ("shard/a.cc", "kernels/backend.h"), ("shard/a.cc", "launcher/flags/options.h"),
                ("runtime/tokenizer/a.cc", "runtime/engine/request.h"), ("runtime/chat/a.cc", "runtime/tokenizer/tokenizer.h"), ("runtime/engine/a.cc", "runtime/model/decoder.h"),
                ("runtime/engine/a.cc", "runtime/service/server.h"), ("runtime/model/a.cc", "runtime/engine/coordinator.h"),
                ("runtime/model/a.cc", "runtime/service/server.h"), ("runtime/service/a.cc", "comm/group.h"),
                ("runtime/service/a.cc", "runtime/model/decoder.h"), ("runtime/engine/a.cc", "launcher/flags/options.h")):
            with self.subTest(path=path, include=include):
                self.assert_found(path, f'#include "{include}"\n', "must not include")

    def test_a_header_outside_its_room(self):
        for path, include, what in (
                ("runtime/engine/a.cc", "<mpi.h>", "MPI"), ("launcher/group/serve.cc", '"grpcpp/grpcpp.h"', "gRPC"),
                ("runtime/engine/a.cc", '"bulkhead/v1/generation.grpc.pb.h"', "gRPC"),
                ("runtime/service/engine_call.cc", '"grpcpp/grpcpp.h"', "gRPC"),
                ("runtime/service/guard/a.cc", "<grpc/grpc.h>", "gRPC"),
                ("runtime/service/listener.cc", '"boost/asio/post.hpp"', "Boost"),
                ("runtime/service/http/a.cc", '"prometheus/registry.h"', "prometheus-cpp"),
                ("runtime/service/http/a.cc", '"nghttp2/nghttp2.h"', "nghttp2"),
                ("runtime/service/engine_call.cc", '"runtime/service/http/routes.h"', "the HTTP front end"),
                ("runtime/service/engine_call.cc", '"runtime/service/grpc/raw_message.h"', "the gRPC front end"),
                ("kernels/attend/cuda.cc", "<cuda_runtime.h>", "CUDA"), ("runtime/model/a.cc", "<nccl.h>", "NCCL"),
                ("launcher/flags/options.cc", '"launcher/bench/comm.h"', "a benchmark"),
                ("launcher/group/serve.cc", '"comm/mpi/mpi_group.h"', "wire.cc"), ("comm/shm/region.cc", "<mpi.h>", "MPI"),
                ("launcher/group/startup.cc", '"kernels/cpu/cpu_backend.h"', "wire.cc"),
                ("runtime/model/decoder.cc", '"kernels/attend/cuda.h"', "wire.cc")):
            with self.subTest(path=path, include=include):
                self.assert_found(path, f"#include {include}\n", what)

    def test_a_circle_of_includes_inside_a_folder(self):
        with tempfile.TemporaryDirectory() as root:
            for path, include in (("launcher/flags/a.h", "launcher/bench/b.h"), ("launcher/bench/c.cc", "launcher/flags/a.h"),
                                  ("launcher/bench/b.h", "launcher/bench/d.h"), ("launcher/main.cc", "launcher/flags/a.h")):
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(f'#pragma once\n#include "{include}"\n')
            self.assertIn("launcher/bench/c.cc: a circle of includes: launcher/bench -> launcher/flags -> launcher/bench",
                          violations(root))

    def test_a_folder_beyond_its_line_budget(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "base"))
            for i in range(LINE_BUDGETS["base"] // LONGEST_FILE + 1):
                with open(os.path.join(root, "base", f"a{i}.cc"), "w", encoding="utf-8") as f:
                    f.write("int a;\n" * LONGEST_FILE)
            self.assertIn("its budget is", "".join(violations(root)))

    def test_conditional_compilation(self):
        self.assert_found("memory/a.cc", "  # ifdef __linux__\n", "conditional")
        self.assert_found("tests/memory/a_test.cc", "#if 0\n", "conditional")

    def test_setenv_while_there_may_be_threads(self):
        self.assert_found("comm/a.cc", '  setenv("NCCL_DEBUG", "INFO", 0);\n', "setenv")
        self.assertEqual([], self.found("launcher/process_environment.cc", '  setenv("NCCL_DEBUG", "INFO", 0);\n'))

    def test_a_header_without_pragma_once(self):
        self.assert_found("memory/a.h", "// What it is.\n#include <string>\n#pragma once\n", "#pragma once")

    def test_a_file_that_is_too_long(self):
        self.assert_found("memory/a.cc", "int a;\n" * (LONGEST_FILE + 1), "401 lines")
        self.assert_found("scripts/a.sh", "true\n" * (LONGEST_FILE + 1), "401 lines")

    def test_a_function_that_is_too_long(self):
        body = "  f();\n" * (LONGEST_FUNCTION - 2)
        self.assertEqual([], self.found("memory/a.cc", f"namespace a {{\n\nvoid G() {{\n{body}}}\n\n}}  // namespace a\n"))
        self.assert_found("memory/a.cc", f"namespace a {{\n\nvoid G(int a,\n       int b) {{\n{body}}}\n\n}}  // namespace a\n",
                          "71 lines")

    def test_what_is_allowed_is_not_reported(self):
        for path, include in (
                ("runtime/model/model_runner.h", '"runtime/engine/step_runner.h"'), ("comm/mpi/mpi_link.cc", "<mpi.h>"),
                ("launcher/wire.cc", '"comm/mpi/mpi_group.h"'), ("launcher/clients/generate.cc", '"grpcpp/grpcpp.h"'),
                ("runtime/service/grpc/server.cc", '"bulkhead/v1/generation.grpc.pb.h"'), ("memory/a.cc", "<vector>")):
            with self.subTest(path=path, include=include):
                self.assertEqual([], self.found(path, f"#include {include}\n" if path.endswith(".cc") else
                                                f"#pragma once\n#include {include}\n"))


if __name__ == "__main__":
    unittest.main()
