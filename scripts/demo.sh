#!/bin/sh
# Sets up, builds for speed and runs the forward on every layer and head of the activations in examples/data.
set -eu
cd "$(dirname "$0")/.."

scripts/setup.sh
cmake --preset release
cmake --build --preset release --target fa_demo
exec build/release/examples/fa_demo examples/data/minilm "$@"
