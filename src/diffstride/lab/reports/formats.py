"""Tables as text, Markdown and LaTeX."""

from collections.abc import Sequence

Lines = list[list[str]]
"""A heading and rows; a first cell that begins with two blanks tells more of the row above."""
LATEX = {
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "λ": r"$\lambda$",
    "–": "--",
    "−": "$-$",
}


def text(blocks: Sequence[tuple[str, Lines]], notes: Sequence[str]) -> str:
    """For a terminal."""
    parts = [notes[0]]
    for title, lines in blocks:
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        parts += [
            "",
            *([title] if title else []),
            *(
                "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
                for line in lines
            ),
        ]
    return "\n".join([*parts, "", *notes[1:]])


def markdown(blocks: Sequence[tuple[str, Lines]], notes: Sequence[str]) -> str:
    """For a page."""

    def cell(text: str) -> str:
        text = text.replace("|", "\\|").replace("<", "&lt;")
        return "&emsp;" + text.strip() if text.startswith("  ") else text

    parts = [f"**{cell(notes[0])}**"]
    for title, lines in blocks:
        head, *others = ["| " + " | ".join(map(cell, line)) + " |" for line in lines]
        rule = "|---" + "|---:" * (len(lines[0]) - 1) + "|"
        parts += ["", *([f"{title}:", ""] if title else []), head, rule, *others]
    return "\n".join([*parts, "", *map(cell, notes[1:])]) + "\n"


def latex(blocks: Sequence[tuple[str, Lines]], notes: Sequence[str]) -> str:
    """For a paper."""

    def cell(text: str) -> str:
        escaped = "".join(LATEX.get(sign, sign) for sign in text.strip())
        return r"\quad " + escaped if text.startswith("  ") else escaped

    parts = ["% needs booktabs", r"\begin{table}", r"\centering"]
    for title, lines in blocks:
        if title:
            parts.append(rf"\medskip {cell(title)}\par")
        head, *others = [" & ".join(map(cell, line)) + r" \\" for line in lines]
        parts += [rf"\begin{{tabular}}{{l{'r' * (len(lines[0]) - 1)}}}", r"\toprule", head]
        parts += [r"\midrule", *others, r"\bottomrule", r"\end{tabular}"]
    caption = " ".join([cell(notes[0]) + ".", *map(cell, notes[1:])])
    return "\n".join([*parts, rf"\caption{{{caption}}}", r"\end{table}"]) + "\n"
