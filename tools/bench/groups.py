"""Commands of ours as children: a group of ranks under a launcher, or one process alone."""
import collections
import ctypes
import os
import shlex
import signal
import subprocess
import sys

from bench.ends import BUG, BY_SIGNAL, CANNOT_BIND, GROUP_NOT_UP, USAGE, Failure
from bench.flags import numbers

TOLD_LINES = 6
LAUNCHER = "mpirun --bind-to none"
PR_SET_PDEATHSIG = 1
MPIRUN_BY_SIGNAL = 1  # its exit code after a signal

# `out`, `errors`: what it printed; None: that was not asked for.
End = collections.namedtuple("End", "exit_code out errors")


def on_ending(handler):
    """Sets it for the signals that end a process, but for ignored ones (nohup); gives what was set before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    for number, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(number, handler)
    return before


def run(argv, errors=subprocess.PIPE):
    """To its end, in a session of its own: signals that would end this process go to it instead. It gets SIGTERM when
    this process dies."""
    libc = ctypes.CDLL(None)

    def die_with_parent():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    child, early, received = None, [], []

    def pass_on(number, _):
        received.append(number)
        if child:
            child.send_signal(number)
        else:
            early.append(number)

    # From before the child runs on: one that arrives in between is passed on as soon as there is a child.
    before = on_ending(pass_on)
    try:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8", errors="replace",
                                 start_new_session=True, preexec_fn=die_with_parent)
        for number in early:
            child.send_signal(number)
        out, said = child.communicate()
    except OSError as error:
        raise Failure(f"there is no program '{argv[0]}' that can be run; install it, or name another one with "
                      f"--launcher: {error.strerror}", USAGE) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code = child.returncode
    if received and code == MPIRUN_BY_SIGNAL:
        code = -received[-1]
    return End(code if code >= 0 else BY_SIGNAL - code, out, said)


def check(what, end):
    """Fails with what the child, else its launcher, said last, and its exit code where the child chose it."""
    if end.exit_code == 0:
        return
    ours = [line for line in end.errors.splitlines() if line.startswith("bulkhead: ")]
    lines = [ours[-1].removeprefix("bulkhead: ")] if ours else _gist(end.errors)
    if not ours and "--allow-run-as-root" in end.errors:
        lines = ["mpirun does not run as root; add --launcher 'mpirun --allow-run-as-root --bind-to none'"]
    code = end.exit_code
    if code - BY_SIGNAL in (signal.SIGINT, signal.SIGTERM):
        raise Failure(f"{what} was stopped by signal {code - BY_SIGNAL}", code)
    is_ours = code == BUG or ours and 0 < code <= CANNOT_BIND
    raise Failure(f"{what} ended with code {code}{': ' if lines else ''}{' | '.join(lines)}",
                  code if is_ours else GROUP_NOT_UP)


def _gist(errors):
    """The last lines outside of frames of dashes, in which mpirun puts pages of what might be wrong; the first paragraph
    of the first frame where there are none."""
    plain, paragraph, borders, paragraph_ended = [], [], 0, False
    for line in errors.split("\n"):
        if line.startswith("-----"):
            borders += 1
        elif borders % 2 == 0:
            plain += [line] if line.strip() else []
        elif borders == 1 and not paragraph_ended:
            paragraph_ended = not line.strip() and bool(paragraph)
            paragraph += [line] if line.strip() else []
    return (plain or paragraph)[-TOLD_LINES:]


# How a group of ranks is started: words before "-n RANKS"; `hosts` empty: this one.
Launch = collections.namedtuple("Launch", "launcher hosts")


def add_flags(flags, default_sizes):
    flags.add_argument("--tp", metavar="LIST", type=numbers, default=default_sizes,
                       help=f"numbers of ranks of the groups to start (default {','.join(map(str, default_sizes))})")
    flags.add_argument("--hosts", metavar="LIST", help="hosts such as a,b, over which mpirun spreads each group evenly")
    flags.add_argument("--launcher", metavar="WORDS", default=LAUNCHER,
                       help=f"command that starts a group, without '-n RANKS' (default '{LAUNCHER}')")
    flags.add_argument("--json", action="store_true", help="print JSON instead of a table")


def launch_of(options, rest):
    """`rest`: flags for the groups."""
    hosts = options.hosts.split(",") if options.hosts is not None else []
    if not all(hosts):
        raise Failure("--hosts: give names, as in a,b", USAGE)
    if hosts and "mpirun" not in options.launcher:
        raise Failure(f"--hosts is for mpirun; with --launcher '{options.launcher}' say there which hosts to use", USAGE)
    if any(word.startswith("--tensor-parallel-size") for word in rest):
        raise Failure("give the sizes with --tp, as in --tp 1,2,4,8", USAGE)
    return Launch(options.launcher, hosts)


def name(launch, ranks):
    """For check: "the group of 4 on hosts a, b"."""
    return f"the group of {ranks}" + (f" on hosts {', '.join(launch.hosts)}" if launch.hosts and ranks > 1 else "")


def command(launch, ranks, cores, argv):
    """The command line of a group that runs `argv`; of one rank that itself. `cores`: of this host."""
    if ranks == 1:
        return argv
    words = launch.launcher.split()
    if launch.hosts:
        slots = -(-ranks // len(launch.hosts))
        words += ["--host", ",".join(f"{host}:{slots}" for host in launch.hosts)]
    elif ranks > cores and "mpirun" in words[0]:
        words.append("--oversubscribe")
    return [*words, "-n", str(ranks), *argv]


def run_group(launch, ranks, argv):
    words = command(launch, ranks, len(os.sched_getaffinity(0)), argv)
    print(shlex.join(words), file=sys.stderr)
    return run(words)
