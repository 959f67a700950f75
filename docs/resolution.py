"""How much resolution tasks of sound need: the figure and the table of docs/audio.md.

    python -m docs.resolution [NAME=RUN...]

RUN is the folder of a run of which `diffstride resolution RUN` has been run; its resolution.csv is
kept as docs/results/resolution-NAME.csv first. NAME is pitch, instrument or commands. Without any,
figure and table are made again from what is there.
"""

import sys
from pathlib import Path

from diffstride.lab.runs.resolution import INPUT, curves, read_resolution, write_resolution
from docs.figures import BLUE, GREEN, ORANGE, plt, save
from docs.results import DATA, cell, put, rows

TASKS = {
    "pitch": ("pitch of notes", BLUE),
    "instrument": ("instrument of notes", ORANGE),
    "commands": ("spoken commands", GREEN),
}
AXES = {"time": "Hz", "frequency": "cycles per mel channel"}
BELOW = {"time": (8.0, 2.0), "frequency": (0.16, 0.08)}  # cut-offs of the table


def curve(name, axis):
    """The steps of a task along an axis, of the input itself."""
    steps = read_resolution(DATA / f"resolution-{name}.csv")
    return next(c for (place, i), c in curves(steps).items() if (place, i) == (INPUT, axis))


def draw():
    figure, panels = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True)
    for axis, (panel, (label, unit)) in enumerate(zip(panels, AXES.items(), strict=True)):
        for name, (title, colour) in TASKS.items():
            own = curve(name, axis)
            x = [step.cutoff for step in own]
            panel.plot(x, [100 * s.kept for s in own], "o-", ms=4, color=colour, label=title)
            low, high = ([100 * getattr(s, key) for s in own] for key in ("kept_low", "kept_high"))
            panel.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.axhline(99, color="0.5", lw=0.8, linestyle=":")
        panel.set(xscale="log", xlabel=f"{label} up to so many {unit}", ylim=(0, 106))
        panel.set_title(f"Less and less along {label}")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.invert_xaxis()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy that is kept (%)")
    panels[0].legend(frameon=False, loc="lower left")
    return figure


def table():
    """What is kept of each task's accuracy, at two cut-offs along each axis."""
    head = [f"{label} ≤ {cut:g} {unit}" for label, unit in AXES.items() for cut in BELOW[label]]
    text = [f"| | accuracy | {' | '.join(head)} |", f"|---|---:|{'---:|' * len(head)}"]
    for name, (title, _) in TASKS.items():
        cells = []
        for axis, label in enumerate(AXES):
            own = curve(name, axis)
            for cut in BELOW[label]:
                step = next(s for s in own if s.cutoff <= cut + 1e-9)
                kept = [100 * share for share in (step.kept, step.kept_low, step.kept_high)]
                cells.append("{:.0f} % ({:.0f} to {:.0f})".format(*kept))
        text.append(f"| {title} | {100 * own[0].accuracy:.1f} % | {' | '.join(cells)} |")
    return "\n".join(text)


def early():
    """Networks with fixed strides, by where the early ones are: accuracy and cost."""
    found = {name: rows(DATA / f"early-{name}.csv") for name in TASKS}
    settings = list(dict.fromkeys(line["row"] for line in found["pitch"]))
    text = [f"| early strides | {' | '.join(title for title, _ in TASKS.values())} |"]
    text.append(f"|---|{'---:|' * len(TASKS)}")
    for setting in settings:
        own = [[x for x in lines if x["row"] == setting] for lines in found.values()]
        text.append(f"| {setting} | {' | '.join(map(cell, own))} |")
    return "\n".join(text)


def main(words):
    for word in words:
        name, _, folder = word.partition("=")
        assert name in TASKS, f"NAME=RUN, NAME one of {', '.join(TASKS)}, got {word}"
        steps = read_resolution(Path(folder) / "resolution.csv")
        write_resolution(DATA / f"resolution-{name}.csv", steps)
    save(draw(), DATA / "resolution.svg")
    put("resolution", table())
    put("early", early())
    print(DATA / "resolution.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
