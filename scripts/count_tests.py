#!/usr/bin/env python3
"""Counts the tests of one or more builds. Tells whether all tests ran and passed.

    count_tests.py PRESET=STATUS ...

STATUS is what ctest returned for build/PRESET, "unbuilt", or "left-out" if a variable said so. From each build folder
it reads

    junit.xml             ctest's report of what ran
    test_reports/T.xml    the cases of ctest's test T, which count in T's place; every test named *_test has one
    test_reports/T.*.xml  further cases of T

These are failures:

    a test that failed or that ctest could not run
    a preset that did not build
    a status of ctest that no failed test explains
    a report that is missing or without cases
    a case that dev runs and another preset with the same test does not
    a case that is written in the tree and in no report (of no test, compiled out, never instantiated, filtered away)
    a test file without cases
    a scripts/check_*.sh that is no test

Failures and skipped tests are listed with their reasons. The last line is `N passed, N failed[, N skipped]`. The exit
status is 0 only if no test failed.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
CPP_CASE = re.compile(r"^ *(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
PYTHON_CASE = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One test and its outcome. `test` is ctest's test; `name` is the case within it ("Suite.Case/3"), or empty."""

    test: str
    name: str
    outcome: str  # "passed", "failed" or "skipped"
    reason: str = ""
    source: str = ""  # the source file, for GoogleTest's cases only

    def __str__(self):
        name = f"{self.test}/{self.name}" if self.name else self.test
        return f"{name}: {self.reason}" if self.reason else name


def one_line(text):
    return " ".join((text or "").split())


def case_of_ctest(element):
    """@return the Case of a <testcase> of ctest's own report"""
    test, failure, skipped = element.get("name"), element.find("failure"), element.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_RETURN_CODE"):
        lines = (element.findtext("system-out") or "").strip().splitlines()
        return Case(test, "", "skipped", one_line(lines[-1]) if lines else "")
    if skipped is not None:
        return Case(test, "", "failed", f"not run: {skipped.get('message')}")
    if failure is not None or element.get("status") != "run":
        return Case(test, "", "failed", one_line(failure.get("message") if failure is not None else element.get("status")))
    return Case(test, "", "passed")


def case_of_report(test, element):
    """@return the Case of a <testcase> of a report that GoogleTest, pytest or a runner of tests/support wrote for `test`"""
    name, source = f"{element.get('classname')}.{element.get('name')}", element.get("file", "")
    for tag in ("failure", "error"):
        if element.find(tag) is not None:
            return Case(test, name, "failed", one_line(element.find(tag).get("message"))[:200], source)
    skipped = element.find("skipped")
    if skipped is not None:
        reason = one_line((skipped.get("message", "").splitlines() or [""])[-1])
        return Case(test, name, "skipped", reason, source)
    if element.get("status") == "notrun":
        return Case(test, name, "skipped", "disabled", source)
    return Case(test, name, "passed", "", source)


def cases_in(path):
    """@return the <testcase> elements of a report, in order; raises OSError or ParseError"""
    return list(ElementTree.parse(path).iter("testcase"))


def in_detail(whole, reports):
    """@return the cases of the report that the test `whole` left in the folder `reports`, or the test itself"""
    parts = [*reports.glob(f"{whole.test}.xml"), *sorted(reports.glob(f"{whole.test}.*.xml"))]
    if not parts:
        if whole.outcome == "passed" and whole.test.endswith("_test"):
            return [Case(whole.test, "", "failed", "passed, but reports no case")]
        return [whole]
    try:
        cases = [case_of_report(whole.test, element) for part in parts for element in cases_in(part)]
    except ElementTree.ParseError as error:
        return [Case(whole.test, "", "failed", f"its report is cut off: {error}")]
    if not cases:
        cases.append(Case(whole.test, "", "failed", "its report has no case"))
    if whole.outcome == "failed" and not any(case.outcome == "failed" for case in cases):
        cases.append(Case(whole.test, "", "failed", f"{whole.reason or 'failed'}, though no case of it did"))
    return cases


