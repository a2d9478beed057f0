"""The ends of a group without failures: drained by call, drained by signal; and a group that cannot
start because its port is taken or its model computes no finite logits."""
import fcntl
import functools
import glob
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import Streamed, grpc, health_pb, long_request, pb  # noqa: E402

OPEN_TOKENS = 1900  # more than a fast machine does in a second: the drain must find them running
DRAIN_FLAGS = ("--drain-timeout", 2 * group.LIMIT_S)


def run_two(first, second):
    """The end of a group of rank 0's command and rank 1's."""
    return subprocess.run(["mpirun", "--oversubscribe", "-n", "2", *group.by_rank(first, second)], capture_output=True,
                          encoding="utf-8", timeout=group.LIMIT_S, env=group.ENVIRONMENT, check=False)


class LifeTest(unittest.TestCase):
    def drain(self, g, begin_drain):
        """A stream open when the drain starts is completed; the process exits with 0."""
        watch = g.health.Watch(health_pb.HealthCheckRequest())
        self.assertEqual(next(watch).status, health_pb.HealthCheckResponse.SERVING)
        begun, results = threading.Event(), []

        def events():
            for event in g.generation.GenerateStream(long_request("open", OPEN_TOKENS)):
                begun.set()
                yield event

        reader = threading.Thread(target=lambda: results.append(Streamed(events())))
        reader.start()
        self.assertTrue(begun.wait(group.LIMIT_S))
        pids = g.rank_pids().values()
        begin_drain()
        self.assertEqual(next(watch).status, health_pb.HealthCheckResponse.NOT_SERVING)
        with self.assertRaises(grpc.RpcError) as caught:
            g.generation.Generate(long_request("late"), timeout=group.LIMIT_S)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        reader.join(group.LIMIT_S)
        self.assertEqual(results[0].code, grpc.StatusCode.OK)
        self.assertEqual(len(results[0].ids), OPEN_TOKENS)
        self.assertEqual(g.exit_code(), 0, "\n".join(g.lines[-10:]))
        self.assertEqual([p for p in pids if group.is_alive(p)], [])

    def test_drain_by_call(self):
        with group.Group(*DRAIN_FLAGS) as g:
            ends = []

            def call():
                answer = g.control.Drain(pb.DrainRequest(), timeout=group.LIMIT_S)
                self.assertEqual(answer.num_requests_running, 1)
                ends.append(g.control.Drain.future(pb.DrainRequest(wait=True), timeout=group.LIMIT_S))
            self.drain(g, call)
            answer = ends[0].result()
            self.assertEqual((answer.num_requests_finished, answer.num_requests_cut), (1, 0))

    def test_drain_by_signal(self):
        for number in (signal.SIGUSR1, signal.SIGTERM)[:2 if group.RANKS == 1 else 1]:
            with self.subTest(number), group.Group(*DRAIN_FLAGS) as g:
                self.drain(g, functools.partial(g.process.send_signal, number))

    def drain_start(self, front, signal_it):
        """A group that is told to drain while it waits for another one's start ends with 0, long before its turn."""
        shared = os.path.isdir("/run/lock") and os.stat("/run/lock").st_mode & 0o1777 == 0o1777
        path = f"{'/run/lock' if shared else '/tmp'}/bulkhead-host.lock"  # as memory/device_lock.h has it
        if not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT, 0o666))
            os.chmod(path, 0o666)
        serve = [*front, group.BINARY, "serve", "-v", "--model", group.MODEL, "--port", "0", "--startup-timeout", "30s"]
        with open(path, "rb+", buffering=0) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                                  env=group.ENVIRONMENT) as process:
                lines = iter(process.stdout.readline, "")
                self.assertTrue(any("info: device: " in line for line in lines))
                signal_it(process)
                rest = "".join(lines)
                self.assertEqual(process.wait(group.LIMIT_S), 0, rest)
        self.assertIn("bulkhead: drained before READY by signal 10 (USR1), sent to rank ", rest)
        self.assertNotIn("READY grpc", rest)

    def test_a_drain_before_ready_ends_the_start(self):
        def launcher(process):
            process.send_signal(signal.SIGUSR1)

        def last_rank(process):
            os.kill(group.Group.rank_pids(types.SimpleNamespace(process=process))[group.RANKS - 1], signal.SIGUSR1)
        fronts = (group.front(), ["mpirun", "-n", "1"]) if group.RANKS == 1 else (group.front(),)
        for front, signal_it in [(front, launcher) for front in fronts] + [(group.front(), last_rank)]:
            with self.subTest(front=front, signal_it=signal_it.__name__):
                self.drain_start(front, signal_it)

    def test_a_drain_that_takes_too_long_ends_truthfully(self):
        with group.Group() as g:
            call = g.generation.GenerateStream(long_request())
            next(iter(call))
            end = g.control.Drain(pb.DrainRequest(timeout_s=0, wait=True), timeout=group.LIMIT_S)
            self.assertEqual((end.num_requests_finished, end.num_requests_cut), (0, 1))
            got = []
            with self.assertRaises(grpc.RpcError) as caught:
                got.extend(call)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(group.reason(caught.exception), "DRAINING")
            self.assertEqual(g.exit_code(), 0, "\n".join(g.lines[-10:]))

    @unittest.skipIf(group.RANKS > 1, "a group of one has no launcher that ends it")
    def test_a_signal_ends_what_serves_nobody(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([group.BINARY, "bench", "kernels"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, encoding="utf-8") as process:
                process.stdout.readline()  # the first line of the table: it is running
                process.send_signal(number)
                errors = process.communicate(timeout=group.LIMIT_S)[1]
            self.assertEqual(process.returncode, 128 + number, errors[-500:])
            self.assertIn(f"stopped by signal {number.value}", errors)

    def test_a_checkpoint_whose_logits_are_no_numbers_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = shutil.copytree(group.MODEL, os.path.join(folder, "model"))
            for path in glob.glob(os.path.join(broken, "*.safetensors")):
                with open(path, "r+b") as f:
                    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
                    for name, tensor in header.items():
                        if name.endswith("model.norm.weight"):
                            begin, end = tensor["data_offsets"]
                            f.seek(begin, os.SEEK_CUR)
                            f.write(b"\xff" * (end - begin))
            command = [broken if word == group.MODEL else word for word in group.serve_command("--port", 0)]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=group.LIMIT_S,
                                  env=group.ENVIRONMENT, check=False)
        self.assertEqual(done.returncode, 3, done.stderr[-500:])
        self.assertIn("are not finite", done.stderr)

    @unittest.skipIf(group.RANKS > 1, "mpirun has no need of a small stack")
    def test_a_small_limit_of_the_stack_is_raised_or_refused(self):
        def limit(hard):
            resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, hard))
        most = resource.getrlimit(resource.RLIMIT_STACK)[1]
        with group.Group(before=functools.partial(limit, most)) as g:
            self.assertEqual(len(g.generation.Generate(group.greedy("a", 4), timeout=group.LIMIT_S).tokens), 4)
        done = subprocess.run(group.serve_command("--port", 0), capture_output=True, encoding="utf-8", env=group.ENVIRONMENT,
                              timeout=group.LIMIT_S, preexec_fn=functools.partial(limit, 64 << 10), check=False)
        self.assertEqual(done.returncode, 5, done.stderr[-500:])
        self.assertEqual(done.stderr, "bulkhead: the limit of the stack is 64 KiB, and the program needs 1024; raise ulimit -s\n")

    def test_a_port_in_use_is_refused(self):
        with group.Group() as g:
            port = g.target.rsplit(":", 1)[1]
            second = subprocess.run(group.serve_command("--port", port), capture_output=True,
                                    encoding="utf-8", timeout=group.LIMIT_S, env=group.ENVIRONMENT,
                                    check=False)
            self.assertEqual(second.returncode, 7, second.stderr[-500:])
            self.assertIn(port, second.stderr)
            self.assertEqual(g.generation.Generate(group.greedy("a", 1), timeout=group.LIMIT_S)
                             .finished.usage.completion_tokens, 1)

    @unittest.skipIf(group.RANKS == 1, "a group of one waits for no other rank")
    def test_without_rank_0_another_rank_says_why_there_is_no_group(self):
        meets = "import ctypes, time; ctypes.CDLL('libmpi.so.40', 2 | ctypes.RTLD_GLOBAL).MPI_Init(0, 0); time.sleep(60)"
        done = run_two([sys.executable, "-c", meets],
                       [group.BINARY, "serve", "--model", group.MODEL, "--port", "0", "--startup-timeout", "10s"])
        self.assertEqual(done.returncode, 5, done.stderr[-500:])
        self.assertIn("a rank did not arrive within 10s (this is rank 1 of 2)", done.stderr)

    @unittest.skipIf(group.RANKS == 1, "a group of one has one command line")
    def test_a_wrong_flag_of_another_rank_is_told_with_its_rank(self):
        serve = [group.BINARY, "serve", "--model", group.MODEL, "--port", "0"]
        done = run_two(serve, [*serve, "--foo"])
        self.assertEqual(done.returncode, 2, done.stderr[-500:])
        self.assertIn("bulkhead: rank 1: unknown flag --foo of 'bulkhead serve'", done.stderr)

    @unittest.skipIf(group.RANKS == 1, "a group of one has one limit")
    def test_too_few_open_files_of_another_rank_are_told_with_its_rank(self):
        serve = [group.BINARY, "serve", "--model", group.MODEL, "--port", "0"]
        done = run_two(serve, ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", *serve])
        self.assertEqual(done.returncode, 5, done.stderr[-500:])
        self.assertIn("bulkhead: rank 1: the limit of open files is 40, and a server needs 64", done.stderr)

    @unittest.skipIf(group.RANKS == 1, "a group of one waits for no other rank")
    def test_a_rank_that_hangs_during_the_start_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "report")
            os.mkfifo(pipe)  # rank 0 waits for its reader
            done = subprocess.run(group.serve_command("--port", 0, "--report", pipe, "--startup-timeout", "15s"),
                                  capture_output=True, encoding="utf-8", timeout=group.LIMIT_S, env=group.ENVIRONMENT,
                                  check=False)
        self.assertEqual(done.returncode, 5, done.stderr[-500:])
        # The watchdog says it, or the exchange where rank 1 is quick to come to it.
        self.assertRegex(done.stderr, r"within 15s; the others wait for rank 0 \(host \S+, pid \d+\)\n|"
                                      r": rank 0 \(host \S+, pid \d+\) did not arrive within 15s\n")


if __name__ == "__main__":
    unittest.main()
