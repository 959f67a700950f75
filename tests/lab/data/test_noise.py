"""Noise is of the strength that was asked for, new in training, and always the same in tests."""

import pytest
import torch

from diffstride.lab.data.batches import Augmentation
from diffstride.lab.data.images import DecodedImages
from diffstride.lab.data.noise import NoisyBatches, add_noise, without

SCALE = {"mean": torch.tensor([0.3, 0.6]), "std": torch.tensor([0.5, 2.0])}


def split(number=7, value=None):
    images = torch.randint(0, 256, (number, 2, 6, 5), dtype=torch.uint8)
    if value is not None:
        images = torch.full_like(images, value)
    return DecodedImages(images, torch.zeros(number, dtype=torch.long))


def batches(data, size=4, strength=0.1, **options):
    return NoisyBatches(data, size, strength=strength, **SCALE, **options)


def all_of(loader):
    """Noisy pixels, clean ones and numbers of an epoch."""
    noisy, clean, numbers = (torch.cat(parts) for parts in zip(*loader, strict=True))
    mean, std = loader.mean, loader.std
    return noisy * std + mean, clean, numbers


def test_the_noise_of_a_test_image_is_its_own_whatever_the_batches_and_processes():
    data = split()
    noisy, clean, numbers = all_of(batches(data))
    assert torch.equal(numbers, torch.arange(7))
    assert torch.equal(clean, data.images / 255)
    noise = (noisy - clean)[:, 0]
    assert len({tuple(image.flatten().tolist()) for image in noise}) == 7
    for size, seed, epoch in ((1, 0, 0), (3, 5, 0), (7, 0, 4)):
        loader = batches(data, size, seed=seed)
        loader.epoch = lambda epoch=epoch: epoch
        torch.testing.assert_close(all_of(loader)[0], noisy)
    for rank in range(3):
        loader = batches(data, 4)
        loader.place = lambda rank=rank: (rank, 3)
        part, _, numbers = all_of(loader)
        torch.testing.assert_close(part, noisy[numbers])
    kept, same = batches(data).pair(torch.tensor([5, 2]))
    torch.testing.assert_close((kept, same), (noisy[[5, 2]], clean[[5, 2]]))


def test_the_noise_of_training_follows_from_seed_and_epoch():
    options = {"shuffle": True, "augmentation": Augmentation(crop_padding=2, flip=True)}

    def noise(seed, epoch, rank=0, processes=1):
        loader = batches(split(8, value=128), seed=seed, **options)
        loader.epoch, loader.place = lambda: epoch, lambda: (rank, processes)
        noisy, clean, _ = all_of(loader)
        return torch.where(clean > 0, noisy - clean, 0)  # but for the border of shifted images

    first = noise(0, 3)
    assert torch.equal(first, noise(0, 3))
    others = [noise(1, 3), noise(0, 4)]
    assert not any(torch.allclose(first, other) for other in others)
    assert not torch.allclose(first[:4], first[4:])  # of two steps
    one, other = noise(0, 3, 0, 2), noise(0, 3, 1, 2)
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("strength", [0.02, 0.1])
def test_the_strength_is_the_standard_deviation_of_what_is_added(strength, shuffle):
    noisy, clean, _ = all_of(batches(split(200, value=128), 50, strength, shuffle=shuffle))
    noise = noisy - clean
    assert noise.mean().abs() < 0.03 * strength  # of 12,000 values
    assert noise.std() == pytest.approx(strength, rel=0.02)


def test_noisy_images_stay_within_black_and_white():
    noisy, clean, _ = all_of(batches(split(), strength=1.0))
    assert noisy.min() >= -1e-6
    assert noisy.max() <= 1 + 1e-6
    assert (noisy - clean).abs().mean() > 0.2
    images = torch.tensor([0.2, 0.9])
    assert add_noise(images, torch.tensor([-0.3, 0.05])).tolist() == [0, pytest.approx(0.95)]


def test_clean_images_are_those_that_noise_was_added_to():
    """Shifted and mirrored alike: without strength to speak of, both are the same."""
    options = {"shuffle": True, "augmentation": Augmentation(crop_padding=2, flip=True)}
    noisy, clean, numbers = all_of(batches(split(8), strength=1e-6, **options))
    torch.testing.assert_close(noisy, clean, rtol=0, atol=1e-5)
    assert sorted(numbers.tolist()) == list(range(8))


def test_the_noise_that_was_added_can_be_taken_away():
    loader = batches(split(), strength=0.1)
    clean = torch.rand(3, 2, 6, 5)
    noise = 0.1 * torch.randn_like(clean)
    inputs = loader.normalised(clean + noise)
    found = without(inputs, noise / loader.std, loader.mean, loader.std)
    torch.testing.assert_close(found, clean)


def test_a_process_may_have_no_part_in_the_last_batch():
    loader = batches(split(5), 4)
    loader.place = lambda: (1, 2)
    noisy, clean, numbers = list(loader)[-1]
    assert noisy.shape == clean.shape == (0, 2, 6, 5)
    assert len(numbers) == 0
