#!/usr/bin/python3
"""Write docs/metrics.md from what a server answers: metrics_page.py URL|FILE. --check: compare."""
import os
import re
import sys
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "metrics.md")
BEGIN, END = "<!-- written by scripts/metrics_page.py -->\n", "<!-- end -->\n"
COMMON = {"model_name", "engine", "le"}


def families(text):
    """name -> [type, help, labels besides those of all], in order."""
    found, latest = {}, None
    for line in text.splitlines():
        kind, name, rest = (line.split(" ", 3) + ["", ""])[1:4] if line.startswith("# ") else (None, None, None)
        if kind == "HELP":
            latest = found.setdefault(name, ["", rest, set()])
            if name.startswith("bulkhead_rank_"):
                latest[2].add("rank")  # also of those that only GPUs have
        elif kind == "TYPE":
            found.setdefault(name, ["", "", set()])[0] = rest
        elif "{" in line:
            latest[2].update(set(re.findall(r'[{,](\w+)="', line)) - COMMON)
    return found


def table(text):
    lines = ["| name | type | labels | |\n", "|---|---|---|---|\n"]
    for name, (kind, told, labels) in families(text).items():
        words = ", ".join(f"`{label}`" for label in sorted(labels))
        lines.append(f"| `{name}` | {kind} | {words} | {told} |\n")
    return "".join(lines)


def page(text):
    with open(PAGE, encoding="utf-8") as file:
        old = file.read()
    begin, end = old.index(BEGIN) + len(BEGIN), old.index(END)
    return old, old[:begin] + table(text) + old[end:]


def main():
    source = sys.argv[1]
    with (urllib.request.urlopen(source, timeout=10) if "://" in source else open(source, "rb")) as file:
        old, new = page(file.read().decode())
    if "--check" in sys.argv:
        if old != new:
            sys.exit("docs/metrics.md is not what the server answers: run scripts/metrics_page.py URL")
        return
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(new)


if __name__ == "__main__":
    main()
