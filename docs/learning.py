"""Draw strides while they learn: the moving picture of README.

    python -m docs.learning [FOLDER]

A small network learns handwritten digits for half a minute. They have 8×8 pixels and are shown to
it at 32×32, which it isn't told. It has two strides for each axis: one on the image itself, and one
behind the first convolution. All begin at 1, where maps keep their size, and the loss has the
paper's penalty for what the network costs. FOLDER, docs/results unless given, gets
learning-light.gif and learning-dark.gif; learning.png, their last frame, for those who want nothing
to move; and learning.json, the numbers of the sentences below the picture, which README gets.
The settings were chosen so that there is something to see, with a look at the test images; how
good learned strides are is told in docs/results.md.
"""

import io
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride import CostModel, DiffStride2d, parameter_groups, stride_penalty
from diffstride.functional import window
from docs.figures import BLUE, GREEN, GREY, ORANGE
from examples.digits import BAND_LIMIT, SIZE, load_data

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/results"
EPOCHS, BATCH, PENALTY, SMOOTHNESS = 14, 64, 0.2, 2.0
EVERY = 5
"""How many steps there are from a frame to the next one."""
THEMES = {"light": ("white", "#222222", "gray_r"), "dark": ("#0d1117", "#e6edf3", "gray")}
"""The colours of background and text, and those of maps."""


CAPTION = (
    "Handwritten digits (`python -m docs.learning`): strides begin at 1, where maps keep their "
    "size, and a penalty for cost is in the loss.\n"
    "After {steps} steps the first stride makes {middle} samples of {image}, and the second "
    "{small}; {accuracy} % of test images are right, at\n"
    "{cost} % of the first cost. The digits have 8×8 pixels and were enlarged, which nobody told "
    "the network. An illustration, no benchmark."
)
"""What README says below the picture."""


class Moment(NamedTuple):
    """What is seen of a network after some steps."""

    step: int
    strides: list[tuple[float, ...]]
    maps: list[Tensor]  # the image, then what each stride makes of it, as its mean over channels
    accuracy: float  # on test images
    macs: float


def convolution(inputs: int, outputs: int) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [layer, nn.BatchNorm2d(outputs, momentum=0.3), nn.ReLU()]


