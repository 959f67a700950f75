"""A network for raw signals on the same test signals at other sampling rates.

    python -m docs.rates RUN RATE...

RUN is the folder of a run on signals (`diffstride train waveform_small ...`). Its test signals are
resampled by soxr to each rate, in samples a second, and evaluated with the network at that rate and
with the network as it was trained.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import soxr

from diffstride.lab.data import signals
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import trained_run


def write_at(path: Path, source: signals.SignalDataset, rate: float) -> None:
    """Write the test signals of a dataset at another rate; a few also as signals to train on."""
    test, arrays = source.test, []
    for i in range(len(test)):
        (signal,), _ = test.windows([(i, 0)], test.length(i))
        arrays.append(soxr.resample(signal.numpy().T, test.rate, rate).T)
    longest = max(array.shape[-1] for array in arrays)
    filled = np.full((len(arrays), test.channels, longest), np.nan, np.float32)
    for row, array in zip(filled, arrays, strict=True):
        row[:, : array.shape[-1]] = array
    labels = np.array(source.classes)[test.labels.numpy()]
    first = [labels.tolist().index(name) for name in source.classes]
    train = {"x_train": filled[first], "y_train": labels[first]}
    np.savez(path, rate=np.array(rate), x_test=filled, y_test=labels, **train)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("rates", type=float, nargs="+", metavar="RATE")
    options = parser.parse_args()
    run = Run.open(options.run)
    data = run.config.data
    source = signals.load(data.path, label=data.label, rate=data.rate, cache=data.cache)
    known = trained_run.evaluate(run.folder)["test_accuracy"]
    print("| samples a second | with the rate changed | without |\n|---|---|---|")
    print(f"| {run.data['rate']:g}, as trained | {known:.1%} | {known:.1%} |")
    with tempfile.TemporaryDirectory() as folder:
        for rate in options.rates:
            path = Path(folder) / f"{rate:g}.npz"
            write_at(path, source, rate)
            found = trained_run.evaluate(run.folder, str(path))
            without = found.get("test_accuracy_without", found["test_accuracy"])
            print(f"| {rate:g} | {found['test_accuracy']:.1%} | {without:.1%} |")


if __name__ == "__main__":
    main()
