#!/usr/bin/env python3
"""Lays out the pages of the documentation site.

    stage.py PAGES

PAGES receives every page of docs/, the README and similar pages. PAGES also receives a page for every linked file or
folder of the repository, so that no link leads out of the site. mkdoxy makes PAGES/headers later. The exit status is 1
if a link leads nowhere.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
# Pages for files outside docs/, by their path in the repository.
PAGES_BY_PATH = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "docs/README.md": "contents.md",
}
PYTHON_MODULES = {
    "fa": "fa: NumPy arrays and DLPack tensors",
    "fa.torch": "fa.torch: PyTorch's function",
    "fa.torch.context_parallel": "fa.torch.context_parallel: sequences on several processes",
    "fa.torch_npu": "fa.torch_npu: the NPU's functions",
    "fa.flash_attn": "fa.flash_attn: flash_attn's interface",
    "fa.transformers": "fa.transformers: Hugging Face models",
    "fa.vllm": "fa.vllm: vLLM on CPUs",
    "fa.jax": "fa.jax: jax.nn's function",
    "fa.xformers": "fa.xformers: xformers on CPUs",
}
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".inc": "cpp", ".py": "python", ".sh": "sh", ".cmake": "cmake", ".txt": "text"}
# An inline link of Markdown: its text, its target, the anchor in it.
LINK = re.compile(r"(\]\()([^)#\s]*)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^ *```")
# A folder's page shows at most this many bytes of its files. It leaves out longer files.
MOST_SHOWN_BYTES = 40_000


class Site:
    """The pages of the site. The page for a link's target is made when the first link to it is found."""

    def __init__(self, pages):
        self.pages = pages
        self.wanted = set()
        self.broken = []
        listed = subprocess.run(["git", "ls-files"], cwd=SOURCE, stdout=subprocess.PIPE, text=True, check=True).stdout
        self.tracked = listed.splitlines()

    def write(self, page, text):
        path = self.pages / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def page_of(self, path):
        """@return the page or file of the site for `path` of the repository, or None if the repository has no such
        path"""
        if path in PAGES_BY_PATH:
            return PAGES_BY_PATH[path]
        if path.startswith("docs/") and (SOURCE / path).is_file():
            return path.removeprefix("docs/")
        if path in ("docs", "docs/"):
            return "contents.md"
        if not (SOURCE / path).exists():
            return None
        self.wanted.add(path.rstrip("/"))
        return f"files/{path.rstrip('/')}.md"

    def relinked(self, text, path, page):
        """@return `text`, which comes from repository file `path`, with links that work on `page`"""

        def one(match):
            opening, target, anchor, closing = match.groups()
            if not target or re.match(r"[a-z]+:", target):
                return match.group(0)
            meant = os.path.normpath(os.path.join(os.path.dirname(path), target))
            there = self.page_of(meant)
            if there is None:
                self.broken.append(f"{path}: {target}")
                return match.group(0)
            return opening + os.path.relpath(there, os.path.dirname(page) or ".") + (anchor or "") + closing

        lines, fenced = [], False
        for line in text.splitlines():
            fenced ^= FENCE.match(line) is not None
            lines.append(line if fenced else LINK.sub(one, line))
        return "\n".join(lines) + "\n"

    def add_markdown(self, path):
        page = self.page_of(path)
        self.write(page, self.relinked((SOURCE / path).read_text(), path, page))

    def add_files(self):
        """Adds pages for the files and folders that links lead to, and for those to which the new pages link."""
        done = set()
        while self.wanted - done:
            path = min(self.wanted - done)
            done.add(path)
            self.write(f"files/{path}.md", self.listing(path))

    def listing(self, path):
        files = [path] if (SOURCE / path).is_file() else [each for each in self.tracked if each.startswith(path + "/")]
        parts = [f"# {path}\n"]
        for file in files:
            data = (SOURCE / file).read_bytes()
            if b"\0" in data or len(data) > MOST_SHOWN_BYTES:
                parts.append(f"`{file}`: {len(data)} bytes\n")
                continue
            title = [] if file == path else [f"## {file.removeprefix(path + '/')}\n"]
            fence = "`" * (4 + max(map(len, re.findall("`+", data.decode(errors="replace"))), default=0))
            language = LANGUAGES.get(Path(file).suffix, "text")
            parts += [*title, f"{fence}{language}\n{data.decode(errors='replace')}\n{fence}\n"]
        return "\n".join(parts)

    def add_headers(self, page, title, folders, words):
        """Adds a page with links to the pages of all headers in `folders` of include/."""
        lines = [f"# {title}\n", words, "", "| header | what is in it |", "|---|---|"]
        for header in sorted(path for folder in folders for path in (SOURCE / "include" / folder).glob("*.h")):
            name = header.relative_to(SOURCE / "include").as_posix()
            lines.append(f"| [{name}](../headers/{doxygen_name(name)}) | {first_words(header.read_text())} |")
        self.write(page, "\n".join(lines) + "\n")


def doxygen_name(header):
    """@return Doxygen's name of the page of a header: "fa/fa.h" is "fa_2fa_8h.md" or "fa_8h.md", for example"""
    def escaped(text):
        return text.replace("_", "__").replace(".", "_8").replace("/", "_2") + ".md"
    same = [path for path in (SOURCE / "include").rglob(Path(header).name)]
    return escaped(Path(header).name) if len(same) == 1 else escaped(header)


def first_words(text):
    """@return the first sentence of a header's first comment, and the first names that it declares"""
    comment = re.search(r"(?:^ *///(?!<).*\n)+", text, re.MULTILINE)
    lines = [line.strip().removeprefix("///").strip() for line in comment.group(0).splitlines()] if comment else []
    words = " ".join(line for line in lines if line != "@file")
    return re.split(r"(?<=[.:]) ", words)[0].replace("|", "\\|").replace("<", "&lt;").rstrip(":")


def main(pages):
    site = Site(pages)
    for path in (*PAGES_BY_PATH, *(each for each in site.tracked if re.fullmatch(r"docs/.*\.md", each))):
        site.add_markdown(path)
    for path in site.tracked:
        if re.fullmatch(r"docs/.*\.(png|svg|json)", path):
            (pages / path.removeprefix("docs/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / path, pages / path.removeprefix("docs/"))
    site.add_headers("reference/cpp.md", "C++", ["fa"],
                     "`#include \"fa/fa.h\"` brings all of them. [All names](../headers/namespacefa.md), "
                     "[all types](../headers/annotated.md).")
    site.add_headers("reference/c.md", "C: the NPU's interface", ["acl", "aclnn", "aclnnop"],
                     "[The aclnn interface](../aclnn.md) says what is the same as on the device and what is not. "
                     "[All files](../headers/files.md).")
    for module, title in PYTHON_MODULES.items():
        site.write(f"reference/{module.replace('.', '_')}.md", f"# {title}\n\n::: {module}\n")
    site.add_files()
    for broken in site.broken:
        print(f"stage: a link that leads nowhere: {broken}", file=sys.stderr)
    return 1 if site.broken else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
