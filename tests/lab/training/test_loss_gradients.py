"""What more of a stride would do to the loss, as it is found while training."""

import math
import statistics

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.loggers import Logger
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader

from diffstride import DiffStride1d, DiffStride2d, stride_table
from diffstride.lab import StrideMonitor
from diffstride.lab.runs.documents import STRIDE_COLUMNS, read_rows
from diffstride.lab.training.loss_gradients import LossGradients

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice

SLOPES = torch.tensor([[3.0, -1.0], [2.0, 0.0], [7.0, 1.0], [4.0, -2.0]])
MEANS, DEVIATIONS = (4.0, -0.5), (statistics.stdev((3, 2, 7, 4)), statistics.stdev((-1, 0, 1, -2)))


class Known(LightningModule):
    """Each batch says how the loss changes with the logarithm of each stride."""

    def __init__(self, layer):
        super().__init__()
        self.model, self.lr = nn.Sequential(layer, nn.Conv2d(2, 2, 3)), 0.01

    def training_step(self, batch, index):
        self.model[0].project()  # as every use of the layer does in training
        return (batch[0] * self.model[0].differentiable_strides().log()).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.model.parameters(), self.lr)


def fit(module, monitor, slopes=SLOPES, **options):
    Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[monitor],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"logger": False} | options,
    ).fit(module, DataLoader(slopes, batch_size=1))


def trained(tmp_path, layer, slopes=SLOPES, monitor=None, **options):
    """The rows of strides.csv after one epoch of such batches."""
    path = tmp_path / "strides.csv"
    fit(Known(layer), monitor or StrideMonitor((2, 32, 24), path), slopes, **options)
    return read_rows(path, "epoch", "layer", "axis", "stride")


def cells(rows, column):
    return [float(row[column]) if row[column] else None for row in rows]


def test_means_and_errors_are_those_of_the_batches(tmp_path):
    layer = DiffStride2d((2.0, 3.0))
    before, after = (rows := trained(tmp_path, layer))[:2], rows[2:]
    assert list(rows[0]) == list(STRIDE_COLUMNS)
    assert cells(before, "loss_gradient") == cells(before, "loss_gradient_error") == [None, None]
    assert layer.strides[0] < 1.99  # it has moved, and the logarithm is that of where it was
    assert cells(after, "loss_gradient") == pytest.approx(MEANS, abs=1e-6)
    errors = [deviation / 2 for deviation in DEVIATIONS]  # of four batches
    assert cells(after, "loss_gradient_error") == pytest.approx(errors, abs=1e-6)


class Logged(Logger):
    """Keeps what loggers are given."""

    name = version = "logged"

    def __init__(self):
        super().__init__()
        self.metrics = {}

    def log_metrics(self, metrics, step=None):
        self.metrics |= metrics

    def log_hyperparams(self, *_, **__):
        pass


def test_cut_offs_beside_it_are_in_the_unit_of_the_rate(tmp_path):
    layer, logged = DiffStride2d((2.0, 3.0)), Logged()
    path = tmp_path / "strides.csv"
    monitor = StrideMonitor((2, 32, 24), path, sampling_rate=(100.0, 1.0))
    rows = trained(tmp_path, layer, monitor=monitor, logger=logged)
    assert cells(rows[:2], "cutoff") == pytest.approx([25, 1 / 6])
    last = [100 / (2 * layer.strides[0]), 1 / (2 * layer.strides[1])]
    assert cells(rows[2:], "cutoff") == pytest.approx(last)
    assert [logged.metrics[f"cutoff/0/{axis}"] for axis in (0, 1)] == pytest.approx(last)
    assert [logged.metrics[f"strides/0/{axis}"] for axis in (0, 1)] == list(layer.strides)
    without = StrideMonitor((2, 32, 24), path)
    assert cells(trained(tmp_path, DiffStride2d(2.0), monitor=without), "cutoff")[0] == 0.25
    nothing = trained(tmp_path, DiffStride2d(2.0), monitor=StrideMonitor(path=path))
    assert {row["cutoff"] for row in nothing} == {""}
    with pytest.raises(ValueError, match="sampling_rate must be one number or 2"):
        StrideMonitor((2, 32, 24), sampling_rate=(1.0, 2.0, 3.0))


def test_the_price_beside_it_is_that_of_the_table(tmp_path):
    layer = DiffStride2d((2.0, 3.0))
    rows = trained(tmp_path, layer)
    (row,) = stride_table(nn.Sequential(layer, nn.Conv2d(2, 2, 3)), (2, 32, 24)).rows
    assert cells(rows[2:], "cost_saved") == pytest.approx(row.saved)
    assert cells(rows[:2], "cost_saved") != pytest.approx(row.saved)  # strides were others


def test_gradients_are_those_of_whole_steps_before_they_are_clipped(tmp_path):
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 1e-3}
    after = trained(tmp_path, DiffStride2d((2.0, 3.0)), **options)[2:]
    assert cells(after, "loss_gradient") == pytest.approx(MEANS, abs=1e-2)
    # Steps of 2.5 and 5.5, and of -0.5 twice.
    assert cells(after, "loss_gradient_error") == pytest.approx([1.5, 0], abs=1e-2)


