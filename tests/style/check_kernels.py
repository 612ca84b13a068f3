#!/usr/bin/env python3
"""Checks what the CUDA compiler made of the kernels: check_kernels.py [--some] [--print] --cuobjdump TOOL
       --page docs/notes/attention_kernels.md [--toolkit 13.0] OBJECT...

Objects of src/kernels, compiled for CUDA. They are disassembled (cuobjdump). The rules:

frames       No kernel has a stack frame, which holds spilled registers and arrays in local memory, beyond FRAMES and the
             tables of the page.
accesses     Kernels of rows (ROWS) move whole packs of 16 bytes: the widest load or store has 128 bits and the other one
             at least 64, and none is generic.
tables       Registers and frames of attention are those in the page's tables, if the toolkit and the architecture are
             those that the page names; sm_90a, which the kernels of warpgroups need, counts as sm_90. The counts in
             columns with an instruction's name are those of any toolkit.
processors   Blocks per multiprocessor of the tables fit by their registers.
arguments    No kernel goes to the device through Kokkos' constant buffer.

--some allows objects without some of the kernels of the rules. --print shows the tables' last columns as compiled.
Prints one line per violation and ends with 1 if there is one, and with 77 if there is no cuobjdump.
"""
import argparse
import collections
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_program import RULES  # noqa: E402

# (kernels, bytes, reason)
FRAMES = [
    (r"TurnByPacks<", 40, "sine and cosine reduce angles beyond 2^31, which no position reaches, in local memory"),
    (r"\bturn_pairs<", 40, "likewise"),
    (r"\bnormal_fill<", 40, "likewise, and only once in a run"),
    (r"\buniform_fill<", 40, "likewise, and only once in a run"),
    (r"\bchoose_by_scores<double", 512, "sums of a token's groups of experts"),
    (r"\bchoose_by_scores<", 256, "likewise"),
    (r"\bAttentionForward<", 144,
     "portable attention: its functions share the functor, which is copied to local memory once per thread"),
    (r"\bTeamOf(Head|Keys|Queries)<double", 400, "likewise; a row of the mask's factors, and one of the soft cap's slopes"),
    (r"\bTeamOf(Head|Keys|Queries)<", 272, "likewise"),
    (r"\bFlash(Forward|Backward)<(trireme::)?\w+, \d+, (true|false), true>", 128,
     "with documents: their starts take registers, and the rows of the tables are those without"),
    (r"\bKokkosBlas::GEMMImpl<", 16, "a library's kernel, for products that cuBLASLt does not take"),
    (r"\barithmetic_work<", 40, "likewise; measures the rate of arithmetic, in trireme bench alone"),
]
OTHER_FRAME = 128  # attention, with a toolkit or an architecture other than the page's (sm_90a is that of sm_90)

# (kernels, whether they load packs, whether they store packs)
ROWS = [
    (r"(?<!<detail::)LayerNormRow<|(?<!<detail::)RmsNormRow<", True, True),
    (r"ResidualRow<", True, True),
    (r"ResidualNormRow<", True, True),
    (r"(layer|rms)_norm_backward_input<", True, True),
    (r"HeadNorm(Forward|Backward)<", True, True),
    (r"TurnByPacks<", True, True),
    (r"(gelu_values|gelu_gradients|swiglu_forward|swiglu_backward|tanh_forward|tanh_backward)<", True, True),
    (r"::drop<", True, True),
    (r"\b(copy|scale|accumulate|convert)<", True, True),
    (r"\bfill<", False, True),
    (r"\b(embedding_lookup|add_positions|add_segments)<", True, True),
    (r"(SumOccurrences|SumPositions)<", True, True),
    (r"\bcross_entropy_statistics<", True, False),
    (r"\bcross_entropy_gradient<", True, True),
    (r"ElementBody<.*AdamW::Update<\w+>, \w+, false>", True, True),
]

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
RESOURCES = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
TABLE_HEAD = re.compile(r"K of `(\w+)`")
ATTENTION = re.compile(r"\b((?:Flash|Group)\w+)<(?:trireme::)?(Bf16|Fp16), (\d+)(?:, (true|false))?(?:, false)?>")


