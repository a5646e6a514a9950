#!/bin/sh
# Fails if a C++ file is not as .clang-format says; with --fix rewrites it instead.
set -eu
cd "$(dirname "$0")/.."

format=$(command -v clang-format-14 || command -v clang-format) || { echo "check_format: no clang-format" >&2; exit 1; }
mode="--dry-run -Werror"
[ "${1:-}" = --fix ] && mode="-i"

# shellcheck disable=SC2086  # two words
find include src tests benchmarks examples tools python -name '*.h' -o -name '*.cc' -o -name '*.inc' | sort | xargs "$format" $mode
