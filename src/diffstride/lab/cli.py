"""The command line. Each command imports what it needs when it runs: help comes at once."""

import argparse
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import diffstride
from diffstride.lab import interruption
from diffstride.text import aligned

Arguments = dict[str, dict[str, Any]]  # names, with the options that argparse has for each
EXTRAS = {  # which extra has a module that a command needs; the library needs torch alone
    "train": ("lightning", "rich", "tensorboard", "tomli", "tyro"),
    "data": ("PIL", "datasets", "sklearn", "tqdm"),
    "audio": ("soundfile", "soxr"),
    "sweep": ("ray",),
    "report": ("jinja2", "matplotlib", "numpy", "yaml"),
    "share": ("safetensors",),
    "export": ("onnx", "onnxruntime", "onnxscript"),
}

DESCRIPTION = """Convolutional networks that learn their own strides.

  diffstride train RECIPE [options]   train; `diffstride train --list` shows the recipes,
                                      `diffstride train RECIPE --help` all options
  diffstride resume RUN               continue a run that was interrupted
  diffstride evaluate RUN             loss and accuracy of a run's network on test data
  diffstride strides RUN              what it learned: strides, sizes, costs
  diffstride resolution RUN           how much resolution the task needs along each axis
  diffstride table RUN...             runs side by side: accuracy, first strides, costs
  diffstride sweep TABLE [options]    all runs of a table of the paper, or of a grid of your own
  diffstride table SWEEP              that table, beside the paper's figures
  diffstride report RUN_OR_SWEEP...   a page to look at: tables, strides, windows, all in one file
  diffstride export RUN [-o PATH]     its network as ONNX, or as a folder to share
  diffstride predict MODEL FILES...   classify images or recordings; MODEL is a run or exported

RECIPE is a name or the config.yaml of another run; RUN is the folder of a run.
`diffstride --version` tells the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns 0 if it succeeded, 1 if it failed, 2 if it was not understood."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if not words or words[0] in ("-h", "--help"):
        print(DESCRIPTION, end="")
        return 0 if words else 2
    if words[0] == "--version":
        print(f"diffstride {diffstride.__version__}")
        return 0
    if words[0] not in COMMANDS:
        print(f"diffstride: no command {words[0]!r}: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return COMMANDS[words[0]](words[1:]) or 0
    except KeyboardInterrupt:
        return interruption.say(words)
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stdout = Path(os.devnull).open("w")
        return 0
    except Exception as error:
        if debug:
            raise
        if interruption.received():
            return interruption.say(words)
        print(f"diffstride: {_install_advice(error, words[0]) or error}", file=sys.stderr)
        if not isinstance(error, ValueError | OSError | ImportError | FloatingPointError):
            print(f"({type(error).__name__}; --debug shows where)", file=sys.stderr)
        return 1


def _install_advice(error: Exception, command: str) -> str | None:
    """Return how to install what a command needs, if that is what is wrong."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra in ("train", "data", "report", "share"):  # training and predicting need all of `train`
        extra = "report" if command in ("table", "report") else "train"
    return extra and f"`{command}` needs {module}: pip install 'diffstride[{extra}]'"


BEST_HELP = "of the epoch that was best on the test data, instead of the last"
RUN: Arguments = {"run": dict(help="the folder of the run")}
BEST: Arguments = {"--best": dict(action="store_true", help=BEST_HELP)}
DATA: Arguments = {"--data.path": dict(dest="path", help="other data, of the same classes")}
JSON: Arguments = {"--json": dict(action="store_true", help="as JSON, for other programs")}


def parse(command: str, description: str, words: list[str], arguments: Arguments) -> Namespace:
    """Return what the words behind a command say; ends Python if they can't be understood."""
    parser = ArgumentParser(f"diffstride {command}", description=description)
    for name, options in arguments.items():
        parser.add_argument(name, **options)
    return parser.parse_args(words)


