#!/bin/sh
# Usage: draw_plans.sh FA FOLDER
# Draws the pictures of docs/plans.md with the command line tool FA. The plans are for named machines, so any CPU draws
# the same.
set -eu
fa=$1
folder=$2
draw() {
  name=$1
  shift
  "$fa" plan "$@" --svg "$folder/plan_$name.svg" >/dev/null
}
draw full forward --shape 1,2,2,1024,1024,64 --isa avx512 --cores 4
draw causal forward --shape 1,4,4,1024,1024,64 --causal --isa avx512 --cores 4
draw window forward --shape 1,2,2,1024,1024,64 --sparse-mode 4 --pre-tokens 256 --next-tokens 0 --isa avx512 --cores 4
draw backward backward --shape 1,2,2,1024,1024,64 --causal --isa avx512 --cores 4
draw decode decode --shape 1,8,2,1,16384,128 --isa avx512 --cores 4
