"""Hosts on one machine: "hosta", where the test itself runs, and "hostb", joined by one cable; or up to four of them,
joined by a switch.

A host is a set of namespaces: network, host name, mounts and processes. contain() runs the test again as the first
process of hosta's, so everything it starts ends with it, killed or not, and every file it makes lies in a tmpfs that
vanishes with it. Nothing outside is touched but memory cgroups (see MemoryCap)."""
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ADDRESS = {"hosta": "10.77.0.1", "hostb": "10.77.0.2", "hostc": "10.77.0.3", "hostd": "10.77.0.4"}
NETWORK = "10.77.0.0/24"
NIC = "eth0"
STATE = "/run/bulkhead"  # in the test's own tmpfs
SKIPPED = 77
INSIDE = "BULKHEAD_INSIDE_CLUSTER"
OPEN_MPI_5 = shutil.which("prterun") is not None
LAUNCHERS = ("prterun", "prted") if OPEN_MPI_5 else ("mpirun", "orted")  # what mpirun becomes, and its daemon on another host
LIMIT_S = 200  # for anything that should take a second or two; a loaded machine may need more


def skip(why):
    print(f"{os.path.basename(sys.argv[0])}: skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def contain(*tools):
    """Returns inside hosta's namespaces, with no other host there yet. Skips the test (exit code 77) where
    it is not root's, or `tools` are not installed."""
    if os.environ.get(INSIDE):
        settle()
        return
    missing = [t for t in ("unshare", "nsenter", "ip", "iptables", "mpirun") + tools if not shutil.which(t)]
    if os.geteuid() != 0:
        skip("making hosts needs root")
    if missing:
        skip(f"these programs are not installed: {' '.join(missing)}")
    if subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        skip("this machine lets not even root make namespaces")
    os.environ[INSIDE] = "1"
    sys.stdout.flush()
    os.execvp("unshare", ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                          sys.executable, "-B", *sys.argv])


def settle():
    """Makes the namespaces that this process was born into the host "hosta"."""
    socket.sethostname("hosta")
    for target in ("/run", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", target], check=True)
    os.makedirs(STATE + "/tmp")
    os.makedirs("/run/lock")
    with open(STATE + "/hosts", "w", encoding="ascii") as f:
        f.write("127.0.0.1 localhost\n" + "".join(f"{a} {h}\n" for h, a in ADDRESS.items()))
    subprocess.run(["mount", "--bind", STATE + "/hosts", "/etc/hosts"], check=True)
    os.environ.update(TMPDIR=STATE + "/tmp", LC_ALL="C", HOME=STATE)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def alive(pid):
    """Whether the process is there, and no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return list(map(int, f.read().split()))


def until(condition, what, limit_s=LIMIT_S):
    """Waits until condition() is true, and returns what it returned."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {limit_s} s")


