#!/usr/bin/env python3
"""Counts and models the inner loops of the aarch64 kernels; nothing is timed.

    model_kernels.py BUILD_DIR [--only PATTERN] [--min-share SHARE]

From the objects of a finished build of the preset aarch64 it takes every innermost loop that multiplies, by
disassembly: how many of its instructions are multiply-adds (`fmla`, `bfmmla`, `bfdot`, `sdot`, `smmla`, `smlal`), and what llvm-mca
makes of it with the models of Neoverse N1, V1, N2, V2 and TSV110: the cycles that as many independent multiply-adds take, in per
cent of the cycles of the loop. A Markdown table goes to stdout, the largest loop of each kernel a line. llvm-mca is that
of Debian's llvm-19 (older ones have no models of these cores), or what LLVM_MCA names.

The exit status is 1 if a loop of f32 has a share of multiply-adds below SHARE.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OBJDUMP = "aarch64-linux-gnu-objdump"
LLVM_MCA = os.environ.get("LLVM_MCA", "llvm-mca-19")
# The cores, and which instructions they have.
ARMV8_2 = {"fmla", "smlal", "sdot"}
ARMV8_6 = ARMV8_2 | {"bfdot", "bfmmla", "smmla"}
CORES = {"neoverse-n1": ARMV8_2, "neoverse-v1": ARMV8_6, "neoverse-n2": ARMV8_6, "neoverse-v2": ARMV8_6, "tsv110": ARMV8_2}
MULTIPLIES = {"fmla": "fmla", "bfmmla": "bfmmla", "bfdot": "bfdot", "sdot": "sdot", "smmla": "smmla", "smlal": "smlal",
              "smlal2": "smlal"}
# Independent ones, as a bound: more accumulators than any core has units times latency.
INDEPENDENT = {"fmla": "fmla v{0}.4s, v30.4s, v31.s[0]", "bfdot": "bfdot v{0}.4s, v30.8h, v31.8h",
               "bfmmla": "bfmmla v{0}.4s, v30.8h, v31.8h",
               "sdot": "sdot v{0}.4s, v30.16b, v31.16b",
               "smmla": "smmla v{0}.4s, v30.16b, v31.16b", "smlal": "smlal v{0}.4s, v30.4h, v31.4h"}
ACCUMULATORS = 24
LEAST_MULTIPLIES = 8  # in a loop that is worth a line
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*?)\s*(?://.*)?$")
BRANCH = re.compile(r"\b([0-9a-f]+) <")


@dataclass(frozen=True)
class Instruction:
    address: int
    mnemonic: str
    operands: str

    @property
    def target(self):
        """Address of a branch, else None."""
        branches = self.mnemonic == "b" or self.mnemonic.startswith(("b.", "cb", "tb"))
        found = BRANCH.search(self.operands) if branches else None
        return int(found[1], 16) if found else None


@dataclass(frozen=True)
class Loop:
    kernel: str
    body: tuple  # of Instruction, the last one branches to the first

    @property
    def kind(self):
        kinds = [MULTIPLIES[each.mnemonic] for each in self.body if each.mnemonic in MULTIPLIES]
        return max(set(kinds), key=kinds.count) if kinds else None

    @property
    def multiplies(self):
        return sum(each.mnemonic in MULTIPLIES for each in self.body)

    @property
    def share(self):
        return self.multiplies / len(self.body)


def functions_of(disassembly):
    """Yields (name, instructions) of objdump's text."""
    name, body = None, []
    for line in disassembly.splitlines():
        if header := FUNCTION.match(line):
            if name:
                yield name, body
            name, body = header[1], []
        elif found := INSTRUCTION.match(line):
            body.append(Instruction(int(found[1], 16), found[2], found[3]))
    if name:
        yield name, body


def kernel_name(function):
    """ "Strip<6, 3, 8>::Scores" of a demangled function with its namespaces and arguments."""
    name = re.sub(r"\(anonymous namespace\)::", "", function)
    name = re.sub(r"^(?:void |static )*", "", name)
    level = re.search(r"kernels::(\w+)::(.*)", name)
    name = f"{level[1]} {level[2]}" if level else name
    return re.sub(r"\(.*", "", name)


