"""Milliseconds: no time of a real machine matters here; clocks are made up."""

import json
import warnings

import pytest
import torch
from torch import nn

from diffstride import Budget, CostModel, DiffStride2d, Timings, cost, stride_table
from diffstride.analysis.timing_fit import fit_rates, kind_of, predicted
from diffstride.analysis.timing_runs import least_times, random_settings
from diffstride.analysis.uses import Amount
from diffstride.layers.resizer import learned_strides

SIZE = (4, 32, 32)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1),
        DiffStride2d(2.0, smoothness=1.0, convention="tight"),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        DiffStride2d(2.0, smoothness=1.0, convention="tight"),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


class Clock:
    """A machine that takes a microsecond for each number that an activation function makes."""

    def __init__(self, model):
        self.now = 0.0
        for module in model.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_hook(self._advance)

    def _advance(self, module, args, output):
        self.now += 1e-6 * output.numel()

    def __call__(self):
        return self.now

    def __deepcopy__(self, memo):
        return self  # the copy of a network that is measured moves the same clock


@pytest.fixture(scope="module")
def measured():
    model = network()
    clock = Clock(model)
    return model, Timings.measure(model, SIZE, batch=2, seconds=0, clock=clock)


def made_up(model, rates=(2e-6, 3e-6, 0.1)):
    """Timings with the same rates for every kind."""
    kinds = {kind_of(use) for use in CostModel(model, SIZE).uses()}
    return Timings(dict.fromkeys(kinds, rates), 1, False, "a machine", 1, "2", "0", 0.0, 0.0)


def true_ms(costs, strides):
    """What the clock of the tests says: two activation functions, batches of 2."""
    uses, numbers = costs.uses_at(costs.given(strides))
    sizes = [use.output_sizes for use in uses if use.name == "relu"]
    return 1e3 * 1e-6 * 2 * sum(Amount(1, size).of(numbers) for size in sizes)


def test_strides_that_were_not_measured_are_predicted(measured):
    model, timings = measured
    costs = CostModel(model, SIZE)
    for strides in random_settings(costs.layers, 10, seed=5):
        assert costs.value(timings, strides) == pytest.approx(true_ms(costs, strides), rel=0.15)
    assert timings.worst < 0.1


def test_measured_strides_are_met(measured):
    model, timings = measured
    costs = CostModel(model, SIZE)
    for strides in random_settings(costs.layers, 24, seed=0):
        assert costs.value(timings, strides) == pytest.approx(true_ms(costs, strides), rel=0.1)


def test_rates_that_made_the_times_are_found_where_they_can_be_told():
    rates = {"conv": (3e-6, 1e-6, 0.2), "relu": (0.0, 5e-6, 0.2)}
    generator = torch.Generator().manual_seed(0)
    works = []
    for _ in range(30):
        a, b, c = (1e6 * torch.rand(3, generator=generator)).tolist()
        works.append({"conv": (a, b, 2), "relu": (0, c, 4)})
    found = fit_rates(works, [predicted(rates, work) for work in works])
    for kind, (mac, number, _) in rates.items():
        assert found[kind][0] == pytest.approx(mac, rel=0.05, abs=1e-12)
        assert found[kind][1] == pytest.approx(number, rel=0.05)


def test_no_rate_is_below_zero_so_that_larger_maps_never_take_less():
    works = [{"a": (n, n**0.5, 1), "b": (1e3, n, 1)} for n in (100, 300, 1000, 3000)]
    rates = fit_rates(works, [5.0, 4.0, 3.0, 2.0])  # which falls, as times never do
    assert all(rate >= 0 for each in rates.values() for rate in each)
    times = [predicted(rates, work) for work in works]
    assert times == sorted(times)


def test_the_prediction_is_the_sum_over_uses():
    model = network()
    timings, costs = made_up(model), CostModel(model, SIZE)
    uses, numbers = costs.uses_at(costs.given())
    each = [sum(amount.of(numbers) for amount in timings(use)) for use in uses]
    assert costs.value(timings) == pytest.approx(sum(each))
    macs = sum(use.macs.of(numbers) for use in uses)
    assert macs == cost(model, SIZE).macs
    assert sum(each) > 2e-6 * macs + 0.1 * len(uses) - 1e-9


def test_cost_has_milliseconds_by_layer_and_in_all():
    model = network()
    timings = made_up(model)
    total = cost(model, SIZE, timings)
    assert total.ms == CostModel(model, SIZE).value(timings)
    layers = [layer.ms for layer in total.layers]
    assert 0 < sum(layers) < total.ms  # operations that are no layers take some too
    first = total.layers[0]
    assert first.ms >= 2e-6 * first.macs + 0.1
    assert str(total).endswith(f"{total.ms:.3g} ms")
    assert f"{total.ms:.3g} ms" in str(stride_table(model, SIZE, timings=timings))
    assert cost(model, SIZE).ms is None


def test_the_slope_equals_differences():
    """Between sizes that are whole: from stride 2 to 2·16/17, each first size grows by one."""
    model = network()
    timings, costs = made_up(model, rates=(0.0, 1e-3, 0.1)), CostModel(model, SIZE)
    strides = {"1": (2.0, 2.0), "5": (1.0, 1.0)}
    _, slopes = costs.gradient(timings, strides)
    value, longer = (costs.value(timings, {**strides, "1": (s, 2.0)}) for s in (2.0, 2.0 * 16 / 17))
    # A size N/S changes by -N/S² for each unit of S: by 1 for S²/N.
    assert slopes["1"][0] * -(2.0**2) / 32 == pytest.approx(longer - value, rel=1e-6)


