#!/usr/bin/env python3
"""Tests whether different emulated CPUs and numbers of threads give the same bits.

    equal_bits.py RESULT_HASHES EMULATOR ...

Runs result_hashes (tests/fuzz) on emulated CPUs. Each CPU also has the levels of the CPUs before it, so every level
runs on at least two CPUs. Fails if the outputs of one call differ on one level, if a CPU has other levels than it
should, or if nothing was compared.
"""

import os
import subprocess
import sys
from collections import defaultdict

CPUS = {"cortex-a72": {"portable", "neon", "amx_emulated"},
        "neoverse-n1": {"portable", "neon", "neon_dotprod", "amx_emulated"},
        "max": {"portable", "neon", "neon_dotprod", "neon_bf16", "amx_emulated"},
        "max,sve=off": {"portable", "neon", "neon_dotprod", "neon_bf16", "amx_emulated"}}
FIRST_SEED, CASES = "1", "2"


def lines_on(cpu, command):
    """@return [(family, seed, level, threads, hash of the outputs)] that result_hashes prints on that CPU"""
    done = subprocess.run([*command, FIRST_SEED, CASES], env={**os.environ, "QEMU_CPU": cpu}, stdout=subprocess.PIPE,
                          text=True, check=True)
    return [(*words[:4], words[5]) for words in (line.split() for line in done.stdout.splitlines())]


def main(program, *emulator):
    failures, hashes = [], defaultdict(dict)
    for cpu, levels in CPUS.items():
        lines = lines_on(cpu, [*emulator, program])
        if {level for _, _, level, _, _ in lines} != levels:
            failures.append(f"{cpu}: levels other than {sorted(levels)}")
        for family, seed, level, threads, value in lines:
            hashes[family, seed, level][cpu, threads] = value
    for call, values in hashes.items():
        if len(set(values.values())) != 1:
            failures.append(f"{call}: {values}")
    compared = sum(len(values) > 1 for values in hashes.values())
    if compared == 0:
        failures.append("nothing to compare")
    for failure in failures:
        print(f"equal_bits: {failure}", file=sys.stderr)
    print(f"{compared} calls have the same bits on {len(CPUS)} CPUs" if not failures else f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