def innermost_loops(function, instructions):
    """Yields the loops that hold no other and multiply, of one function."""
    index = {each.address: i for i, each in enumerate(instructions)}
    spans = [(index[each.target], i) for i, each in enumerate(instructions)
             if each.target in index and index[each.target] <= i]
    for begin, end in spans:
        if any(begin <= first and last <= end and (first, last) != (begin, end) for first, last in spans):
            continue
        loop = Loop(kernel_name(function), tuple(instructions[begin:end + 1]))
        if any(each.mnemonic in ("b", "ret") for each in loop.body[:-1]):
            continue  # cold code that was moved behind the loop jumps back into it
        if loop.multiplies >= LEAST_MULTIPLIES:
            yield loop


def modelled_cycles(assembly, core):
    """@return cycles of one turn of a loop, by llvm-mca"""
    turns = 400
    done = subprocess.run([LLVM_MCA, "-march=aarch64", f"-mcpu={core}", "-mattr=+dotprod,+bf16,+i8mm,+fullfp16",
                           f"-iterations={turns}"], input=assembly, capture_output=True, text=True, check=False)
    cycles = re.search(r"^Total Cycles:\s+(\d+)$", done.stdout, re.MULTILINE)
    if not cycles:
        sys.exit(f"model_kernels: {LLVM_MCA} says {done.stderr.strip()[:400]}")
    return int(cycles[1]) / turns


def assembly_of(loop):
    lines = [".Lturn:"]
    for each in loop.body:
        operands = BRANCH.sub(".Lturn <", each.operands) if each.target is not None else each.operands
        lines.append(f"  {each.mnemonic} {re.sub(r' <.*', '', operands)}")
    return "\n".join(lines) + "\n"


def multiply_cycles(core, kind, known={}):
    """@return cycles of one of many independent multiply-adds"""
    if (core, kind) not in known:
        body = "\n".join(INDEPENDENT[kind].format(i) for i in range(ACCUMULATORS))
        known[core, kind] = modelled_cycles(body + "\n", core) / ACCUMULATORS
    return known[core, kind]


def largest_loops(build):
    """@return {kernel: the loop of it that multiplies most}, in the order of the objects"""
    objects = sorted(build.glob("src/core/kernels/CMakeFiles/fa_kernels_neon*.dir/**/*.o"))
    if not objects:
        sys.exit(f"model_kernels: {build} has no kernels of aarch64")
    largest = {}
    for path in objects:
        text = subprocess.run([OBJDUMP, "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True,
                              text=True).stdout
        for function, instructions in functions_of(text):
            for loop in innermost_loops(function, instructions):
                known = largest.get(loop.kernel)
                if known is None or (loop.multiplies, loop.share) > (known.multiplies, known.share):
                    largest[loop.kernel] = loop
    return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--only", type=re.compile, default="", help="loops whose name holds this pattern")
    parser.add_argument("--min-share", type=float, default=0)
    arguments = parser.parse_args()
    loops = largest_loops(arguments.build)
    print("| loop | instructions | multiply-adds | share | " + " | ".join(CORES) + " |")
    print("|---" * (4 + len(CORES)) + "|")
    poor = []
    for kernel, loop in loops.items():
        if not re.search(arguments.only, kernel):
            continue
        cells = []
        for core, has in CORES.items():
            if loop.kind not in has:
                cells.append("–")
                continue
            cycles, bound = modelled_cycles(assembly_of(loop), core), multiply_cycles(core, loop.kind) * loop.multiplies
            cells.append(f"{cycles:.1f} ({100 * bound / cycles:.0f} %)")
        print(f"| {kernel} | {len(loop.body)} | {loop.multiplies} {loop.kind} | {100 * loop.share:.0f} % | "
              + " | ".join(cells) + " |")
        if loop.kind == "fmla" and loop.share < arguments.min_share:
            poor.append(kernel)
    for kernel in poor:
        print(f"model_kernels: {kernel}: share of multiply-adds below {arguments.min_share}", file=sys.stderr)
    return 1 if poor else 0


if __name__ == "__main__":
    sys.exit(main())
