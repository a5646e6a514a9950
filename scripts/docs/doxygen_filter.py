#!/usr/bin/env python3
"""An input filter for Doxygen. A comment after `T a, b;` belongs to both names, but Doxygen gives it only to the last
name.
"""

import re
import sys
from pathlib import Path

DECLARATIONS = re.compile(r"^( +)([\w:<>]+(?: const)?(?: \*)?) (\w+(?: = [\w:.{}]+)?(?:, \w+(?: = [\w:.{}]+)?)+);( *///<.*)$")


def one_each(line):
    """@return the line with one declaration for each name, without a line break, so that line numbers stay"""
    match = DECLARATIONS.match(line)
    if match is None:
        return line
    indent, kind, names, comment = match.groups()
    words = comment.strip().removeprefix("///<")
    return indent + " ".join(f"{kind} {name}; /**<{words} */" for name in names.split(", "))


if __name__ == "__main__":
    for text in Path(sys.argv[1]).read_text().splitlines():
        print(one_each(text))