def train(words: list[str]) -> int:
    from diffstride.lab.training import recipes

    name, *options = words or [""]
    if name == "--list":
        print("\n".join(aligned([(name, r.summary) for name, r in recipes.RECIPES.items()])))
        return 0
    if not name or name.startswith("-"):
        wants_help = name in ("-h", "--help")
        text = "usage: diffstride train RECIPE [options]\n\nRECIPE is a config.yaml or one of"
        print(text, *recipes.RECIPES, sep="\n  ", file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    named_config = recipes.find(name)
    if named_config is None:
        message = f"no recipe {name!r}, nor such a file: it is a config.yaml or one of "
        print(f"diffstride train: {message}{', '.join(recipes.RECIPES)}", file=sys.stderr)
        return 2
    recipe, config = named_config
    config = recipes.override(config, options, f"diffstride train {name}")
    recipes.check_place(config, name, options)
    if warning := recipes.rate_of_earlier_version(config, name, options):
        print(f"diffstride: {warning}", file=sys.stderr)
    from diffstride.lab.training import runner

    interruption.raise_from_now_on()
    runner.train(config, recipe, _conclude)
    return 0


def resume(words: list[str]) -> None:
    args = parse("resume", "Continue a run.", words, RUN)
    from diffstride.lab.training import runner

    interruption.raise_from_now_on()
    runner.resume(args.run, _conclude)


def evaluate(words: list[str]) -> None:
    description = "Loss and accuracy of a run's network on test data."
    args = parse("evaluate", description, words, RUN | DATA | BEST)
    from diffstride.lab.training import trained_run

    for name, value in trained_run.evaluate(args.run, args.path, args.best).items():
        print(f"{name.replace('_', ' ')}  {value:.4f}")


def strides(words: list[str]) -> None:
    args = parse("strides", "What a run learned.", words, RUN | BEST | JSON)
    from diffstride.lab.training import trained_run

    learned = trained_run.learned_strides(args.run, args.best)
    print(json.dumps(learned.as_json(), indent=1) if args.json else learned)


def resolution(words: list[str]) -> None:
    resize = "for comparison: larger strides, which change the scale of maps too; writes nothing"
    arguments: Arguments = {
        "--steps": dict(type=int, default=8, metavar="N", help="cut-offs to try on each curve: 8"),
        "--task": dict(metavar="NAME", help="one of several tasks; their mean unless given"),
        "--resize": dict(action="store_true", help=resize),
    }
    description = "How much resolution the task of a run needs: accuracy as it is taken away along "
    description += "one axis at one place. Writes resolution.csv and the report of the run anew."
    args = parse("resolution", description, words, RUN | DATA | arguments | BEST | JSON)
    from diffstride.lab.reports import page, resolution
    from diffstride.lab.training.resolution import measure

    options = {name: getattr(args, name) for name in ("best", "steps", "resize", "task")}
    steps = measure(args.run, args.path, **options)
    print(resolution.as_json(steps) if args.json else resolution.as_text(steps))
    note = "--resize: maps had another scale than in training, which costs accuracy too; not kept"
    note = note if args.resize else f"report {page.write([args.run])}"
    print(note, file=sys.stderr if args.json else sys.stdout)


def table(words: list[str]) -> None:
    text = "the folders of the runs; or of a sweep, in which table.csv, .md and .tex are written"
    folders: Arguments = {"run": dict(nargs="+", help=text)}
    args = parse("table", "Runs side by side, or the table of a sweep.", words, folders)
    from diffstride.lab.reports.tables import compare, write_tables

    sweeps = [path for path in args.run if (Path(path) / "sweep.json").exists()]
    for path in sweeps:
        print(write_tables(path))
    if runs := [path for path in args.run if path not in sweeps]:
        print(compare(runs))


def sweep(words: list[str]) -> int:
    from diffstride.lab.sweeps import engines
    from diffstride.lab.sweeps import sweep as commands
    from diffstride.lab.training.recipes import rate_of_earlier_version

    parser = ArgumentParser(
        "diffstride sweep",
        usage="diffstride sweep TABLE [options]",
        description=commands.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("table", metavar="TABLE", help="one of the above, or a TOML file")
    add("--seeds", type=int, metavar="N", help="how many runs a cell has: 3, or those of the file")
    add("--scale", choices=("small", "paper"), default="small", help="small unless given")
    add("--out", help="the folder of the sweep: runs/TABLE-SCALE")
    add("--jobs", type=int, metavar="N", help="runs at a time: one a core, or one a GPU")
    add("--gpus", type=float, metavar="PART", help="of a GPU for each run: 1; 0.25 for four on one")
    add("--engine", choices=("local", "ray"), default="local", help="local unless given")
    add("--address", help="of a Ray cluster; without it, Ray is started on this machine")
    add("--cores", type=int, metavar="N", help="that a run takes of a Ray cluster: 1")
    add("--dry_run", action="store_true", help="say which runs there are, how far, and their cost")
    args, run_options = parser.parse_known_args(words)
    plan = commands.plan_sweep(args.table, args.scale, args.seeds, run_options)
    rates = (rate_of_earlier_version(c.config, args.table, run_options) for c in plan.cells)
    if message := next(filter(None, rates), None):
        print(f"diffstride: {message}", file=sys.stderr)
    out = str(Path(args.out or f"runs/{plan.table}-{plan.scale}").expanduser())
    if args.dry_run:
        for line in commands.dry_run(plan, out):
            print(line)
        return 0
    options = engines.Options(args.engine, args.jobs, args.gpus, args.address, args.cores)
    interruption.raise_from_now_on()
    try:
        failed = commands.run_sweep(plan, out, options)
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on where it was", file=sys.stderr)
        return 1
    table([out])
    for name, error in failed.items():
        print(f"{name} failed: {error} ({Path(out) / 'logs' / name}.log)", file=sys.stderr)
    return 1 if failed else 0


def report(words: list[str]) -> None:
    text = "report.html in the first folder unless given"
    arguments: Arguments = {
        "folder": dict(nargs="+", help="of a run, of a sweep, or with some in it"),
        "-o": dict(dest="path", metavar="FILE", help=text),
    }
    description = "One HTML page of runs and sweeps, with all it needs in it."
    args = parse("report", description, words, arguments)
    from diffstride.lab.reports import page

    print(f"wrote {page.write(args.folder, args.path)}")


def export(words: list[str]) -> None:
    text = "what to write: NAME.onnx, or a folder of weights and config.json by a name without "
    text += "suffix; RUN/model.onnx unless given"
    path: Arguments = {"-o": dict(dest="path", metavar="PATH", help=text)}
    description = "A run's network for use elsewhere, with its classes and preprocessing."
    args = parse("export", description, words, RUN | path | BEST)
    from diffstride.lab.inference import trained_model as commands

    print("\n".join(commands.export_run(args.run, args.path, args.best)))


def predict(words: list[str]) -> int:
    resize = "scale images of another size, and take their middle"
    arguments: Arguments = {
        "path": dict(metavar="model", help="a run, or a file or folder that `export` wrote"),
        "files": dict(nargs="+", help="images or audio files"),
        "--top": dict(type=int, default=1, metavar="K", help="tell of so many classes"),
        "--resize": dict(action="store_true", help=resize),
        "--best": dict(action="store_true", help=f"{BEST_HELP}; for runs only"),
    }
    args = parse("predict", "Classify images or recordings.", words, arguments)
    from diffstride.lab.inference import predict as commands

    predictions, errors = commands.predict_files(**vars(args))
    if predictions:
        print(commands.table(predictions))
    for error in errors:
        print(f"diffstride: {error}", file=sys.stderr)
    return 1 if errors else 0


def _conclude(folder: Path) -> None:
    """Write the figure and report of a run, and print its accuracy, strides, and where it is."""
    from diffstride.lab.reports import page, plots
    from diffstride.lab.training import trained_run

    print("\n".join(trained_run.summary(folder)))
    figure = plots.draw_run(folder)
    print(f"run {folder}, report {page.write([folder])}" + (f", figure {figure}" if figure else ""))


Command = Callable[[list[str]], int | None]
ALL = (train, resume, evaluate, strides, resolution, table, sweep, report, export, predict)
COMMANDS: dict[str, Command] = {function.__name__: function for function in ALL}


if __name__ == "__main__":
    sys.exit(main())