def cases_of_preset(preset, status):
    """@return the cases of a preset. A failure of the preset as a whole is one of them."""
    if status == "left-out":
        return [Case(preset, "", "skipped", "left out")]
    if status == "unbuilt":
        return [Case(preset, "", "failed", "does not build")]
    build = SOURCE / "build" / preset
    try:
        ran = [case_of_ctest(element) for element in cases_in(build / "junit.xml")]
    except (OSError, ElementTree.ParseError) as error:
        return [Case(preset, "", "failed", f"no report of its tests (ctest returned {status}): {error}")]
    cases = [case for whole in ran for case in in_detail(whole, build / "test_reports")]
    if not cases:
        cases.append(Case(preset, "", "failed", "no tests"))
    if status != "0" and not any(case.outcome == "failed" for case in cases):
        cases.append(Case(preset, "", "failed", f"ctest returned {status}, though no test failed"))
    return cases


def place_of(source):
    """@return the last two words of the path of a source"""
    return "/".join(Path(source).with_suffix("").parts[-2:])


def groups_of(case):
    """@return {(group, case)} of a case. The names are GoogleTest's "[Prefix/]Suite[/0].Case[/param]" and Python's
    "package.module.Class.function[param]". Each part of the name before the case is a group. GoogleTest's groups are
    "folder/source:Suite", because cases of two sources may have the same name.
    """
    if case.source:
        groups, _, name = case.name.partition(".")
        name = name.split("/")[0].removeprefix("DISABLED_")
        return {(f"{place_of(case.source)}:{group}", name) for group in groups.split("/")}
    path = case.name.split("[")[0].split(".")
    return {(module, path[-1]) for module in path[:-1]}


def written_cases(source):
    """@return the cases that a test source holds, as `groups_of` names them"""
    text = source.read_text()
    if source.suffix == ".py":
        return {(source.stem, name) for name in PYTHON_CASE.findall(text)}
    return {(f"{place_of(source)}:{suite}", name.removeprefix("DISABLED_")) for suite, name in CPP_CASE.findall(text)}


def written_in_tree():
    """@return {source: {(group, case)}} of everything in the tree that may hold cases"""
    sources = [*SOURCE.glob("tests/**/*.cc"), *SOURCE.glob("tests/**/*_test.py"), *SOURCE.glob("python/tests/**/test_*.py")]
    return {source.relative_to(SOURCE): written_cases(source) for source in sorted(sources)}


def missing(presets):
    """Yields (preset, failed Case) for each case that a report lacks, and for each check in scripts that is no test.
    `presets` is {preset: cases}."""
    seen = {}  # {(preset, test): the cases that it has reported}
    for preset, cases in presets.items():
        for case in cases:
            seen.setdefault((preset, case.test), set()).update(groups_of(case) if case.name else [])
    written = written_in_tree()
    of_tree, of_reports = set().union(*written.values()), set().union(*seen.values())
    for (preset, test), here in seen.items():
        for group, name in sorted(seen.get(("dev", test), set()) & of_tree - here):
            yield preset, Case(test, f"{group}.{name}", "failed", "runs in dev only")
    for source, cases in written.items():
        suite = "vllm_test" if "vllm_cpu" in source.parts else "python_test"
        if (source.parts[0] == "python" or "torch" in source.parts) and seen.get(("dev", suite)) == set():
            continue  # the report says that the whole suite was skipped
        if not cases and "test" in source.stem.split("_"):
            yield "tree", Case(str(source), "", "failed", "a test file without cases")
        for group, name in sorted(cases - of_reports):
            yield "tree", Case(str(source), f"{group}.{name}", "failed", "in no report")
    tests = {test for _, test in seen}
    for path in sorted(SOURCE.glob("scripts/check_*.sh")):
        if path.stem not in tests:
            yield "tree", Case(path.name, "", "failed", "a check that is no test")


def print_list(title, cases):
    if cases:
        print(f"{title}:")
        for preset, case in cases:
            print(f"  {preset} {case}")


def main(arguments):
    presets = {preset: cases_of_preset(preset, status) for preset, status in (word.split("=", 1) for word in arguments)}
    every = [(preset, case) for preset, cases in presets.items() for case in cases]
    # A test or a preset that failed as a whole has no cases to compare.
    if not any(case.outcome == "failed" and not case.name for _, case in every):
        every += missing(presets)
    print_list("skipped", [each for each in every if each[1].outcome == "skipped"])
    print_list("failed", [each for each in every if each[1].outcome == "failed"])
    counts = Counter(case.outcome for _, case in every)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}")
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