def processes(name, environment=b""):
    """pid of every process of both hosts that is called `name` and has `environment` (b"KEY=value") in its own."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                if f.read().strip() != name[:15]:
                    continue
            with open(f"/proc/{pid}/environ", "rb") as f:
                if environment and environment not in f.read().split(b"\0"):
                    continue
        except OSError:
            continue
        if alive(pid):
            found.append(int(pid))
    return found


def ranks(name="bulkhead"):
    """rank -> pid of the ranks of one launch, by mpirun or srun."""
    found = {}
    for pid in processes(name):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                for entry in f.read().split(b"\0"):
                    if entry.startswith(b"PMIX_RANK="):
                        found[int(entry.split(b"=")[1])] = pid
        except OSError:
            continue
    return found


class Hosts:
    """The other hosts and what joins them, for as long as the context lasts."""

    def __init__(self, slots=1, count=2):
        self.slots = slots
        self.names = list(ADDRESS)[:count]
        self._holders = {}  # host -> what started it
        self.holders = {}  # host -> pid of the process that holds its namespaces

    def __enter__(self):
        for host in self.names[1:]:
            self._begin(host)
        self._join()
        for host in self.names:
            self.run(host, "ip", "address", "add", ADDRESS[host] + "/24", "dev", NIC)
            self.run(host, "ip", "link", "set", NIC, "up")
        self.set_tcp_retries(15)  # the kernel's default; hosta may have been left with another
        with open(STATE + "/hostfile", "w", encoding="ascii") as f:
            f.write("".join(f"{host} slots={self.slots}\n" for host in self.names))
        # mpirun without ssh, speaking over the cable alone.
        os.environ.update({
            "BULKHEAD_HOLDERS": " ".join(f"{name}={pid}" for host, pid in self.holders.items()
                                         for name in (host, ADDRESS[host])),
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp,vader", "OMPI_MCA_btl_tcp_if_include": NETWORK})
        os.environ.update({
            "PRTE_MCA_prte_default_hostfile": STATE + "/hostfile", "PRTE_MCA_plm_ssh_agent": HERE + "/host_shell.sh",
            "PRTE_MCA_plm_ssh_no_tree_spawn": "1", "PRTE_MCA_hwloc_default_binding_policy": "none",
            "PRTE_MCA_prte_if_include": NIC} if OPEN_MPI_5 else {
            "OMPI_MCA_orte_default_hostfile": STATE + "/hostfile", "OMPI_MCA_plm_rsh_agent": HERE + "/host_shell.sh",
            "OMPI_MCA_plm_rsh_no_tree_spawn": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_oob_tcp_if_include": NETWORK})
        return self

    def _begin(self, host):
        holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             f"hostname {host} && mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo up && exec sleep infinity"],
            stdout=subprocess.PIPE, encoding="ascii")
        self._holders[host] = holder
        if holder.stdout.readline() != "up\n":
            raise AssertionError(f"{host} did not come up")
        self.holders[host] = children(holder.pid)[0]

    def _join(self):
        """A cable between two hosts; a switch in hosta, which is its own port, between more."""
        def ip(*words):
            subprocess.run(["ip", "link", *words], check=True)
        switched = len(self.names) > 2
        if switched:
            ip("add", NIC, "type", "bridge")
        for host, holder in self.holders.items():
            port = f"to-{host}" if switched else NIC
            ip("add", port, "type", "veth", "peer", "name", NIC, "netns", str(holder))
            if switched:
                ip("set", port, "master", NIC, "up")

    def __exit__(self, *error):
        subprocess.run(["iptables", "-F"], check=True)  # what drop() left on hosta
        for host, holder in self._holders.items():
            holder.kill()  # and with it every process of the host
            holder.wait()
            holder.stdout.close()
            if host in self.holders:
                until(lambda pid=self.holders[host]: not alive(pid), f"{host} did not end")
        subprocess.run(["ip", "link", "delete", NIC], check=False, stderr=subprocess.DEVNULL)

    def command(self, host, *command):
        """What runs `command` on that host."""
        if host == "hosta":
            return list(command)
        return ["nsenter", "--target", str(self.holders[host]), "--net", "--uts", "--mount", "--pid", "--", *command]

    def run(self, host, *command):
        return subprocess.run(self.command(host, *command), check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout

    def pids(self):
        """Every process of hostb but the one that holds it."""
        holder = self.holders["hostb"]
        space = os.readlink(f"/proc/{holder}/ns/pid")
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(pid) != holder and os.readlink(f"/proc/{pid}/ns/pid") == space:
                    found.append(int(pid))
            except OSError:
                continue
        return found

    def signal_all(self, number):
        """To every process of hostb: SIGSTOP is what a stopped virtual machine looks like."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):  # one that goes on may end the others
                os.kill(pid, number)

    def cut(self):
        """Pulls the cable: the carrier is gone."""
        self.run("hostb", "ip", "link", "set", NIC, "down")

    def drop(self):
        """Packets vanish, and nobody is told."""
        for host in self.names:
            self.run(host, "iptables", "-I", "INPUT", "-i", NIC, "-j", "DROP")
            self.run(host, "iptables", "-I", "OUTPUT", "-o", NIC, "-j", "DROP")

    def heal(self):
        """Undoes cut and drop."""
        self.run("hostb", "ip", "link", "set", NIC, "up")
        for host in self.names:
            self.run(host, "iptables", "-F")

    def set_tcp_retries(self, retries):
        for host in self.names:
            self.run(host, "sysctl", "-qw", f"net.ipv4.tcp_retries2={retries}")


class MemoryCap:
    """A memory cgroup, v1 or v2, for the context's time: what a host with less memory is to a rank. A run that is
    killed leaves an empty cgroup behind."""
    V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"

    def __init__(self, limit_bytes):
        self.v1 = os.path.isdir(self.V1)
        self.path = f"{self.V1 if self.v1 else self.V2}/bulkhead-test.{time.monotonic_ns()}"
        self.limit_bytes = limit_bytes

    @staticmethod
    def available():
        if os.path.isdir(MemoryCap.V1):
            return os.access(MemoryCap.V1, os.W_OK)
        try:
            with open(MemoryCap.V2 + "/cgroup.subtree_control", encoding="ascii") as f:
                return "memory" in f.read().split()
        except OSError:
            return False

    def __enter__(self):
        os.mkdir(self.path)
        with open(f"{self.path}/{'memory.limit_in_bytes' if self.v1 else 'memory.max'}", "w", encoding="ascii") as f:
            f.write(str(self.limit_bytes))
        return self

    def __exit__(self, *error):
        def removed():
            try:
                os.rmdir(self.path)
                return True
            except OSError:
                return False
        until(removed, f"{self.path} cannot be removed")

    def command(self, *command):
        """What runs `command` under the cap."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *command]

    def oom_kills(self):
        name = "memory.oom_control" if self.v1 else "memory.events"
        with open(f"{self.path}/{name}", encoding="ascii") as f:
            return next(int(l.split()[1]) for l in f if l.startswith("oom_kill "))