def test_multiply_accumulates_and_numbers_have_slopes_in_proportion():
    model = network()
    costs = CostModel(model, SIZE)
    macs, slopes = costs.gradient("macs")
    ms, its = costs.gradient(made_up(model, rates=(1e-6, 0.0, 0.0)))
    assert ms == pytest.approx(1e-6 * macs)
    for name, each in slopes.items():
        assert its[name] == pytest.approx([1e-6 * slope for slope in each])


def test_a_budget_is_held():
    model = network()
    timings = made_up(model)
    for ms in (3.0, 2.6):
        budget = Budget(model, SIZE, ms=ms, timings=timings)
        budget.hold()
        assert cost(model, SIZE, timings).ms == pytest.approx(ms, rel=0.02)
        assert budget.cost == cost(model, SIZE, timings).ms


def test_budgets_say_what_they_need():
    model = network()
    timings = made_up(model)
    with pytest.raises(ValueError, match="ms and timings must be given together"):
        Budget(model, SIZE, ms=3.0)
    with pytest.raises(ValueError, match="ms and timings must be given together"):
        Budget(model, SIZE, macs=1e6, timings=timings)
    with pytest.raises(ValueError, match="one of macs, activations, ms"):
        Budget(model, SIZE, macs=1e6, ms=3.0, timings=timings)
    with pytest.raises(ValueError, match=r"a budget of 0\.1 ms can't be met.*costs \d"):
        Budget(model, SIZE, ms=0.1, timings=timings)
    with pytest.raises(ValueError, match="a budget of 1000 ms can't be spent"):
        Budget(model, SIZE, ms=1000, timings=timings)


def test_timings_of_another_network_are_refused():
    other = nn.Sequential(nn.Conv2d(4, 7, 3), DiffStride2d(2.0), nn.ReLU())
    with pytest.raises(ValueError, match=r"nothing on 'Conv2d 4 → 7, 3 × 3' \(0\)"):
        cost(other, SIZE, made_up(network()))


def test_the_network_stays_as_it_was(measured):
    model = network().train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    random = torch.get_rng_state()
    Timings.measure(model, SIZE, batch=2, seconds=0, training=True, settings=8)
    assert model.training
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(random, torch.get_rng_state())


def test_settings_lie_on_both_sides_and_stay_in_range():
    model = nn.Sequential(
        DiffStride2d(2.0), DiffStride2d(3.0, max_stride=4.0), DiffStride2d(1.5, shared=True)
    )
    layers = learned_strides(model)
    drawn = random_settings(layers, 24, seed=0)
    first = [s for each in drawn for s in each["0"]]
    assert min(first) < 1.2 and max(first) > 3.3
    assert all(1 <= s <= 4 for each in drawn for s in each["1"])
    assert all(a == b for each in drawn for a, b in [each["2"]])
    assert drawn != random_settings(layers, 24, seed=1)


def test_the_least_time_counts():
    """Whatever else a machine does makes times longer, never shorter."""
    model = nn.Sequential(DiffStride2d(2.0))
    settings = random_settings(learned_strides(model), 2, seed=0)
    # Three times each in turns; what takes longer than 200 ms is not repeated at once.
    takes = iter([8, 9, 4, 9, 7, 8, 7, 3, 5, 8, 6, 6, 9, 5, 7, 300])
    now, parts = [0.0], []

    def step():
        now[0] += next(takes) / 1e3

    found = least_times(learned_strides(model), settings, step, 0.0, lambda: now[0], parts.append)
    assert found == pytest.approx([3, 6])
    assert parts == sorted(parts) and parts[-1] == 1
    assert next(takes, None) is None


def test_a_table_is_printed(measured):
    _, timings = measured
    first, *rows, last = str(timings).splitlines()
    assert first.split("  ")[0] == "kind"
    assert any(row.startswith("Conv2d 4 → 8, 3 × 3") for row in rows)
    assert "a forward pass of a batch of 2" in last and "threads" in last


def test_a_file_gives_back_what_was_saved(measured, tmp_path):
    model, timings = measured
    timings.save(tmp_path / "table.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = Timings.load(tmp_path / "table.json")
    assert vars(loaded) == vars(timings)
    assert cost(model, SIZE, loaded).ms == cost(model, SIZE, timings).ms


@pytest.mark.parametrize(
    ("key", "value"), [("machine", "an abacus"), ("threads", 77), ("torch", "0.4")]
)
def test_a_table_of_elsewhere_says_so(measured, tmp_path, key, value):
    path = tmp_path / "table.json"
    measured[1].save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.warns(UserWarning, match=f"measured elsewhere or otherwise: {key} {value} and not"):
        assert getattr(Timings.load(path), key) == value


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"batch"', '"bunch"'),
        lambda text: json.dumps(json.loads(text) | {"rates": []}),
        lambda text: json.dumps(json.loads(text) | {"rates": [{"kind": "a", "rates": [1, 2]}]}),
        lambda text: json.dumps(json.loads(text) | {"rates": [{"kind": "a", "rates": [1, 2, -3]}]}),
        lambda text: json.dumps(json.loads(text) | {"rates": 7}),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(measured, tmp_path, change):
    path = tmp_path / "table.json"
    measured[1].save(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=r"table\.json has no timings that can be read"):
        Timings.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"settings": 3}, "settings must be at least 8, got 3"),
    ],
)
def test_what_can_not_be_measured_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        Timings.measure(network(), SIZE, **options)


def test_a_network_without_strides_is_refused():
    with pytest.raises(ValueError, match="no learnable stride"):
        Timings.measure(nn.Sequential(nn.Conv2d(4, 4, 3)), SIZE)
