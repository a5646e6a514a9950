"""scripts/model_kernels.py without a compiler: loops of made-up disassembly, and a llvm-mca of a few lines."""

import contextlib
import io
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import model_kernels  # noqa: E402
from model_kernels import Instruction, Loop, Pass, Product, Row  # noqa: E402

SCORES = "void fa::core::kernels::neon::(anonymous namespace)::Strip<6, 3, 8>::ScoreRows<6>(float const*, long)"
SOFTMAX = "fa::core::kernels::neon::(anonymous namespace)::Strip<6, 3, 8>::Softmax(float*, long)"
BLOCKS = "void fa::core::kernels::neon_bf16::(anonymous namespace)::Blocks<4>::Run(float*)"
SLOW = "fa::core::kernels::neon::(anonymous namespace)::Slow<2>::Run(float*)"

FMLA, BFMMLA = "fmla v0.4s, v1.4s, v2.s[0]", "bfmmla v0.4s, v1.8h, v2.8h"
LOAD, DIVIDE, FETCH = "ldr q1, [x1], #16", "fdiv v3.4s, v3.4s, v4.4s", "prfm pldl2keep, [x1, #512]"


def disassembly(functions):
    """Text as objdump's. @param functions  {name: instructions}; "back N" branches back to the function's instruction N,
    "jump N" does so whatever the flags say"""
    lines, address = ["", "kernels_neon.cc.o:     file format elf64-littleaarch64", "", "Disassembly of section .text:"], 0
    for name, instructions in functions.items():
        begin = address
        lines += ["", f"{begin:016x} <{name}>:"]
        for text in instructions:
            mnemonic, _, operands = text.partition(" ")
            if mnemonic in ("back", "jump"):
                target = begin + 4 * int(operands)
                place = f"{target:x} <{name}+{target - begin:#x}>"
                mnemonic, operands = ("b.ne", f"{place}  // b.any") if mnemonic == "back" else ("b", place)
            lines.append(f"{address:8x}:\t{mnemonic}\t{operands}".rstrip())
            address += 4
    return "\n".join(lines) + "\n"


def loops_in(instructions):
    """The innermost loops of a function of these instructions."""
    [(name, body)] = model_kernels.functions_of(disassembly({"f()": instructions}))
    return list(model_kernels.innermost_loops(name, body))


def loop_of(*instructions, function="neon F"):
    return Loop(function, tuple(Instruction(4 * i, *text.split(" ", 1)) for i, text in enumerate(instructions)))


class DisassemblyTest(unittest.TestCase):
    def test_functions_have_their_instructions(self):
        text = disassembly({SCORES: [LOAD, "back 0", "ret"], SOFTMAX: ["ret"]})
        scores, softmax = model_kernels.functions_of(text)
        self.assertEqual(scores[0], SCORES)
        self.assertEqual([(each.address, each.mnemonic) for each in scores[1]], [(0, "ldr"), (4, "b.ne"), (8, "ret")])
        self.assertEqual(scores[1][0].operands, "q1, [x1], #16")
        self.assertEqual(scores[1][1].operands, f"0 <{SCORES}+0x0>")  # without the comment behind it
        self.assertEqual(softmax, (SOFTMAX, [Instruction(12, "ret", "")]))

    def test_only_branches_have_targets(self):
        for mnemonic, operands, target in (("b", "1c <f+0x1c>", 0x1c), ("b.ne", "40 <f>", 0x40), ("cbnz", "x2, 8 <f>", 8),
                                           ("tbz", "w0, #3, a8 <f>", 0xa8), ("bl", "40 <g>", None), ("br", "x3", None),
                                           ("bfmmla", "v0.4s, v1.8h, v2.8h", None), ("adr", "x0, 8 <f>", None)):
            self.assertEqual(Instruction(0, mnemonic, operands).target, target, mnemonic)

    def test_names_are_the_level_and_the_function(self):
        for function, name in ((SCORES, "neon Strip<6, 3, 8>::ScoreRows<6>"), (SOFTMAX, "neon Strip<6, 3, 8>::Softmax"),
                               ("void fa::core::kernels::neon_bf16::(anonymous namespace)::RowProduct<3, "
                                "fa::core::kernels::neon_bf16::(anonymous namespace)::KeySteps>::ProductRows<4, 2, true, 0>(long)",
                                "neon_bf16 RowProduct<3, KeySteps>::ProductRows<4, 2, true, 0>"),
                               ("main(int)", "main")):
            self.assertEqual(model_kernels.kernel_name(function), name)


