"""Docstrings as the reference shows them: examples as code, roles as links."""

import re
from typing import Any

import griffe

from docs.website import reference

ROLE = re.compile(r":(?:class|func|meth|mod|attr):`([\w.]+)`")
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Changes every docstring before it is taken apart."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and not obj.is_module:
            owner = obj if obj.is_class else obj.parent
            text = ROLE.sub(lambda role: link(role[1], owner), obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(fenced, text)


def link(name: str, owner: griffe.Object | None) -> str:
    """A role as a link to the entry of what it names, or as code where there is none."""
    path = reference.path_of(name)
    if path is None and owner is not None and owner.is_class and name in owner.all_members:
        path = f"{owner.path}.{name}"
    if path is None and owner is not None and name in owner.module.all_members:
        path = reference.path_of(owner.module[name].path)
    return f"[`{name.rpartition('.')[2]}`][{path}]" if path else f"`{name}`"


def fenced(example: re.Match[str]) -> str:
    """An example, up to the next empty line, as a block of code.

    >>> fenced(EXAMPLE.search("Adds. \\n\\n>>> 1 + 1\\n2\\n\\nThat is all."))
    '```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    return f"```pycon\n{example[0].replace('<BLANKLINE>', '')}\n```"
