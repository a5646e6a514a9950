"""Tests of the sweeps. Equal tiles are tried once, the best calls count, and each variant of
libfa has the change that its name states.
"""

import ctypes
import os
import shutil
import tempfile
import unittest
from unittest import mock

import tune
import variants


class FakePeer:
    """Answers with a tile and with times that grow from call to call, as if the machine became
    busier."""

    clock = 0

    def __init__(self, tile, seconds):
        self.tile, self.seconds, self.closed = tile, seconds, False

    def ask(self, what, **_details):
        if what == "plan":
            return {"block_q": self.tile[0], "block_k": self.tile[1]}
        FakePeer.clock += 1
        return {"seconds": [self.seconds * (1 + 0.01 * FakePeer.clock), 9.0]}

    def close(self):
        self.closed = True


def candidate(tile, seconds):
    made = tune.Candidate.__new__(tune.Candidate)
    made.peer = FakePeer(tile, seconds)
    return made


class TuneTest(unittest.TestCase):
    def setUp(self):
        self.case = tune.all_cases(1)[0]

    def test_equal_tiles_are_tried_once(self):
        candidates = [candidate(tile, 1) for tile in ((128, 256), (64, 256), (128, 256))]
        kept = tune.distinct(self.case, "", candidates)
        self.assertEqual(list(kept), [(128, 256), (64, 256)])
        self.assertEqual([each.peer.closed for each in candidates], [False, False, True])

    def test_a_ratio_is_that_of_the_best_calls(self):
        by_tile = {(128, 256): candidate((128, 256), 1.0), (64, 256): candidate((64, 256), 0.5)}
        found = tune.ratios(by_tile, (128, 256), 0, 4)
        self.assertEqual(found[128, 256], 1)
        self.assertAlmostEqual(found[64, 256], 2, delta=0.05)

    def test_cases_have_keys_of_their_own(self):
        for sweep in ("tiles", "blocks", "fetches"):
            keys = [case.key for case in tune.all_cases(2, sweep)]
            self.assertTrue(keys)
            self.assertEqual(len(keys), len(set(keys)))


class VariantsTest(unittest.TestCase):
    def test_every_variant_changes_the_sources_as_they_are(self):
        every = [variant for level in variants.REGISTERS for variant in
                 (*variants.register_blocks(level, "backward"),
                  *(variant for shape in tune.FETCHED for variant in variants.fetch_distances(level, shape)))]
        every += [variants.tile(operation, rows, keys) for operation in tune.KEYS for rows, keys in ((0, 64), (96, 0), (48, 128))]
        for variant in every:
            with self.subTest(variant.name):
                # edited() raises if the text to replace is not in the file exactly once.
                for file, text in variants.edited(variant).items():
                    self.assertNotEqual(text, variants.read(file))
                for source in variant.sources:
                    self.assertTrue(os.path.exists(os.path.join(variants.SOURCES, source)))

    def test_names_of_a_sweep_are_different(self):
        for level in variants.REGISTERS:
            names = [variant.name for variant in variants.register_blocks(level, "backward")]
            self.assertEqual(len(names), len(set(names)))
            self.assertTrue(any(name.startswith("outer") for name in names))
        self.assertFalse(any(v.name.startswith("outer") for v in variants.register_blocks("avx2", "forward")))

    def test_a_text_that_is_not_there_once_is_refused(self):
        for now in ("no such text", "kRows"):
            with self.assertRaisesRegex(ValueError, "want once"):
                variants.edited(variants.Variant("x", ((variants.BLOCKS, now, "y"),), ()))

    def test_blocks_leave_registers_for_the_operands(self):
        for level, registers in variants.REGISTERS.items():
            for variant in variants.register_blocks(level, "forward"):
                for _, _, instead in variant.edits:
                    if match := variants.LINE.match(instead):
                        rows, vectors = int(match[2]), int(match[4])
                        self.assertLessEqual(rows * vectors + vectors + 1, registers)

    def test_the_level_is_that_of_the_type(self):
        self.assertEqual(variants.level_of("avx512_bf16", "bf16"), "avx512_bf16")
        self.assertEqual(variants.level_of("avx512_bf16", "f32"), "avx512")
        self.assertEqual(variants.level_of("avx512_vnni", "bf16"), "avx512")
        self.assertEqual(variants.level_of("avx2", "bf16"), "avx2")
        for isa in ("avx512_amx", "neon_bf16"):
            with self.assertRaisesRegex(ValueError, "are tried on avx2"):
                variants.level_of(isa, "bf16")


