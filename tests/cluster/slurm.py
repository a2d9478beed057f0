"""A Slurm cluster of two nodes in the hosts of hosts.py: hosta is controller and node, hostb a node. No systemd, no
accounting; keys, sockets and spool lie in the test's own tmpfs."""
import contextlib
import glob
import os
import shutil
import signal
import subprocess

import hosts

TOOLS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "squeue", "scontrol")
DIR = hosts.STATE + "/slurm"
CONFIG = """\
ClusterName=bulkhead
SlurmctldHost=hosta(10.77.0.1)
SlurmUser=root
SlurmctldPort=7817
SlurmdPort=7818
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
TmpFS={dir}/tmp.%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=pmix
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=20
InactiveLimit=0
KillWait=5
MinJobAge=300
NodeName=hosta NodeAddr=10.77.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
NodeName=hostb NodeAddr=10.77.0.2 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=test Nodes=hosta,hostb Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class Slurm:
    """Up for as long as the context lasts, inside a Hosts context."""

    def __init__(self, two_hosts):
        self.hosts = two_hosts
        self._daemons = []

    def __enter__(self):
        # The plug-in keeps a folder for each job under TmpFS, named alike on all nodes: each node needs its own.
        for name in ("state", "munge", "spool.hosta", "spool.hostb", "tmp.hosta", "tmp.hostb"):
            os.makedirs(f"{DIR}/{name}", mode=0o700)
        os.chmod(DIR, 0o755)  # munged wants the way to its socket open, and its key's closed
        with open(f"{DIR}/munge/key", "wb") as f:
            f.write(os.urandom(1024))
        os.chmod(f"{DIR}/munge/key", 0o400)
        with open(f"{DIR}/slurm.conf", "w", encoding="ascii") as f:
            f.write(CONFIG.format(dir=DIR, cpus=os.cpu_count()))
        if os.path.isdir("/sys/fs/cgroup/memory"):
            with open(f"{DIR}/cgroup.conf", "w", encoding="ascii") as f:
                f.write("CgroupPlugin=cgroup/v1\n")
        os.environ["SLURM_CONF"] = f"{DIR}/slurm.conf"
        for name in ("plm_rsh_agent", "plm_rsh_no_tree_spawn", "orte_default_hostfile", "rmaps_base_oversubscribe"):
            os.environ.pop("OMPI_MCA_" + name, None)  # mpirun's; under srun the launch is Slurm's
        self._start("hosta", "munged", "--foreground", "--force", f"--key-file={DIR}/munge/key",
                    f"--socket={DIR}/munge.sock", f"--pid-file={DIR}/munge/pid", f"--log-file={DIR}/munge/log",
                    f"--seed-file={DIR}/munge/seed")
        hosts.until(lambda: os.path.exists(f"{DIR}/munge.sock"), "munged did not come up")
        self._start("hosta", "slurmctld", "-D")
        for host in self.hosts.names:
            self._start(host, "slurmd", "-D", "-N", host)
        hosts.until(self._idle, "the nodes did not become idle")
        return self

    def __exit__(self, *error):
        subprocess.run(["timeout", "10", "scancel", "--user=root"], check=False)
        for daemon in reversed(self._daemons):
            for pid in hosts.children(daemon.pid) or [daemon.pid]:  # nsenter waits for what it runs
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                for pid in [*hosts.children(daemon.pid), daemon.pid]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                daemon.wait()
        if error[0] is not None:
            for path in glob.glob(DIR + "/*.log"):
                with open(path, encoding="utf-8", errors="replace") as f:
                    print(path, *f.readlines()[-15:], sep="\n  ")
        def removed():  # a slurmstepd may be about to remove its own socket
            shutil.rmtree(DIR, ignore_errors=True)
            return not os.path.exists(DIR)
        hosts.until(removed, f"{DIR} stays")

    def _start(self, host, *command):
        self._daemons.append(subprocess.Popen(self.hosts.command(host, *command), stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    @staticmethod
    def _idle():
        listing = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], check=False, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, encoding="ascii").stdout
        return listing.split() == ["idle", "idle"]

    @staticmethod
    def submit(script, *arguments, options=()):
        """The job's id."""
        return subprocess.run(["sbatch", "--parsable", *options, script, *arguments], check=True,
                              stdout=subprocess.PIPE, encoding="ascii").stdout.strip()

    @staticmethod
    def job(job_id):
        """The job's record: {"JobState": "RUNNING", ...}."""
        text = subprocess.run(["scontrol", "-o", "show", "job", job_id], check=True, stdout=subprocess.PIPE,
                              encoding="utf-8").stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    @staticmethod
    def ended(job_id):
        """The job's record, once it has ended."""
        def record():
            job = Slurm.job(job_id)
            return job if job["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING") else None
        return hosts.until(record, "the job does not end")
