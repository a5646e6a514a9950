#!/bin/sh
# Usage: test_jax.sh [BUILD_DIR]
# Makes one wheel with the headers of jaxlib 0.10.2, and runs python/tests/jax from it with jax 0.10.2 and with jax
# 0.12.0.1. Both need one Python of version 3.12 or newer: PYTHON, or else the newest in PATH. BUILD_DIR is that of
# test_python.sh.
#
# Returns 77 and runs nothing if FA_WITHOUT_PYTHON=1, or if the Python or a jax of these versions is missing.
set -eu
build=${1:-}
source=$(cd "$(dirname "$0")/.." && pwd)

skip() {
  echo "test_jax: $1, so fa.jax is not tested with two versions of jax"
  exit 77
}
[ "${FA_WITHOUT_PYTHON:-}" != 1 ] || skip "FA_WITHOUT_PYTHON=1"
interpreter=""
for name in ${PYTHON:-python3.14 python3.13 python3.12}; do
  if "$name" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
    interpreter=$name
    break
  fi
done
[ -n "$interpreter" ] || skip "there is no Python 3.12"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for version in 0.10.2 0.12.0.1; do
  "$interpreter" -m venv "$scratch/$version"
  "$scratch/$version/bin/python" -m pip --disable-pip-version-check --no-input install -q --no-compile \
    "jax==$version" numpy pytest nanobind scikit-build-core ninja || skip "pip finds no jax $version"
done

prefix=OFF
if [ -n "$build" ]; then
  prefix=$scratch/prefix
  cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
fi
python=$scratch/0.10.2/bin/python
PATH=$scratch/0.10.2/bin:$PATH "$python" -m pip wheel -q --no-build-isolation --no-deps -w "$scratch/dist" \
  -C cmake.define.FA_PREFIX="$prefix" "$source/python"
rm -rf "$scratch/prefix"

cd "$scratch"
for version in 0.10.2 0.12.0.1; do
  python=$scratch/$version/bin/python
  "$python" -m pip --disable-pip-version-check install -q --no-deps "$scratch"/dist/*-abi3-*.whl
  # The other tests' conftest.py needs PyTorch.
  PYTHONPATH=$source/python/tests/jax "$python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider \
    --noconftest "$source/python/tests/jax"
done
