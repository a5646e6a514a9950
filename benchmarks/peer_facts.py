"""Texts for the report about each peer: how it was built, or why it was not measured. benchmarks/README.md says how
each peer is called."""

from results import NAMES

RUNTIME_WARNINGS = {
    ("onednn", "SYCL"): "PyPI's build with SYCL; a build with OpenMP is 1.4 to 4 times as fast (Zen 4).",
}


def build_text(name, about):
    """Returns the version and the build of a peer. The version of OpenBLAS contains its name and its build options."""
    version = about["version"].split(" NO_")[0].removeprefix("OpenBLAS ")
    return f"{NAMES[name]} {version}" + (f" ({about['runtime']})" if "runtime" in about else "")


def left_out_text(results):
    """Returns the reasons why peers have no figures, or slow figures."""
    lines = [f"- {NAMES[name]} was not measured: {reason}."
             for name, reason in sorted(results.get("left_out", {}).items()) if name not in results["versions"]]
    for name, about in results["versions"].items():
        if warning := RUNTIME_WARNINGS.get((name, about.get("runtime"))):
            lines.append(f"- {build_text(name, about)}: {warning}")
    return "\n".join(lines)