class LoopsTest(unittest.TestCase):
    def test_a_loop_goes_from_the_target_to_the_branch(self):
        [loop] = loops_in(["nop", FMLA, LOAD, "back 1", "ret"])
        self.assertEqual([each.mnemonic for each in loop.body], ["fmla", "ldr", "b.ne"])
        self.assertEqual(loop.multiplies, 1)

    def test_without_a_branch_back_there_is_no_loop(self):
        self.assertEqual(loops_in([FMLA, "back 3", "nop", "ret"]), [])  # a branch forward

    def test_a_loop_around_another_is_not_innermost(self):
        [loop] = loops_in([DIVIDE, FMLA, "back 1", LOAD, "back 0", "ret"])
        self.assertEqual([each.mnemonic for each in loop.body], ["fmla", "b.ne"])

    def test_loops_one_after_the_other_are_both_found(self):
        self.assertEqual([len(loop.body) for loop in loops_in([FMLA, "back 0", FMLA, LOAD, "back 2", "ret"])], [2, 3])

    def test_cold_code_behind_a_loop_is_no_loop(self):
        self.assertEqual(loops_in([FMLA, "ret", DIVIDE, "back 0"]), [])
        self.assertEqual(loops_in([FMLA, "jump 3", DIVIDE, "back 0"]), [])
        self.assertEqual(len(loops_in([FMLA, DIVIDE, "jump 0"])), 1)  # the last one may be such a branch

    def test_multiply_adds_are_counted_by_kind(self):
        self.assertEqual(loop_of(FMLA, "fmls v0.4s, v1.4s, v2.4s", "fmul v0.4s, v1.4s, v2.4s", LOAD).multiplies, 2)
        self.assertEqual(loop_of(FMLA, "fmls v0.4s, v1.4s, v2.4s").kind, "fmla")
        both = loop_of("smull v0.4s, v1.4h, v2.4h", "smull2 v0.4s, v1.8h, v2.8h", FMLA)
        self.assertEqual((both.kind, both.multiplies), ("smull", 3))
        self.assertIsNone(loop_of(LOAD).kind)

    def test_the_type_of_rows_is_that_of_the_conversion(self):
        self.assertEqual(loop_of(FMLA, "fcvtl v0.4s, v1.4h").rows, "f16")
        self.assertEqual(loop_of(FMLA, "shll v0.4s, v1.4h, #16").rows, "bf16")
        self.assertEqual(loop_of(FMLA, LOAD).rows, "f32")

    def test_the_assembly_branches_to_its_own_label(self):
        [loop] = loops_in(["nop", FMLA, "cbz x3, 14 <f()+0x14>", "back 1", "nop", "ret"])
        lines = loop.assembly(".Lturn").splitlines()
        self.assertEqual(lines, [".Lturn:", f"  {FMLA}", "  cbz x3, .Lturn", "  b.ne .Lturn"])


