#!/usr/bin/python3
"""Registers of every kernel on every architecture, against kernels/cuda/registers.txt; none may spill.

registers_test.py FOLDER... [--write]: a FOLDER holds objects of kernels and ptxas' reports on them. What sm_90a alone
has counts as of sm_90, since no kernel is compiled for both."""
import collections
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TABLE = os.path.join(ROOT, "kernels/cuda/registers.txt")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+\w*)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def short_name(mangled):
    """"AttendDecode<bf16, 8, 2>" of a kernel in the unnamed namespace."""
    full = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout.strip()
    name = re.sub(r"\(?bulkhead::cuda::\w+Parameters\)?$|^(static )?void ", "", full)
    name = name.split("::")[-1] if "<" not in name else re.sub(r"^.*?(\w+<)", r"\1", name)
    name = re.sub(r"\(bulkhead::(?:cuda::)?(\w+)\)(\d+)", r"\1 \2", name)
    return re.sub(r"\(bool\)|bulkhead::cuda::", "", name).rstrip("()")


def source_of(path):
    """"attend/bf16" of kernels/attend/bf16.cu.o; "embed" of kernels/embed/cuda.cu.o."""
    folder_name, file = path.split(".cu.o")[0].split("/")[-2:]
    return folder_name if file == "cuda" else f"{folder_name}/{file}"


def arguments():
    """The folders, and whether to write the table."""
    return [a for a in sys.argv[1:] if a != "--write"], "--write" in sys.argv


def files_in(folders, pattern):
    return sorted(path for folder in folders for path in glob.glob(os.path.join(folder, "**", pattern), recursive=True))


def read_reports(folders):
    registers, spills = collections.defaultdict(dict), []
    for path in files_in(folders, "*.ptxas"):
        source, entry = source_of(path), None
        with open(path, encoding="utf-8") as report:
            for line in report:
                if match := ENTRY.search(line):
                    entry = match.groups()
                elif (match := SPILLS.search(line)) and entry and any(int(n) for n in match.groups()):
                    spills.append(f"{source}: {entry[0]} on {entry[1]}: {line.strip()}")
                elif (match := REGISTERS.search(line)) and entry:
                    registers[f"{source}: {short_name(entry[0])}"][entry[1].rstrip("a")] = int(match.group(1))
    return registers, spills


def table_of(registers, version):
    architectures = sorted({a for row in registers.values() for a in row})
    width = max(map(len, registers)) + 2
    lines = [f"# Registers of a thread, by nvcc {version}; tests/kernels/cuda/registers_test.py FOLDER --write makes this.",
             "# Shared memory is dynamic: LaunchShape says how much.",
             "kernel".ljust(width) + "  ".join(architectures)]
    for kernel in sorted(registers):
        counts = [str(registers[kernel].get(a, "-")).rjust(len(a)) for a in architectures]
        lines.append(kernel.ljust(width) + "  ".join(counts))
    return "\n".join(lines) + "\n"


def nvcc_version():
    nvcc = os.environ.get("NVCC", "nvcc")
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V(\d+\.\d+\.\d+)", text).group(1)


def main():
    folders, write = arguments()
    registers, spills = read_reports(folders)
    if not registers:
        sys.exit(f"no reports of ptxas in {' '.join(folders)}: build bulkhead_cuda_kernels first")
    if spills:
        sys.exit("registers are spilled:\n" + "\n".join(spills))
    version = nvcc_version()
    table = table_of(registers, version)
    if write:
        with open(TABLE, "w", encoding="utf-8") as file:
            file.write(table)
        return
    with open(TABLE, encoding="utf-8") as file:
        written = file.read()
    if written.splitlines()[0] != table.splitlines()[0] or written.splitlines()[2] != table.splitlines()[2]:
        print("another nvcc or other architectures than the table's: no kernel spills, counts are not compared")
    elif written != table:
        sys.exit(f"{TABLE} is out of date; what it should be:\n{table}")


if __name__ == "__main__":
    main()
