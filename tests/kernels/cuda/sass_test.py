#!/usr/bin/python3
"""Machine code of every kernel on every architecture, against kernels/cuda/sass.txt.

sass_test.py FOLDER... [--write]: a FOLDER holds objects of kernels. No kernel may use local memory, nor store, nor
let the next kernel begin, before it has waited for the one before it, whatever the table says."""
import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys

import registers_test
import sass

ROOT = registers_test.ROOT
TABLE = os.path.join(ROOT, "kernels/cuda/sass.txt")
COLUMNS = ("code", "wide", "loads", "copy", "chain", "mma", "per", "bars")
HEAD = """\
# Machine code by nvcc {version}; tests/kernels/cuda/sass_test.py FOLDER --write makes this. For each architecture:
#   code     instructions
#   wide     global loads of 16 bytes a thread; loads: all global loads; copy: asynchronous ones of 16 bytes
#   chain    longest chain of global loads that take their address from one another (tests/kernels/cuda/sass.py)
#   mma      tensor instructions; per: instructions for each of them in the main loop
#   bars     barriers of the block
"""


def figures(kernel):
    return (len(kernel.code), kernel.wide("LDG"), kernel.count("LDG"), kernel.wide("LDGSTS"), sass.load_chain(kernel),
            kernel.count(*sass.TENSOR), f"{sass.instructions_per_mma(kernel):.1f}", kernel.count("BAR"))


def table_of(rows, version):
    architectures = sorted({a for row in rows.values() for a in row})
    width = max(map(len, rows)) + 2
    head = " ".join(name.rjust(5) for name in COLUMNS)
    lines = ["kernel".ljust(width) + " | ".join(f"{a}: {head}" for a in architectures)]
    for kernel in sorted(rows):
        cells = [" " * (len(a) + 2) + " ".join(str(x).rjust(5) for x in rows[kernel].get(a, ["-"] * len(COLUMNS)))
                 for a in architectures]
        lines.append((kernel.ljust(width) + " | ".join(cells)).rstrip())
    return HEAD.format(version=version) + "\n".join(lines) + "\n"


def find_cuobjdump():
    """Of BULKHEAD_CUOBJDUMP, the PATH, the CUDA toolkit, or scripts/gpu_tools.sh."""
    nvcc = shutil.which(os.environ.get("NVCC", "nvcc"))
    places = [os.environ.get("BULKHEAD_CUOBJDUMP", ""), shutil.which("cuobjdump") or "",
              os.path.join(os.path.dirname(nvcc), "cuobjdump") if nvcc else "",
              *sorted(glob.glob(os.path.join(ROOT, "build/gpu_tools/lib/*/site-packages/nvidia/*/bin/cuobjdump")))]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def disassemble(cuobjdump, path):
    # It looks for nvdisasm in the PATH.
    environment = {**os.environ, "PATH": os.environ["PATH"] + ":" + os.path.dirname(cuobjdump)}
    return subprocess.run([cuobjdump, "-sass", path], capture_output=True, text=True, check=True,
                          env=environment).stdout


def main():
    cuobjdump = find_cuobjdump()
    if cuobjdump is None:
        print("sass_test: skipped: no cuobjdump; scripts/gpu_tools.sh gets it, or BULKHEAD_CUOBJDUMP names it")
        sys.exit(77)
    folders, write = registers_test.arguments()
    objects = registers_test.files_in(folders, "*.cu.o")
    if not objects:
        sys.exit(f"no kernels in {' '.join(folders)}: build bulkhead_cuda_kernels first")
    rows, wrong = {}, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = pool.map(lambda path: disassemble(cuobjdump, path), objects)
        for path, text in zip(objects, texts):
            for kernel in sass.kernels_of(text):
                name = f"{registers_test.source_of(path)}: {registers_test.short_name(kernel.mangled)}"
                rows.setdefault(name, {})[kernel.architecture.rstrip("a")] = figures(kernel)
                wrong += [f"{name}: {fault}" for fault in sass.faults(kernel)]
    if wrong:
        sys.exit("\n".join(wrong))
    table = table_of(rows, registers_test.nvcc_version())
    if write:
        with open(TABLE, "w", encoding="utf-8") as file:
            file.write(table)
        return
    with open(TABLE, encoding="utf-8") as file:
        written = file.read()
    first = [line for line in table.splitlines() if line.startswith(("# Machine", "kernel "))]
    if not all(line in written.splitlines() for line in first):
        print("another nvcc or other architectures than the table's: no kernel is wrong, figures are not compared")
    elif written != table:
        was = set(written.splitlines())
        changed = "\n".join(line for line in table.splitlines() if line not in was)
        sys.exit(f"{TABLE} is out of date. New lines, beside any that are gone; --write makes the table:\n{changed}")


if __name__ == "__main__":
    main()
