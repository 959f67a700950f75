"""Images are read whatever they come as, and what is wrong with them is said."""

import numpy as np
import pytest
import torch
from PIL import Image

from diffstride.lab.data import images
from diffstride.lab.data.images import random_part
from diffstride.lab.data.labelled_files import DataError
from tests.lab.data.example_files import encode_picture, grey_picture, write_parquet


def test_parquet(tmp_path):
    path = write_parquet(
        tmp_path / "pack", [(grey_picture(10), 0), (grey_picture(200), 1)], [(grey_picture(30), 1)]
    )
    data = images.load(path)
    assert data.classes == ("cat", "dog")
    assert data.size == (3, 6, 8)
    assert data.train.images[:, 0, 0, 0].tolist() == [10, 200]
    assert data.train.labels.tolist() == [0, 1]
    assert len(data.test) == 1
    assert len(images.load(path, limit=1).train) == 1


def test_a_folder_of_folders(tmp_path):
    for split in ("train", "test"):
        for name, value in (("ant", 1), ("bee", 2)):
            folder = tmp_path / "pics" / split / name
            folder.mkdir(parents=True)
            (folder / "0.png").write_bytes(grey_picture(value, mode="L"))
    data = images.load(str(tmp_path / "pics"))
    assert data.classes == ("ant", "bee")
    assert data.size == (1, 6, 8)
    assert sorted(data.train.images[:, 0, 0, 0].tolist()) == [1, 2]


def test_grey_among_coloured_becomes_coloured_and_sizes_can_be_brought_to_one(tmp_path):
    rows = [(grey_picture(7, mode="L"), 0), (grey_picture(9, size=(12, 30)), 1)]
    path = write_parquet(tmp_path / "pack", rows)
    with pytest.raises(DataError, match=r"train0.png is 6×8 and train1.png 12×30"):
        images.load(path)
    data = images.load(path, image_size=5)
    assert data.size == (3, 5, 5)
    assert data.train.images[0].unique().tolist() == [7]


def test_class_names_may_be_numbers(tmp_path):
    path = write_parquet(
        tmp_path / "pack", [(grey_picture(0), 0), (grey_picture(0), 2)], classes=None
    )
    assert images.load(path).classes == ("0", "1", "2")


GOOD = grey_picture(0)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([(GOOD, 0), (b"no image", 1)], {}, "train1.png can't be read as an image"),
        ([(GOOD, 0), (GOOD[:45], 1)], {}, "train1.png can't be read as an image"),
        ([(GOOD, 0), (GOOD, 2)], {}, "train1.png: labels must be from 0 to 1, .*got 2"),
        ([(GOOD, 0), (GOOD, -1)], {}, "labels must be from 0 to 1, .*got -1"),
        ([(GOOD, 0)], {"classes": ["one"]}, "must have at least 2 classes, got 1"),
        (
            [(GOOD, 0)],
            {"label": "answer"},
            "image files .* and one of labels .* got img, ",
        ),
    ],
)
def test_what_is_wrong_is_said(rows, options, message, tmp_path):
    path = write_parquet(tmp_path / "pack", rows, **options)
    with pytest.raises(DataError, match=message):
        images.load(path)


def test_corrupt_images_can_be_left_out_and_are_counted(tmp_path):
    rows = [(GOOD, 0), (b"no image", 1), (GOOD, 1)]
    data = images.load(write_parquet(tmp_path / "pack", rows), skip_corrupt=True)
    assert data.skipped == ("train1.png", "test1.png")
    assert data.train.labels.tolist() == [0, 1]
    path = write_parquet(tmp_path / "all", [(b"no image", 0)])
    for options in ({}, {"encoded": True, "image_size": 8}):
        with pytest.raises(DataError, match="nothing to read in the train set"):
            images.load(path, skip_corrupt=True, **options)


