"""The words behind `diffstride train` and `diffstride search`: a recipe, and changes to it."""

import sys
from collections.abc import Sequence

from diffstride.lab.runs.config import Config
from diffstride.lab.training import recipes
from diffstride.text import aligned

TRAIN = """usage: diffstride train RECIPE [options]

Train a network, and leave a folder with all there is to know about the run: runs/NAME.
`diffstride train RECIPE --help` lists all options, with the defaults of the recipe.

RECIPE is a config.yaml, the folder of a run, or one of"""


def read_recipe(
    command: str, words: Sequence[str], usage: str = TRAIN, description: str = recipes.TRAIN
) -> tuple[str, Config] | int:
    """Return a name for runs and the config that words say; or an exit code, if they ask for help.

    Args:
        command: that they are behind, for what is printed.
        words: the recipe, and options as for :func:`recipes.override`.
        usage: what is printed above the list of recipes, where words begin with none.
        description: what the help of a recipe begins with.
    """
    name, *options = words or [""]
    listed = aligned([(name, r.summary) for name, r in recipes.RECIPES.items()])
    if name == "--list":
        print("\n".join(listed))
        return 0
    if not name or name.startswith("-"):
        wants_help = name in ("-h", "--help")
        print(usage, *listed, sep="\n  ", file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    named_config = recipes.find(name)
    if named_config is None:
        message = f"no recipe {name!r}, nor such a file: it is a config.yaml or one of "
        print(f"diffstride {command}: {message}{', '.join(recipes.RECIPES)}", file=sys.stderr)
        return 2
    recipe, config = named_config
    config = recipes.override(config, options, f"diffstride {command} {name}", description)
    recipes.check_place(config, name, options)
    if warning := recipes.rate_of_earlier_version(config, name, options):
        print(f"diffstride: {warning}", file=sys.stderr)
    return recipe, config
