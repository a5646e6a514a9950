"""Finds or installs PyTorch. PyTorch is a large download that only these benchmarks need, so they ask before they
download it."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import urllib.request

MINIMUM = (2, 2)  # the first version whose scaled_dot_product_attention has a flash kernel for CPUs
REQUIREMENT = "torch==2.13.0"


def installed_version():
    """Returns (major, minor) of the torch that this Python imports, or None."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def why_unusable():
    """Returns why the torch that this Python imports cannot be used, or None."""
    version = installed_version()
    if version is None:
        return f"no module torch for {sys.executable}"
    if version < MINIMUM:
        return f"torch {'.'.join(map(str, version))}, want {'.'.join(map(str, MINIMUM))} for its flash kernel"
    return None


def size_of(url):
    """Returns the size in bytes of the file that pip would fetch from a URL, or None if it is unknown."""
    try:
        if url.startswith("file:"):
            return os.path.getsize(urllib.request.url2pathname(url.removeprefix("file://").split("#")[0]))
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=20) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def download_text():
    """Returns a text that says what pip would fetch."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", REQUIREMENT]
    try:
        report = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    except (subprocess.CalledProcessError, json.JSONDecodeError):
        return "a download of unknown size"
    sizes = [size_of(item["download_info"]["url"]) for item in report["install"]]
    known = sum(size for size in sizes if size) / 1e6
    return f"{len(sizes)} packages, {known:.0f} MB" + (" and some of unknown size" if None in sizes else "")


def offer_torch():
    """If no usable torch can be imported, asks whether to install one, and installs it."""
    reason = why_unusable()
    if reason is None:
        return
    print(f"PyTorch: {reason}.")
    if sys.prefix == sys.base_prefix or not sys.stdin.isatty():
        print(f"In a virtual environment: pip install {REQUIREMENT}")
    elif input(f"Install {REQUIREMENT} into {sys.prefix} ({download_text()})? [y/N] ").strip().lower() == "y":
        subprocess.run([sys.executable, "-m", "pip", "install", REQUIREMENT], check=True)