def build_model() -> nn.Sequential:
    tight = {"smoothness": SMOOTHNESS, "convention": "tight", "norm": "forward"}
    return nn.Sequential(
        DiffStride2d(1.0, **tight),
        *convolution(1, 16),
        DiffStride2d(1.0, **tight),
        *convolution(16, 32),
        *convolution(32, 32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def train(epochs: int = EPOCHS, every: int = EVERY, number: int | None = None) -> list[Moment]:
    """Train on so many digits, and test on as many; all unless told. Returns moments to draw."""
    torch.manual_seed(0)
    images, test_images, labels, test_labels = (x[:number] for x in load_data())
    model = build_model()
    layers = [layer for layer in model if isinstance(layer, DiffStride2d)]
    costs = CostModel(model, (1, *SIZE))
    groups = parameter_groups(model, lr=3e-3, weight_decay=0.01, stride_lr=0.1)
    optimiser = torch.optim.AdamW(groups)
    steps = epochs * (len(images) // BATCH)
    rates = [group["lr"] for group in groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)

    @torch.no_grad()
    def look(step: int) -> Moment:
        model.eval()
        x = test_images[test_labels == 3][:1]
        maps = [x[0, 0]]
        for layer in model:
            x = layer(x)
            if layer in layers:
                maps.append(x[0].mean(0))
        right = (model(test_images).argmax(1) == test_labels).float().mean().item()
        strides = [layer.strides for layer in layers]
        model.train()
        return Moment(step, strides, maps, right, costs.value("macs"))

    found, step = [look(0)], 0
    for _ in range(epochs):
        order = torch.randperm(len(images))
        for batch in order[: len(order) // BATCH * BATCH].split(BATCH):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            (loss + PENALTY * stride_penalty(model)).backward()
            optimiser.step()
            schedule.step()
            step += 1
            if step % every == 0 or step == steps:
                found.append(look(step))
    return found


def size_of(image: Tensor) -> str:
    return "×".join(map(str, image.shape))


def draw(moments: list[Moment], last: int, theme: str) -> Image.Image:
    """The picture of one moment, with curves of those before it."""
    background, text, colours = THEMES[theme]
    now, seen, whole = moments[last], moments[: last + 1], moments[-1].step
    # By hand, and not by a layout that would move things from frame to frame.
    figure = Figure(figsize=(9.6, 4.4), dpi=100, facecolor=background, layout="none")
    room = {"left": 0.04, "right": 0.985, "top": 0.93, "bottom": 0.12, "hspace": 0.3, "wspace": 0.2}
    panels = figure.subplots(2, 3, height_ratios=[1.75, 1], gridspec_kw=room)
    titles = ("image", "after stride 1", "after stride 2")
    for ax, title, shown in zip(panels[0], titles, now.maps, strict=True):
        height, width = shown.shape
        box = (-width / 2, width / 2, height / 2, -height / 2)  # a sample is as large everywhere
        # Features have no brightness of their own: the largest is the darkest.
        limits = {} if shown is now.maps[2] else {"vmin": 0, "vmax": 1}
        ax.imshow(shown.numpy(), cmap=colours, extent=box, interpolation="nearest", **limits)
        ax.set(xlim=(-16.2, 16.2), ylim=(16.2, -16.2), xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=GREY, linestyle=":")
        ax.set_title(f"{title}: {size_of(shown)}", color=text, fontsize=12)
    strides, passing, results = panels[1]
    steps = [moment.step for moment in seen]
    for i, colour in enumerate((BLUE, ORANGE)):
        for axis, style in enumerate(("-", ":")):
            values = [moment.strides[i][axis] for moment in seen]
            label = f"{i + 1}, {('height', 'width')[axis]}"
            strides.plot(steps, values, style, color=colour, lw=2, label=label)
    for axis, style in enumerate(("-", ":")):
        gain = window(
            SIZE[axis], now.strides[0][axis], smoothness=SMOOTHNESS, convention="tight", crop=False
        )
        passing.plot(gain.tolist(), style, color=BLUE, lw=2)
    passing.axvline(BAND_LIMIT, color=GREY, lw=1)
    label = f"line: the most that {2 * BAND_LIMIT} pixels can hold"
    passing.text(15.9, 1.18, label, color=text, ha="right", fontsize=8)
    accuracies = [100 * moment.accuracy for moment in seen]
    costs = [100 * moment.macs / moments[0].macs for moment in seen]
    for values, colour, label in ((accuracies, GREEN, "accuracy"), (costs, GREY, "cost")):
        results.plot(steps, values, color=colour, lw=2, label=label)
        results.plot(now.step, values[-1], "o", color=colour, ms=5, clip_on=False)
    strides.set(xlim=(0, whole), ylim=(0.9, 4.8), title="strides")
    strides.legend(frameon=False, fontsize=8, ncols=2, labelcolor=text, loc="upper left")
    passing.set(
        xlim=(0, SIZE[0] / 2),
        ylim=(-0.05, 1.4),
        yticks=(0, 0.5, 1),
        title="what stride 1 lets pass",
    )
    results.legend(frameon=False, fontsize=8, labelcolor=text, loc="center right")
    told = f"test accuracy {accuracies[-1]:.1f} %, cost {costs[-1]:.1f} %"
    results.set(xlim=(0, whole), ylim=(0, 104), title=told)
    units = ("training step", "frequency (cycles per image)", "training step")
    for ax, unit in zip(panels[1], units, strict=True):
        ax.title.set(color=text, fontsize=10)
        ax.set_xlabel(unit, color=text, fontsize=9)
        ax.tick_params(colors=text, labelsize=8)
        ax.spines[:].set_color(GREY)
    for ax in panels.flat:
        ax.set_facecolor(background)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return Image.open(file).convert("RGB")


def palette_of(frames: list[Image.Image], theme: str) -> Image.Image:
    """One palette for all frames, so that nothing flickers, with the colours of lines as they are.

    Thin lines are few pixels: a palette that is made of pixels alone would make them grey.
    """
    pair = Image.new("RGB", (frames[0].width, 2 * frames[0].height))
    pair.paste(frames[0], (0, 0))
    pair.paste(frames[-1], (0, frames[0].height))
    exact = [to_rgb(name) for name in (*THEMES[theme][:2], BLUE, ORANGE, GREEN, GREY)]
    known = [tuple(round(255 * value) for value in colour) for colour in exact]
    found = pair.quantize(96).getpalette()
    for colour in zip(found[::3], found[1::3], found[2::3], strict=True):
        # Pillow rounds what it looks for: a colour close to an exact one would take its place.
        if all(
            max(abs(a - b) for a, b in zip(colour, x, strict=True)) > 6 for x in known[: len(exact)]
        ):
            known.append(colour)
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for colour in known for value in colour])
    return palette


def write(moments: list[Moment], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        frames = [draw(moments, i, theme) for i in range(len(moments))]
        palette = palette_of(frames, theme)
        first, *others = [frame.quantize(palette=palette, dither=0) for frame in frames]
        if theme == "light":
            others[-1].save(folder / "learning.png", optimize=True)
        times = [120] * len(others) + [3000]
        path = folder / f"learning-{theme}.gif"
        first.save(path, save_all=True, append_images=others, duration=times, loop=0)
        print(f"{path}, {path.stat().st_size / 1e6:.2f} MB")


def numbers(moments: list[Moment]) -> dict[str, object]:
    """What was learned, as README says it."""
    first, last = moments[0], moments[-1]
    return {
        "steps": last.step,
        "sizes": [size_of(shown) for shown in last.maps],
        "strides": [[round(stride, 2) for stride in axes] for axes in last.strides],
        "accuracy": round(100 * last.accuracy, 1),
        "cost": round(100 * last.macs / first.macs, 1),
    }


def caption(found: dict[str, object]) -> str:
    image, middle, small = found["sizes"]
    return CAPTION.format(image=image, middle=middle, small=small, **found)


def main(folder: Path) -> None:
    torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores
    moments = train()
    write(moments, folder)
    found = numbers(moments)
    (folder / "learning.json").write_text(json.dumps(found) + "\n")
    readme = ROOT / "README.md"
    place = re.compile(r"(<!-- learning -->\n).*?(\n<!-- /learning -->)", re.DOTALL)
    readme.write_text(place.sub(lambda m: m[1] + caption(found) + m[2], readme.read_text()))
    print(caption(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
