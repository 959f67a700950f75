"""A sealed content comes back as it was, or not at all."""

import io
import zipfile

import pytest
import torch

from diffstride.files import SEAL_LENGTH, seal, unseal
from tests.damage import damages


@pytest.mark.parametrize("content", [b"", b"a", bytes(5000), b"\nsha256 " + b"0" * 64 + b"\n"])
def test_what_is_sealed_comes_back(content):
    assert unseal(seal(content)) == content
    assert unseal(unseal(seal(seal(content)))) == content


def test_no_damage_is_accepted():
    content = io.BytesIO()
    torch.save({"state_dict": {"weight": torch.rand(50, 40)}}, content)
    for kind, damaged in damages(seal(content.getvalue()), 1000):
        with pytest.raises(ValueError, match="digest"):
            print(kind, len(unseal(damaged)))


def test_every_length_of_a_cut_is_noticed():
    whole = seal(bytes(range(256)))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="digest"):
            unseal(whole[:length])


def test_others_read_a_sealed_checkpoint(tmp_path):
    """The digest comes behind the zip file that torch writes, which tolerates that."""
    content = io.BytesIO()
    torch.save({"weight": torch.arange(3)}, content)
    (tmp_path / "a.ckpt").write_bytes(seal(content.getvalue()))
    found = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert torch.equal(found["weight"], torch.arange(3))
    with zipfile.ZipFile(tmp_path / "a.ckpt") as file:
        assert file.testzip() is None
    assert len(seal(b"")) == SEAL_LENGTH
