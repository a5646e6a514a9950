#!/usr/bin/env python3
"""Counts the tests of one or more builds and tells whether all that should have run did, and passed.

    count_tests.py PRESET=STATUS ...

STATUS is what ctest returned for build/PRESET, "unbuilt", or "left-out" if a variable said so. From each build folder
it reads

    junit.xml             ctest's report of what ran
    test_reports/T.xml    the cases of ctest's test T (a GoogleTest binary, a Python suite), which count in T's place
    registered_tests.txt  a line per registered test: its name and, tab-separated, the sources whose cases it holds

These are failures:

    a test that failed or that ctest could not run
    a preset that did not build
    a status of ctest that no failed test explains
    a report that is missing
    a registered test without cases
    a case in a source of a registered test that is in no report (compiled out, never instantiated, filtered away)
    a test file of the tree that no build registers
    a scripts/check_*.sh that is no test

So nothing can leave the suite unseen. Failures and skipped tests are listed with their reasons. The last line is
`N passed, N failed[, N skipped]`. The exit status is 0 only if no test failed.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
# A test of ctest that skips has one of these two properties. Every other "not run" is a failure.
SAYS_IT_SKIPS = ("SKIP_RETURN_CODE", "SKIP_REGULAR_EXPRESSION")
CPP_CASE = re.compile(r"^ *(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
PYTHON_CASE = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One test that ran or did not. `test` is ctest's test; `name` is the case within it ("Suite.Case/3"), or empty."""

    test: str
    name: str
    outcome: str  # passed, failed or skipped
    reason: str = ""

    def __str__(self):
        name = f"{self.test}/{self.name}" if self.name else self.test
        return f"{name}: {self.reason}" if self.reason else name


def one_line(text):
    return " ".join((text or "").split())


def skip_reason(output):
    """@return the text of GTEST_SKIP() or of a script that skips, from the output of the test"""
    lines = [line for line in (output or "").splitlines() if line.strip()]
    after = [i + 1 for i, line in enumerate(lines) if line.endswith(": Skipped")]
    return one_line(lines[after[0]] if after and after[0] < len(lines) else lines[-1] if lines else "")


def case_of_ctest(element):
    """@return the Case of a <testcase> of ctest's own report; gtest_discover_tests names a case "binary/Suite.Case"."""
    test, _, name = element.get("name").partition("/")
    status, skipped = element.get("status"), element.find("skipped")
    message = skipped.get("message", "") if skipped is not None else ""
    if status == "disabled":
        return Case(test, name, "skipped", "disabled")
    if status == "run" and skipped is None and element.find("failure") is None:
        return Case(test, name, "passed")
    if message.startswith(SAYS_IT_SKIPS):
        return Case(test, name, "skipped", skip_reason(element.findtext("system-out")))
    if status == "notrun":
        return Case(test, name, "failed", f"not run: {message}")
    failure = element.find("failure")
    return Case(test, name, "failed", one_line(failure.get("message") if failure is not None else status))


def case_of_report(test, element):
    """@return the Case of a <testcase> of a report that GoogleTest, pytest or run_unittest.py wrote for `test`"""
    name = f"{element.get('classname')}.{element.get('name')}"
    for tag in ("failure", "error"):
        if element.find(tag) is not None:
            return Case(test, name, "failed", one_line(element.find(tag).get("message"))[:200])
    skipped = element.find("skipped")
    if skipped is not None:
        message = skipped.get("message", "").splitlines() or [""]
        return Case(test, name, "skipped", one_line(message[-1]))
    if element.get("status") == "notrun":
        return Case(test, name, "skipped", "disabled")
    return Case(test, name, "passed")


def cases_in(path):
    """@return the <testcase> elements of a report, in order; raises OSError or ParseError"""
    return list(ElementTree.parse(path).iter("testcase"))


def in_detail(case, reports):
    """@return the cases of the report that ctest's test left in the folder `reports`, or the test itself if there is
    none"""
    report = reports / f"{case.test}.xml"
    if case.name or not report.exists():
        return [case]
    try:
        cases = [case_of_report(case.test, element) for element in cases_in(report)]
    except ElementTree.ParseError as error:
        return [Case(case.test, "", "failed", f"its report is cut off: {error}")]
    if case.outcome == "failed" and not any(each.outcome == "failed" for each in cases):
        cases.append(Case(case.test, "", "failed", f"{case.reason or 'failed'}, though no case of it did"))
    return cases


