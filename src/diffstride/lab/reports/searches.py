"""What a search found: the sections of its page, and the same as text."""

from collections.abc import Sequence

from diffstride.lab.reports import chapters, plots
from diffstride.lab.reports.chapters import Block, Chapter, Legend, Section
from diffstride.lab.reports.formats import number
from diffstride.lab.reports.learned_strides import layer_legend
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.search_folder import STAGES, Network, Plan, Result, Search
from diffstride.text import aligned, times

HEAD = ["site", "stride", "found", "size", "found", "cost", "found"]
ONE_SEED = (
    "Both networks were trained from scratch with fixed spectral pooling, on the same data with "
    "the same seed; the band is that of test examples drawn again, and says nothing of other seeds."
)


def answer(chapter: Chapter) -> Section:
    """What came out, in two sentences and in numbers."""
    search, cards = _search(chapter), []
    if not search.result_file.is_file():
        finished = [run.name for run in chapter.runs if run.finished]
        done = f"{', '.join(finished) or 'none'} of {len(STAGES)} stages"
        cards = [("Finished", done)]
        text = f"The search is not finished: `diffstride resume {search.folder}` goes on."
        return Section("The answer", text, [{"kind": "cards", "items": cards}])
    plan, result = search.plan, search.result
    cards = [
        ("Accuracy, found", _share(result.found)),
        ("Accuracy, beginning", _share(result.begin)),
        ("Points more", _points(result.difference)),
        ("Million MACs, found", number(plan.found.macs / 1e6)),
        ("Million MACs, beginning", number(plan.begin.macs / 1e6)),
        ("Training time", f"{sum(result.seconds) / 60:.1f} min"),
    ]
    text = f"{sentence(plan, result)} {ONE_SEED}"
    return Section("The answer", text, [{"kind": "cards", "items": cards}])


def plan_table(chapter: Chapter) -> Section:
    """The strides of both networks, their sizes and costs, and code that makes the one found."""
    search = _search(chapter)
    if not search.plan_file.is_file():
        return Section("The plan", "", [])
    plan = search.plan
    text = "Of the beginning, and beside it of what was found: strides of each axis, sizes of maps "
    text += "before and after each site, and which part of the multiply-accumulates is spent from "
    text += "there to the next site."
    blocks: list[Block] = chapters.table("Strides by site", HEAD, table_rows(plan))
    code = {"kind": "code", "caption": "The network that was found", "text": plan.code}
    return Section("The plan", text, [*blocks, code])


def trajectory(chapter: Chapter) -> Section:
    """The strides over the steps of learning."""
    learning = [run for run in chapter.runs if run.name == "learn" and run.strides]
    items = []
    for run in learning:
        layers = list(run.layers)
        lines = [
            (layers.index(s.layer), s.axis, [_by_step(s.steps, s.points)]) for s in run.strides
        ]
        limits = (1.0, max(value for s in run.strides for _, value in s.points))
        svg = plots.curves(lines, ylabel="stride", limits=limits, xlabel="step")
        items.append((svg, "Strides of each site while they were learned"))
    axes = learning[0].axes if learning else ()
    dashes: Legend = [(None, i, name) for i, name in enumerate(axes)] if len(axes) > 1 else []
    text = "Each layer has a colour, in their order" + (", each axis a dash." if dashes else ".")
    legend = [*layer_legend(learning), *dashes]
    return Section("How strides were found", text, chapters.figures(legend, items))


def accuracies(chapter: Chapter) -> Section:
    """The test accuracy of both networks with fixed strides over the epochs."""
    runs = [run for run in chapter.runs if run.name in ("begin", "found") and run.metrics]
    lines = [(i, 0, [run.curve("test_accuracy", 100.0)]) for i, run in enumerate(runs)]
    items = []
    if runs:
        svg = plots.curves(lines, ylabel="test accuracy (%)")
        items = [(svg, "Test accuracy with fixed strides")]
    legend = chapters.colour_legend(_stage_title(run) for run in runs)
    return Section("Fixed strides, trained from scratch", "", chapters.figures(legend, items))


def sentence(plan: Plan, result: Result) -> str:
    """Return in a sentence how good what was found is, beside the beginning."""
    both = f"{_share(result.found)} of {result.examples:,} test examples, and those of the "
    both += f"beginning {_share(result.begin)}"
    band = f"95 % band {_points(result.low)} to {_points(result.high)}"
    costs = " and ".join(dict.fromkeys(map(_cost, (plan.found, plan.begin))))
    sizes = [[site.output_size for site in network.sites] for network in (plan.found, plan.begin)]
    same = " All sizes are those of the beginning: it is the same network." * (sizes[0] == sizes[1])
    return (
        f"The strides that were found get right {both}: {_points(result.difference)} points "
        f"({band}), at {costs}.{same}"
    )


def as_text(search: Search) -> str:
    """Return what a finished search found, for a terminal."""
    plan, result = search.plan, search.result
    seconds = zip(STAGES, result.seconds, strict=True)
    spent = ", ".join(f"{name} {value:.0f}" for name, value in seconds)
    option = " ".join(f"{stride:g}" for stride in plan.found.strides)
    lines = [
        *aligned([HEAD, *table_rows(plan)]),
        sentence(plan, result),
        ONE_SEED,
        f"{sum(result.seconds):.0f} s of training: {spent}",
        f"--model.downsampling spectral --model.strides {option}, or",
        "",
        plan.code,
        "",
    ]
    return "\n".join(lines)


def table_rows(plan: Plan) -> list[list[str]]:
    """A row for each site: strides, sizes and costs of both networks."""
    rows = []
    for begin, found in zip(plan.begin.sites, plan.found.sites, strict=True):
        strides = [times(site.strides, "{:.4g}", "×") for site in (begin, found)]
        sizes = [
            f"{times(site.input_size, sign='×')} → {times(site.output_size, sign='×')}"
            for site in (begin, found)
        ]
        shares = [f"{100 * site.share:.0f} %" for site in (begin, found)]
        rows.append([found.site, *strides, *sizes, *shares])
    return rows


def _search(chapter: Chapter) -> Search:
    assert chapter.search is not None
    return chapter.search


def _stage_title(run: RunRecord) -> str:
    return {"begin": "the beginning's strides", "found": "the strides that were found"}[run.name]


def _by_step(
    steps: Sequence[int], points: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    return [(step, value) for step, (_, value) in zip(steps, points, strict=True)]


def _cost(network: Network) -> str:
    ms = "" if network.ms is None else f" ({number(network.ms)} ms a batch)"
    return f"{number(network.macs / 1e6)} million MACs{ms}"


def _share(accuracy: float) -> str:
    return f"{100 * accuracy:.2f} %"


def _points(difference: float) -> str:
    """A difference of fractions in points.

    >>> _points(0.01234), _points(-0.005)
    ('+1.23', '−0.50')
    """
    value = round(100 * difference, 2) + 0.0  # without −0
    return f"{value:+.2f}".replace("-", "−")
