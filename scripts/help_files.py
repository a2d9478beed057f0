#!/usr/bin/python3
"""Documents made from the help of the program: help_files.py PROGRAM markdown|man|completion FILE

markdown is docs/flags.md; man and completion are what `cmake --install` puts into share/."""
import json
import re
import subprocess
import sys


def by_group(page):
    """(title, flags) in the order of the help."""
    groups = {}
    for flag in page.get("flags", []):
        groups.setdefault(flag["group"], []).append(flag)
    return groups.items()


def values(flag):
    """What a flag's value may be."""
    return ", ".join(flag["choices"]) or flag["range"]


def pages_of(help_json):
    return [page for command in help_json["commands"] for page in command["pages"]]


def add_tool_page(program, page):
    """What the Python tool's commands say of themselves, as argparse prints it; unchanged where it cannot run."""
    done = subprocess.run([program, *page["command"].split(), "--help"], check=False, capture_output=True, text=True)
    parts = re.match(r"usage: bulkhead (?P<usage>.*?)\n\n(?P<summary>.*?)\n\n(?:positional.*?\n\n)?options:(?P<options>.*?)\n\n"
                     r"Examples:\n(?P<example>.*)", done.stdout, re.S)
    if done.returncode != 0 or not parts:
        return
    page["usage"] = re.sub(r"\s+", " ", parts["usage"])[len(page["command"]) + 1:]
    page["summary"] = parts["summary"]
    page["example"] = re.sub(r"(?m)^  ", "", parts["example"]).strip()
    page["flags"] = []
    for entry in re.split(r"\n  (?=--)", parts["options"])[1:]:
        name, value, text = re.match(r"(\S+)(?: (\S+))?(?:  +|\n +)(.*)", entry, re.S).groups()
        page["flags"].append({"group": "", "names": [name], "value": value or "", "help": re.sub(r"\s+", " ", text).strip(),
                              "choices": [], "range": ""})


# --- docs/flags.md

def markdown(help_json):
    out = ["# Commands and flags", "",
           "Made from the program: `scripts/help_files.py build/release/bin/bulkhead markdown docs/flags.md`. "
           "`bulkhead help COMMAND` prints",
           "the same. [Serving](serving.md) says how the flags of `serve` act together.", "",
           "Flags are written `--flag VALUE` or `--flag=VALUE`, with `-` or `_`; a switch takes `=false`. Sizes and counts are",
           "`4096`, `32k` (10^3), `32K` (2^10), `4GB` or `4GiB`.", "",
           "| command | what it does |", "|---|---|"]
    for command in help_json["commands"]:
        name = command["name"]
        out.append(f"| [`{name}`](#bulkhead-{name}) | {escaped(command['summary'])} |")
    seen, last = {}, None
    for page in pages_of(help_json):
        title = "bulkhead " + page["command"]
        anchor = title.replace(" ", "-")
        if page["command"].startswith("bench ") and last and not last.startswith("bench"):
            out += ["", "## bulkhead bench"]
        if page["command"] != last:
            out += ["", ("### " if " " in page["command"] else "## ") + title]
        last = page["command"]
        out += ["", re.sub(r"\s+", " ", escaped(page["summary"], prose=True))]
        if "usage" in page:
            out += ["", "```", f"{title} {page['usage']}".rstrip(), "", page["example"], "```"]
        for group, flags in by_group(page):
            key = json.dumps([group, flags])
            if key in seen and len(flags) > 1:
                out += ["", f"*{group}*: see [`{seen[key]}`](#{seen[key].replace(' ', '-')})."]
                continue
            seen.setdefault(key, title)
            out += ["", f"*{group}*", "", "| flag | value | what |", "|---|---|---|"] if group else [
                "", "| flag | value | what |", "|---|---|---|"]
            for flag in flags:
                names = ", ".join(f"`{name}`" for name in flag["names"])
                value = ": ".join(filter(None, [flag["value"], values(flag)]))
                out.append(f"| {names} | {value} | {escaped(flag['help'])} |")
    out += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    out += [f"| {code} | {meaning} |" for code, meaning in help_json["exit_codes"]]
    return "\n".join(out) + "\n"


def escaped(text, prose=False):
    text = text.replace("<", "&lt;").replace("*", r"\*")
    return text if prose else text.replace("|", r"\|")


# --- bulkhead.1

