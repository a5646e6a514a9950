"""Builds variants of libfa, each with another constant. One or two sources of a build folder are compiled again with a
changed text. They are linked with the folder's other objects. The checkout and the build folder stay unchanged."""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
KERNELS = "core/kernels"
BLOCKS, LINES = f"{KERNELS}/register_blocks.inc", f"{KERNELS}/levels/kernels.inc"
TILES = {"forward": "tiling/tile_shape.cc", "backward": "tiling/backward/backward_shape.cc"}
PANELS, TILE, ROWS = "ops/tile/key_panels.cc", "ops/dense/forward_tile.cc", f"{KERNELS}/row_products.inc"
REGISTERS = {"avx2": 16, "avx512": 32, "avx512_bf16": 32}
VOCABULARY = {"avx512_bf16": "avx512"}  # {level: the level whose vector functions it uses}
LINE = re.compile(r"^FA_(?:STRIP|PAIR)_KERNELS\((\w+), (?:f32, )?(\d+), (\d+), (\d+)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Variant:
    """A variant of libfa, and the changes of source text that make it."""

    name: str
    edits: tuple  # (file in SOURCES, a text that occurs once in it, the new text)
    sources: tuple  # the files in SOURCES that must be compiled, because they have the text or include it


def read(file):
    with open(os.path.join(SOURCES, file), encoding="utf-8") as text:
        return text.read()


def level_of(isa, dtype):
    """Returns the level whose source has the register blocks of a call. Raises ValueError for a level whose blocks
    have no variants."""
    level = "avx512" if isa.startswith("avx512") and (isa, dtype) != ("avx512_bf16", "bf16") else isa
    if level not in REGISTERS or (isa, dtype) == ("avx512_amx", "bf16"):
        raise ValueError(f"{isa}, {dtype}: register blocks are tried on {', '.join(REGISTERS)}")
    return level


def source_of(level):
    return f"{KERNELS}/levels/kernels_{level}.cc"


def register_blocks(level, operation):
    """Yields variants of the kernels. Each has another register block of the level's widest strip, another register
    block of the backward's outer products, or another kLastSteps. Every block leaves registers for B's vectors and a
    factor.
    """
    source, registers = (source_of(level),), REGISTERS[level]
    line = next(match for match in LINE.finditer(read(LINES)) if match[1] == level)
    rows, width, vectors = (int(line[i]) for i in (2, 3, 4))
    most = (registers - 1 - vectors) // vectors
    for other in sorted({rows // 2, 3 * rows // 4, most} - {rows}):
        text = line[0].replace(f" {rows}, {width},", f" {other}, {width},")
        yield Variant(f"{other}x{width}", ((LINES, line[0], text),), source)
    if operation == "backward":
        yield from outer_blocks(registers, source)
    vocabulary = f"{KERNELS}/vec/vec_{VOCABULARY.get(level, level)}.h"
    now = int(re.search(r"kLastSteps = (\d+);", read(vocabulary))[1])
    for steps in sorted({0, 2, 3, 4, 6} - {now}):
        yield Variant(f"{steps} last steps", ((vocabulary, f"kLastSteps = {now};", f"kLastSteps = {steps};"),), source)


def outer_blocks(registers, source):
    """Yields variants with other register blocks (rows by vectors) of the outer products."""
    if registers < 32:
        rows, vectors = "if (kRegisters < 32) return 6;", "kRegisters < 32 ? 2 :"
        sizes, now = ((4, 2), (5, 2), (4, 3)), 2
    else:
        rows, vectors = "return vectors == kOuterVectors ? 6 :", "kStepsAtOnce > 1 ? 3 : 4;"
        sizes, now = ((4, 4), (5, 4), (8, 3), (9, 3)), 4
    for m, n in sizes:
        edits = [(BLOCKS, rows, rows.replace("6", str(m)))]
        if n != now:
            edits.append((BLOCKS, vectors, vectors.replace(f" {now}", f" {n}")))
        yield Variant(f"outer {m}x{n} vectors", tuple(edits), source)


def tile(operation, rows, keys):
    """Returns a variant with another tile of rows and keys. If `rows` or `keys` is 0, the planner chooses that number.
    Rows are rounded to whole strips, and are at most as many as the planner may choose.
    """
    file = TILES[operation]
    strips = f"std::clamp(int64_t{{{rows}}} / machine.strip_rows, int64_t{{1}}, (kFullBlockQ + machine.strip_rows - 1) / machine.strip_rows)"
    if operation == "forward":
        row_edit = ("ChooseBlockQ(problem, machine);", f"CountedRows(problem, machine, {strips} * machine.strip_rows);")
        key_edit = (".block_k = ChooseBlockK(problem, machine),", f".block_k = {keys},")
    else:
        row_edit = ("= ChooseBlockQ(problem, machine, interleave, shape.block_k);", f"= {strips} * machine.strip_rows;")
        key_edit = ("= ChooseBlockK(problem, machine.isa);", f"= {keys};")
    edits = [(file, *edit) for edit, wanted in ((row_edit, rows), (key_edit, keys)) if wanted]
    return Variant(f"{rows}x{keys}", tuple(edits), (file,))


def fetch_distances(level, shape):
    """Returns variants that fetch keys and values ahead at other distances. @param shape  decode*, short* or any
    other"""
    if shape.startswith("decode"):
        now = "kFewRowsFetchAhead = 32;"
        for keys in (0, 8, 16, 64):
            yield Variant(f"few rows {keys} ahead", ((PANELS, now, f"kFewRowsFetchAhead = {keys};"),), (PANELS,))
    elif shape.startswith("short"):
        now = "kBetweenFetches = 8;"
        for steps in (2, 4, 16):
            yield Variant(f"the list every {steps} steps", ((ROWS, now, f"kBetweenFetches = {steps};"),), (source_of(level),))
        yield Variant("the list into L2", ((TILE, "list.into_l1 = true;", "list.into_l1 = false;"),), (TILE,))
    else:
        now = ": plan_.shape.block_k;"
        for name, instead in (("no next block", "0"), ("half a block ahead", "plan_.shape.block_k / 2"),
                              ("two blocks ahead", "2 * plan_.shape.block_k")):
            yield Variant(name, ((PANELS, now, f": {instead};"),), (PANELS,))


def edited(variant):
    """Returns the changed texts of a variant's files. Raises ValueError unless each text that is replaced occurs
    exactly once."""
    texts = {}
    for file, now, instead in variant.edits:
        text = texts.get(file) or read(file)
        if text.count(now) != 1:
            raise ValueError(f"{variant.name}: {file} has {now!r} {text.count(now)} times, want once")
        texts[file] = text.replace(now, instead)
    return texts


class Build:
    """A build folder of CMake and Ninja in which libfa.so is up to date."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        commands = subprocess.run(["ninja", "-t", "commands", "src/libfa.so"], cwd=self.folder, stdout=subprocess.PIPE,
                                  text=True, check=True).stdout.splitlines()
        self.compilations = {words[words.index("-c") + 1]: words for words in map(shlex.split, commands) if "-c" in words}
        self.link = next(words for words in map(shlex.split, commands) if "-shared" in words)

    def compilation_of(self, source):
        """Returns the command that compiles a source, and the file that it compiles: the source, or a file that
        includes the source."""
        path = os.path.join(SOURCES, source)
        if path in self.compilations:
            return self.compilations[path], path
        for whole, command in self.compilations.items():
            if "/Unity/" in whole:
                with open(whole, encoding="utf-8") as file:
                    if f'"{path}"' in file.read():
                        return command, whole
        raise ValueError(f"{self.folder}: no command compiles {path}; build it with CMake and Ninja")

    def make(self, variant, folder):
        """Builds the variant's libfa in an empty folder. Raises CalledProcessError if the variant does not compile.
        Raises ValueError if the compiler did not read a changed file."""
        overlay = os.path.join(folder, "src")
        changed = [write(os.path.join(overlay, file), text) for file, text in edited(variant).items()]
        objects, was_read = {}, ""
        for number, source in enumerate(variant.sources):
            command, whole = self.compilation_of(source)
            path, own = os.path.join(SOURCES, source), os.path.join(overlay, source)
            compiled = whole
            if os.path.exists(own) and whole == path:
                compiled = own
            elif os.path.exists(own):
                with open(whole, encoding="utf-8") as file:
                    compiled = write(os.path.join(folder, f"{number}.cxx"), file.read().replace(path, own))
            new = os.path.join(folder, f"{number}.o")
            objects[command[command.index("-o") + 1]] = new
            self.run(compile_command(command, compiled, new, overlay))
            with open(f"{new}.d", encoding="utf-8") as file:
                was_read += file.read()
        if unread := [path for path in changed if path not in was_read]:
            raise ValueError(f"{variant.name}: {', '.join(variant.sources)} does not include {', '.join(unread)}")
        output = self.link[self.link.index("-o") + 1]
        link = [objects.get(word, word) for word in self.link if word not in (":", "&&")]
        link[link.index(output)] = os.path.join(folder, "libfa.so.0")
        self.run(link)

    def run(self, command):
        subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)


def compile_command(command, source, output, overlay):
    """Returns the compiler's command for another source and output. The compiler looks for files in the overlay first,
    and lists next to the output which files it has read."""
    words = list(command)
    for flag, value in (("-c", source), ("-o", output), ("-MF", f"{output}.d")):
        words[words.index(flag) + 1] = value
    return [words[0], "-iquote", overlay, *words[1:]]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path
