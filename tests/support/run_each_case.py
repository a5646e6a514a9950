"""Runs each case of a GoogleTest binary in its own process and writes one JUnit report of all cases.

    run_each_case.py a_test report.xml

A case has failed if its process fails, whatever its report says. The exit status is 0 only if there are cases and none
failed.
"""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def names_of(binary):
    """@return the names of the binary's cases, "Suite.Case" """
    listed = subprocess.run([binary, "--gtest_list_tests"], check=True, stdout=subprocess.PIPE, text=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = word
        elif word:
            names.append(suite + word)
    return names


def run(binary, name, report):
    """Runs the case `name`. @return its <testcase> element"""
    report.unlink(missing_ok=True)
    status = subprocess.run([binary, f"--gtest_filter={name}", f"--gtest_output=xml:{report}"], check=False).returncode
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    suite, _, case = name.partition(".")
    element = cases[0] if len(cases) == 1 else ElementTree.Element("testcase", classname=suite, name=case)
    if (status != 0 or len(cases) != 1) and element.find("failure") is None:
        ElementTree.SubElement(element, "failure", message=f"its process returned {status} and reported {len(cases)} cases")
    return element


def main(binary, report):
    report = Path(report)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    suite = ElementTree.Element("testsuite")
    suite.extend(run(binary, name, report.with_suffix(".case.xml")) for name in names_of(binary))
    ElementTree.ElementTree(suite).write(report)
    return 0 if len(suite) and suite.find("testcase/failure") is None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
