"""What a search found: the sections of its page, and the same as text."""

from collections.abc import Sequence

from diffstride.lab.reports import chapters, plots
from diffstride.lab.reports.chapters import Block, Chapter, Legend, Section
from diffstride.lab.reports.formats import number
from diffstride.lab.reports.learned_strides import layer_legend
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.scores import ACCURACY, Score
from diffstride.lab.runs.search_folder import STAGES, Network, Plan, Result, Search
from diffstride.text import aligned, three_digits, times

HEAD = ["site", "stride", "found", "size", "found", "cost", "found"]
ONE_SEED = (
    "Both networks were trained from scratch with fixed spectral pooling, on the same data with "
    "the same seed; the band is that of test examples drawn again, and says nothing of other seeds."
)


def answer(chapter: Chapter) -> Section:
    """What came out, in two sentences and in numbers."""
    search, cards = _search(chapter), []
    if not search.result_file.is_file():
        number_of = {name: len(search.runs(name)) for name in STAGES}
        begun = ", ".join(f"{name} {number}" for name, number in number_of.items() if number)
        cards = [("Runs so far", begun or "none")]
        text = f"The search is not finished: `diffstride resume {search.folder}` goes on."
        return Section("The answer", text, [{"kind": "cards", "items": cards}])
    plan, result, score = search.plan, search.result, search.score
    cards = [
        (f"{score.heading}, found", score.text(result.found)),
        (f"{score.heading}, beginning", score.text(result.begin)),
        (f"More {score.difference}", score.points(result.difference)),
        ("Million MACs, found", number(plan.found.macs / 1e6)),
        ("Million MACs, beginning", number(plan.begin.macs / 1e6)),
        ("Training time", f"{sum(result.seconds) / 60:.1f} min"),
    ]
    text = f"{sentence(plan, result, score)} {comparison(plan)}{ONE_SEED}"
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


def trials(chapter: Chapter) -> Section:
    """The losses of all trials one after another, and which strides were tried."""
    search = _search(chapter)
    runs = [run for run in search.runs("learn") if run.name != "penalty"]
    settings, losses, rows = search.settings, [], []
    done = [run for run in runs if run.is_finished(settings.trial_epochs)]
    if not done:
        return Section("What was tried", "", [])
    for run in done:
        last = run.metrics("test_loss")[-1]
        losses.append(float(last["test_loss"]))
        strides = " ".join(f"{stride:.4g}" for stride in run.config.model.strides or ())
        judged = search.score.text(float(last[search.score.column]))
        rows.append([run.name, strides, three_digits(losses[-1]), judged])
    svg = plots.scatter(
        {0: list(enumerate(losses, 1))}, xlabel="trial", ylabel="loss on held-out examples"
    )
    items = [(svg, "Loss of each trial, in the order they were made")]
    legend: Legend = []
    if search.plan_file.is_file():
        items.append((_strides_tried(search, done), "Strides that were tried at each site"))
        legend = chapters.colour_legend(["tried", "found"])
    epochs = f"{settings.trial_epochs} epoch{'s' * (settings.trial_epochs > 1)}"
    text = f"Trainings of {epochs} at fixed strides of one cost, compared on examples that were "
    text += "held out. The first ones are anywhere; where the others are follows from a plane "
    text += "through all losses before them."
    head = ["trial", "strides", "loss", search.score.title]
    table = chapters.table("All trials", head, rows, folded=True)
    return Section("What was tried", text, [*chapters.figures(legend, items), *table])


def _strides_tried(search: Search, runs: Sequence[Run]) -> str:
    """The strides of all trials in a row for each site and axis, and below those found."""
    plan, axes = search.plan, len(search.plan.found.sites[0].strides)
    names = [site.site for site in plan.found.sites]
    labels = [f"{name}, {axis + 1}" if axes > 1 else name for name in names for axis in range(axes)]
    tried = [_for_each_axis(run.config.model.strides or (), len(labels)) for run in runs]
    columns = [list(column) for column in zip(*tried, strict=True)]
    found = [[stride] for stride in plan.found.strides]
    begin: list[list[float | None]] = [[*plan.begin.strides], [None] * len(labels)]
    return plots.strips(
        labels, [(0, columns), (1, found)], xlabel="stride; upright: the beginning", marks=begin
    )


def _for_each_axis(strides: Sequence[float], number: int) -> list[float]:
    """Strides as a network has them: one that axes share stands for each of them."""
    return [stride for stride in strides for _ in range(number // len(strides))]


def trajectory(chapter: Chapter) -> Section:
    """The strides over the steps of learning, if a penalty on their cost let them learn."""
    learning = [run for run in chapter.runs if run.name == "penalty" and run.strides]
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


def scores(chapter: Chapter) -> Section:
    """The score on test data of both networks with fixed strides over the epochs."""
    score = _search(chapter).score
    runs = [run for run in chapter.runs if run.name in ("begin", "found") and run.metrics]
    lines = [(i, 0, [run.curve(score.column, score.factor)]) for i, run in enumerate(runs)]
    items = []
    if runs:
        svg = plots.curves(lines, ylabel=f"test {score.axis}")
        items = [(svg, f"Test {score.title} with fixed strides")]
    legend = chapters.colour_legend(_stage_title(run) for run in runs)
    return Section("Fixed strides, trained from scratch", "", chapters.figures(legend, items))


def sentence(plan: Plan, result: Result, score: Score) -> str:
    """Return in a sentence how good what was found is, beside the beginning."""
    found, begin = score.text(result.found), score.text(result.begin)
    both = f"get right {found} of {result.examples:,} test examples, and those of the beginning "
    both += begin
    if score != ACCURACY:
        both = f"come to a {score.title} of {found} in the mean of {result.examples:,} test "
        both += f"examples, and those of the beginning to {begin}"
    more = f"{score.points(result.difference)} {score.difference}"
    band = f"95 % band {score.points(result.low)} to {score.points(result.high)}"
    costs = " and ".join(dict.fromkeys(map(_cost, (plan.found, plan.begin))))
    sizes = [[site.output_size for site in network.sites] for network in (plan.found, plan.begin)]
    same = " All sizes are those of the beginning: it is the same network." * (sizes[0] == sizes[1])
    return f"The strides that were found {both}: {more} ({band}), at {costs}.{same}"


def comparison(plan: Plan) -> str:
    """Return in a sentence how the choice was made, if strides were tried."""
    if plan.losses is None:
        return ""
    begin, found = plan.losses
    texts = three_digits(found), three_digits(begin)
    both = "On held-out examples, after trainings of full length, the best strides that were tried "
    both += f"come to a loss of {texts[0]}, those of the beginning to {texts[1]}"
    return f"{both}{': they are kept' * (begin <= found)}. "


def as_text(search: Search) -> str:
    """Return what a finished search found, for a terminal."""
    plan, result = search.plan, search.result
    seconds = zip(STAGES, result.seconds, strict=True)
    spent = ", ".join(f"{name} {value:.0f}" for name, value in seconds)
    option = " ".join(f"{stride:g}" for stride in plan.found.strides)
    lines = [
        *aligned([HEAD, *table_rows(plan)]),
        sentence(plan, result, search.score),
        *filter(None, [comparison(plan).strip()]),
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
