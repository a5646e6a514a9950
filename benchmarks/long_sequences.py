"""Measures memory and time of long padded sequences in one layer of a Hugging Face model, with fa and with PyTorch's
SDPA.

    benchmarks/long_sequences.py                         16,384 and 32,768 tokens, f32
    benchmarks/long_sequences.py --tokens 4096 --type bfloat16

The layer is Llama's, with hidden size 1024, 16 heads and 4 key heads. A quarter of the sequence is padding on the left.
Each row of the table comes from its own process, and shows how much memory that process gained in the call. The last
hidden states of both implementations are compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

import fa.transformers  # noqa: F401  registers "fa"


def status(field):
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def measure(implementation, tokens, type_name, output):
    """Runs the layer once and prints one line of JSON."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=1024, intermediate_size=1024, num_hidden_layers=1,
                                      num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=tokens)
    model = transformers.LlamaModel(config).eval().to(getattr(torch, type_name))
    model.set_attn_implementation(implementation)
    ids = torch.randint(3, 256, (1, tokens))
    kept = torch.ones_like(ids)
    kept[0, : tokens // 4] = 0
    with torch.inference_mode():
        model(ids[:, :64], attention_mask=kept[:, :64])  # a first call, whose costs are not measured
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before, wall, cpu = status("VmRSS"), time.perf_counter(), time.process_time()
        hidden = model(ids, attention_mask=kept, use_cache=False).last_hidden_state
        row = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu, "bytes": status("VmHWM") - before}
    torch.save(hidden[:, -256:].float(), output)
    print(json.dumps(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 32768])
    parser.add_argument("--type", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--one", nargs=2, metavar=("IMPLEMENTATION", "FILE"), help="measure in this process")
    given = parser.parse_args()
    if given.one:
        measure(given.one[0], given.tokens[0], given.type, given.one[1])
        return 0

    print("| tokens | attention | peak memory of the call | wall time | CPU time |")
    print("|---:|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for tokens in given.tokens:
            states = {}
            for implementation in ("fa", "sdpa"):
                file = os.path.join(folder, implementation)
                command = [sys.executable, __file__, "--tokens", str(tokens), "--type", given.type]
                done = subprocess.run([*command, "--one", implementation, file], stdout=subprocess.PIPE, text=True, check=True)
                row = json.loads(done.stdout.splitlines()[-1])
                states[implementation] = torch.load(file)
                print(f"| {tokens:,} | {implementation} | {row['bytes'] / 1e6:,.0f} MB | {row['seconds']:.1f} s "
                      f"| {row['cpu_seconds']:.1f} s |", flush=True)
            apart = float((states["fa"] - states["sdpa"]).abs().max() / states["sdpa"].abs().max())
            if not apart < (1e-3 if given.type == "float32" else 5e-2):
                print(f"the hidden states are {apart:.1e} of the largest apart", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
