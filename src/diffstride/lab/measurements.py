"""The commands that measure what the network of a run can do: `evaluate` and `resolution`."""

import sys
from argparse import Namespace

from diffstride.lab.arguments import BEST, DATA, JSON, RUN, Arguments, parse, print_json


def evaluate(words: list[str]) -> None:
    description = (
        "Loss and score of a run's network on its test data, or on other data: accuracy, or PSNR."
    )
    text = "measure it on examples that are moved, corrupted and of other sizes instead; writes "
    text += "robust.csv and the report of the run anew"
    robust: Arguments = {"--robust": dict(action="store_true", help=text)}
    args = parse("evaluate", description, words, RUN | DATA | robust | BEST | JSON)
    if args.robust:
        return _evaluate_changed(args)
    from diffstride.lab.training import trained_run

    found = trained_run.evaluate(args.run, args.path, args.best)
    if args.json:
        return print_json(found)
    for name, value in found.items():
        print(f"{name.replace('_', ' ')}  {value:.4f}")


def _evaluate_changed(args: Namespace) -> None:
    from diffstride.lab.reports import page, robust
    from diffstride.lab.training.robust import measure

    rows = measure(args.run, args.path, best=args.best)
    print(robust.as_json(rows) if args.json else robust.as_text(rows))
    print(f"report {page.write([args.run])}", file=sys.stderr if args.json else sys.stdout)


def resolution(words: list[str]) -> None:
    from diffstride.lab.runs.resolution import STEPS

    resize = "for comparison: larger strides, which change the scale of maps too; writes nothing"
    tried = f"cut-offs to try on each curve; {STEPS} unless given"
    arguments: Arguments = {
        "--steps": dict(type=int, default=STEPS, metavar="N", help=tried),
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