class FindTest(unittest.TestCase):
    line = Product("scores", "neon F", 2)

    def find(self, line, *loops):
        return model_kernels.find(line, {"neon F": list(loops)})

    def test_the_shortest_loop_of_the_wanted_multiply_adds_is_found(self):
        short = loop_of(FMLA, FMLA, LOAD)
        self.assertIs(self.find(self.line, loop_of(FMLA, FMLA, LOAD, LOAD), short, loop_of(FMLA)), short)

    def test_one_that_fetches_is_another(self):
        fetching = loop_of(FMLA, FMLA, LOAD, FETCH)
        loops = loop_of(FMLA, FMLA), fetching
        self.assertIs(self.find(Product("scores", "neon F", 2, fetches=True), *loops), fetching)
        with self.assertRaisesRegex(LookupError, "want 2 multiply-adds and a fetch"):
            self.find(Product("scores", "neon F", 2, fetches=True), loops[0])

    def test_a_loop_with_more_or_fewer_multiply_adds_is_an_error(self):
        one, two, three = (loop_of(*[FMLA] * n) for n in (1, 2, 3))
        for loops in ([one], [three], [two, three]):
            with self.assertRaisesRegex(LookupError, f"want 2 .*at most {loops[-1].multiplies}$"):
                self.find(self.line, *loops)
        with self.assertRaisesRegex(LookupError, "scores: no function neon F"):
            model_kernels.find(self.line, {})

    def test_few_rows_are_told_apart_by_the_type_of_rows(self):
        halves, floats = loop_of(FMLA, FMLA, "fcvtl v0.4s, v1.4h"), loop_of(FMLA, FMLA)
        self.assertIs(self.find(Product("few", "neon F", 2, model_kernels.FEW, "f16"), floats, halves), halves)
        self.assertIs(self.find(Product("few", "neon F", 2, model_kernels.FEW, "f32"), halves, floats), floats)

    def test_a_pass_is_the_loop_of_most_multiply_adds(self):
        most = loop_of(FMLA, FMLA, LOAD)
        self.assertIs(self.find(Pass("pass", "neon F", 1), loop_of(FMLA), most, loop_of(FMLA, FMLA, LOAD, LOAD)), most)
        with self.assertRaisesRegex(LookupError, "has no loop"):
            self.find(Pass("pass", "neon F", 1))

    def test_a_function_that_multiplies_must_be_in_a_list(self):
        many, few = [loop_of(*[FMLA] * model_kernels.LEAST_MULTIPLIES)], [loop_of(FMLA)]
        loops = {"neon New<1>::Run": many, "neon Quiet<1>::Run": few,
                 "neon Strip<6, 3, 8>::ScoreRows<5>": many,  # fewer rows than a line has
                 "neon Strip<6, 3, 8>::ScoreRows<7>": many,
                 "neon Strip<8, 2, 8>::Softmax": many}  # of OTHERS
        self.assertEqual(list(model_kernels.without_line(loops)), ["neon New<1>::Run", "neon Strip<6, 3, 8>::ScoreRows<7>"])


class RowTest(unittest.TestCase):
    def row(self, count, multiplies, cycles=36.0, bound=36.0, line=Product("scores", "neon F", 72)):
        loop = loop_of(*[FMLA] * multiplies, *[LOAD] * (count - multiplies))
        return Row(line, loop, dict.fromkeys(model_kernels.CORES, cycles), dict.fromkeys(model_kernels.CORES, bound))

    def test_a_product_says_its_share_its_cycles_and_the_bound(self):
        self.assertEqual(self.row(88, 72, 40.0).cells(), ["scores", "72 of 88, 82 %", *["40.0 (90 %)"] * 5])

    def test_a_pass_is_counted_per_vector(self):
        self.assertEqual(self.row(156, 40, 75.0, line=Pass("softmax", "neon F", 6)).cells(), ["softmax", "26.0", *["12.5"] * 5])

    def test_a_core_without_the_instruction_has_no_figure(self):
        row = self.row(10, 8)
        del row.cycles["neoverse-n1"]
        self.assertEqual(row.cells()[2:4], ["–", "36.0 (100 %)"])

    def test_below_is_a_share_or_a_bound_that_is_not_reached(self):
        self.assertFalse(self.row(100, 75).is_below())
        self.assertTrue(self.row(100, 74).is_below())
        self.assertFalse(self.row(80, 72, 40.0).is_below())
        self.assertTrue(self.row(80, 72, 40.1).is_below())
        slow_on_one = self.row(80, 72)
        slow_on_one.cycles["tsv110"] = 72.0
        self.assertTrue(slow_on_one.is_below())

    def test_lines_differ_by_more_than_the_margin_only(self):
        line = "| scores 6x12 | 72 of 88, 82 % | 36.0 (100 %) |"
        for same in (line, line.replace("88, 82", "89, 81"), line.replace("36.0 (100", "37.0 (97")):
            self.assertFalse(model_kernels.differ(same, line), same)
        self.assertFalse(model_kernels.differ("| a | 8 of 11 |", "| a | 8 of 10 |"))  # one instruction, whatever its share
        for other in (line.replace("88", "91"), line.replace("36.0", "37.2"), line.replace("6x12", "6x11"),
                      line.replace("36.0 (100 %)", "–"), line + " 1.0 |"):
            self.assertTrue(model_kernels.differ(other, line), other)


