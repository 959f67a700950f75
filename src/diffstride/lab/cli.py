"""The command line. Each command imports what it needs when it runs: help comes at once."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import diffstride
from diffstride.lab import interruption
from diffstride.lab.arguments import BEST, BEST_HELP, JSON, RUN, Arguments, parse, print_json
from diffstride.lab.extras import advice_for_help, install_advice
from diffstride.lab.measurements import evaluate, resolution

if TYPE_CHECKING:
    from diffstride.lab.runs.search_folder import Search

DESCRIPTION = """Convolutional networks that learn their own strides.

  diffstride train RECIPE [options]   train; `diffstride train --list` shows the recipes,
                                      `diffstride train RECIPE --help` all options
  diffstride search RECIPE [options]  find good strides, and train a network with them
  diffstride resume RUN               continue a run or a search that was interrupted
  diffstride evaluate RUN             loss and score of a run's network on test data; --robust: on
                                      moved and corrupted data, and at other sizes
  diffstride strides RUN              what a run learned: strides, sizes, costs
  diffstride resolution RUN           how much resolution the task needs along each axis
  diffstride cost RUN                 what a run's network costs, layer by layer
  diffstride table RUN...             runs side by side: score, first strides, costs
  diffstride sweep TABLE [options]    all runs of a table of the paper, or of a grid of your own
  diffstride table SWEEP              that table, beside the paper's figures
  diffstride report FOLDER...         a page to look at, of runs, sweeps and searches: tables,
                                      strides, windows, all in one file
  diffstride export RUN [-o PATH]     a run's network as ONNX, or as a folder to share
  diffstride predict MODEL FILES...   classify images, recordings or signals, also whole folders;
                                      or restore images; MODEL is a run or what `export` wrote

RECIPE is a name or the config.yaml of another run; RUN is the folder of a run. `diffstride COMMAND
--help` lists all options. Commands with --json print one JSON document for other programs.
`diffstride --version` prints the version; --debug with any command shows where an error comes from.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns 0 if it succeeded, 1 if it failed, 2 if it was not understood."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if not words or words[0] in ("-h", "--help"):
        print(DESCRIPTION + advice_for_help(), end="")
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
        print(f"diffstride: {install_advice(error, words[0]) or error}", file=sys.stderr)
        if not isinstance(error, ValueError | OSError | ImportError | FloatingPointError):
            print(f"({type(error).__name__}; --debug shows where)", file=sys.stderr)
        return 1


def train(words: list[str]) -> int:
    from diffstride.lab.training.command_line import read_recipe

    chosen = read_recipe("train", words)
    if isinstance(chosen, int):
        return chosen
    from diffstride.lab.training import runner

    interruption.raise_from_now_on()
    recipe, config = chosen
    runner.train(config, recipe, _conclude)
    return 0


def search(words: list[str]) -> int:
    from diffstride.lab.search import command

    return command.search(words, interruption.raise_from_now_on, _conclude_search)


def resume(words: list[str]) -> None:
    description = "Continue a run from its last epoch, to the end that its config.yaml says; or a "
    description += "search from where it was."
    args = parse("resume", description, words, RUN)
    from diffstride.lab.runs.search_folder import is_search

    if is_search(Path(args.run).expanduser()):
        from diffstride.lab.search import stages

        interruption.raise_from_now_on()
        return stages.go_on(args.run, _conclude_search)
    from diffstride.lab.training import runner

    interruption.raise_from_now_on()
    runner.resume(args.run, _conclude)


def strides(words: list[str]) -> None:
    what = "The strides that a run learned, with the sizes they make and what they cost."
    args = parse("strides", what, words, RUN | BEST | JSON)
    from diffstride.lab.training import trained_run

    learned = trained_run.learned_strides(args.run, args.best)
    print_json(learned.as_json()) if args.json else print(learned)


def cost(words: list[str]) -> None:
    description = "What a run's network costs for one example, with the strides that it learned: "
    description += "multiply-accumulates (MACs), activations and parameters, and each layer's part."
    args = parse("cost", description, words, RUN | BEST | JSON)
    from diffstride.lab.training.run_cost import run_cost

    found = run_cost(args.run, args.best)
    print_json(found.document()) if args.json else print(found)


def table(words: list[str]) -> None:
    text = "the folders of the runs; or of a sweep, in which table.csv, .md and .tex are written"
    folders: Arguments = {"folder": dict(nargs="+", help=text)}
    description = "Runs side by side, a line each; or the table of a sweep, as in the paper."
    args = parse("table", description, words, folders | JSON)
    from diffstride.lab.reports import json_tables, tables

    sweeps = [path for path in args.folder if (Path(path) / "sweep.json").exists()]
    runs = [path for path in args.folder if path not in sweeps]
    texts = [*map(tables.write_tables, sweeps), *([tables.compare(runs)] if runs else [])]
    if args.json:
        return print_json(json_tables.document(runs, sweeps))
    print("\n".join(texts))


