"""Chooses the command. Each is a module with run(program, args), which gives the exit code."""
import importlib
import re
import signal
import sys

from bench.ends import USAGE, Failure

# The command's name -> its module.
COMMANDS = {"check": "check", "comm": "comm", "compare": "compare", "definitions": "definitions",
            "plan-plot": "plan_plot", "report": "report", "scale": "scale", "simulate": "simulate", "sweep": "sweep",
            "throughput": "throughput", "verify": "verify", "verify-answers": "verify_answers"}


def main(program, command, *args):
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        if command not in COMMANDS:
            raise Failure(f"no command '{command}'", USAGE)
        return importlib.import_module("bench." + COMMANDS[command]).run(program, list(args))
    except Failure as failure:
        print("bulkhead:", re.sub(r"[\x00-\x1f\x7f]", " ", str(failure)), file=sys.stderr)
        return failure.code
