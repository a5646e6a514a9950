#!/bin/sh
# Usage: setup.sh [aarch64 | packages]
# Installs what building and testing needs, from Debian 12. Does nothing if all of it is there. With aarch64 it also
# installs what the preset of that name needs to cross-compile and to run its tests; with packages what
# scripts/packages.sh needs.
set -eu

packages="
  build-essential g++ cmake ninja-build pkg-config git ca-certificates binutils
  libtbb-dev libopenblas-pthread-dev libhwloc-dev librandom123-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  libcli11-dev nlohmann-json3-dev libfmt-dev
  libopenmpi-dev openmpi-bin
  clang-format-14
  python3-dev python3-venv
  doxygen
  fish zsh groff
"
# A test uses it from wherever python3 finds it.
python3 -c "import numpy" 2>/dev/null || packages="$packages python3-numpy"

if [ "${1:-}" = packages ]; then
  packages="$packages dpkg-dev lintian"
fi
if [ "${1:-}" = aarch64 ] && [ "$(uname -m)" != aarch64 ]; then
  # llvm-19 has the models of the cores that scripts/model_kernels.py asks.
  packages="$packages g++-aarch64-linux-gnu qemu-user llvm-19"
  for library in libtbb-dev libopenblas-pthread-dev libhwloc-dev libgtest-dev libgmock-dev \
    libbenchmark-dev libfmt-dev libgomp1; do
    packages="$packages $library:arm64"
  done
  foreign=arm64
fi

native=$(dpkg --print-architecture)
missing=""
for package in $packages; do
  # A package may be installed for another processor too: dpkg prints one line for each.
  states=$(dpkg-query -W -f='${Architecture} ${db:Status-Status}\n' "$package" 2>/dev/null || true)
  wanted=$native
  case $package in *:*) wanted=${package#*:} ;; esac
  echo "$states" | grep -qxE "($wanted|all) installed" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null; then
  as_root="sudo env"
else
  echo "setup: missing$missing; run as root or install sudo" >&2
  exit 1
fi

echo "setup: installing$missing"
if [ -n "${foreign:-}" ]; then
  $as_root dpkg --add-architecture "$foreign"
fi
install() {
  # shellcheck disable=SC2086  # lists of words
  $as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
}
# The package lists of a fresh machine are empty or old; those of a machine in use are mostly good enough.
if ! install; then
  $as_root apt-get update -q
  install
fi
