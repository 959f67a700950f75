"""Small sets of signals in every layout, written to disk."""

import numpy as np

from tests.lab.data.example_files import encode_sound

# Signals (channels, samples) of different lengths with a class each; values that 16 bits hold.
SIGNALS = [
    (np.arange(1, 1 + channels * length).reshape(channels, length) * 2.0**-12, label)
    for channels, length, label in [(1, 40, "b"), (1, 30, "a"), (1, 50, "b"), (1, 30, "a")]
]
PAIRS = [(np.concatenate([x, -x]), label) for x, label in SIGNALS]  # of two channels
EVEN = [(x[:, :30], label) for x, label in SIGNALS]  # all of one length


def write(folder, files):
    """Files by their names, as text or bytes."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def class_folders(folder, signals=SIGNALS, encode=None, suffix="wav", splits=("train/", "test/")):
    encode = encode or (lambda x: encode_sound(x.T, 8_000))
    files = {
        f"{split}{label}/{i}.{suffix}": encode(x)
        for split in splits
        for i, (x, label) in enumerate(signals)
    }
    return write(folder, files)


def npy(array):
    import io

    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy_class_folders(folder, signals=SIGNALS):
    return class_folders(folder, signals, npy, "npy")


def parquet(folder, signals=SIGNALS, splits=("train", "test"), **columns):
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True)
    nested = any(len(x) > 1 for x, _ in signals)
    table = {
        "signal": [x.tolist() if nested else x[0].tolist() for x, _ in signals],
        "label": [label for _, label in signals],
        **columns,
    }
    for split in splits:
        pyarrow.parquet.write_table(pyarrow.table(table), folder / f"{split}.parquet")
    return folder


def arrays(signals):
    return np.stack([x for x, _ in signals]), np.array([label for _, label in signals])


def npz(folder, signals=EVEN, **more):
    folder.mkdir(parents=True)
    x, y = arrays(signals)
    np.savez(folder / "set.npz", X_train=x, y_train=y, x_test=x, Y_test=y, **more)
    return folder


def npy_folder(folder, signals=EVEN):
    x, y = arrays(signals)
    return write(
        folder, {f"{k}_{s}.npy": npy(v) for s in ("train", "test") for k, v in (("X", x), ("y", y))}
    )


def line(x, label, separator=",", first=False):
    cells = [repr(float(value)) for value in x[0]]
    return separator.join([label, *cells] if first else [*cells, label])


def csv(folder, signals=SIGNALS):
    text = "\n".join(line(*row) for row in signals)
    return write(folder, {"train.csv": text, "test.csv": text})


def tsv(folder, signals=SIGNALS):
    """As UCR has it: labels are numbers, and NaN fills up what is shorter."""
    longest = max(x.shape[1] for x, _ in signals)
    text = ""
    for x, label in signals:
        fill = ["NaN"] * (longest - x.shape[1])
        text += "\t".join([line(x, str(ord(label) - 96), "\t", True), *fill]) + "\n"
    return write(folder, {"Set_TRAIN.tsv": text, "Set_TEST.tsv": text, "README.md": "# Set"})


HEADER = """# A set.
@problemName Set
@timeStamps false
@missing false
@univariate {univariate}
@dimensions {channels}
@equalLength false
@classLabel true a b
@data
"""


def ts(folder, signals=SIGNALS):
    channels = len(signals[0][0])
    text = HEADER.format(channels=channels, univariate=str(channels == 1).lower())
    for x, label in signals:
        text += ":".join([*(",".join(map(repr, c.tolist())) for c in x), label]) + "\n"
    return write(folder, {"Set_TRAIN.ts": text, "Set_TEST.ts": text})