def test_folders_that_are_not_there_or_not_right(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"does not exist: --data\.path is a folder or a dataset"):
        images.load(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="neither parquet files nor the folders train and test"):
        images.load(str(tmp_path / "empty"))
    write_parquet(tmp_path / "half", [(GOOD, 0)])
    (tmp_path / "half" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match="names begin with train and with test"):
        images.load(str(tmp_path / "half"))

    def unreachable(name):
        raise ConnectionError("no route")

    import datasets

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError, match=r"owner/name is no folder here.*no route"):
        images.load("owner/name")


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path):
    rows = []
    for kind, mode in (("png", "uint16"), ("tiff", "uint16"), ("tiff", "int32")):
        values = np.linspace(0, 65535, 48).astype(mode).reshape(6, 8)
        rows.append((encode_picture(Image.fromarray(values), kind), 0))
    data = images.load(write_parquet(tmp_path / "pack", rows))
    assert data.size == (1, 6, 8)
    for image in data.train.images:
        assert (image.flatten() - torch.linspace(0, 255, 48)).abs().max() <= 1
    fractions = encode_picture(Image.fromarray(np.zeros((6, 8), dtype=np.float32)), "tiff")
    with pytest.raises(DataError, match="its pixels are fractions"):
        images.load(write_parquet(tmp_path / "fractions", [(fractions, 0)]))


def test_validation_is_for_testing_only_where_nothing_else_is(tmp_path):
    path = write_parquet(
        tmp_path / "pack", [(GOOD, 0), (GOOD, 1)], [(GOOD, 0), (GOOD, 1), (GOOD, 1)]
    )
    write_parquet(tmp_path / "other", [(GOOD, 0), (GOOD, 1)])
    name = "validation-00000-of-00001.parquet"
    (tmp_path / "other" / "test-00000-of-00001.parquet").rename(tmp_path / "pack" / name)
    assert len(images.load(path).test) == 3
    (tmp_path / "pack" / "test-00000-of-00001.parquet").unlink()
    assert len(images.load(path).test) == 2
    # Labels that are kept secret, all of them −1, are passed over.
    secret = write_parquet(tmp_path / "secret", [(GOOD, 0), (GOOD, 1)], [(GOOD, -1)] * 3)
    (tmp_path / "pack" / name).rename(tmp_path / "secret" / name)
    assert images.load(secret).test.labels.tolist() == [0, 1]


def test_labels_may_be_words(tmp_path):
    rows = [(GOOD, "dog"), (GOOD, "ant"), (GOOD, "dog")]
    data = images.load(write_parquet(tmp_path / "pack", rows, classes=None))
    assert data.classes == ("ant", "dog")
    assert data.train.labels.tolist() == [1, 0, 1]
    listed = write_parquet(tmp_path / "listed", rows, classes=["dog", "cat", "ant"])
    assert images.load(listed).train.labels.tolist() == [0, 2, 0]


@pytest.mark.parametrize("label", [0.5, None, "cow"])
def test_labels_of_other_kinds_are_named(label, tmp_path):
    rows = [(GOOD, "dog" if label == "cow" else 1), (GOOD, label)]
    with pytest.raises(DataError, match=r"train[01]\.png: labels must be .* in column label"):
        images.load(write_parquet(tmp_path / "pack", rows, classes=["cat", "dog"]))


