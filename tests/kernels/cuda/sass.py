"""What cuobjdump's text says of each kernel's machine code (SASS)."""
import dataclasses
import re

FUNCTION = re.compile(r"^\s*Function : (\w+)")
TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)")
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
JUMP = re.compile(r"\b0x([0-9a-f]+)\s*$")
REGISTER = re.compile(r"\bR(\d+)")
TENSOR = ("HMMA", "IMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA")
LOCAL = ("LDL", "STL")
STORES = ("STG", "RED", "ATOMG", "ATOM", "ST")


@dataclasses.dataclass
class Instruction:
    address: int
    predicate: str
    name: str  # with its modifiers: LDG.E.128
    operands: str

    @property
    def op(self):
        return self.name.split(".")[0]

    @property
    def modifiers(self):
        return self.name.split(".")[1:]


@dataclasses.dataclass
class Kernel:
    mangled: str
    architecture: str
    code: list

    def count(self, *ops):
        return sum(i.op in ops for i in self.code)

    def wide(self, op):
        """Of 16 bytes a thread."""
        return sum(i.op == op and "128" in i.modifiers for i in self.code)


def kernels_of(text):
    """Of the text of `cuobjdump -sass`, in its order."""
    architecture, found = None, []
    for line in text.splitlines():
        if match := TARGET.match(line):
            architecture = match.group(1)
        elif match := FUNCTION.match(line):
            found.append(Kernel(match.group(1), architecture, []))
        elif found and (match := INSTRUCTION.match(line)):
            address, predicate, name, operands = match.groups()
            found[-1].code.append(Instruction(int(address, 16), predicate or "", name, operands))
    return found


def loops(kernel):
    """The code of each loop: from the target of a jump backwards to the jump."""
    for jump in kernel.code:
        match = JUMP.search(jump.operands) if jump.op == "BRA" else None
        if match and int(match.group(1), 16) < jump.address:
            begin = int(match.group(1), 16)
            yield [i for i in kernel.code if begin <= i.address <= jump.address]


def instructions_per_mma(kernel):
    """In the main loop: of the loops around no other one with tensor instructions, that with the
    most of them; the whole kernel where there is no such loop; 0 without tensor instructions."""
    def mma(code):
        return sum(i.op in TENSOR for i in code)

    with_mma = [loop for loop in loops(kernel) if mma(loop)]

    def is_innermost(loop):
        begin, end = loop[0].address, loop[-1].address
        return not any(other is not loop and begin <= other[0].address and other[-1].address <= end
                       and len(other) < len(loop) for other in with_mma)

    innermost = [loop for loop in with_mma if is_innermost(loop)]
    main = max(innermost, key=lambda loop: (mma(loop), -len(loop)), default=kernel.code)
    return len(main) / mma(main) if mma(main) else 0.0


def _written(instruction, operand):
    """Numbers of the registers that the first operand names."""
    match = REGISTER.match(operand)
    if not match:
        return []
    count = 1
    if "128" in instruction.modifiers:
        count = 4
    elif "64" in instruction.modifiers or "WIDE" in instruction.modifiers:
        count = 2
    return range(int(match.group(1)), int(match.group(1)) + count)


def load_chain(kernel):
    """Length of the longest chain of global loads of which each takes its address from the one
    before, through registers, in the order of addresses, whatever the jumps."""
    depth, longest = {}, 0
    for i in kernel.code:
        if i.op in ("BRA", "EXIT", "BAR", *STORES, "STS", *TENSOR):
            continue
        first, _, rest = i.operands.partition(",")
        sources = [int(n) for n in REGISTER.findall(rest)]
        # An address of 64 bits, and a sum of them, is two registers.
        reached = max((max(depth.get(n, 0), depth.get(n + 1, 0) if "R%d.64" % n in rest else 0)
                       for n in sources), default=0)
        if i.op == "LDG":
            reached += 1
            longest = max(longest, reached)
        elif i.op == "LDGSTS":
            longest = max(longest, reached + 1)
            continue
        for n in _written(i, first.strip()):
            depth[n] = max(depth.get(n, 0), reached) if i.predicate else reached
    return longest


def faults(kernel):
    """What no kernel may have."""
    name = f"{kernel.mangled} on {kernel.architecture}"
    if kernel.count(*LOCAL):
        yield f"{name}: {kernel.count(*LOCAL)} loads and stores of local memory"
    if int(re.match(r"sm_(\d+)", kernel.architecture).group(1)) < 90:  # has no dependent launches
        return
    waits = [i.address for i in kernel.code if i.op == "ACQBULK"]
    if not waits:
        yield f"{name}: never waits for the kernel before it"
        return
    for i in kernel.code:
        if i.address < waits[0] and i.op in (*STORES, "PREEXIT"):
            yield f"{name}: {i.name} at 0x{i.address:x}, before it waits for the kernel before it"