# A multiply-add takes half a cycle, a division ten.
FAKE_LLVM_MCA = f"""\
#!/bin/sh
exec awk '/^# LLVM-MCA-BEGIN/ {{ cycles = 0; next }}
          /^# LLVM-MCA-END/ {{ print "Total Cycles:      " cycles * {model_kernels.TURNS}; next }}
          / fdiv /{{ cycles += 10 }} /fmla|bfmmla/ {{ cycles += 0.5 }}'
"""
PAGE = """\
# Kernels

| loop | multiply-adds of instructions | N1 | V1 | N2 | V2 | TSV110 |
|---|---|---|---|---|---|---|
| of before | 1 of 1 |

Between the tables.

| pass | instructions | N1 | V1 | N2 | V2 | TSV110 |
|---|---|---|---|---|---|---|

- **Divisions** take long.
"""
PRODUCTS = [Product("scores f32 6x12", "neon Strip<6, 3, 8>::ScoreRows<6>", 8), Product("blocks", "neon_bf16 Blocks<4>::Run", 4),
            Product("slow", "neon Slow<2>::Run", 8, "Divisions")]
PASSES = [Pass("softmax f32", "neon Strip<6, 3, 8>::Softmax", 2)]
FUNCTIONS = {SCORES: [*[FMLA] * 8, LOAD, "back 0", "ret"], BLOCKS: [*[BFMMLA] * 4, "back 0", "ret"],
             SLOW: [*[FMLA] * 8, DIVIDE, "back 0", "ret"], SOFTMAX: [*[FMLA] * 3, LOAD, "back 0", "ret"]}
TABLES = ["| scores f32 6x12 | 8 of 10, 80 % | 4.0 (100 %) | 4.0 (100 %) | 4.0 (100 %) | 4.0 (100 %) | 4.0 (100 %) |",
          "| blocks | 4 of 5, 80 % | – | 2.0 (100 %) | 2.0 (100 %) | 2.0 (100 %) | – |",
          "| slow | 8 of 10, 80 % | 14.0 (29 %) | 14.0 (29 %) | 14.0 (29 %) | 14.0 (29 %) | 14.0 (29 %) |",
          "| softmax f32 | 2.5 | 0.8 | 0.8 | 0.8 | 0.8 | 0.8 |"]


