"""Docstrings write `k, v: …` if two parameters mean the same. This extension gives each of them a row in the
reference."""

import re

import griffe

ENTRY = re.compile(r"^(?P<indent> +)(?P<names>\w+(?:, \w+)*)(?P<text>: .*(?:\n(?P=indent) +.*)*)", re.MULTILINE)


class OneRowPerParameter(griffe.Extension):
    """Splits the entries of the section "Args", and adds the stars of parameters such as `**others`."""

    def on_function(self, *, func, **_):
        if func.docstring is None or "Args:\n" not in func.docstring.value:
            return
        starred = {each.name.lstrip("*"): each.name for each in func.parameters if each.kind is not None
                   and each.kind.name in ("var_keyword", "var_positional")}
        stars = {name: "**" + name if func.parameters[full].kind.name == "var_keyword" else "*" + name
                 for name, full in starred.items()}

        def rows(match):
            names = match["names"].split(", ")
            if not all(name in func.parameters or name in stars for name in names):
                return match[0]
            return "\n".join(f"{match['indent']}{stars.get(name, name)}{match['text']}" for name in names)

        before, args, after = func.docstring.value.partition("Args:\n")
        section, gap, rest = after.partition("\n\n")
        func.docstring.value = before + args + ENTRY.sub(rows, section) + gap + rest
