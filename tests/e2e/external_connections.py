"""Lists TCP listeners, and simulates external connections to them.

As a program it is a crowd of them: external_connections.py PORT... connects to all of these ports
on every address of its host, or to ADDRESS:PORT, sends garbage and partial handshakes, prints the
ports that accepted a connection as one line, and holds all connections open until its standard
input ends.
"""
import contextlib
import os
import re
import resource
import select
import socket
import subprocess
import sys
import time

PROGRAM = os.path.abspath(__file__)
MAGIC = b"OPAL-TCP-BTL\0"  # start of a handshake between ranks, followed by the rank's name
WORDS = [b"",  # silent
         os.urandom(400),
         MAGIC[:8],  # half a handshake
         MAGIC + os.urandom(100),
         MAGIC + bytes.fromhex("0000000100000000"),  # a handshake of another job's rank 0
         b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)]
CONNECTIONS = 5  # of each kind to each port
FLOOD = 100  # additional silent ones to each port
TAKE_S = 1.5  # connect timeout; on one machine it takes microseconds
INTERPRETER = "/usr/bin/python3"


def socket_inodes(pid):
    found = set()
    with contextlib.suppress(OSError):  # a process that has just ended
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # a descriptor that was just closed
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found


def listening_ports(pid):
    """The TCP ports, IPv4 and IPv6, on which the process listens."""
    inodes = socket_inodes(pid)
    found = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as f:
            for words in map(str.split, f.readlines()[1:]):
                if words[3] == "0A" and words[9] in inodes:
                    found.add(int(words[1].rsplit(":", 1)[1], 16))
    return found


def family(pid):
    """The process and all its descendants."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [pid] + [one for child in map(int, f.read().split()) for one in family(child)]


def ready_ports(lines):
    """The ports the group serves, from its READY line."""
    ready = next(line for line in lines if line.startswith("READY "))
    return set(map(int, re.findall(r"\b(?:grpc|control)=\S*:(\d+)", ready)))


def own_addresses():
    """Every address of this host, IPv6 in the form that connect() takes."""
    text = subprocess.run(["ip", "-o", "address"], check=True, stdout=subprocess.PIPE, encoding="ascii").stdout
    found = []
    for words in map(str.split, text.splitlines()):
        address = words[3].split("/")[0]
        found.append(f"{address}%{words[1]}" if address.startswith("fe80") else address)
    return found


def connect(address, port):
    """A connected or connecting socket, or None."""
    family, kind, _, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind)
    made.setblocking(False)
    made.connect_ex(target)
    return made


class Crowd:
    """Connections from this process, held open until the context ends."""

    def __init__(self, targets, words=tuple(WORDS), flood=FLOOD):
        """`targets`: (address, port)."""
        self.held = {}
        for target in targets:
            said = [word for word in words for _ in range(CONNECTIONS)] + [b""] * flood
            self.held.update((connect(*target), (target, word)) for word in said)
        self.took = set()
        end = time.monotonic() + TAKE_S
        waiting = select.poll()
        by_fd = {s.fileno(): s for s in self.held}
        for fd in by_fd:
            waiting.register(fd, select.POLLOUT)
        while by_fd and time.monotonic() < end:
            for fd, _ in waiting.poll(100):
                waiting.unregister(fd)
                self._speak(by_fd.pop(fd))

    def _speak(self, connected):
        target, word = self.held[connected]
        if connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
            return  # nothing listens at this address
        try:
            connected.getpeername()
            self.took.add(target[1])
            connected.send(word)
        except OSError:
            pass  # already closed by the peer

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for s in self.held:
            s.close()


class Elsewhere:
    """A crowd in its own process, started by `command` (hosts.Hosts.command on that host)."""

    def __init__(self, command, ports):
        self.process = subprocess.Popen(command(INTERPRETER, "-B", PROGRAM, *map(str, ports)),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii")
        self.took = set(map(int, self.process.stdout.readline().split()))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def main():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    targets = []
    for argument in sys.argv[1:]:
        address, _, port = argument.rpartition(":")
        targets += [(a, int(port)) for a in ([address] if address else own_addresses())]
    with Crowd(targets) as crowd:
        print(*sorted(crowd.took), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