def sweep(words: list[str]) -> int:
    from diffstride.lab.sweeps import engines, forecast
    from diffstride.lab.sweeps import sweep as commands
    from diffstride.lab.training.recipes import rate_of_earlier_version

    args, run_options = commands.parser().parse_known_args(words)
    from diffstride.lab.search import study

    if path := study.find(args.table):
        out, plans = study.folder_and_plans(path, args, run_options)
    else:
        plan = commands.plan_sweep(args.table, args.scale, args.seeds, run_options)
        rates = (rate_of_earlier_version(c.config, args.table, run_options) for c in plan.cells)
        if message := next(filter(None, rates), None):
            print(f"diffstride: {message}", file=sys.stderr)
        out = str(Path(args.out or f"runs/{plan.table}-{plan.scale}").expanduser())
        if args.dry_run:
            for line in forecast.dry_run(plan, out, args.size, args.examples):
                print(line, flush=True)
            return 0
        plans = iter([plan])
    options = engines.Options.of(args)
    interruption.raise_from_now_on()
    failed: dict[str, str] = {}
    try:
        for plan in plans:
            failed |= commands.run_sweep(plan, out, options)
            if failed:
                break
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on where it was", file=sys.stderr)
        return 1
    table([out])
    for name, error in failed.items():
        print(f"{name} failed: {error} ({Path(out) / 'logs' / name}.log)", file=sys.stderr)
    return 1 if failed else 0


def report(words: list[str]) -> None:
    text = "where to write the page; report.html in the first folder unless given"
    folders = "the folder of a run, of a sweep, of a search, or one with some in it"
    arguments: Arguments = {
        "folder": dict(nargs="+", help=folders),
        "-o": dict(dest="path", metavar="FILE", help=text),
    }
    description = "Make one HTML page of runs, sweeps and searches: tables, figures, all in a file."
    args = parse("report", description, words, arguments)
    from diffstride.lab.reports import page

    print(f"wrote {page.write(args.folder, args.path)}")


def export(words: list[str]) -> None:
    text = "what to write: NAME.onnx, or a folder of weights and config.json by a name without "
    text += "suffix; RUN/model.onnx unless given"
    path: Arguments = {"-o": dict(dest="path", metavar="PATH", help=text)}
    description = "Write a run's network for use elsewhere, with its classes and preprocessing."
    args = parse("export", description, words, RUN | path | BEST)
    from diffstride.lab.inference import trained_model as commands

    print("\n".join(commands.export_run(args.run, args.path, args.best)))


def predict(words: list[str]) -> int:
    files = "images, audio files or signals, whichever the network is for, and folders: all such "
    files += "files in a folder and below it are taken, hidden ones apart"
    top = "tell the K most probable classes; one unless given"
    resize = "scale images of another size than the network's, and take their middle"
    as_csv = "print CSV: file, task (empty if there is one), class, probability, class_2, ..."
    out = "where restored images go, as PNGs that replace nothing; the folder restored unless given"
    arguments: Arguments = {
        "path": dict(metavar="model", help="a run, or a file or folder that `export` wrote"),
        "files": dict(nargs="+", metavar="file", help=files),
        "--top": dict(type=int, default=1, metavar="K", help=top),
        "--resize": dict(action="store_true", help=resize),
        "--out": dict(metavar="FOLDER", help=out),
        "--best": dict(action="store_true", help=f"{BEST_HELP}; for runs only"),
        **JSON,
        "--csv": dict(action="store_true", help=as_csv),
    }
    description = "Classify images, recordings or signals, or restore noisy images. Files that "
    description += "can't be read are named on stderr in the end; the exit code is 1 then."
    args = parse("predict", description, words, arguments, one_of=("--json", "--csv"))
    from diffstride.lab.inference import predict as commands

    form = "json" if args.json else "csv" if args.csv else "table"
    options = dict(top=args.top, resize=args.resize, best=args.best, out=args.out)
    return commands.print_predictions(form, args.path, args.files, **options)


def _conclude(folder: Path) -> None:
    """Write the figure and report of a run, and print its score, strides, and where it is."""
    from diffstride.lab.reports import page, run_figure
    from diffstride.lab.training import trained_run

    print("\n".join(trained_run.summary(folder)))
    figure = run_figure.draw_run(folder)
    print(f"run {folder}, report {page.write([folder])}" + (f", figure {figure}" if figure else ""))


def _conclude_search(found: "Search") -> None:
    """Write the report of a search, and print what was found, how good it is, and where it is."""
    from diffstride.lab.reports import page, searches

    path = page.write([found.folder])
    print(f"{searches.as_text(found)}\nsearch {found.folder}, report {path}")


FUNCTIONS: list[Callable[[list[str]], int | None]] = [train, search, resume, evaluate, strides]
FUNCTIONS += [resolution, cost, table, sweep, report, export, predict]
COMMANDS = {f.__name__: f for f in FUNCTIONS}


if __name__ == "__main__":
    sys.exit(main())
