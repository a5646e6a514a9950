#!/usr/bin/env python3
"""Counts and models the inner loops of the aarch64 kernels; nothing is timed.

    model_kernels.py BUILD_DIR [--check PAGE | --fix PAGE]

BUILD_DIR is a build of the preset aarch64 or aarch64-subset. Of every loop of PRODUCTS and PASSES it prints a line of a
Markdown table: how many of its instructions are multiply-adds, and what llvm-mca makes of it with the models of Neoverse N1,
V1, N2, V2 and TSV110: the cycles per turn and, of a product, what as many independent multiply-adds take, in per cent of
that. llvm-mca is that of Debian's llvm-19 (older ones have no models of these cores), or what LLVM_MCA names.

With --check the exit status is 1 if a loop is not where the list has it, if a kernel that multiplies is in no list, if the
tables of PAGE have other lines or other numbers (MARGIN), or if a product is below SHARE or BOUND without a reason that PAGE
explains, a paragraph that begins with it in bold, or is above both and has one. --fix writes the tables of PAGE.
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
TURNS = 400  # of a loop, so that its beginning does not count

# The cores, and which instructions they have.
ARMV8_2 = {"fmla", "smull", "sdot"}
ARMV8_6 = ARMV8_2 | {"bfmmla", "smmla"}
CORES = {"neoverse-n1": ARMV8_2, "neoverse-v1": ARMV8_6, "neoverse-n2": ARMV8_6, "neoverse-v2": ARMV8_6, "tsv110": ARMV8_2}
# One of many independent ones, as a bound: more accumulators than any core has units times latency.
INDEPENDENT = {"fmla": "fmla v{0}.4s, v30.4s, v31.s[0]", "smull": "smull v{0}.4s, v30.4h, v31.4h",
               "sdot": "sdot v{0}.4s, v30.16b, v31.16b", "bfmmla": "bfmmla v{0}.4s, v30.8h, v31.8h",
               "smmla": "smmla v{0}.4s, v30.16b, v31.16b"}
MULTIPLIES = {"fmls": "fmla", "smull2": "smull"} | {kind: kind for kind in INDEPENDENT}
ACCUMULATORS = 24
LEAST_MULTIPLIES = 4  # of a loop that is looked at

# What is asked of a product: multiply-adds of all instructions, cycles of the bound.
SHARE, BOUND = 0.75, 0.90
# Another g++ 12 or llvm-mca 19 may differ by so much: instructions, and cycles in parts of them.
MARGIN_INSTRUCTIONS, MARGIN_CYCLES = 1, 0.03

FEW, NARROW, BLOCKS, WORDS, ROW_STATE = "Few rows", "Narrow strips", "Blocks of bf16", "Int8", "State by rows"


@dataclass(frozen=True)
class Product:
    """A loop of `function` that has so many multiply-adds; the shortest if there are several."""

    label: str
    function: str  # as kernel_name has it, without the level
    multiplies: int
    why: str = ""  # it is below SHARE or BOUND
    rows: str = "f32"  # the type of what is widened in the loop
    fetches: bool = False  # it fetches ahead, where other loops of the function do not


@dataclass(frozen=True)
class Pass:
    """The innermost loop of `function` that has most multiply-adds, the shortest if there are several. It takes so many
    vectors of scores or of the output per turn."""

    label: str
    function: str
    vectors: int


def few_rows():
    """Yields the kernels of few rows: a product reads four vectors of a row of V, scores take four keys at a time."""
    for rows in (1, 2, 4):
        few, of = f"neon FewRows<{rows}>", f"{rows} row{'s'[:rows > 1]}"
        for dtype in ("f32", "bf16", "f16"):
            # bf16 is read as its even and its odd elements where the panel has room for them.
            two = 2 if dtype == "bf16" and rows < 4 else 1
            yield Product(f"scores {dtype}, {of}", f"{few}::Scores", 4 * rows * two, FEW, dtype)
        vectors = 8 if rows == 1 else 16 // rows
        for dtype in ("f32", "bf16", "f16"):
            read = {"f32": "ReadF32", "bf16": "ReadBF16", "f16": "ReadF16"}[dtype]
            yield Product(f"product {dtype}, {of}", f"{few}::ProductColumns<{read}, {vectors}>", rows * vectors, FEW, dtype)


def blocks_of_bf16():
    for pairs, vectors in ((4, 3), (4, 2), (6, 1)):
        strip, size, count = f"neon_bf16 PairBlockStrip<{2 * pairs}, {vectors}>", f"{2 * pairs}x{4 * vectors}", 2 * pairs * vectors
        yield Product(f"scores bf16 {size}", f"{strip}::ScoreRows<{pairs}>", count, BLOCKS)
        yield Product(f"scores bf16 {size}, fetching", f"{strip}::ScoreRows<{pairs}>", count, BLOCKS, fetches=True)
        yield Product(f"product bf16 {size}", f"{strip}::ProductColumns<{pairs}, true, false>", count, BLOCKS)
        yield Product(f"product bf16 {size}, fetching", f"{strip}::ProductColumns<{pairs}, true, false>", count, BLOCKS, fetches=True)
        yield Product(f"product bf16 {size}, from the third row", f"{strip}::ProductColumns<{pairs}, true, true>", count, BLOCKS)
    for vectors in (3, 2, 1):
        yield Product(f"outer bf16 8x{4 * vectors}", f"neon_bf16 OuterBlock<4, {vectors}, false>", 8 * vectors, BLOCKS)
        yield Product(f"outer_both bf16 8x{4 * vectors}", f"neon_bf16 OuterBlock<4, {vectors}, true>", 8 * vectors, BLOCKS)


def row_state():
    for vectors, rows, columns in ((3, 12, 2), (2, 8, 3), (1, 4, 6)):
        for name, lines in (("", 0), (", fetching", columns)):
            yield Product(f"product f32 {rows}x{4 * columns}, state by rows{name}",
                          f"neon RowProduct<{vectors}, KeySteps>::ProductRows<{rows}, {columns}, true, {lines}>", 24,
                          ROW_STATE if lines > 0 or vectors == 1 else "")


PRODUCTS = [
    Product("scores f32 6x12", "neon Strip<6, 3, 8>::ScoreRows<6>", 72),
    Product("scores f32 8x8", "neon Strip<8, 2, 8>::ScoreRows<8>", 64),
    Product("scores f32 16x4", "neon Strip<16, 1, 16>::ScoreRows<16>", 64, NARROW),
    Product("product f32 8x12", "neon Strip<6, 3, 8>::ProductColumns<8>", 24),
    Product("product f32 8x8", "neon Strip<8, 2, 8>::ProductColumns<8>", 16, NARROW),
    Product("product f32 16x4", "neon Strip<16, 1, 16>::ProductColumns<16>", 16, NARROW),
    *row_state(),
    Product("outer f32 6x12", "neon OuterBlock<6, 3>", 72),
    Product("outer f32 8x8", "neon OuterBlock<8, 2>", 64),
    Product("outer f32 8x4", "neon OuterBlock<8, 1>", 32, NARROW),
    *few_rows(),
    *blocks_of_bf16(),
    Product("scores int8 6x12, SDOT", "neon_dotprod Int8Strip<6, 3>::ScoreRows<6>", 72),
    Product("product int8 6x12, SDOT", "neon_dotprod Int8Strip<6, 3>::ProductColumns<6>", 18, WORDS),
    Product("scores int8 6x4, SDOT", "neon_dotprod Int8Strip<6, 1>::ScoreRows<6>", 24, WORDS),
    Product("product int8 6x4, SDOT", "neon_dotprod Int8Strip<6, 1>::ProductColumns<6>", 6, WORDS),
    Product("scores int8 8x12, SMMLA", "neon_bf16 Int8BlockStrip<8, 3>::ScoreRows<4>", 24, WORDS),
    Product("product int8 8x12, SMMLA", "neon_bf16 Int8BlockStrip<8, 3>::ProductColumns<4>", 24, WORDS),
    Product("scores int8 8x4, SMMLA", "neon_bf16 Int8BlockStrip<8, 1>::ScoreRows<4>", 8, WORDS),
    Product("product int8 8x4, SMMLA", "neon_bf16 Int8BlockStrip<8, 1>::ProductColumns<4>", 8, WORDS),
    Product("scores int8 6x12, SMULL", "neon Int8Strip<6, 3>::ScoreRows<6>", 36, WORDS),
    Product("product int8 6x12, SMULL", "neon Int8Strip<6, 3>::ProductColumns<6>", 36, WORDS),
    Product("scores int8 6x4, SMULL", "neon Int8Strip<6, 1>::ScoreRows<6>", 12, WORDS),
    Product("product int8 6x4, SMULL", "neon Int8Strip<6, 1>::ProductColumns<6>", 12, WORDS),
]
PASSES = [
    Pass("softmax f32", "neon Strip<6, 3, 8>::Softmax", 6),
    Pass("softmax f32, dropout", "neon Strip<6, 3, 8>::SoftmaxDropout", 6),
    Pass("softmax to bf16", "neon_bf16 BlockWords<3>::Softmax", 6),
    Pass("softmax to bf16, dropout", "neon_bf16 BlockWords<3>::SoftmaxDropout", 6),
    Pass("backward softmax", "neon Strip<6, 3, 8>::BackwardSoftmax", 3),
    Pass("backward softmax, dropout", "neon Strip<6, 3, 8>::BackwardSoftmaxDropout", 3),
    Pass("dot products of rows", "neon Dot", 4),
    Pass("bias of bf16", "neon Strip<6, 3, 8>::AddBias", 96),
    Pass("add_state", "neon Strip<6, 3, 8>::AddState", 1),
    Pass("add_state by rows", "neon StateByRow<12, 12>::AddState", 1),
    Pass("indexer: sum over heads", "neon AddHeads", 3),
    Pass("indexer: sum over heads along the lanes", "neon SumHeadLanes", 4),
    Pass("indexer: probabilities", "neon Probabilities", 1),
]
# Functions that multiply and have no line: the passes of narrower strips, which are the same text; those of words that
# blocks exchange; columns of few rows past the whole blocks; powers of two for their test.
OTHERS = re.compile(r"neon Strip<(8, 2|16, 1), \d+>::|neon_bf16 (PairWords|BlockWords<[12]>)|"
                    r"neon FewRows<\d>::ProductColumns<\w+, 1>$|neon Exp2Array$")

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
    function: str
    body: tuple  # of Instruction, the last one branches to the first

    @property
    def kind(self):
        kinds = [MULTIPLIES[each.mnemonic] for each in self.body if each.mnemonic in MULTIPLIES]
        return max(set(kinds), key=kinds.count) if kinds else None

    @property
    def multiplies(self):
        return sum(each.mnemonic in MULTIPLIES for each in self.body)

    def has(self, *mnemonics):
        return any(each.mnemonic in mnemonics for each in self.body)

    @property
    def rows(self):
        return "f16" if self.has("fcvtl", "fcvtl2") else "bf16" if self.has("shll", "shl", "ushll") else "f32"

    def assembly(self, label):
        lines = [f"{label}:"]
        for each in self.body:
            operands = BRANCH.sub(f"{label} <", each.operands) if each.target is not None else each.operands
            lines.append(f"  {each.mnemonic} {re.sub(r' <.*', '', operands)}")
        return "\n".join(lines)


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
    """ "neon Strip<6, 3, 8>::ScoreRows<6>" of a demangled function with its namespaces, arguments and result."""
    name = function.replace("(anonymous namespace)::", "")
    name = re.sub(r"^(?:void |static |auto )*", "", name)
    level = re.search(r"kernels::(\w+)::(.*)", name)
    name = f"{level[1]} {level[2]}" if level else name
    return re.sub(r"\(.*", "", re.sub(r"\b(?:\w+::)+(?=KeySteps|Read)", "", name))


def innermost_loops(function, instructions):
    """Yields the loops that hold no other, of one function."""
    index = {each.address: i for i, each in enumerate(instructions)}
    spans = [(index[each.target], i) for i, each in enumerate(instructions)
             if each.target in index and index[each.target] <= i]
    for begin, end in spans:
        if any(begin <= first and last <= end and (first, last) != (begin, end) for first, last in spans):
            continue
        loop = Loop(function, tuple(instructions[begin:end + 1]))
        if not any(each.mnemonic in ("b", "ret") for each in loop.body[:-1]):  # else cold code that was moved behind the loop
            yield loop


def loops_of(build):
    """@return {function: its innermost loops}"""
    objects = sorted(build.glob("src/core/kernels/CMakeFiles/fa_kernels_neon*.dir/**/*.o"))
    if not objects:
        sys.exit(f"model_kernels: {build} has no kernels of aarch64")
    text = subprocess.run([OBJDUMP, "-d", "-C", "--no-show-raw-insn", *objects], check=True, capture_output=True, text=True).stdout
    loops = {}
    for function, instructions in functions_of(text):
        name = kernel_name(function)
        loops.setdefault(name, []).extend(innermost_loops(name, instructions))
    return loops


def parameters(function):
    """@return the function without the numbers that a template has, and these; true is 1, false 0"""
    number = re.compile(r"-?\b\d+\b|\btrue\b|\bfalse\b")
    return number.sub("#", function), [{"true": 1, "false": 0}.get(each) if each in ("true", "false") else int(each)
                                       for each in number.findall(function)]


def without_line(loops):
    """Yields the functions that multiply, and are neither of a line nor a shorter block of one: of fewer rows, columns or
    lines to fetch."""
    listed = [parameters(each.function) for each in PRODUCTS + PASSES]
    for function, bodies in loops.items():
        if max((each.multiplies for each in bodies), default=0) < LEAST_MULTIPLIES or OTHERS.search(function):
            continue
        name, numbers = parameters(function)
        if not any(name == other and all(a <= b for a, b in zip(numbers, most)) for other, most in listed):
            yield function


def find(line, loops):
    """@return the loop of a Product or a Pass; raises LookupError"""
    if line.function not in loops:
        raise LookupError(f"{line.label}: no function {line.function}")
    bodies = loops[line.function]
    if isinstance(line, Pass):
        if not bodies:
            raise LookupError(f"{line.label}: {line.function} has no loop")
        return max(bodies, key=lambda each: (each.multiplies, -len(each.body)))
    of_type = [each for each in bodies if each.multiplies > 0 and (line.why != FEW or each.rows == line.rows)]
    most = max((each.multiplies for each in of_type), default=0)
    found = [each for each in of_type if each.multiplies == line.multiplies and (each.has("prfm") or not line.fetches)]
    if most != line.multiplies or not found:
        raise LookupError(f"{line.label}: want {line.multiplies} multiply-adds{' and a fetch' if line.fetches else ''} in a loop of "
                          f"{line.function}, which has at most {most}")
    return min(found, key=lambda each: len(each.body))


def modelled_cycles(pieces, core):
    """@return cycles of one turn of each piece of assembly, by llvm-mca"""
    text = "".join(f"# LLVM-MCA-BEGIN {i}\n{piece}\n# LLVM-MCA-END\n" for i, piece in enumerate(pieces))
    command = [LLVM_MCA, "-march=aarch64", f"-mcpu={core}", "-mattr=+dotprod,+bf16,+i8mm,+fullfp16", f"-iterations={TURNS}",
               "-instruction-info=false", "-resource-pressure=false"]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"model_kernels: no {LLVM_MCA}; scripts/setup.sh aarch64 installs it")
    cycles = re.findall(r"^Total Cycles:\s+(\d+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or len(cycles) != len(pieces):
        sys.exit(f"model_kernels: {LLVM_MCA} says {done.stderr.strip()[:400]}")
    return [int(each) / TURNS for each in cycles]


@dataclass(frozen=True)
class Row:
    """A line of a table: instructions and, per core, cycles per turn and those of its multiply-adds alone."""

    line: object
    loop: Loop
    cycles: dict
    bound: dict

    def cells(self):
        count = len(self.loop.body)
        if isinstance(self.line, Pass):
            vectors = self.line.vectors
            return [self.line.label, f"{count / vectors:.1f}", *(f"{each / vectors:.1f}" for each in self.cycles.values())]
        multiplies = self.loop.multiplies
        cells = [self.line.label, f"{multiplies} of {count}, {100 * multiplies / count:.0f} %"]
        for core in CORES:
            cells.append("–" if core not in self.cycles else
                         f"{self.cycles[core]:.1f} ({100 * self.bound[core] / self.cycles[core]:.0f} %)")
        return cells

    def markdown(self):
        return f"| {' | '.join(self.cells())} |"

    def is_below(self):
        return (self.loop.multiplies < SHARE * len(self.loop.body) or
                any(self.bound[core] < BOUND * cycles for core, cycles in self.cycles.items()))


def rows_of(found):
    """@return a Row for each (line, loop)"""
    cycles, bounds = [{} for _ in found], [{} for _ in found]
    for core, has in CORES.items():
        at = [i for i, (_, loop) in enumerate(found) if loop.kind in has]
        kinds = sorted(has)
        pieces = ["\n".join(INDEPENDENT[kind].format(i) for i in range(ACCUMULATORS)) for kind in kinds]
        turns = modelled_cycles(pieces + [found[i][1].assembly(f".Lturn{i}") for i in at], core)
        of_kind = {kind: each / ACCUMULATORS for kind, each in zip(kinds, turns)}
        for i, each in zip(at, turns[len(kinds):]):
            cycles[i][core] = each
            bounds[i][core] = of_kind[found[i][1].kind] * found[i][1].multiplies
    return [Row(line, loop, *each) for (line, loop), *each in zip(found, cycles, bounds)]


def tables(rows):
    """@return {first cell of its header: lines below it}"""
    return {"loop": [each.markdown() for each in rows if isinstance(each.line, Product)],
            "pass": [each.markdown() for each in rows if isinstance(each.line, Pass)]}


def place_of(table, lines):
    """@return where the lines of a table of a page begin and end; raises LookupError"""
    for i, line in enumerate(lines):
        if line.startswith(f"| {table} |") and lines[i + 1].startswith("|---"):
            end = i + 2
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            return i + 2, end
    raise LookupError(f"no table of the header '{table}'")


def differ(written, computed):
    """@return whether two lines of a table differ by more than MARGIN_INSTRUCTIONS and MARGIN_CYCLES"""
    number = re.compile(r"\d+(?:\.\d+)?")
    # Everything but the numbers behind the label, which names sizes.
    label, other_label = written.split("|")[1], computed.split("|")[1]
    rest, other = written.split("|", 2)[2], computed.split("|", 2)[2]
    if label != other_label or number.sub("#", rest) != number.sub("#", other):
        return True
    for a, b in zip(number.findall(rest), number.findall(other)):
        margin = max(MARGIN_INSTRUCTIONS if "." not in b else 0.1, MARGIN_CYCLES * float(b))
        if abs(float(a) - float(b)) > margin:
            return True
    return False


def problems_of(page, rows):
    """Yields what is wrong with the text of a page."""
    lines = page.splitlines()
    for table, computed in tables(rows).items():
        begin, end = place_of(table, lines)
        written = {line.split("|")[1]: line for line in lines[begin:end]}
        for line in computed:
            known = written.pop(line.split("|")[1], "| | nothing |")
            if differ(known, line):
                yield f"the page has {known}\n  want         {line}"
        for line in written.values():
            yield f"the page has {line}, which is in no list"
    for row in (each for each in rows if isinstance(each.line, Product)):
        why = row.line.why
        if row.is_below() != bool(why):
            yield f"{row.markdown()} {'has no reason to be' if not why else 'is not'} below {SHARE} or {BOUND}"
        if why and not re.search(rf"^(?:- )?\*\*{re.escape(why)}\b", page, re.MULTILINE):
            yield f"{row.line.label}: the page does not explain '{why}'"


def with_tables(page, rows):
    """@return the text of the page with the tables of these rows"""
    lines = page.splitlines()
    for table, computed in tables(rows).items():
        begin, end = place_of(table, lines)
        lines[begin:end] = computed
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", type=Path, metavar="PAGE")
    action.add_argument("--fix", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    loops = loops_of(arguments.build)
    problems = [f"{each} multiplies and has no line" for each in without_line(loops)]
    found = []
    for line in PRODUCTS + PASSES:
        try:
            found.append((line, find(line, loops)))
        except LookupError as error:
            problems.append(str(error))
    rows = rows_of(found)
    if arguments.fix:
        arguments.fix.write_text(with_tables(arguments.fix.read_text(), rows))
    page = arguments.check or arguments.fix
    if page:
        problems += problems_of(page.read_text(), rows)
    else:
        for table in tables(rows).values():
            print("\n".join(table), end="\n\n")
    for problem in problems:
        print(f"model_kernels: {problem}", file=sys.stderr)
    print(f"{len(rows)} loops, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
