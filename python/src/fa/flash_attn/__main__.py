"""Runs a script, or with -m a module, for which `import flash_attn` finds fa.flash_attn."""

from __future__ import annotations

import os
import runpy
import sys

from . import install

_USAGE = "usage: python -m fa.flash_attn [--force] (script.py | -m module) [arguments ...]"


def main(arguments: list[str]) -> None:
    force = arguments[:1] == ["--force"]
    arguments = arguments[force:]
    by_module = arguments[:1] == ["-m"]
    arguments = arguments[by_module:]
    if not arguments or arguments[0].startswith("-"):
        sys.exit(_USAGE)
    try:
        install(force=force)
    except ValueError as error:
        sys.exit(str(error))
    sys.argv = arguments
    if by_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
