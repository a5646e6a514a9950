#!/bin/sh
# Usage: onednn_install.sh FOLDER
# Fetches the newest oneDNN that Debian has, which is built with OpenMP, and unpacks it into FOLDER/root. It does not
# change the system. FOLDER/root also gets the C and C++ libraries with which this oneDNN runs on an older Debian:
#
#   benchmarks/onednn_install.sh build/onednn && cmake --preset release -DFA_ONEDNN_ROOT=$PWD/build/onednn/root
#
# PyPI's onednn is a SYCL build, which is several times slower. On other systems, build oneDNN from source with
# -DONEDNN_CPU_RUNTIME=OMP.
set -eu
[ $# = 1 ] || { sed -n 's/^# \(Usage.*\)/\1/p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$folder"
mkdir -p lists/partial cache/archives/partial packages root

# Downloads from the system's mirror of Debian, but from the suite sid (unstable).
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:?onednn_install: no Debian among the sources of apt} sid main" >sources.list
apt_of() {
  program=$1
  shift
  "$program" -qq -o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root \
    -o Dir::State::Lists="$folder/lists" -o Dir::Cache="$folder/cache" "$@"
}
apt_of apt-get update
library=$(apt_of apt-cache depends libdnnl-dev | sed -n 's/^ *Depends: \(libdnnl.*\)/\1/p')
cd packages
rm -f ./*.deb
apt_of apt-get download libdnnl-dev "$library" libc6 libstdc++6 libgcc-s1 libgomp1
for package in *.deb; do
  dpkg-deb -x "$package" "$folder/root"
done
ls "$folder"/root/usr/lib/*/libdnnl.so
