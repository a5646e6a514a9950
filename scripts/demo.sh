#!/bin/sh
# Installs what is needed, builds for speed, and runs forward and backward on the layers and heads of the activations in
# examples/data.
set -eu
cd "$(dirname "$0")/.."

scripts/setup.sh
cmake --preset release
cmake --build --preset release --target fa_demo
exec build/release/examples/fa_demo examples/data/minilm "$@"