def test_a_cell_without_an_image_is_one_that_can_not_be_read(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = write_parquet(tmp_path / "pack", [(GOOD, 0), (GOOD, 1)])
    table = pyarrow.table({"img": [{"bytes": GOOD, "path": "a.png"}, None], "label": [0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "pack" / "train-00000-of-00001.parquet")
    with pytest.raises(DataError, match="row 1 of the train set can't be read"):
        images.load(path)
    assert images.load(path, skip_corrupt=True).skipped == ("row 1 of the train set",)


def test_a_part_of_the_images_is_from_all_over(tmp_path):
    rows = [(GOOD, 0)] * 20 + [(GOOD, 1)] * 20
    path = write_parquet(tmp_path / "pack", rows)
    labels = images.load(path, limit=10).train.labels
    assert len(labels) == 10
    assert 2 < labels.sum() < 8
    assert torch.equal(labels, images.load(path, limit=10).train.labels)


def ramp(width, height):
    """A picture that says where a pixel is: red from left to right, green from top to bottom."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)[None]
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    return encode_picture(Image.fromarray(pixels))


def test_images_may_stay_files_until_they_are_wanted(tmp_path):
    rows = [(ramp(80, 40), 0), (ramp(40, 40), 1), (grey_picture(7, mode="L"), 1)]
    path = write_parquet(tmp_path / "pack", rows)
    data = images.load(path, image_size=28, encoded=True)
    assert data.size == (3, 28, 28)
    assert data.train.labels.tolist() == [0, 1, 1]
    middle = data.test.take(torch.tensor([2, 0]))
    assert middle.shape == (2, 3, 28, 28)
    assert middle[0].unique().tolist() == [7]
    # 80×40 at 64×32, of which 28×28 is in the middle: 18 to 46 of 64, 2 to 30 of 32.
    for channel, first, last in ((0, 18 / 64, 46 / 64), (1, 2 / 32, 30 / 32)):
        seen = middle[1, channel].float() / 255
        assert seen.min().item() == pytest.approx(first, abs=0.02)
        assert seen.max().item() == pytest.approx(last, abs=0.02)

    def parts(seed):
        return data.train.take(torch.tensor([0, 1, 0]), torch.Generator().manual_seed(seed))

    assert torch.equal(parts(0), parts(0))
    assert not torch.equal(parts(0), parts(1))
    assert not torch.equal(parts(0)[0], parts(0)[2])
    assert data.train.take(torch.tensor([], dtype=torch.long)).shape == (0, 3, 28, 28)
    with pytest.raises(DataError, match=r"give --data\.image_size"):
        images.load(path, encoded=True)


def test_a_file_that_can_not_be_decoded_is_named_when_it_is_wanted_or_left_out_before(tmp_path):
    path = write_parquet(tmp_path / "pack", [(GOOD, 0), (GOOD[:45], 1), (GOOD, 1)])
    data = images.load(path, image_size=8, encoded=True)
    with pytest.raises(DataError, match=r"train1.png can't be read as an image"):
        data.train.take(torch.tensor([0, 1]))
    data = images.load(path, image_size=8, encoded=True, skip_corrupt=True)
    assert data.skipped == ("train1.png", "test1.png")
    assert data.train.labels.tolist() == [0, 1]
    assert data.train.take(torch.tensor([0, 1])).shape == (2, 3, 8, 8)


def test_random_parts_have_the_right_area_and_shape_and_stay_inside():
    width, height = 300, 200
    draws = torch.rand(2000, 10, 4, generator=torch.Generator().manual_seed(0))
    boxes = torch.tensor([random_part(width, height, draw) for draw in draws])
    left, top, right, bottom = boxes.T
    assert (left >= 0).all() and (top >= 0).all()
    assert (right <= width).all() and (bottom <= height).all()
    area = (right - left) * (bottom - top) / (width * height)
    ratio = (right - left) / (bottom - top)
    assert area.min() == pytest.approx(0.08, abs=0.01)
    assert area.max() > 0.8
    assert ratio.min() == pytest.approx(3 / 4, abs=0.01)
    assert ratio.max() == pytest.approx(4 / 3, abs=0.01)
    # A picture so wide that no part of it fits is taken whole.
    assert random_part(1000, 1, draws[0]) == (0, 0, 1000, 1)


def test_a_test_set_must_look_like_the_training_set(tmp_path):
    path = write_parquet(tmp_path / "pack", [(GOOD, 0), (GOOD, 1)])
    write_parquet(tmp_path / "other", [(grey_picture(0, size=(9, 9)), 0), (GOOD, 1)][:1] * 2)
    (tmp_path / "other" / "test-00000-of-00001.parquet").rename(
        tmp_path / "pack" / "test-00000-of-00001.parquet"
    )
    with pytest.raises(DataError, match="training images are 6×8 and test images 9×9"):
        images.load(path)
    write_parquet(tmp_path / "another", [(GOOD, 0), (GOOD, 1)], label="class")
    (tmp_path / "another" / "test-00000-of-00001.parquet").rename(
        tmp_path / "other" / "test-00000-of-00001.parquet"
    )
    with pytest.raises(DataError, match=r"other can't be read: [\s\S]*column names don't match"):
        images.load(str(tmp_path / "other"))


def test_an_image_of_a_folder_that_went_away_is_named(tmp_path):
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            folder = tmp_path / "pics" / split / name
            folder.mkdir(parents=True)
            (folder / "0.png").write_bytes(GOOD)
    data = images.load(str(tmp_path / "pics"), image_size=8, encoded=True)
    (tmp_path / "pics" / "train" / "bee" / "0.png").unlink()
    with pytest.raises(DataError, match=r"bee/0.png can't be read.*no such file"):
        data.train.take(torch.tensor([0, 1]))


def test_digits_are_always_split_alike():
    data = images.load_digits()
    assert data.size == (1, 32, 32)
    assert (len(data.train), len(data.test)) == (1347, 450)
    assert data.train.images.dtype == torch.uint8
    assert torch.equal(data.test.labels, images.load_digits().test.labels)
    assert len(images.load_digits(limit=10).train) == 10