class ProgramTest(unittest.TestCase):
    """The whole script on a build folder of one empty object, with an objdump that prints FUNCTIONS."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        objects = self.root / "build/src/core/kernels/CMakeFiles/fa_kernels_neon.dir/levels"
        objects.mkdir(parents=True)
        (objects / "kernels_neon.cc.o").touch()
        self.page = self.root / "kernels.md"
        self.page.write_text(PAGE)
        self.disassemble(FUNCTIONS)
        objdump = self.program("objdump", f"#!/bin/sh\nexec cat '{self.root}/disassembly'\n")
        mca = self.program("llvm-mca", FAKE_LLVM_MCA)
        for name, value in (("OBJDUMP", objdump), ("LLVM_MCA", mca), ("PRODUCTS", PRODUCTS), ("PASSES", PASSES)):
            self.patch(name, value)

    def patch(self, name, value):
        patched = mock.patch.object(model_kernels, name, value)
        patched.start()
        self.addCleanup(patched.stop)

    def program(self, name, text):
        path = self.root / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def disassemble(self, functions):
        (self.root / "disassembly").write_text(disassembly(functions))

    def run_script(self, *arguments):
        """@return (exit status, output, errors)"""
        output, errors = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["model_kernels.py", str(self.root / "build"), *map(str, arguments)]), \
                contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = model_kernels.main()
        return status, output.getvalue(), errors.getvalue()

    def assert_check_fails(self, pattern):
        status, _, errors = self.run_script("--check", self.page)
        self.assertEqual(status, 1)
        self.assertRegex(errors, pattern)

    def fix(self):
        self.assertEqual(self.run_script("--fix", self.page), (0, "4 loops, 0 problems\n", ""))

    def test_prints_the_tables(self):
        status, output, errors = self.run_script()
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(output.splitlines(), [*TABLES[:3], "", TABLES[3], "", "4 loops, 0 problems"])

    def test_fix_writes_the_tables_and_nothing_else_and_again_nothing(self):
        self.fix()
        fixed = self.page.read_text()
        before, lines = PAGE.splitlines(), fixed.splitlines()
        self.assertEqual([line for line in lines if line not in before], TABLES)
        self.assertEqual([line for line in before if line not in lines], ["| of before | 1 of 1 |"])
        self.assertTrue(fixed.endswith("long.\n"))
        self.fix()
        self.assertEqual(self.page.read_text(), fixed)

    def test_check_passes_on_what_fix_wrote_and_writes_nothing(self):
        self.fix()
        fixed = self.page.read_text()
        self.assertEqual(self.run_script("--check", self.page), (0, "4 loops, 0 problems\n", ""))
        self.assertEqual(self.page.read_text(), fixed)

    def test_check_fails_on_a_changed_table(self):
        self.fix()
        fixed = self.page.read_text()
        for was, now, pattern in (("4.0 (100 %)", "4.2 (95 %)", "the page has .*4.2"), ("8 of 10", "8 of 12", "the page has .*12"),
                                  (TABLES[3] + "\n", "", "nothing"), (TABLES[3], TABLES[3] + "\n| new | 1.0 |", "in no list")):
            self.page.write_text(fixed.replace(was, now, 1))
            self.assert_check_fails(pattern)

    def test_check_fails_on_a_loop_that_became_longer(self):
        self.fix()
        self.disassemble(FUNCTIONS | {BLOCKS: [*[BFMMLA] * 4, "nop", "nop", "back 0", "ret"]})
        self.assert_check_fails(re.escape("the page has | blocks | 4 of 5, 80 % "))

    def test_check_fails_on_a_loop_that_is_gone_and_on_one_in_no_list(self):
        self.fix()
        self.disassemble({name: body for name, body in FUNCTIONS.items() if name != BLOCKS})
        self.assert_check_fails("blocks: no function neon_bf16 Blocks<4>::Run")
        self.disassemble(FUNCTIONS | {SCORES.replace("Strip", "Other"): FUNCTIONS[SCORES]})
        self.assert_check_fails(re.escape("neon Other<6, 3, 8>::ScoreRows<6> multiplies and has no line"))

    def test_a_product_below_the_bound_needs_a_reason_that_the_page_explains(self):
        self.fix()
        fixed = self.page.read_text()
        self.page.write_text(fixed.replace("**Divisions**", "Divisions"))
        self.assert_check_fails("slow: the page does not explain 'Divisions'")
        self.page.write_text(fixed)
        self.patch("PRODUCTS", [*PRODUCTS[:2], Product("slow", "neon Slow<2>::Run", 8)])
        self.assert_check_fails("slow .* has no reason to be below")
        fast = Product("scores f32 6x12", "neon Strip<6, 3, 8>::ScoreRows<6>", 8, "Divisions")
        self.patch("PRODUCTS", [fast, *PRODUCTS[1:]])
        self.assert_check_fails("scores f32 6x12 .* is not below")

    def test_a_page_without_a_table_is_an_error(self):
        self.page.write_text(PAGE.replace("| pass |", "| other |"))
        with self.assertRaisesRegex(LookupError, "no table of the header 'pass'"):
            self.run_script("--check", self.page)

    def test_what_is_not_there_is_said(self):
        for name, pattern in (("llvm-mca", "no .*llvm-mca; scripts/setup.sh"), ("objects", "has no kernels of aarch64")):
            if name == "objects":
                next(self.root.glob("build/**/*.o")).unlink()
            else:
                (self.root / name).unlink()
            with self.assertRaisesRegex(SystemExit, pattern):
                self.run_script()

    def test_a_model_that_fails_or_answers_for_fewer_loops_is_an_error(self):
        for text in (FAKE_LLVM_MCA.replace("exec ", "") + "echo 'bad operand' >&2\nexit 1\n",
                     "#!/bin/sh\ncat >/dev/null\necho 'Total Cycles:   400'\necho 'bad operand' >&2\n"):
            self.program("llvm-mca", text)
            with self.assertRaisesRegex(SystemExit, "says bad operand"):
                self.run_script()


if __name__ == "__main__":
    unittest.main()
