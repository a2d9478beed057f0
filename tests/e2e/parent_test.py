"""A group of one and its parent process: whichever is signalled or killed, both end, and the last
line says why."""
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "cluster")]
import group  # noqa: E402
from group import grpc, long_request, pb  # noqa: E402
from hosts import MemoryCap  # noqa: E402

FLAGS = ("--device-memory", "120MiB", "--drain-timeout", 2 * group.LIMIT_S)
CAP_MIB = 420
HOG = """  # touches so many MiB
import sys
pages = bytearray(int(sys.argv[1]) << 20)
for at in range(0, len(pages), 4096):
    pages[at] = 1
"""


def until(done, what):
    limit = time.monotonic() + group.LIMIT_S
    while not done():
        if time.monotonic() > limit:
            raise AssertionError(what)
        time.sleep(0.02)


class ParentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.report = os.path.join(folder.name, "report.json")

    def serve(self, *flags, **how):
        return group.Group(*FLAGS, "--report", self.report, *flags, **how)

    def state(self):
        with open(self.report, encoding="utf-8") as f:
            return json.load(f)["state"]

    def doctor(self):
        done = subprocess.run([group.BINARY, "doctor", "--report", self.report], capture_output=True, text=True,
                              timeout=group.LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()[0]

    def open_stream(self, g):
        """A stream that runs until the group ends, and a place for its end."""
        call, ends = g.generation.GenerateStream(long_request("", 2000)), []
        next(iter(call))

        def read():
            try:
                ends.append(len(list(call)) and grpc.StatusCode.OK)
            except grpc.RpcError as error:
                ends.append(error.code())
        reader = threading.Thread(target=read)
        reader.start()
        return reader, ends

    def use_up(self, cap, g):
        """Uses up a cap of CAP_MIB, so that the kernel kills the rank."""
        with open(f"/proc/{g.rank_pids()[0]}/oom_score_adj", "w", encoding="ascii") as f:
            f.write("1000")
        # Whether the kernel kills this one, too, depends on how soon it has reclaimed the rank's
        # memory.
        subprocess.run(cap.command(sys.executable, "-c", HOG, str(CAP_MIB - 70)), timeout=group.LIMIT_S, check=False)

    def test_a_killed_rank_is_named_with_its_signal(self):
        with self.serve() as g:
            rank = g.rank_pids()[0]
            self.assertNotEqual(rank, g.process.pid)
            self.assertEqual(os.getpgid(rank), os.getpgid(g.process.pid))
            self.assertTrue(self.doctor().startswith("The server is running: rank 0 (host "))
            os.kill(rank, signal.SIGKILL)
            self.assertEqual(g.exit_code(), 137)
            self.assertRegex(g.lines[-1], rf"^bulkhead: rank 0 \(host \S+, pid {rank}\) was killed by signal 9 \(KILL\)$")
            self.assertEqual(self.state(), "lost")
            self.assertIn("was killed by signal 9", self.doctor())

    def test_a_rank_does_not_outlive_its_parent(self):
        with self.serve() as g:
            reader, ends = self.open_stream(g)
            rank = g.rank_pids()[0]
            os.kill(g.process.pid, signal.SIGKILL)
            until(lambda: not group.is_alive(rank), "the rank is still there")
            reader.join(group.LIMIT_S)
            self.assertEqual(ends, [grpc.StatusCode.UNAVAILABLE])
            self.assertRegex(self.doctor(), r"the parent \(pid \d+\) ended")

    def test_when_both_are_killed_the_report_still_tells(self):
        with self.serve() as g:
            os.killpg(g.process.pid, signal.SIGKILL)
            self.assertEqual(g.exit_code(), -signal.SIGKILL)
            self.assertEqual(self.state(), "serving")
            self.assertTrue(self.doctor().startswith("The server ended without a message: rank 0 (host "))

    def test_a_signal_to_the_process_group_is_one_wish(self):
        with self.serve() as g:
            reader, ends = self.open_stream(g)
            os.killpg(g.process.pid, signal.SIGTERM)
            reader.join(group.LIMIT_S)
            self.assertEqual(ends, [grpc.StatusCode.OK])
            self.assertEqual(g.exit_code(), 0, "\n".join(g.lines[-10:]))
            self.assertEqual(self.state(), "ended")
            self.assertEqual(self.doctor(), "The server ended normally.")

    def test_a_second_signal_ends_at_once(self):
        with self.serve() as g:
            reader, ends = self.open_stream(g)
            g.process.send_signal(signal.SIGTERM)
            until(lambda: any("a second signal" in line for line in g.lines), "no drain")
            time.sleep(0.6)  # within half a second it would count as the same request
            g.process.send_signal(signal.SIGTERM)
            self.assertEqual(g.exit_code(), 128 + signal.SIGTERM)
            self.assertEqual(g.lines[-1], "bulkhead: stopped by signal 15 (TERM)")
            reader.join(group.LIMIT_S)
            self.assertEqual(ends, [grpc.StatusCode.UNAVAILABLE])

    def interrupt(self, may_begin, times):
        """Ctrl-C in a terminal as soon as `may_begin(target)` says, and again as soon as the drain is told. The exit code and the text."""
        process, terminal = group.in_terminal(group.serve_command("--port", 0, *FLAGS), group.ENVIRONMENT)
        text = b""
        try:
            while not re.search(rb"READY .*\n", text):
                text += os.read(terminal, 4096)
            may_begin(re.search(rb"READY grpc=(\S+)", text)[1].decode())
            for _ in range(times):
                os.write(terminal, b"\x03")
                while b"a second signal" not in text:
                    text += os.read(terminal, 4096)
            while True:  # until both have closed it
                text += os.read(terminal, 4096)
        except OSError:
            pass
        finally:
            os.close(terminal)
        return process.wait(), text

    def test_an_interrupt_from_the_terminal_drains(self):
        code, text = self.interrupt(lambda target: None, 1)
        self.assertEqual(code, 0, text[-500:])
        self.assertEqual(text.count(b"a second signal"), 1)

    def test_a_second_interrupt_from_the_terminal_ends_however_soon_it_comes(self):
        streams = []

        def stream(target):
            streams.append(group.rpc.GenerationStub(grpc.insecure_channel(target)).GenerateStream(long_request("", 2000)))
            next(iter(streams[0]))
        code, text = self.interrupt(stream, 2)
        self.assertEqual(code, 128 + signal.SIGINT, text[-500:])

    def test_a_stopped_rank_ends_the_group(self):
        with self.serve() as g:
            rank = g.rank_pids()[0]
            os.kill(rank, signal.SIGSTOP)
            self.assertEqual(g.exit_code(), 6)
            self.assertRegex(g.lines[-1], rf"^bulkhead: rank 0 \(host \S+, pid {rank}\) was stopped by signal 19 \(STOP\) for 3 s, ")
            self.assertFalse(group.is_alive(rank))
            self.assertIn("was stopped by signal 19", self.doctor())

    def test_a_stopped_rank_does_not_outlive_its_parent(self):
        with self.serve() as g:
            rank = g.rank_pids()[0]
            os.kill(rank, signal.SIGSTOP)
            g.process.kill()
            until(lambda: not group.is_alive(rank), "the rank is still there")
            self.assertRegex(self.doctor(), r"the parent \(pid \d+\) ended")

    def test_a_stop_of_both_lasts_until_the_parent_is_continued(self):
        with self.serve() as g:
            os.killpg(g.process.pid, signal.SIGSTOP)
            time.sleep(3.5)  # a rank may not be stopped so long alone
            g.process.send_signal(signal.SIGCONT)
            time.sleep(3.5)
            self.assertEqual(len(g.generation.Generate(group.greedy("Once", 2), timeout=group.LIMIT_S).tokens), 2)
            g.process.send_signal(signal.SIGTERM)
            self.assertEqual(g.exit_code(), 0, "\n".join(g.lines[-10:]))

    def test_without_a_parent_there_is_one_process(self):
        with self.serve("--no-parent") as g:
            self.assertEqual(g.rank_pids(), {0: g.process.pid})
            g.process.send_signal(signal.SIGTERM)
            self.assertEqual(g.exit_code(), 0)

    def test_a_launcher_is_parent_enough(self):
        done = subprocess.run(["mpirun", "-n", "1", "--bind-to", "none", "sh", "-c",
                               '"$@" >/dev/null 2>&1 & pid=$!; until [ -s /proc/$pid/task/$pid/children ] || '
                               '[ $(ls /proc/$pid/task | wc -l) -gt 4 ]; do sleep 0.05; done; '
                               'cat /proc/$pid/task/$pid/children; kill $pid', "sh", group.BINARY, "serve", "--model",
                               group.MODEL, "--port", "0", *map(str, FLAGS)],
                              capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT, check=False)
        self.assertEqual(done.stdout.strip(), "", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0 and MemoryCap.available(), "needs root and memory cgroups that it may make")
    def test_a_rank_that_the_kernel_kills_for_memory_is_named(self):
        with MemoryCap(CAP_MIB << 20) as cap:
            with self.serve(front=cap.command) as g:
                self.use_up(cap, g)
                self.assertEqual(g.exit_code(), 137, "\n".join(g.lines[-5:]))
                self.assertRegex(g.lines[-1], r"^bulkhead: rank 0 \(host \S+, pid \d+\) ended: the kernel killed "
                                 r"\d process(es)? of its cgroup for memory \(oom_kill \d in " + cap.path)
                self.assertRegex(self.doctor(), r"the kernel killed \d process")

    @unittest.skipUnless(os.geteuid() == 0 and MemoryCap.available(), "needs root and memory cgroups that it may make")
    def test_doctor_counts_the_kills_of_a_server_that_could_say_nothing(self):
        with MemoryCap(CAP_MIB << 20) as cap:
            with self.serve("--no-parent", front=cap.command) as g:
                self.use_up(cap, g)
                self.assertEqual(g.exit_code(), -signal.SIGKILL)
                self.assertRegex(self.doctor(), r"^The server ended without a message: .* Since READY the kernel killed \d "
                                 r"process(es)? of its cgroup for memory \(oom_kill \d in ")

    def test_memory_that_cannot_be_had_names_rank_and_term(self):
        with self.serve() as g:
            rank = g.rank_pids()[0]
            with open(f"/proc/{rank}/status", encoding="ascii") as f:
                in_use = next(int(line.split()[1]) << 10 for line in f if line.startswith("VmData"))
            # Not of the address space: a heap that is reserved there would still grow.
            resource.prlimit(rank, resource.RLIMIT_DATA, (in_use, in_use))
            request = pb.GenerateRequest(text="x " * 1_900_000)
            for _ in range(100):
                if not group.is_alive(rank):
                    break
                channel = grpc.insecure_channel(g.target, [("grpc.use_local_subchannel_pool", 1)])
                calls = [group.rpc.GenerationStub(channel).Generate.future(request, timeout=5) for _ in range(8)]
                for call in calls:
                    call.exception()
                channel.close()
            self.assertEqual(g.exit_code(), 6, "\n".join(g.lines[-5:]))
            self.assertRegex(g.lines[-1], rf"^bulkhead: rank 0 \(host \S+, pid {rank}\): out of host memory \(category host\): ")
            self.assertRegex(self.doctor(), "ended with exit code 6; its last line says why")

    def test_a_report_that_is_too_large_is_told_and_does_not_kill(self):
        def no_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with self.serve(before=no_files) as g:
            self.assertTrue(any("cannot write --report" in line for line in g.lines), "\n".join(g.lines))
            g.process.send_signal(signal.SIGTERM)
            self.assertEqual(g.exit_code(), 0)

    def hang_report(self):
        """From now on whoever opens the report waits for ever, as on a file system that does not answer."""
        os.unlink(self.report)
        os.mkfifo(self.report)

    def test_a_report_that_hangs_delays_the_second_signal_by_seconds(self):
        with self.serve() as g:
            reader, _ = self.open_stream(g)
            self.hang_report()
            g.process.send_signal(signal.SIGTERM)
            until(lambda: any("a second signal" in line for line in g.lines), "no drain")
            time.sleep(0.6)
            g.process.send_signal(signal.SIGTERM)
            reader.join(group.LIMIT_S)
            self.assertEqual(g.exit_code(), 128 + signal.SIGTERM)
            self.assertEqual(g.lines[-1], "bulkhead: stopped by signal 15 (TERM)")

    def test_a_report_that_hangs_keeps_no_killed_rank_from_being_named(self):
        with self.serve() as g:
            self.hang_report()
            os.kill(g.rank_pids()[0], signal.SIGKILL)
            self.assertEqual(g.exit_code(), 137)
            self.assertRegex(g.lines[-1], r"was killed by signal 9 \(KILL\)$")


if __name__ == "__main__":
    unittest.main()
