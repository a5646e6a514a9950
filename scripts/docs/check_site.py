#!/usr/bin/env python3
"""Checks a built site without network access.

    check_site.py SITE

Every link within the site must lead to a file of the site. If a link names an anchor, the file must have that anchor.
No page may load a script, style, picture or font from elsewhere. Prints every mistake; the exit status is 1 if there is
any.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}
# Doxygen links to this section of a class even if all of its nested classes are private.
OPTIONAL_ANCHORS = {"nested-classes"}
# Matches the addresses that a style sheet loads from elsewhere.
STYLE_URL = re.compile(r"(?:url\(|@import\s+)\s*[\"']?((?:https?:)?//[^\"')\s]+)")


class Page(HTMLParser):
    """The anchors and links of one page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (tag, name) in LOADED:
                self.loads.append(value or "")
            elif name == "href":
                self.links.append(value or "")


def problems(site):
    """Yields a line for every mistake in the folder `site`."""
    pages = {path: Page(path.read_text(errors="replace")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: no pages"
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.loads:
            if urlsplit(address).netloc:
                yield f"{name}: loads {address}"
        for address in page.links + page.loads:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or site not in target.parents:
                yield f"{name}: {address} leads nowhere"
            elif parts.fragment and target in pages:
                if unquote(parts.fragment) not in pages[target].anchors | OPTIONAL_ANCHORS:
                    yield f"{name}: {address}: no such anchor"
    for path in site.rglob("*.css"):
        for address in STYLE_URL.findall(path.read_text(errors="replace")):
            yield f"{path.relative_to(site)}: loads {address}"


def main(site):
    found = sorted(set(problems(site.resolve())))
    for line in found:
        print(f"check_site: {line}", file=sys.stderr)
    print(f"check_site: {len(list(site.rglob('*.html')))} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