BUILD_NINJA = """
rule cxx
  command = c++ -fPIC -I{src} -MD -MT $out -MF $out.d -o $out -c $in
rule link
  command = : && c++ -shared -o $out $in && :
build alone.o: cxx {src}/sources/alone.cc
build Unity/whole.o: cxx {folder}/Unity/whole.cc
build src/libfa.so: link alone.o Unity/whole.o
"""


@unittest.skipUnless(shutil.which("ninja") and shutil.which("c++"), "Ninja and a compiler are not there")
class BuildTest(unittest.TestCase):
    """A library made from two sources. The second source is compiled as part of another
    file."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.src, self.folder, self.out = (os.path.join(folder.name, name) for name in ("source", "build", "variant"))
        variants.write(f"{self.src}/texts/number.inc", "constexpr int kNumber = 1;\n")
        variants.write(f"{self.src}/sources/alone.cc", '#include "texts/number.inc"\nextern "C" int alone() { return kNumber; }\n')
        variants.write(f"{self.src}/part.cc", 'extern "C" int part() { return 10; }\n')
        variants.write(f"{self.folder}/Unity/whole.cc", f'#include "{self.src}/part.cc"\n')
        variants.write(f"{self.folder}/build.ninja", BUILD_NINJA.format(src=self.src, folder=self.folder))
        variants.Build.run(self, ["ninja", "src/libfa.so"])
        patch = mock.patch("variants.SOURCES", self.src)
        patch.start()
        self.addCleanup(patch.stop)

    def everything(self):
        """@return every file of the source and build folders, with the time at which it last changed"""
        return {path: os.stat(path).st_mtime_ns for top in (self.src, self.folder)
                for at, _, names in os.walk(top) for path in (os.path.join(at, name) for name in names)}

    def results_of(self, variant):
        before = self.everything()
        variants.Build(self.folder).make(variant, self.out)
        self.assertEqual(self.everything(), before)
        library = ctypes.CDLL(f"{self.out}/libfa.so.0")
        return library.alone(), library.part()

    def test_a_changed_include_is_compiled_in(self):
        variant = variants.Variant("2", (("texts/number.inc", "kNumber = 1", "kNumber = 2"),), ("sources/alone.cc",))
        self.assertEqual(self.results_of(variant), (2, 10))

    def test_a_changed_part_of_a_whole_is_compiled_in(self):
        variant = variants.Variant("20", (("part.cc", "10", "20"),), ("part.cc",))
        self.assertEqual(self.results_of(variant), (1, 20))

    def test_a_changed_source_of_its_own_is_compiled_in(self):
        variant = variants.Variant("3", (("sources/alone.cc", "kNumber;", "kNumber + 2;"),), ("sources/alone.cc",))
        self.assertEqual(self.results_of(variant), (3, 10))

    def test_a_change_that_the_compiler_does_not_read_is_refused(self):
        variant = variants.Variant("2", (("texts/number.inc", "kNumber = 1", "kNumber = 2"),), ("part.cc",))
        with self.assertRaisesRegex(ValueError, "part.cc does not include .*number.inc"):
            variants.Build(self.folder).make(variant, self.out)

    def test_a_source_without_a_command_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no command compiles"):
            variants.Build(self.folder).make(variants.Variant("x", (), ("other.cc",)), self.out)


if __name__ == "__main__":
    unittest.main()
