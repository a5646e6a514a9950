#!/bin/sh
# Usage: setup.sh [python | aarch64 | packages]
# Installs from Debian 12 the packages that building and testing need, as root or by sudo. Does nothing if all of them
# are there. With python it installs only what pip install ./python needs. With aarch64 it also installs what the preset
# of that name needs to cross-compile and to run its tests. Packages that cannot be installed next to this machine's own
# are unpacked into build/aarch64-root. With packages it also installs what scripts/packages.sh needs.
set -eu

packages="
  build-essential g++ cmake ninja-build pkg-config git ca-certificates binutils
  libtbb-dev libopenblas-pthread-dev libhwloc-dev librandom123-dev
  python3-dev python3-venv
"
if [ "${1:-}" != python ]; then
  packages="$packages
    libgtest-dev libgmock-dev libbenchmark-dev
    libcli11-dev nlohmann-json3-dev libfmt-dev
    libopenmpi-dev openmpi-bin
    clang-format-14
    doxygen
    fish zsh groff
  "
  # A test uses NumPy, wherever python3 finds it.
  python3 -c "import numpy" 2>/dev/null || packages="$packages python3-numpy"
fi

if [ "${1:-}" = packages ]; then
  packages="$packages dpkg-dev lintian"
fi
if [ "${1:-}" = aarch64 ] && [ "$(uname -m)" != aarch64 ]; then
  packages="$packages g++-aarch64-linux-gnu qemu-user"
  for library in libtbb-dev libopenblas-pthread-dev libhwloc-dev libgtest-dev libgmock-dev \
    libbenchmark-dev libfmt-dev libgomp1; do
    packages="$packages $library:arm64"
  done
  foreign=arm64
  # Open MPI and Python, each with the libraries that only it needs. Open MPI's libmunge2 can be installed for one
  # processor only.
  unpacked="
    libopenmpi-dev libopenmpi3 libpmix2 libmunge2 libevent-core-2.1-7 libevent-pthreads-2.1-7 libucx0
    libfabric1 libatomic1 libibverbs1 ibverbs-providers librdmacm1 libnl-3-200 libnl-route-3-200 zlib1g
    python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libpython3.11-dev
    libexpat1 libbz2-1.0 libffi8 liblzma5 libncursesw6 libtinfo6 libreadline8 libsqlite3-0 libuuid1 libssl3 libdb5.3
  "
fi

native=$(dpkg --print-architecture)
missing=""
for package in $packages; do
  # A package may be installed for another processor too; then dpkg prints one line for each.
  states=$(dpkg-query -W -f='${Architecture} ${db:Status-Status}\n' "$package" 2>/dev/null || true)
  wanted=$native
  case $package in *:*) wanted=${package#*:} ;; esac
  echo "$states" | grep -qxE "($wanted|all) installed" || missing="$missing $package"
done
# unpack: unpacks the packages for the other processor into a separate root, without running their scripts. If it fails,
# it leaves no root.
unpack() {
  rm -rf "$root" "$root.new"
  mkdir -p "$root.new/downloaded"
  # shellcheck disable=SC2086  # a list of words
  (cd "$root.new/downloaded" && apt-get download -q $(printf "%s:$foreign " $unpacked)) || return 1
  for file in "$root.new"/downloaded/*.deb; do
    dpkg -x "$file" "$root.new" || return 1
  done
  rm -r "$root.new/downloaded"
  echo "$unpacked" >"$root.new/packages.txt"
  mv "$root.new" "$root"
}
root=$(cd "$(dirname "$0")/.." && pwd)/build/aarch64-root
# shellcheck disable=SC2086  # a list of words
unpacked=$(echo ${unpacked:-})
[ "$(cat "$root/packages.txt" 2>/dev/null)" != "$unpacked" ] || unpacked=""

[ -n "$missing$unpacked" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null; then
  as_root="sudo env"
elif [ -n "$missing" ]; then
  echo "setup: missing$missing; run as root or install sudo" >&2
  exit 1
else
  as_root="env"
fi

install() {
  if [ -n "$missing" ]; then
    # shellcheck disable=SC2086  # lists of words
    $as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing || return 1
  fi
  [ -z "$unpacked" ] || unpack
}
[ -z "$missing" ] || echo "setup: installing$missing"
if [ -n "${foreign:-}" ] && [ -n "$missing" ]; then
  $as_root dpkg --add-architecture "$foreign"
fi
# On a fresh machine the package lists are empty or old. On a machine in use they are mostly good enough.
if ! install; then
  $as_root apt-get update -q
  install
fi
