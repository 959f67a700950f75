"""The command line. Each command imports what it needs when it runs: help comes at once."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from diffstride.experiments import recipes
from diffstride.experiments.recipes import RECIPES

DESCRIPTION = """Convolutional networks that learn their own strides.

  diffstride train RECIPE [options]   train; `diffstride train --list` shows the recipes,
                                      `diffstride train RECIPE --help` all options
  diffstride resume RUN               continue a run that was interrupted
  diffstride evaluate RUN             loss and accuracy of a run's network on test data
  diffstride strides RUN              what it learned: strides, sizes, costs
  diffstride table RUN...             runs side by side: accuracy, first strides, costs

RECIPE is a name or the config.yaml of another run; RUN is the folder of a run.
"""

BEST = "of the epoch that was best on the test data, instead of the last"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. 0 if it succeeded, 1 if it failed, 2 if it could not be understood."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": train,
        "resume": resume,
        "evaluate": evaluate,
        "strides": strides,
        "table": table,
    }
    if not words or words[0] in ("-h", "--help"):
        print(DESCRIPTION, end="")
        return 0 if words else 2
    if words[0] not in commands:
        print(f"diffstride: no command {words[0]!r}: {', '.join(commands)}", file=sys.stderr)
        return 2
    try:
        return commands[words[0]](words[1:])
    except KeyboardInterrupt:
        print("\ninterrupted: diffstride resume RUN goes on from the last epoch", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stdout = Path(os.devnull).open("w")
        return 0
    except Exception as error:
        if debug:
            raise
        print(f"diffstride: {error}", file=sys.stderr)
        if not isinstance(error, ValueError | OSError | ImportError):
            print(f"({type(error).__name__}; --debug shows where)", file=sys.stderr)
        return 1


def train(words: list[str]) -> int:
    if words and words[0] == "--list":
        width = max(map(len, RECIPES))
        for name, listed in RECIPES.items():
            print(f"{name:{width}}  {listed.summary}")
        return 0
    if not words or words[0].startswith("-"):
        help_wanted = bool(words) and words[0] in ("-h", "--help")
        text = "usage: diffstride train RECIPE [options]\n\nRECIPE is a config.yaml or one of\n  "
        out = sys.stdout if help_wanted else sys.stderr
        print(text + "\n  ".join(RECIPES), file=out)
        return 0 if help_wanted else 2
    found = recipes.find(words[0])
    if found is None:
        known = ", ".join(RECIPES)
        message = f"no recipe {words[0]!r}, nor such a file: it is a config.yaml or one of {known}"
        print(f"diffstride train: {message}", file=sys.stderr)
        return 2
    recipe, config = found
    config = recipes.override(config, words[1:], f"diffstride train {words[0]}")
    from diffstride.experiments import train as commands

    run = commands.train(config, recipe)
    _conclude(run.folder)
    return 0


def resume(words: list[str]) -> int:
    parser = argparse.ArgumentParser("diffstride resume", description="Continue a run.")
    parser.add_argument("run", help="the folder of the run")
    args = parser.parse_args(words)
    from diffstride.experiments import train as commands

    run = commands.resume(args.run)
    _conclude(run.folder)
    return 0


def evaluate(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "diffstride evaluate", description="Loss and accuracy of a run's network on test data."
    )
    parser.add_argument("run", help="the folder of the run")
    parser.add_argument("--data.path", dest="path", help="other data, of the same classes")
    parser.add_argument("--best", action="store_true", help=BEST)
    args = parser.parse_args(words)
    from diffstride.experiments import train as commands

    for name, value in commands.evaluate(args.run, args.path, args.best).items():
        print(f"{name.replace('_', ' ')}  {value:.4f}")
    return 0


def strides(words: list[str]) -> int:
    parser = argparse.ArgumentParser("diffstride strides", description="What a run learned.")
    parser.add_argument("run", help="the folder of the run")
    parser.add_argument("--best", action="store_true", help=BEST)
    args = parser.parse_args(words)
    from diffstride.experiments import train as commands

    print(commands.table(args.run, args.best))
    return 0


def table(words: list[str]) -> int:
    parser = argparse.ArgumentParser("diffstride table", description="Runs side by side.")
    parser.add_argument("run", nargs="+", help="the folders of the runs")
    args = parser.parse_args(words)
    from diffstride.reports.table import compare

    print(compare(args.run))
    return 0


def _conclude(folder: Path) -> None:
    """What a run ends with: accuracy, strides, and where it is."""
    from diffstride.experiments import train as commands

    if not commands.is_first_process():
        return
    from diffstride.reports import figures

    for text in commands.summary(folder):
        print(text)
    figure = figures.draw_run(folder)
    print(f"run {folder}" + (f", figure {figure}" if figure else ""))


if __name__ == "__main__":
    sys.exit(main())
