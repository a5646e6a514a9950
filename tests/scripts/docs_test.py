"""Tests of scripts/docs. Each check of the documentation site fails if a site has the error that it looks for."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts/docs"
sys.path.insert(0, str(SCRIPTS))
import check_site  # noqa: E402
import doxygen_filter  # noqa: E402
import stage  # noqa: E402

GOOD = '<html><body id="top"><a href="b/index.html#here">b</a> <a href="https://elsewhere/">x</a><img src="p.png"></body></html>'


class SiteTest(unittest.TestCase):
    def problems(self, page, style=""):
        """@return the problems that check_site finds in a site of three files, of which `page` is the first"""
        with tempfile.TemporaryDirectory() as folder:
            site = Path(folder).resolve()
            (site / "b").mkdir()
            (site / "b/index.html").write_text('<a id="here" href="../index.html">up</a>')
            (site / "index.html").write_text(page)
            (site / "p.png").write_bytes(b"png")
            (site / "style.css").write_text(style)
            return list(check_site.problems(site))

    def test_a_whole_site_has_no_problems(self):
        self.assertEqual(self.problems(GOOD, "a { background: url(p.png) }"), [])

    def test_a_link_to_nothing_is_found(self):
        self.assertIn("leads nowhere", self.problems('<a href="gone.html">')[0])

    def test_a_link_out_of_the_site_is_found(self):
        self.assertIn("leads nowhere", self.problems('<a href="../../etc/passwd">')[0])

    def test_a_missing_anchor_is_found(self):
        self.assertIn("no such anchor", self.problems('<a href="b/index.html#there">')[0])
        self.assertIn("no such anchor", self.problems('<a href="#there">')[0])

    def test_a_missing_picture_is_found(self):
        self.assertIn("leads nowhere", self.problems('<img src="gone.png">')[0])

    def test_what_is_loaded_from_elsewhere_is_found(self):
        for tag in ('<script src="https://elsewhere/x.js">', '<link href="//elsewhere/x.css">', '<img src="http://elsewhere/x">'):
            self.assertIn("loads", self.problems(tag)[0])
        self.assertIn("loads", self.problems(GOOD, "@import url('https://elsewhere/font.css')")[0])

    def test_a_site_without_pages_is_a_problem(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(list(check_site.problems(Path(folder)))), 1)


class StageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = stage.Site(Path(folder.name))

    def test_links_lead_to_pages_of_the_site(self):
        text = "[a](masks.md#one) [b](../README.md) [c](../examples/consumer) [d](https://elsewhere/)\n```\n[e](gone)\n```"
        self.assertEqual(self.site.relinked(text, "docs/decode.md", "decode.md"),
                         "[a](masks.md#one) [b](index.md) [c](files/examples/consumer.md) [d](https://elsewhere/)\n"
                         "```\n[e](gone)\n```\n")
        self.assertEqual(self.site.wanted, {"examples/consumer"})
        self.assertEqual(self.site.broken, [])

    def test_a_link_to_nothing_is_broken(self):
        self.site.relinked("[a](gone.md)", "docs/decode.md", "decode.md")
        self.assertEqual(self.site.broken, ["docs/decode.md: gone.md"])

    def test_a_folder_becomes_a_page_with_its_files(self):
        self.assertIn("find_package(fa", self.site.listing("examples/consumer"))


class FilterTest(unittest.TestCase):
    def test_a_comment_is_of_every_name_before_it(self):
        self.assertEqual(doxygen_filter.one_each("  TensorView q, k;  ///< both"),
                         "  TensorView q; /**< both */ TensorView k; /**< both */")
        for line in ("  int64_t heads = 0;  ///< one", "  f(a, b);  ///< a call", "  // nothing"):
            self.assertEqual(doxygen_filter.one_each(line), line)

    def test_lines_keep_their_numbers(self):
        header = SCRIPTS.parents[1] / "include/fa/merge.h"
        filtered = subprocess.run([SCRIPTS / "doxygen_filter.py", header], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(len(filtered.splitlines()), len(header.read_text().splitlines()))


if __name__ == "__main__":
    unittest.main()
