# What test_python.sh, test_torch_versions.sh and test_vllm.sh share. They source this file: it makes a fresh virtual
# environment in the folder $scratch, which goes when the script ends. $python is its interpreter.
# shellcheck shell=sh

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The tests start some 60 interpreters. With bytecode on disk, `import torch` takes less than half the CPU time.
# Container images often turn bytecode on disk off.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$scratch/bytecode"

python3 -m venv "$scratch/venv"
python=$scratch/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --no-input "$@"; }

# need pip-flags ...: installs packages.
need() {
  if ! pip install -q --no-compile "$@"; then
    echo "$(basename "$0"): pip finds not all of $*; FA_WITHOUT_PYTHON=1 skips the tests" >&2
    exit 1
  fi
}

# build_wheel SOURCE BUILD [flags ...]: builds the wheel of a checkout in $scratch/dist. The flags are pip's. With a
# finished build the wheel packages the libfa of that build. If BUILD is empty it compiles libfa, as
# `pip install ./python` does.
build_wheel() {
  source=$1
  prefix=OFF
  if [ -n "$2" ]; then
    prefix=$scratch/prefix
    cmake --install "$2" --prefix "$prefix" >"$scratch/install.log"
  fi
  shift 2
  pip wheel -q --no-build-isolation --no-deps -w "$scratch/dist" -C build-dir="$scratch/build" \
    -C cmake.define.FA_PREFIX="$prefix" "$@" "$source/python"
  # The wheel must work without the files from which it was built.
  rm -rf "$scratch/prefix" "$scratch/build"
}

# install_wheel SOURCE BUILD [flags ...]: builds the wheel and installs it.
install_wheel() {
  build_wheel "$@"
  pip install -q --no-deps "$scratch"/dist/*.whl
}
