#!/usr/bin/python3
"""Runs every attack at once for minutes, beside honest clients, on a group in its own memory
cgroup: compares resident memory of rank 0 with the bound that the server reports, and measures how
long others wait. Not part of the tests: `ctest -R e2e_hostile` runs each attack for seconds.

abuse_soak.py BINARY [--minutes 10] [--ranks 2] [--memory-mib 1024] (root, a memory cgroup v1 or v2;
the environment of tests/e2e)
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20


class Cgroup:
    def __init__(self, limit_bytes):
        v1 = "/sys/fs/cgroup/memory"
        self.is_v1 = os.path.isdir(v1)
        self.path = os.path.join(v1 if self.is_v1 else "/sys/fs/cgroup", f"bulkhead_soak_{os.getpid()}")
        os.mkdir(self.path)
        self._write("memory.limit_in_bytes" if self.is_v1 else "memory.max", limit_bytes)

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def _read(self, name):
        with open(os.path.join(self.path, name), encoding="ascii") as f:
            return f.read()

    def enter(self):
        self._write("cgroup.procs", os.getpid())

    def used(self):
        return int(self._read("memory.usage_in_bytes" if self.is_v1 else "memory.current"))

    def kills(self):
        events = self._read("memory.oom_control" if self.is_v1 else "memory.events")
        return sum(int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill "))

    def remove(self):
        for _ in range(50):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.1)


def stubs(source, folder):
    proto = os.path.join(source, "proto")
    files = ["bulkhead/v1/generation.proto", "grpc/health/v1/health.proto", "google/rpc/error_details.proto"]
    subprocess.run(["protoc", f"-I{proto}", f"--python_out={folder}", f"--grpc_out={folder}",
                    f"--plugin=protoc-gen-grpc={shutil.which('grpc_python_plugin')}", *files], check=True)


class Soak:
    def __init__(self, served, cgroup, seconds):
        self.served, self.cgroup, self.end = served, cgroup, time.monotonic() + seconds
        self.counts, self.lock, self.waits_s, self.threads = {}, threading.Lock(), {}, []

    def over(self):
        return time.monotonic() > self.end or self.served.process.poll() is not None

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + number

    def start(self, attack, *arguments):
        def repeat():
            while not self.over():
                try:
                    attack(self, *arguments)
                except OSError:
                    self.count("attackers hung up on")
                    time.sleep(0.05)
        self.threads.append(threading.Thread(target=repeat, daemon=True))
        self.threads[-1].start()

    def attack_with(self, connection, name, step, pause_s=0.0):
        until = time.monotonic() + random.uniform(2, 8)
        connection.socket.settimeout(5)
        while time.monotonic() < until and not connection.closed and not self.over():
            step(connection)
            connection.read(0)
            self.count(name)
            time.sleep(pause_s)
        connection.close()


def resets(soak, h2, sent):
    def fifty(connection):
        out = b""
        for _ in range(50):
            stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
            out += (h2.frame(h2.HEADERS, h2.END_HEADERS, stream, h2.request_headers(b"/bulkhead.v1.Generation/Generate"))
                    + h2.frame(h2.DATA, h2.END_STREAM, stream, sent) + h2.frame(h2.RST_STREAM, 0, stream, h2.CANCEL))
        connection.send(out)
    soak.attack_with(h2.Connection(soak.served.target), "50 whole requests, reset", fifty)


def unread(soak, h2, path, sent):
    soak.attack_with(h2.Connection(soak.served.target, window=0), f"unread {path.rsplit('/', 1)[1]}",
                     lambda c: c.send_body(c.open(path.encode()), sent), 0.1)


def opened(soak, h2):
    soak.attack_with(h2.Connection(soak.served.target), "calls without a body",
                     lambda c: c.open(b"/bulkhead.v1.Generation/Generate"))


def headers(soak, h2):
    connection = h2.Connection(soak.served.target)
    connection.send(h2.frame(h2.HEADERS, 0, 1, h2.request_headers(b"/bulkhead.v1.Control/GetLoad") + b"\x00\x01x"
                             + h2.integer(2 ** 31 - 1)))
    soak.attack_with(connection, "header block frames", lambda c: c.send(h2.frame(h2.CONTINUATION, 0, 1, b"a" * 16384)))


def halves(soak, h2, sent):
    soak.attack_with(h2.Connection(soak.served.target), "half messages",
                     lambda c: c.send_body(c.open(b"/bulkhead.v1.Generation/Score"), sent, keep_back=16), 0.2)


def silent(soak, h2):
    kept = [h2.Connection(soak.served.target, greet=False) for _ in range(50)]
    soak.count("silent connections", len(kept))
    time.sleep(3)
    for connection in kept:
        connection.close()


def honest(soak, group, seed):
    """Streams, unary answers with log probabilities and scores; accepted requests must be answered.
    """
    grpc, pb, rpc = group.grpc, group.pb, group.rpc
    chance = random.Random(seed)
    with grpc.insecure_channel(soak.served.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = rpc.GenerationStub(channel)
        while not soak.over():
            request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[chance.randrange(500) for _ in range(16)]))
            request.stopping.max_tokens, request.stopping.ignore_eos = chance.choice([8, 64, 400]), True
            request.output.logprobs = chance.choice([0, 20])
            begin = time.monotonic()
            try:
                if chance.random() < 0.5:
                    tokens = len(stub.Generate(request, timeout=120).tokens)
                else:
                    tokens = sum(len(e.delta.tokens) for e in stub.GenerateStream(request, timeout=120))
                soak.count("honest requests" if tokens == request.stopping.max_tokens else "WRONG ANSWERS")
            except grpc.RpcError as error:
                soak.count(f"honest requests refused: {error.code().name} {group.reason(error)}")
                time.sleep(0.5)
            with soak.lock:
                soak.waits_s.setdefault(request.stopping.max_tokens, []).append(time.monotonic() - begin)


def watch(soak, group):
    """Once a second, over the control port: (bound, resident, cgroup's use), and the latency of
    health checks."""
    samples, health_s = [], []
    with group.grpc.insecure_channel(soak.served.control_target) as channel:
        control, health = group.rpc.ControlStub(channel), group.health_rpc.HealthStub(channel)
        while not soak.over():
            begin = time.monotonic()
            health.Check(group.health_pb.HealthCheckRequest(), timeout=60)
            health_s.append(time.monotonic() - begin)
            load = control.GetLoad(group.pb.GetLoadRequest(), timeout=60)
            samples.append((load.host.bound_bytes, load.host.resident_bytes_peak, load.resident_bytes, soak.cgroup.used()))
            time.sleep(1)
        return samples, health_s, load


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--memory-mib", type=int, default=1024)
    options = parser.parse_args()
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folder = os.path.join("/tmp", f"bulkhead_soak_{os.getpid()}")
    os.makedirs(folder)
    stubs(source, folder)
    os.environ.update(BULKHEAD=os.path.abspath(options.binary), BULKHEAD_SOURCE=source, BULKHEAD_STUBS=folder,
                      BULKHEAD_TEST_RANKS=str(options.ranks))
    import group
    import raw_http2 as h2
    pb = group.pb
    cgroup = Cgroup(options.memory_mib * MIB)
    served = group.Group(before=cgroup.enter)
    soak = Soak(served, cgroup, options.minutes * 60)
    whole = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[10] * 50), stopping=pb.Stopping(max_tokens=500, ignore_eos=True))
    for _ in range(2):
        soak.start(resets, h2, h2.message(whole.SerializeToString()))
    whole.output.logprobs = 20
    soak.start(unread, h2, "/bulkhead.v1.Generation/Generate", whole.SerializeToString())
    soak.start(unread, h2, "/bulkhead.v1.Generation/GenerateStream", whole.SerializeToString())
    soak.start(unread, h2, "/bulkhead.v1.Generation/Tokenize", pb.TokenizeRequest(text="?!" * 200_000).SerializeToString())
    soak.start(unread, h2, "/bulkhead.v1.Generation/Detokenize",
               pb.DetokenizeRequest(token_ids=pb.TokenIds(ids=[500] * 200_000)).SerializeToString())
    soak.start(opened, h2)
    soak.start(headers, h2)
    soak.start(halves, h2, b"\x1a" + h2.integer(900_000) + b"a" * 900_000)
    soak.start(silent, h2)
    for seed in range(6):
        soak.start(honest, group, seed)
    samples, health_s, load = watch(soak, group)
    alive = served.process.poll() is None and cgroup.kills() == 0
    for name, number in sorted(soak.counts.items()):
        print(f"{number:10d} {name}")
    print("connections closed:", dict(load.host.num_connections_closed_by_reason))
    print("calls that ended with an error:", dict(load.num_errors_by_reason))
    for tokens, waits in sorted(soak.waits_s.items()):
        waits.sort()
        print(f"honest, {tokens} tokens: median {waits[len(waits) // 2]:.2f} s, most {waits[-1]:.2f} s")
    health_s.sort()
    print(f"health on the control port: median {health_s[len(health_s) // 2] * 1000:.1f} ms, most {health_s[-1] * 1000:.0f} ms")
    print(f"resident memory of rank 0: at READY {load.host.resident_bytes_at_ready // MIB} MiB, most {load.host.resident_bytes_peak // MIB} MiB, "
          f"bound {load.host.bound_bytes // MIB} MiB; the cgroup: most {max(s[3] for s in samples) // MIB} of {options.memory_mib} MiB")
    within = all(peak <= bound for bound, peak, _, _ in samples)
    print("alive" if alive else "DEAD", "within the bound throughout" if within else "BEYOND THE BOUND", len(samples), "looks")
    served.__exit__()
    cgroup.remove()
    shutil.rmtree(folder)
    return 0 if alive and within and "WRONG ANSWERS" not in soak.counts else 1


if __name__ == "__main__":
    sys.exit(main())
