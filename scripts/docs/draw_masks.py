#!/usr/bin/env python3
"""Draws the pictures of docs/masks.md.

    draw_masks.py FOLDER

Makes one SVG per mask. Rows are queries, columns are keys, and filled cells are kept pairs.
python/tests/test_mask_pictures.py compares the cells with what the library keeps.
"""

import sys
from pathlib import Path

CELL = 18
# name: (title, queries, keys, rule of (query i, key j, delta = keys - queries))
RULES = {
    "none": ("None()", 6, 8, lambda i, j, delta: True),
    "causal_top_left": ("CausalTopLeft()", 6, 8, lambda i, j, delta: j <= i),
    "causal": ("Causal()", 6, 8, lambda i, j, delta: j <= i + delta),
    "causal_fewer_keys": ("Causal(), fewer keys", 8, 6, lambda i, j, delta: j <= i + delta),
    "band": ("Band(2, 1)", 8, 8, lambda i, j, delta: i + delta - 2 <= j <= i + delta + 1),
    "band_top_left": ("BandTopLeft(2, 1)", 6, 8, lambda i, j, delta: i - 2 <= j <= i + 1),
    "prefix": ("Prefix({3})", 8, 8, lambda i, j, delta: j < 3 or j <= i + delta),
    "rows": ("Rows(): packed", 8, 8, lambda i, j, delta: (0 if i < 3 else 3) <= j < (3 if i < 3 else 8)),
}


def kept(name):
    """@return rows of booleans, True for each pair that the mask of this name keeps"""
    _, queries, keys, rule = RULES[name]
    return [[rule(i, j, keys - queries) for j in range(keys)] for i in range(queries)]


def picture(name):
    """@return the SVG of the mask of this name"""
    title, cells = RULES[name][0], kept(name)
    width, height = len(cells[0]) * CELL, len(cells) * CELL
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 40}" height="{height + 56}" role="img">',
        f"<title>{title}: {len(cells)} queries, {len(cells[0])} keys</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        "<style>text{font:12px system-ui,sans-serif;fill:#24303c}</style>",
        f'<text x="24" y="16" font-weight="600">{title}</text>',
        '<text x="24" y="34">keys j &#8594;</text>',
        f'<text transform="translate(14 {44 + height / 2:g}) rotate(-90)" text-anchor="middle">queries i</text>',
    ]
    for i, row in enumerate(cells):
        for j, keeps in enumerate(row):
            lines.append(f'<rect x="{24 + j * CELL}" y="{42 + i * CELL}" width="{CELL - 1}" height="{CELL - 1}" '
                         f'fill="{"#2a6fb0" if keeps else "#e4e8ec"}"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    for rule in RULES:
        Path(sys.argv[1], f"mask_{rule}.svg").write_text(picture(rule))
