#!/bin/sh
# Usage: test_torch_versions.sh [BUILD_DIR]
# Makes one wheel, and runs tests of fa.torch.flex_attention from it with an older PyTorch. BUILD_DIR is the one of
# test_python.sh. The environment of a version, of up to 6 GB, goes before the next one comes. The tests have ten minutes
# per version. Inductor compiles C++ for minutes, so only test_python.sh runs its case. scripts/test.sh does not call this
# script, because each version is a download of gigabytes.
#
# FA_TORCH_VERSIONS="2.10.0 2.11.0 2.12.0": the versions; without this variable the oldest one, 2.10.0.
# Versions that pip does not find are named, and the status is then 77. With FA_WITHOUT_PYTHON=1 nothing is run.
set -eu
build=${1:-}
source=$(cd "$(dirname "$0")/.." && pwd)

if [ "${FA_WITHOUT_PYTHON:-}" = 1 ]; then
  echo "test_torch_versions: FA_WITHOUT_PYTHON=1, so fa.torch is not tested with older versions of PyTorch"
  exit 77
fi

. "$source/scripts/python_environment.sh"
need nanobind scikit-build-core ninja
build_wheel "$source" "$build"

cd "$scratch"
status=0
for version in ${FA_TORCH_VERSIONS:-2.10.0}; do
  python3 -m venv "$scratch/older"
  python=$scratch/older/bin/python
  if ! pip install -q --no-compile "torch==$version" numpy ml_dtypes pytest 2>"$scratch/install.log"; then
    cat "$scratch/install.log" >&2
    grep -q "No matching distribution found for torch==$version" "$scratch/install.log" || exit 1
    echo "test_torch_versions: pip finds no torch $version, so fa.torch is not tested with it"
    status=77
  else
    pip install -q --no-deps "$scratch"/dist/*.whl
    OMP_WAIT_POLICY=passive timeout 600 "$python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider \
      -k "not inductor" "$source/python/tests/pytorch/test_flex.py" "$source/python/tests/pytorch/test_flex_compiled.py"
  fi
  rm -rf "$scratch/older"
done
exit "$status"