def test_one_step_has_no_error(tmp_path):
    after = trained(tmp_path, DiffStride2d((2.0, 3.0)), SLOPES[:1])[2:]
    assert cells(after, "loss_gradient") == pytest.approx((3, -1), abs=1e-6)
    assert cells(after, "loss_gradient_error") == [None, None]


def test_axes_that_share_a_stride_have_one_gradient(tmp_path):
    after = trained(tmp_path, DiffStride2d(2.0, shared=True))[2:]
    assert cells(after, "loss_gradient") == [pytest.approx(sum(MEANS), abs=1e-6), None]
    assert cells(after, "cost_saved")[0] > 0.5
    assert cells(after, "cost_saved")[1] is None


def test_strides_that_do_not_learn_have_a_price_alone(tmp_path):
    class Other(nn.Module):
        def forward(self, x):
            return 1 + x

    fixed = DiffStride2d(2.0, learnable=False)
    computed = DiffStride2d(2.0)
    parametrize.register_parametrization(computed, "stride", Other())
    module = Known(nn.Sequential(fixed, computed))
    module.training_step = lambda *_: computed.differentiable_strides().sum()
    fit(module, monitor := StrideMonitor((2, 32, 24)))
    assert computed.strides[0] != 3.0
    assert len(monitor.rows) == 8
    assert all(row["loss_gradient"] == "" for row in monitor.rows)
    assert all(row["cost_saved"] > 0 for row in monitor.rows)


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(1, 4, 3), DiffStride1d(2.05), nn.Conv1d(4, 2, 3), DiffStride1d(1.47), nn.Flatten()
    )


def test_a_network_has_the_gradients_of_a_loop_by_hand():
    """Compared with differences of the loss, in double precision."""
    model, found = small_network().double(), LossGradients()
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    batches = torch.randn(5, 8, 1, 40, dtype=torch.float64)
    by_hand = {"1": [], "3": []}
    for x in batches:
        for name, slopes in by_hand.items():
            stride, losses = model[int(name)].stride, []
            for factor in (math.exp(-1e-5), math.exp(2e-5)):
                stride.data.mul_(factor)
                losses.append(model(x).square().mean().item())
            stride.data.mul_(math.exp(-1e-5))
            slopes.append((losses[1] - losses[0]) / 2e-5)
        optimiser.zero_grad()
        model(x).square().mean().backward()
        found.add(model, optimiser)
        optimiser.step()
    for name, slopes in by_hand.items():
        ((mean, error),) = found.means()[name]
        assert mean == pytest.approx(statistics.mean(slopes), rel=1e-4)
        assert error == pytest.approx(statistics.stdev(slopes) / 5**0.5, rel=1e-3)
        assert abs(mean) > 1e-4


def added(found, layer, *gradients):
    optimiser = torch.optim.SGD(layer.parameters(), 0.1)
    for gradient in gradients:
        layer.stride.grad = torch.tensor(gradient)
        found.add(nn.Sequential(layer), optimiser)
    return found


def test_steps_that_are_not_finite_are_left_out():
    found = added(LossGradients(), DiffStride2d(2.0), [1.0, 2.0], [math.inf, 9.0], [3.0, 4.0])
    assert [tuple(each) for each in found.means()["0"]] == [(4.0, 2.0), (6.0, 2.0)]
    assert added(LossGradients(), DiffStride2d(2.0), [math.nan, 1.0]).means() == {"0": []}


def test_only_the_optimiser_that_moves_a_stride_counts():
    layer, other = DiffStride2d(2.0), nn.Conv2d(1, 1, 1)
    found = added(LossGradients(), layer, [1.0, 1.0])
    found.add(nn.Sequential(layer), torch.optim.SGD(other.parameters(), 0.1))
    layer.stride.grad = None
    found.add(nn.Sequential(layer), torch.optim.SGD(layer.parameters(), 0.1))
    assert found.means() == {"0": [(2.0, None), (2.0, None)]}


def test_a_checkpoint_within_an_epoch_has_what_was_added():
    layer, steps = DiffStride2d(2.0), ([1.0, 5.0], [2.0, 3.0], [4.0, 3.0])
    first, second = StrideMonitor(), StrideMonitor()
    added(first.gradients, layer, *steps[:2])
    second.load_state_dict(first.state_dict())
    added(second.gradients, layer, steps[2])
    assert second.gradients.means() == added(LossGradients(), layer, *steps).means()


def test_a_run_that_began_without_these_columns_goes_on_with_them(tmp_path):
    old = {"epoch": 0, "step": 0, "layer": "0", "axis": 0, "stride": 2.5}
    monitor = StrideMonitor((2, 32, 24), tmp_path / "strides.csv")
    monitor.load_state_dict({"rows": [old, old | {"axis": 1}]})
    rows = trained(tmp_path, DiffStride2d((2.0, 3.0)), monitor=monitor)
    assert cells(rows, "stride")[:2] == [2.5, 2.5]
    assert cells(rows, "loss_gradient")[:2] == [None, None]
    assert cells(rows, "loss_gradient")[2:] == pytest.approx(MEANS, abs=1e-6)
