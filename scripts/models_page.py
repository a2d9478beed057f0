#!/usr/bin/python3
"""Write docs/models.md: the families of runtime/model/families/, each from its file. --check: compare."""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs/models.md")
HEAD = """# Models

The `architectures` and `model_type` of `config.json` that are supported, one family per line; written by `scripts/models_page.py` from
`runtime/model/families/`. For another one the error has this list, and the most similar name in it. Each family is tested against the logits of
transformers, with a small checkpoint in `tests/data/models/`. All run on CPUs and on GPUs
([what has run on a GPU](gpu.md#what-has-run-where)).

| `architectures` | `model_type` | |
|---|---|---|
"""


def families():
    for path in glob.glob(os.path.join(ROOT, "runtime/model/families/*.cc")):
        text = open(path, encoding="utf-8").read()
        comment = " ".join(line[2:].strip() for line in text.split("\n\n#", 1)[0].split("\n#")[0].splitlines()
                           if line.startswith("//"))
        names = re.search(r'architecture = "(\w+)".*?model_type = "(\w+)"', text, re.S) or \
            re.search(r'(?:Family|Hybrid|Like|Part)(?:<\w+>)?\(\s*(?:\w+\(\),)?\s*"(\w+)",\s*"(\w+)"', text)
        yield names.group(1), names.group(2), comment


def page():
    return HEAD + "".join(f"| `{a}` | `{m}` | {c} |\n" for a, m, c in sorted(families(), key=lambda f: (f[0].lower(), f[1])))


def main():
    if "--check" in sys.argv:
        if open(PAGE, encoding="utf-8").read() != page():
            sys.exit("docs/models.md is not what scripts/models_page.py writes: run it")
        return
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page())


if __name__ == "__main__":
    main()