class Kernel:
    def __init__(self, name, arch, registers, frame, instructions):
        self.name, self.arch, self.registers, self.frame = name, arch, registers, frame
        self.instructions = collections.Counter(instructions)

    def short(self):
        name = re.sub(r"(?:Kokkos|trireme|Impl|Experimental|kernels)::", "", self.name)
        name = re.sub(r"^void (?:cuda_parallel_launch_local_memory<)?(?:ParallelFor<)?(?:detail::(?:Row|Chunk)Body<)*", "",
                      name)
        return f"{name[:100]} ({self.arch})"

    def count(self, opcode):
        return sum(n for name, n in self.instructions.items() if name.split(".")[0] == opcode)

    def widest(self, opcode):
        """Bits of the widest access by an instruction; 0 if there is none."""
        widths = [int(next((part for part in name.split(".") if part in ("64", "128")), 32))
                  for name in self.instructions if name.split(".")[0] == opcode]
        return max(widths, default=0)


def parse(resources, code, demangle):
    """Kernels by the output of cuobjdump -res-usage and -sass, which name them in the same sections."""
    frames = {}
    for section in re.split(r"^arch = ", resources, flags=re.MULTILINE)[1:]:
        arch = section.split()[0]
        for match in RESOURCES.finditer(section):
            name, registers, stack, local = match[1], *map(int, match.groups()[1:])
            frames[arch, name] = registers, stack + local
    found = []
    for section in re.split(r"^arch = ", code, flags=re.MULTILINE)[1:]:
        arch = section.split()[0]
        for function in re.split(r"^\s*Function : ", section, flags=re.MULTILINE)[1:]:
            name = function.split(None, 1)[0]
            if (arch, name) in frames:
                found.append((name, arch, *frames[arch, name], INSTRUCTION.findall(function)))
    names = demangle([kernel[0] for kernel in found])
    return [Kernel(name, *rest) for name, (_, *rest) in zip(names, found)]


def kernels_of(tool, path):
    def run(option):
        done = subprocess.run([tool, option, path], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{tool} {option} {path} ended with {done.returncode}: {done.stderr.strip()}\n"
                     "cuobjdump needs nvdisasm beside itself or in PATH")
        return done.stdout

    def demangle(names):
        return subprocess.run(["c++filt"], check=True, capture_output=True, text=True,
                              input="\n".join(names)).stdout.splitlines()
    return parse(run("-res-usage"), run("-sass"), demangle)


class Page:
    """Tables with a heading "K of `kernel`", and "CUDA 13.0, sm_90" in the text. A row "64, dropout" is that of the
    kernels with dropout, where their sizes differ from those without."""

    def __init__(self, text):
        found = re.search(r"^CUDA (\d+\.\d+),.*\b(sm_\d+\w?)\b", text, re.MULTILINE)
        self.toolkit, self.arch = found.groups() if found else (None, None)
        self.rows = {}  # by (kernel, K): cells by heading
        heads = None
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not line.startswith("|"):
                heads = None
            elif TABLE_HEAD.fullmatch(cells[0]):
                kernel, heads = TABLE_HEAD.fullmatch(cells[0])[1], cells
            elif heads and re.fullmatch(r"\d+(, dropout)?", cells[0]):
                self.rows[kernel, cells[0]] = dict(zip(heads, cells))

    def row(self, kernel):
        """The row of a kernel of attention and its column of registers, or None."""
        match = ATTENTION.search(kernel.name)
        if not match:
            return None
        dropout = ", dropout" if match[4] == "true" else ""
        row = self.rows.get((match[1], match[3] + dropout)) or self.rows.get((match[1], match[3]))
        return (row, match[2].lower() + dropout) if row else None

    def describes(self, toolkit, arch):
        """Whether registers and frames on the page are those of this compiler."""
        return (toolkit, re.sub(r"a$", "", arch)) == (self.toolkit, self.arch)


def resources(kernel):
    return f"{kernel.registers}, {kernel.frame} B" if kernel.frame else str(kernel.registers)


def frames(kernel, page, exact):
    if not kernel.frame or (exact and page.row(kernel)):
        return
    allowed = OTHER_FRAME if page.row(kernel) else next((n for name, n, _ in FRAMES if re.search(name, kernel.name)), 0)
    if kernel.frame > allowed:
        yield f"a stack frame of {kernel.frame} bytes, expected at most {allowed}"