def man(help_json):
    out = ['.TH BULKHEAD 1 "" Bulkhead "User Commands"', ".SH NAME", r"bulkhead \- serve language models with tensor parallelism",
           ".SH SYNOPSIS", r"\fBbulkhead\fR \fICOMMAND\fR [\fIFLAGS\fR]", ".br",
           r"\fBmpirun\fR \-n \fIRANKS\fR \-\-bind\-to none \fBbulkhead serve \-\-model\fR \fIDIR\fR",
           ".SH DESCRIPTION", roff(help_json["about"]), ".SH COMMANDS"]
    for command in help_json["commands"]:
        out += [".TP", rf"\fB{roff(command['name'])}\fR", roff(command["summary"])]
    seen = {}
    for page in pages_of(help_json):
        title = "bulkhead " + page["command"]
        out += [".SH " + roff(title.upper()), roff(re.sub(r"\s+", " ", page["summary"]))]
        if "usage" in page:
            out += [".PP", rf"\fB{roff(title)}\fR {roff(page['usage'])}".rstrip()]
        for group, flags in by_group(page):
            out += [f'.SS "{roff(group).replace(chr(34), "")}"'] if group else []
            key = json.dumps([group, flags])
            if key in seen and len(flags) > 1:
                out.append(roff(f"See {seen[key]}."))
                continue
            seen.setdefault(key, title)
            for flag in flags:
                names = ", ".join(rf"\fB{roff(name)}\fR" for name in flag["names"])
                value = rf" \fI{roff(flag['value'])}\fR" if flag["value"] else ""
                out += [".TP", names + value, roff(flag["help"] + (f" [{values(flag)}]" if values(flag) else ""))]
        if "example" in page:
            out += [".SS Example", ".nf", roff(page["example"]), ".fi"]
    out.append(".SH EXIT STATUS")
    for code, meaning in help_json["exit_codes"]:
        out += [".TP", rf"\fB{roff(code)}\fR", roff(meaning)]
    return "\n".join(out) + "\n"


def roff(text):
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text)


# --- completion of bash

SHELL = r'''# Completion of bulkhead for bash; made by scripts/help_files.py.
_bulkhead() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command='' i words='' switches='%(switches)s'
  [[ $cur != = ]] || cur=''
  [[ $prev != = ]] || prev=${COMP_WORDS[COMP_CWORD-2]}
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ ${COMP_WORDS[i]} != help ]] || continue
    command+="${command:+ }${COMP_WORDS[i]}"
    [[ $command == bench ]] || break
  done
  case "$command" in
%(commands)s
    '') words='%(top)s' ;;
  esac
  case "$command $prev" in
%(values)s
    *) [[ $prev != -* || " $words " != *" $prev "* || " $switches --help " == *" $prev "* ]] || words='' ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o default -F _bulkhead bulkhead
'''


def completion(help_json):
    flags, choices, switches = {}, {}, set()
    for page in pages_of(help_json):
        of_page = flags.setdefault(page["command"], ["--help"])
        for flag in page.get("flags", []):
            for name in flag["names"]:
                if name not in of_page:
                    of_page.append(name)
                where = f'"{page["command"]} {name}"'
                if flag["choices"]:
                    choices.setdefault(" ".join(flag["choices"]), []).append(where)
                elif not flag["value"]:
                    switches.add(name)
    top = [command["name"] for command in help_json["commands"]]
    benches = [command.split()[1] for command in flags if command.startswith("bench ")]
    arms = [f"    '{command}') words='{' '.join(names)}' ;;" for command, names in flags.items()]
    arms.append(f"    bench) words='{' '.join(benches)} --help' ;;")
    cases = [f"    {' | '.join(dict.fromkeys(where))}) words='{words}' ;;" for words, where in choices.items()]
    return SHELL % {"commands": "\n".join(arms), "values": "\n".join(cases), "switches": " ".join(sorted(switches)),
                    "top": " ".join(top + ["help", "--help", "--version"])}


def main():
    program, kind, path = sys.argv[1:]
    text = subprocess.run([program, "help", "--json"], check=True, capture_output=True, text=True).stdout
    make = {"markdown": markdown, "man": man, "completion": completion}[kind]
    help_json = json.loads(text)
    for page in pages_of(help_json):
        if "flags" not in page:
            add_tool_page(program, page)
    with open(path, "w", encoding="utf-8") as file:
        file.write(make(help_json))


if __name__ == "__main__":
    main()
