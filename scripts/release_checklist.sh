#!/bin/sh
# Usage: release_checklist.sh [FOLDER]
# Checks everything that must hold before a version is tagged, on a clean clone of HEAD in FOLDER
# (build/release_checklist). It takes hours on two cores, and stops at the first check that fails. FA_RELEASE_STEPS
# names the steps to run, by default all of them:
#
#   state      the working tree is clean, CHANGELOG.md and CITATION.cff name the version of version.h, no tag has it yet
#   test       scripts/test.sh: everything that CI runs
#   packages   a release build, its Debian packages and tarball
#   abi        abidiff against the last tag: a changed interface needs a new minor version (before 1.0)
#   subproject a consumer by add_subdirectory and by FetchContent, built and run
#   pictures   the pictures of docs/plans.md are what the tool draws
#   docs       the documentation site
#   wheel      a manylinux wheel, run in a bare root
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/release_checklist}
steps=${FA_RELEASE_STEPS:-state test packages abi subproject pictures docs wheel}

version=$(sed -n 's/^#define FA_VERSION_STRING "\(.*\)"$/\1/p' include/fa/version.h)
fail() {
  echo "release_checklist: $*" >&2
  exit 1
}

check_state() {
  [ -z "$(git status --porcelain)" ] || fail "the working tree is not clean"
  said=$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -1)
  [ "$said" = "$version" ] || fail "CHANGELOG.md begins with $said, version.h says $version"
  cited=$(sed -n 's/^version: //p' CITATION.cff)
  [ "$cited" = "$version" ] || fail "CITATION.cff says $cited, version.h says $version"
  git rev-parse -q --verify "refs/tags/v$version" >/dev/null && fail "there is a tag v$version already"
  numbers=$(sed -n 's/^#define FA_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' include/fa/version.h | paste -sd.)
  [ "$numbers" = "$version" ] || fail "version.h says $numbers and $version"
}

build_release() {
  [ -e build/release/src/libfa.so ] && return
  cmake --preset release -DFA_BUILD_TESTS=OFF -DFA_BUILD_BENCHMARKS=OFF
  cmake --build --preset release
}

check_abi() {
  last=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || { echo "no tag to compare with"; return; }
  git worktree add --detach "$PWD/build/last" "$last"
  cmake -S build/last -B build/last/build -G Ninja -DFA_BUILD_TESTS=OFF -DFA_BUILD_BENCHMARKS=OFF -DFA_BUILD_EXAMPLES=OFF
  cmake --build build/last/build --target fa fa_aclnn
  same_minor=$(echo "${last#v} $version" | awk '{split($1, a, "."); split($2, b, "."); print a[1] == b[1] && a[2] == b[2]}')
  for library in libfa aclnn/libfa_aclnn; do
    if ! abidiff --headers-dir1 build/last/include --headers-dir2 include \
      "build/last/build/src/$library.so" "build/release/src/$library.so"; then
      [ "$same_minor" = 0 ] || fail "$library changed its binary interface since $last within a minor version"
    fi
  done
  git worktree remove --force "$PWD/build/last"
}

check_pictures() {
  mkdir -p build/pictures
  scripts/docs/draw_plans.sh build/release/tools/fa/fa build/pictures
  scripts/docs/draw_masks.py build/pictures
  diff -r build/pictures docs/pictures || fail "docs/pictures is not what is drawn now"
}

for step in $steps; do
  if [ "$step" = state ]; then
    echo "== state"
    check_state
    rm -rf "$folder"
    git clone -q "$PWD" "$folder"
    continue
  fi
  echo "== $step"
  (
    cd "$folder"
    case $step in
      test) scripts/test.sh ;;
      packages) scripts/setup.sh packages && build_release && scripts/packages.sh build/release build/packages ;;
      abi) build_release && check_abi ;;
      subproject) scripts/check_subproject.sh --link ;;
      pictures) build_release && check_pictures ;;
      docs) scripts/docs.sh ;;
      wheel) build_release && scripts/wheel.sh build/wheels build/release ;;
      *) fail "no step $step" ;;
    esac
  )
done
echo "fa $version: $steps hold"
