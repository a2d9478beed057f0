"""`bench verify`: starts one rank that saves its answers, and then the groups that compare theirs."""
import pathlib
import secrets
import tempfile

from bench import groups
from bench.ends import BY_SIGNAL, CLIENT_ERROR, Failure, say
from bench.flags import Flags


def run(program, args):
    flags = Flags("verify", "[--model] DIR [FLAGS]",
                  "Checks whether groups of ranks give the same answers as one rank: starts one rank and saves its answers,\n"
                  "then starts groups of several sizes and compares their tokens, and digests of all logits bit by bit. Run\n"
                  "it without mpirun. The exit code is 1 if an answer differs. Also takes the flags of the groups, which\n"
                  "'bulkhead bench verify --save FILE --help' lists.",
                  ["bulkhead bench verify --model DIR --tp 2,4,8",
                   "bulkhead bench verify --model DIR --save one.json",
                   "srun -n 8 --mpi=pmix bulkhead bench verify --model DIR --against one.json"])
    groups.add_flags(flags, [2, 4, 8])
    options, rest = flags.split(args)
    launch = groups.launch_of(options, rest)
    rank = [program, "bench", "verify", *rest, *(["--json"] if options.json else [])]
    groups.on_ending(_end)
    # Rank 0 of every group reads it: where that is on another host, TMPDIR must name a folder that both see.
    # Named before it is made: a signal finds either no file or one that `finally` removes.
    answers = pathlib.Path(tempfile.gettempdir(), f"bulkhead-verify-{secrets.token_hex(8)}")
    try:
        answers.touch(mode=0o600, exist_ok=False)
        _run_one(launch, 1, [*rank, "--save", str(answers)])
        differing = [ranks for ranks in options.tp if not _run_one(launch, ranks, [*rank, "--against", str(answers)])]
    finally:
        answers.unlink(missing_ok=True)
    if differing:
        raise Failure(f"answers differ from those of one rank at sizes {', '.join(map(str, differing))}", CLIENT_ERROR)
    return 0


def _end(number, _frame):
    raise SystemExit(BY_SIGNAL + number)


def _run_one(launch, ranks, argv):
    """Whether it is equal. A group that finds a difference has said so, and ends with CLIENT_ERROR: no failure yet."""
    end = groups.run_group(launch, ranks, [*argv, "--tensor-parallel-size", str(ranks)])
    say(end.out)
    differs = end.exit_code == CLIENT_ERROR and end.out != ""
    if not differs:
        groups.check(groups.name(launch, ranks), end)
    return not differs