def accesses(kernel, seen):
    for i, (name, loads, stores) in enumerate(ROWS):
        if not re.search(name, kernel.name):
            continue
        seen.add(i)
        widest = [kernel.widest(opcode) for opcode, wanted in (("LDG", loads), ("STG", stores)) if wanted]
        if max(widest) < 128 or min(widest) < 64:
            yield f"accesses of at most {' and '.join(map(str, widest))} bits, expected packs of 128"
        if (kernel.count("LD") or kernel.count("ST")) and not any(re.search(f[0], kernel.name) for f in FRAMES):
            yield "generic loads or stores: an object is in local memory, or a pointer lost its address space"


def tables(kernel, page, exact):
    found = page.row(kernel)
    if not found:
        return
    row, variant = found
    for opcode in filter(re.compile(r"[A-Z]{3,}").fullmatch, row):
        if kernel.count(opcode) != int(row[opcode]):
            yield f"{kernel.count(opcode)} times {opcode}, expected {row[opcode]} as on the page"
    if exact and row[variant] != resources(kernel):
        yield f"registers and frame {resources(kernel)}, expected {row[variant]} as on the page"
    threads, blocks = map(int, row["threads, blocks per SM"].split(", "))
    if (kernel.registers + 7) // 8 * 8 * threads * blocks > 65536:
        yield f"{kernel.registers} registers, with which {blocks} blocks of {threads} threads do not fit a processor"


def arguments(kernel):
    if re.search(RULES["on-devices"][0], kernel.name):
        yield "Kokkos launches it through the constant buffer, which makes the host wait"


def violations(kernels, page, toolkit, some):
    seen = set()
    for kernel in kernels:
        exact = page.describes(toolkit, kernel.arch)
        for rule in (frames(kernel, page, exact), accesses(kernel, seen), tables(kernel, page, exact), arguments(kernel)):
            yield from (f"{kernel.short()}: {what}" for what in rule)
    missing = [] if some else [ROWS[i][0] for i in range(len(ROWS)) if i not in seen]
    missing += [] if some else [f"{kernel} with K = {size}" for kernel, size in page.rows
                                if not any((page.row(k) or [None])[0] is page.rows[kernel, size] for k in kernels)]
    yield from (f"no kernel {name} in these objects: it was not checked" for name in missing)
    if not page.rows or not page.toolkit:
        yield "the page has no tables, or names no toolkit: nothing was compared with it"


def show(kernels, page):
    columns = {}
    for kernel in kernels:
        match = ATTENTION.search(kernel.name)
        if match:
            variant = match[2].lower() + (", dropout" if match[4] == "true" else "")
            columns.setdefault((match[1], int(match[3]), kernel.arch), {})[variant] = kernel
    for (name, size, arch), variants in sorted(columns.items()):
        one = next(iter(variants.values()))
        opcodes = ("HMMA", "LDSM") if name.startswith("Flash") else ("HGMMA",)
        counts = " | ".join(str(one.count(opcode)) for opcode in opcodes)
        cells = " | ".join(resources(variants[v]) if v in variants else "" for v in
                           ("bf16", "fp16", "bf16, dropout", "fp16, dropout"))
        print(f"{name} {arch}: | {size} | {counts} | {cells} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--toolkit", default="", help="version of the compiler: 13.0")
    parser.add_argument("--some", action="store_true")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("objects", nargs="+")
    arguments_ = parser.parse_args()
    tool = shutil.which(arguments_.cuobjdump)
    if tool is None:
        print(f"{arguments_.cuobjdump} is not there: nothing was checked")
        return 77
    page = Page(arguments_.page.read_text(encoding="utf-8"))
    kernels = [kernel for path in arguments_.objects for kernel in kernels_of(tool, path)]
    if arguments_.print:
        show(kernels, page)
        return 0
    toolkit = ".".join(arguments_.toolkit.split(".")[:2])
    found = list(violations(kernels, page, toolkit, arguments_.some))
    if not kernels:
        found.append("there are no kernels in these objects: nothing was checked")
    print("\n".join(found) if found else f"{len(kernels)} kernels are as they should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
