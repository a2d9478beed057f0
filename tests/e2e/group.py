"""A served group and a client of it. The environment gives program, model and number of ranks (see
CMakeLists.txt); stubs are generated from our own .proto files."""
import json
import os
import pty
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time

import grpc

STUBS = os.environ["BULKHEAD_STUBS"]
sys.path.append(STUBS)
grpc.__path__.append(os.path.join(STUBS, "grpc"))  # the folder of the standard health messages

from bulkhead.v1 import generation_pb2 as pb  # noqa: E402
from bulkhead.v1 import generation_pb2_grpc as rpc  # noqa: E402
from google.rpc import error_details_pb2 as details_pb  # noqa: E402
from grpc.health.v1 import health_pb2 as health_pb  # noqa: E402
from grpc.health.v1 import health_pb2_grpc as health_rpc  # noqa: E402

BINARY = os.environ["BULKHEAD"]
SOURCE = os.environ["BULKHEAD_SOURCE"]
RANKS = int(os.environ["BULKHEAD_TEST_RANKS"])
HOSTS = int(os.environ.get("BULKHEAD_TEST_HOSTS", "1"))
MODEL = os.path.join(SOURCE, "examples", "models", "sample")
LIMIT_S = 120  # for anything that takes a second or two; a loaded machine may need more
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1")


def golden():
    """Greedy continuations of the sample model: a list of {"prompt", "prompt_ids", "ids", "text"}.
    """
    with open(os.path.join(SOURCE, "tests", "data", "sample", "golden.json"), encoding="utf-8") as f:
        return json.load(f)["greedy"]


def front():
    """The launcher's words. With BULKHEAD_TEST_HOSTS the ranks meet as if they were spread over so many hosts, in order."""
    words = [] if RANKS == 1 else ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(RANKS)]
    if HOSTS > 1:
        name = f"host$((OMPI_COMM_WORLD_RANK * {HOSTS} / {RANKS}))"
        words += ["sh", "-c", f'BULKHEAD_NODE_NAME={name} exec "$@"', "sh"]
    return words


def by_rank(first, second):
    """A command that is `first` for rank 0 and `second` for the others; mpirun of Open MPI 5.0 crashes where `:` separates them."""
    return ["sh", "-c", f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec {shlex.join(second)}; exec {shlex.join(first)}']


def serve_command(*flags):
    return front() + [BINARY, "serve", "-v", "--model", MODEL, *map(str, flags)]


def in_terminal(command, environment):
    """(process, file descriptor of a terminal of its own). A pty.fork would wait for gRPC's threads, at times for ever."""
    fd, terminal = pty.openpty()
    process = subprocess.Popen(["setsid", "--ctty", *command], stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    return process, fd


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Group:
    """Starts a group and waits until it serves; use as a context. `front` wraps the command,
    `before` is called in the new process."""

    def __init__(self, *flags, front=lambda *command: command, before=None):
        self.lines = []
        self._ready = queue.Queue()
        self.process = subprocess.Popen(
            front(*serve_command("--port", 0, "--kv-cache-dtype", "f32", "--max-num-seqs", 8,
                                 "--max-model-len", 2048, *flags)),
            preexec_fn=before, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", env=ENVIRONMENT,
            start_new_session=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.target = self._ready.get(timeout=LIMIT_S)
        except queue.Empty:
            self.target = None
        if self.target is None:
            self.__exit__()  # nothing of it disturbs the next test
            raise AssertionError("the group did not become ready:\n" + "\n".join(self.lines[-20:]))
        self.channel = grpc.insecure_channel(self.target)
        self.generation = rpc.GenerationStub(self.channel)
        self.control = rpc.ControlStub(self.channel)
        self.health = health_rpc.HealthStub(self.channel)

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("READY "):
                words = dict(w.split("=", 1) for w in line.split()[1:])
                self.control_target = words["control"]
                self.http_target = words.get("http")
                self.metrics_target = words.get("metrics")
                self._ready.put(words["grpc"])
        self._ready.put(None)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if hasattr(self, "channel"):
            self.channel.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # whatever is left of it
        except ProcessLookupError:
            pass
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()

    def exit_code(self):
        """Waits for the end, and for the last line."""
        code = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return code

    def rank_pids(self):
        """rank -> process id."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            children = [int(pid) for pid in f.read().split()]
        if RANKS == 1:
            return {0: (children or [self.process.pid])[0]}
        ranks = {}
        for pid in children:
            with open(f"/proc/{pid}/environ", "rb") as e:
                for entry in e.read().split(b"\0"):
                    if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                        ranks[int(entry.split(b"=")[1])] = pid
        return ranks

    def load(self):
        return self.control.GetLoad(pb.GetLoadRequest(), timeout=LIMIT_S)

    def wait_until(self, condition):
        """Waits until `condition` holds for the load."""
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            load = self.load()
            if condition(load):
                return
            time.sleep(0.005)
        raise AssertionError(f"it did not come so far: {load}")

    def wait_until_idle(self):
        """Waits until no request is left and every block is free."""
        self.wait_until(lambda load: load.num_requests_running == load.num_requests_waiting == load.num_kv_blocks_used == 0)


def greedy(prompt, max_tokens, **more):
    return pb.GenerateRequest(text=prompt, sampling=pb.Sampling(temperature=0),
                              stopping=pb.Stopping(max_tokens=max_tokens), **more)


def long_request(request_id="", max_tokens=2000):
    """Runs until it is stopped, for as long as a test needs."""
    return pb.GenerateRequest(request_id=request_id, text="Once upon a time",
                              sampling=pb.Sampling(temperature=0),
                              stopping=pb.Stopping(max_tokens=max_tokens, ignore_eos=True))


class Streamed:
    """A stream read to its end: positions are contiguous, Accepted is first, Finished last."""

    def __init__(self, call):
        self.ids, self.text, self.accepted, self.finished, self.code = [], "", None, None, None
        self.deltas, self.epochs = 0, set()
        try:
            for event in call:
                self._take(event)
            self.code, self.error = grpc.StatusCode.OK, None
        except grpc.RpcError as error:
            self.code, self.error = error.code(), error

    def _take(self, event):
        assert self.finished is None, "an event after Finished"
        self.epochs.add(event.epoch)
        kind = event.WhichOneof("event")
        if kind == "accepted":
            assert self.accepted is None and not self.ids
            self.accepted = event.accepted
        elif kind == "delta":
            assert self.accepted is not None
            assert event.delta.position == len(self.ids), (event.delta.position, len(self.ids))
            self.ids += [t.id for t in event.delta.tokens]
            self.text += event.delta.text
            self.deltas += 1
        else:
            self.finished = event.finished


def detail(error, kind):
    """The typed detail of a failed call, or None."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = details_pb.Status.FromString(value)
            for packed in status.details:
                message = kind()
                if packed.Unpack(message):
                    return message
    return None


def reason(error):
    found = detail(error, details_pb.ErrorInfo)
    return found.reason if found is not None else ""
