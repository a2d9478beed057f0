"""`bench report`: sums up what `bench serve` measured; `bench serve` itself ends with it."""
import json
import os
import shutil
import sys

from bench import charts
from bench.console import console
from bench.ends import BY_SIGNAL, CLIENT_ERROR, USAGE, Failure, say, write
from bench.flags import Flags
from bench.page import report_page
from bench.records import first_failure, load
from bench.result import result_of


def json_text(value):
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def run(_program, args):
    flags = Flags("report", "DIR", "Prints the table for a result folder of 'bench serve --result-dir', from its "
                  "run.json and\nrequests.jsonl, and writes its result.json and report.html again.",
                  ["bulkhead bench report result"])
    flags.add_argument("dir", metavar="DIR", help="folder with the results")
    flags.add_argument("--remove", action="store_true", help="write nothing, and delete the folder at the end")
    options = flags.parse(args)
    try:
        _report(options.dir, saves=not options.remove)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Failure(f"{options.dir}: run.json or requests.jsonl is not as this version of 'bulkhead bench serve' writes "
                      f"it: {error!r}", USAGE) from error
    finally:
        if options.remove:
            shutil.rmtree(options.dir, ignore_errors=True)
    return 0


def _report(folder, saves):
    facts, requests = load(folder)
    result = result_of(facts, requests)
    say(console(facts, result))
    if saves:
        _save(folder, facts, requests, result)
    if facts["signal"]:
        raise Failure("stopped by a signal; the result is of what had ended", BY_SIGNAL + facts["signal"])
    if result["failed"] and not facts["allow_failures"]:
        raise Failure(failures_text(result, requests), CLIENT_ERROR)


def failures_text(result, requests):
    error = first_failure(requests)["error"]
    return (f"{result['failed']} of {result['completed'] + result['failed']} requests failed (--allow-failures accepts "
            f"it); first: {error['code']}: {error['message']}")


def _save(folder, facts, requests, result):
    write(os.path.join(folder, "result.json"), json_text(result))
    names = "run.json, requests.jsonl and result.json"
    if charts.library() is None:
        print("no report.html: it needs matplotlib (apt install python3-matplotlib); then 'bulkhead bench report "
              f"{folder}' writes it", file=sys.stderr)
    else:
        write(os.path.join(folder, "report.html"), report_page(facts, requests, result))
        names = "run.json, requests.jsonl, result.json and report.html"
    say(f"wrote {names} into {folder}\n")
