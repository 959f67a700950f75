"""Cut a validation part off the training data of a parquet folder, to make choices on it.

    python -m docs.validation FOLDER NEW_FOLDER [--by COLUMN]

NEW_FOLDER gets the training data as two files: ``test.parquet`` with the last fifth of its rows, or
with ``--by`` the rows whose value in that column is the largest that their class has (a program of
an instrument, a speaker: something that the training part then has not heard), and
``train.parquet`` with the others. The test data of FOLDER are not read. FOLDER may also be the word
"digits", for the handwritten digits that the demo trains on.
"""

import argparse
import io
from pathlib import Path

import pyarrow
import pyarrow.compute
import pyarrow.parquet
from PIL import Image

from diffstride.lab.data.images import load_digits


def split(
    table: pyarrow.Table, by: str | None, label: str | None
) -> tuple[pyarrow.Table, pyarrow.Table]:
    """Return the rows to train on and those to choose by."""
    if by is None:
        kept = len(table) * 4 // 5
        return table.slice(0, kept), table.slice(kept)
    highest: dict[int, int] = {}
    rows = list(zip(table[label].to_pylist(), table[by].to_pylist(), strict=True))
    for name, value in rows:
        highest[name] = max(value, highest.get(name, value))
    is_held = pyarrow.array([highest[name] == value for name, value in rows])
    return table.filter(pyarrow.compute.invert(is_held)), table.filter(is_held)


def digits() -> pyarrow.Table:
    """Return the training part of the embedded digits, as pictures in a table."""
    train = load_digits().train
    files = []
    for pixels in train.images:
        Image.fromarray(pixels[0].numpy()).save(file := io.BytesIO(), "PNG")
        files.append({"bytes": file.getvalue(), "path": None})
    return pyarrow.table({"image": files, "label": train.labels.tolist()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("new_folder", type=Path)
    parser.add_argument("--by", metavar="COLUMN")
    parser.add_argument("--label", default="label", metavar="COLUMN")
    options = parser.parse_args()
    if str(options.folder) == "digits":
        table = digits()
    else:
        (path,) = options.folder.glob("train*.parquet")
        table = pyarrow.parquet.read_table(path)
    train, held = split(table, options.by, options.label)
    options.new_folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(train, options.new_folder / "train.parquet")
    pyarrow.parquet.write_table(held, options.new_folder / "test.parquet")
    print(f"{len(train):,} rows to train on, {len(held):,} to choose by, in {options.new_folder}")


if __name__ == "__main__":
    main()
