#!/usr/bin/env python3
"""skipped_tests.py JUNIT_FILE: lists the tests skipped in a ctest run and the reasons, one per
line."""
import re
import sys
import xml.etree.ElementTree

# Output of a fully skipped test before it exits with 77, and of partly skipped ones: unittest's and
# GoogleTest's.
WHOLE = re.compile(r"^\S+: skipped: (.*)$", re.MULTILINE)
PARTS = [re.compile(r"^(\w+) \(.*skipped ['\"](.*)['\"]$", re.MULTILINE),
         re.compile(r"^\[ RUN      \] (\S+)\n(?:(?!\[).*\n)*?.*: Skipped\n(.*)$", re.MULTILINE)]


def skipped(case):
    """(name, reason) of each."""
    output = case.findtext("system-out") or ""
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        reason = WHOLE.search(output)
        why = reason.group(1) if reason else "it did not run"
        return [(case.get("name"), why)]
    return [(f"{case.get('name')}: {name}", why) for part in PARTS for name, why in part.findall(output)]


def main():
    cases = xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
    found = [line for case in cases for line in skipped(case)]
    print(f"{len(found)} skipped" if found else "nothing was skipped")
    for name, why in found:
        print(f"  {name}: {why}")


if __name__ == "__main__":
    main()
