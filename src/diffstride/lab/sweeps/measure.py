"""The paper's table of what a step costs: time and memory, measured and not trained."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.files import write
from diffstride.lab.runs.documents import RunError, read_json
from diffstride.lab.sweeps.paper_tables import COST_ROWS, PAPER, TABLES
from diffstride.lab.sweeps.plan import SweepPlan, with_model
from diffstride.lab.sweeps.step_cost import interleaved, peak_bytes
from diffstride.lab.training.preparation import build_model, describe_environment

ROUNDS = 7


def measure_costs(plan: SweepPlan, folder: Path) -> None:
    """Measure the network for all tasks of sound with each method, and write measured.json.

    A measurement that is there already is not repeated.

    Raises:
        RunError: if it is one of other settings.
    """
    path = folder / "measured.json"
    config, size = plan.config, TABLES[plan.table]["size"]
    settings = {"batches": config.data.batch_size, "model": asdict(config.model)}
    settings = json.loads(json.dumps(settings))  # tuples to lists
    if path.exists():
        if read_json(path).get("settings") != settings:
            raise RunError(
                f"{path} was measured with other settings: remove it, or choose another --out"
            )
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    classes = {name: range(task["classes"]) for name, task in PAPER["tasks"].items()}
    facts = {"classes": classes, "size": size}
    torch.manual_seed(0)
    x = torch.randn(config.data.batch_size, *size, device=device)
    models = {
        column: build_model(with_model(config, downsampling=column).model, facts).to(device)
        for column in plan.columns
    }
    values: dict[str, dict[str, float]] = {}
    for training, rows in ((True, COST_ROWS[:2]), (False, COST_ROWS[2:])):
        steps = {column: _step(model, x, training) for column, model in models.items()}
        values[rows[0]] = interleaved(steps, ROUNDS)
        values[rows[1]] = {c: float(peak_bytes(step, device)) for c, step in steps.items()}
    machine = describe_environment(config)
    conditions = (
        f"batches of {len(x)}, width {config.model.width:g}, R = {config.model.smoothness:g}; "
        f"medians of {ROUNDS} rounds on {', '.join(machine['gpus']) or 'a CPU'}, "
        f"{machine['threads']} threads, torch {machine['torch']}; memory is of tensors"
    )
    document = {
        "conditions": conditions,
        "values": values,
        "environment": machine,
        "settings": settings,
    }
    write(path, json.dumps(document, indent=1) + "\n")


def _step(model: nn.Module, x: Tensor, training: bool) -> Callable[[], None]:
    """Return the forward and backward pass for a batch of all tasks, or the forward pass alone."""

    def step() -> None:
        model.train(training)
        if training:
            model.zero_grad()
        with torch.inference_mode(not training):
            scores = model(x)
        if training:
            labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
            losses = [F.cross_entropy(each, labels) for each in scores.values()]
            torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]

    return step
