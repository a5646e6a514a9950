"""What the report says of each peer: how it is called, how it was built, why it was not measured."""

from collections import Counter

from results import NAMES

CALLS = {
    "torch": "scaled_dot_product_attention restricted to its flash kernel; the backward is autograd's.",
    "torch_mkl": "the same with MKL's fast kernels, which MKL gives to CPUs of Intel only unless a preloaded library "
                 "answers its question.",
    "flex": "flex_attention, compiled; a block mask spares it what a causal mask drops.",
    "zentorch": "AMD's operator zentorch_sdpa, which zentorch's compiler puts in the place of PyTorch's; in causal cases keys and "
                "values of groups are repeated before the timing.",
    "openvino": "opset13's scaled_dot_product_attention with the precision hint f32 or bf16, as one operator.",
    "ggml": "llama.cpp's ggml_flash_attn_ext, decoding only; queries and outputs are f32. In brackets the instructions that its "
            "package was built for.",
    "onnxruntime": "MultiHeadAttention without a mask, GroupQueryAttention for causal cases and decoding.",
    "onednn": "the graph API's fused pattern, some query rows at a time.",
    "naive": "products of whole heads by OpenBLAS, softmax between them.",
}
RUNTIME_WARNINGS = {
    ("onednn", "SYCL"): "This is PyPI's SYCL build, whose fused kernels do not run at their best: a build with OpenMP is 1.4 to 4 "
                        "times as fast (Zen 4). benchmarks/onednn_install.sh fetches one.",
}


def build_text(name, about):
    """The version and the build of a peer. That of OpenBLAS contains its name and its build options."""
    version = about["version"].split(" NO_")[0].removeprefix("OpenBLAS ")
    return f"{NAMES[name]} {version}" + (f" ({about['runtime']})" if "runtime" in about else "")


def notes_text(results, name):
    """What the peer chose, and in how many cases: "chunks of 128 rows 3, whole 2"."""
    notes = Counter(peer["note"] for entry in results["cases"].values() if "note" in (peer := entry["peers"].get(name, {})))
    return ", ".join(f"{note} {count}" for note, count in sorted(notes.items()))


def peers_text(results):
    """A list of the peers."""
    lines = []
    for name in (name for name in CALLS if name in results["versions"]):
        about = results["versions"][name]
        words = [f"- **{build_text(name, about)}**: {CALLS[name]}"]
        if notes := notes_text(results, name):
            words.append(f"Cases: {notes}.")
        words.append(RUNTIME_WARNINGS.get((name, about.get("runtime")), ""))
        lines.append(" ".join(filter(None, words)))
    for name, reason in sorted(results.get("left_out", {}).items()):
        if name not in results["versions"]:
            lines.append(f"- **{NAMES[name]}** was not measured: {reason}.")
    return "\n".join(lines)