def written_cases(source):
    """@return the cases that a test source holds, as `seen_cases` names them"""
    text = source.read_text()
    if source.suffix == ".py":
        return {(source.stem, name) for name in PYTHON_CASE.findall(text)}
    return {(suite, name.removeprefix("DISABLED_")) for suite, name in CPP_CASE.findall(text)}


def seen_cases(cases):
    """@return pairs of a group and a case of it. The names are GoogleTest's "[Prefix/]Suite[/0].Case[/param]" and Python's
    "package.module.Class.function[param]". Every part of the name before the case counts as a group.
    """
    seen = set()
    for case in cases:
        groups, _, name = case.name.partition(".")
        seen.update((group, name.split("/")[0].removeprefix("DISABLED_")) for group in groups.split("/"))
        path = case.name.split("[")[0].split(".")
        seen.update((module, path[-1]) for module in path[:-1])
    return seen


def registered_tests(build):
    """@return {test: [source, ...]}; raises OSError"""
    lines = (build / "registered_tests.txt").read_text().splitlines()
    return {line.split("\t")[0]: [Path(source) for source in line.split("\t")[1:]] for line in lines}


def missing_from(cases, registered):
    """Yields a failed Case for each registered test that is not among `cases`, and for each written case that is not.
    """
    by_test = {}
    for case in cases:
        by_test.setdefault(case.test, []).append(case)
    for test, sources in registered.items():
        ran = by_test.get(test, [])
        if not ran:
            yield Case(test, "", "failed", "registered, but no test of it ran")
        # A test that skips as a whole has no cases. Neither has one that failed before it could report any.
        if not any(case.name for case in ran):
            if sources and any(case.outcome == "passed" for case in ran):
                yield Case(test, "", "failed", "passed, but reports no case")
            continue
        seen = seen_cases(ran)
        for source in sources:
            for group, name in sorted(written_cases(source) - seen):
                yield Case(test, f"{group}.{name}", "failed", f"written in {source.name}, in no report")


def cases_of_preset(preset, status):
    """@return (cases, which include failures of the whole; tests and sources that the build registers, None if unknown)
    """
    if status == "left-out":
        return [Case(preset, "", "skipped", "left out")], set()
    if status == "unbuilt":
        return [Case(preset, "", "failed", "does not build")], None
    build = SOURCE / "build" / preset
    try:
        ran = [case_of_ctest(element) for element in cases_in(build / "junit.xml")]
        registered = registered_tests(build)
    except (OSError, ElementTree.ParseError) as error:
        return [Case(preset, "", "failed", f"no report of its tests (ctest returned {status}): {error}")], None
    cases = [each for case in ran for each in in_detail(case, build / "test_reports")]
    if not cases:
        cases.append(Case(preset, "", "failed", "no tests"))
    cases += missing_from(cases, registered)
    if status != "0" and not any(case.outcome == "failed" for case in cases):
        cases.append(Case(preset, "", "failed", f"ctest returned {status}, though no test failed"))
    return cases, {source.resolve() for sources in registered.values() for source in sources}.union(registered)


def test_files():
    """@return every file of the tree that is a test by its name or by its contents"""
    found = set(SOURCE.glob("python/tests/**/test_*.py")) | set(SOURCE.glob("tests/**/*_test.py"))
    found |= {path for path in SOURCE.glob("tests/**/*.cc") if path.stem.endswith("_test") or written_cases(path)}
    return sorted(found)


def unregistered(registered):
    """Yields a failed Case for each test file or check of the tree that no build registers."""
    for path in test_files():
        if path.resolve() not in registered:
            yield Case(str(path.relative_to(SOURCE)), "", "failed", "a test file of no registered test")
    for path in sorted(SOURCE.glob("scripts/check_*.sh")):
        if path.stem not in registered:
            yield Case(str(path.relative_to(SOURCE)), "", "failed", "a check that is no test")


def print_list(title, cases):
    if cases:
        print(f"{title}:")
        for preset, case in cases:
            print(f"  {preset} {case}")


def main(arguments):
    statuses = dict(argument.split("=", 1) for argument in arguments)
    every, registered = [], []
    for preset, status in statuses.items():
        cases, known = cases_of_preset(preset, status)
        every += [(preset, case) for case in cases]
        registered.append(known)
    if None not in registered:
        every += [("tree", case) for case in unregistered(set().union(*registered))]
    print_list("skipped", [each for each in every if each[1].outcome == "skipped"])
    print_list("failed", [each for each in every if each[1].outcome == "failed"])
    counts = Counter(case.outcome for _, case in every)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}")
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
