"""The arguments that commands share, and how they are read; JSON as commands print it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from diffstride.lab.runs.documents import json_text

Arguments = dict[str, dict[str, Any]]  # names, with the options that argparse has for each
BEST_HELP = "take the epoch that was best on the test data, instead of the last"
RUN: Arguments = {"run": dict(help="the folder of the run, such as runs/digits-diffstride-0")}
BEST: Arguments = {"--best": dict(action="store_true", help=BEST_HELP)}
DATA_HELP = "take other data, of the same classes: a folder or a dataset, as for `train`"
DATA: Arguments = {"--data.path": dict(dest="path", metavar="PATH", help=DATA_HELP)}
JSON: Arguments = {"--json": dict(action="store_true", help="print JSON, for other programs")}


def parse(
    command: str,
    description: str,
    words: list[str],
    arguments: Arguments,
    one_of: Sequence[str] = (),
) -> Namespace:
    """Return what the words behind a command say; ends Python if they can't be understood.

    Of the options in ``one_of``, one may be given.
    """
    parser = ArgumentParser(f"diffstride {command}", description=description)
    group = parser.add_mutually_exclusive_group() if one_of else parser
    for name, options in arguments.items():
        (group if name in one_of else parser).add_argument(name, **options)
    return parser.parse_args(words)


def print_json(content: Any) -> None:
    """Print plain values as one document."""
    print(json_text(content, indent=1))
