"""What the network of a run costs, in all and layer by layer."""

from pathlib import Path
from typing import Any, NamedTuple

from diffstride.analysis.cost import cost
from diffstride.analysis.cost_record import Cost
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.trained_run import load_model
from diffstride.text import aligned, times


class RunCost(NamedTuple):
    """The cost of a network for one example of this size; prints as a table."""

    input_size: tuple[int, ...]
    cost: Cost

    def document(self) -> dict[str, Any]:
        """Return the same as plain numbers and words."""
        total = max(1, self.cost.macs)
        return {
            "input_size": self.input_size,
            "macs": self.cost.macs,
            "activations": self.cost.activations,
            "parameters": self.cost.parameters,
            "layers": [
                {
                    "name": use.name,
                    "kind": type(use.layer).__name__,
                    "input_size": use.input_size,
                    "output_size": use.output_size,
                    "macs": use.macs,
                    "activations": use.activations,
                    "parameters": sum(p.numel() for p in use.layer.parameters(recurse=False)),
                    "share": use.macs / total,
                }
                for use in self.cost.layers
            ],
        }

    def __str__(self) -> str:
        lines = [("layer", "kind", "size", "MACs", "share")]
        for layer in self.document()["layers"]:
            sizes = [times(layer[name]) for name in ("input_size", "output_size")]
            size = " → ".join(dict.fromkeys(sizes))
            figures = (f"{layer['macs']:,}", f"{layer['share']:.1%}")
            lines.append((layer["name"], layer["kind"], size, *figures))
        whole = f"one example of {times(self.input_size)}: {self.cost}"
        return "\n".join([*aligned(lines), whole])


def run_cost(folder: str | Path, best: bool = False) -> RunCost:
    """Return what the network of a run costs with the strides that it has learned."""
    run = Run.open(folder)
    size = tuple(run.data["size"])
    return RunCost(size, cost(load_model(run, best), size))
