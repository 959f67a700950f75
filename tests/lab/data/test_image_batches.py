"""Batches follow from seed and epoch alone, and augmentation keeps what it should."""

import torch

from diffstride.lab.data.batches import Augmentation, ImageBatches, flip, shift, statistics
from diffstride.lab.data.images import DecodedImages


def split(number=20, size=(1, 8, 8)):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (number, *size), generator=generator, dtype=torch.uint8)
    return DecodedImages(images, torch.arange(number))


def batches(epoch=0, **options):
    options = {"mean": torch.zeros(1), "std": torch.ones(1), **options}
    loader = ImageBatches(options.pop("split", split()), 6, **options)
    loader.epoch = lambda: epoch
    return loader


def test_order_follows_from_seed_and_epoch():
    def order(**options):
        return torch.cat([labels for _, labels in batches(shuffle=True, **options)]).tolist()

    assert order() == order()
    assert order() != order(epoch=1)
    assert order() != order(seed=1)
    assert len(order()) == 18  # whole batches only
    assert len(set(order())) == 18


def test_without_shuffling_every_image_comes_once_in_order():
    found = list(batches())
    assert [len(labels) for _, labels in found] == [6, 6, 6, 2]
    assert torch.cat([labels for _, labels in found]).tolist() == list(range(20))
    assert len(batches()) == 4


def test_only_augmentation_changes_images():
    """Files give a random part of an image to who asks with a generator."""

    class Files(DecodedImages):
        def take(self, chosen, generator=None):
            asked.append(generator is not None)
            return super().take(chosen, generator)

    files = Files(split().images, split().labels)
    for augmentation, wanted in ((None, {False}), (Augmentation(), {True})):
        asked = []
        list(batches(shuffle=True, split=files, augmentation=augmentation))
        assert set(asked) == wanted


def test_processes_share_a_batch():
    whole = next(iter(batches(shuffle=True)))
    parts = []
    for place in ((0, 2), (1, 2)):
        loader = batches(shuffle=True)
        loader.place = lambda place=place: place
        parts.append(next(iter(loader)))
    together = torch.cat([labels for _, labels in parts])
    assert sorted(together.tolist()) == sorted(whole[1].tolist())
    assert torch.equal(parts[0][0], whole[0][::2])


def test_images_are_normalised():
    data = split(50, (3, 8, 8))
    mean, std = statistics(data)
    loader = batches(split=data, mean=mean, std=std)
    images = torch.cat([images for images, _ in loader])
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(images.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_flips_are_of_whole_images():
    images = torch.rand(200, 2, 4, 5)
    flipped = flip(images, generator())
    same = (flipped == images).flatten(1).all(1)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    assert (same | mirrored).all()
    assert 60 < mirrored.sum() < 140


def test_shifts_move_images_by_whole_pixels():
    image = torch.zeros(1, 1, 9, 9)
    image[..., 4, 4] = 1
    shifted = shift(image.expand(300, -1, -1, -1), 2, generator())
    places = shifted.flatten(1).argmax(1)
    rows, columns = places // 9, places % 9
    assert torch.equal(shifted.sum((1, 2, 3)), torch.ones(300))
    assert set(rows.tolist()) == set(columns.tolist()) == {2, 3, 4, 5, 6}


def test_augmentation_is_what_it_is_told():
    images = torch.rand(4, 1, 8, 8)
    assert Augmentation()(images, generator()) is images
    both = Augmentation(crop_padding=1, flip=True)
    assert torch.equal(both(images, generator(3)), both(images, generator(3)))
    assert not torch.equal(both(images, generator(3)), both(images, generator(4)))
