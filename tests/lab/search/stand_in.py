"""What stands in for `diffstride` where it does not matter how networks learn: run as a script.

It notes that it was called, and writes what a run leaves, with a loss on test examples that is the
lower the nearer its strides are to those in target.json. Before that it does what the file of its
name in the folder "do" says.
"""

import json
import math
import shutil
import sys
from pathlib import Path

import yaml

if __name__ == "__main__":
    command, path, *rest = sys.argv[1:]
    run = Path(rest[3]) / rest[1] if rest else Path(path)
    with Path("calls").open("a") as calls:
        print(command, run.name, file=calls)
    run.mkdir(parents=True, exist_ok=True)
    if rest:
        shutil.copy(path, run / "config.yaml")
    (run / "data.json").write_text(Path("facts.json").read_text())
    if (do := Path("do", run.name)).exists():
        exec(do.read_text())
    config = yaml.safe_load((run / "config.yaml").read_text())
    strides, target = config["model"]["strides"], json.loads(Path("target.json").read_text())
    strides = [stride for stride in strides for _ in range(len(target) // len(strides))]
    loss = 1 + math.fsum(math.log(s / t) ** 2 for s, t in zip(strides, target, strict=True))
    metrics, times = ["epoch,step,test_loss,test_accuracy"], ["epoch,step,seconds"]
    for epoch in range(1, config["trainer"]["epochs"] + 1):
        metrics.append(f"{epoch},{2 * epoch},{loss * 2 / (1 + epoch)!r},{1 / (1 + loss)}")
        times.append(f"{epoch},{2 * epoch},3")
    (run / "metrics.csv").write_text("\n".join([*metrics, ""]))
    (run / "times.csv").write_text("\n".join([*times, ""]))
