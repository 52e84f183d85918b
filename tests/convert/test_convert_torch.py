"""PyTorch modules and state dicts against their own forward pass."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from ennopt.convert import PredictorNotSupportedError, load
from ennopt.network import ModelConfigurationError


def mlp(seed=0, widths=(3, 6, 4, 1)):
    torch.manual_seed(seed)
    layers = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def check(module, seed=0, outputs=1):
    """Same predictions as the original in eval mode, and the original untouched."""
    was_training = module.training
    before = {key: value.clone() for key, value in module.state_dict().items()}
    ensemble = load(module)
    assert module.training == was_training
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])
    assert ensemble.deviation < 1e-5
    torch.manual_seed(seed)
    x = 2 * torch.randn(50, ensemble.num_inputs)
    module.eval()
    with torch.no_grad():
        theirs = module(x).reshape(50, -1).double().numpy()
    module.train(was_training)
    assert ensemble.num_outputs == outputs
    assert ensemble(x.double().numpy()) == pytest.approx(theirs, abs=2e-5)
    return ensemble


class Lambda(nn.Module):
    """A module whose forward pass is the given function."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def members(count=3):
    return nn.ModuleList([mlp(seed) for seed in range(count)])


def test_a_sequential_keeps_its_layers():
    module = mlp()
    (member,) = check(module).members
    assert member.hidden_widths == (6, 4)
    for ours, layer in zip(member.weights, module[::2], strict=True):
        assert np.array_equal(ours, layer.weight.detach().double().numpy())


def test_a_single_linear_layer_converts():
    check(nn.Linear(3, 2), outputs=2)


def test_layers_without_bias_convert():
    check(nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 1)))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_and_batch_norm_follow_eval_mode(training):
    torch.manual_seed(3)
    module = nn.Sequential(
        nn.BatchNorm1d(3), nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(),
        nn.Dropout(0.5), nn.Identity(), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(),
        nn.BatchNorm1d(5, affine=False), nn.Linear(5, 2),
    )  # fmt: skip
    for _ in range(5):
        module(1 + 2 * torch.randn(40, 3))
    module[2].weight.data[::2] *= -1.5  # negative factors flip the order
    module.train(training)
    check(module, outputs=2)


RELUS = {
    "module": lambda self, x: self.out(self.act(self.inner(x))),
    "functional": lambda self, x: self.out(functional.relu(self.inner(x))),
    "torch": lambda self, x: self.out(torch.relu(self.inner(x))),
    "method": lambda self, x: self.out(self.inner(x).relu()),
    "clamp": lambda self, x: self.out(self.inner(x).clamp(min=0)),
    "dropout": lambda self, x: self.out(
        functional.dropout(functional.relu(self.inner(x)), training=self.training)
    ),
}


@pytest.mark.parametrize("how", RELUS)
def test_every_way_to_write_relu_is_known(how):
    torch.manual_seed(1)
    parts = {"inner": nn.Linear(3, 5), "act": nn.ReLU(), "out": nn.Linear(5, 1)}
    assert check(Lambda(RELUS[how], **parts)).num_neurons == 5


AVERAGES = {
    "sum": lambda self, x: sum(m(x) for m in self.nets) / len(self.nets),
    "stack": lambda self, x: torch.stack([m(x) for m in self.nets]).mean(0),
    "mean": lambda self, x: torch.mean(torch.stack([m(x) for m in self.nets]), dim=0),
    "cat": lambda self, x: torch.cat([m(x) for m in self.nets], 1).mean(
        1, keepdim=True
    ),
    "squeeze": lambda self, x: torch.stack(
        [m(x).squeeze(-1) for m in self.nets], dim=-1
    ).mean(dim=-1),
    "stack sum": lambda self, x: torch.stack([m(x) for m in self.nets]).sum(0) / 3,
}


@pytest.mark.parametrize("how", AVERAGES)
def test_a_module_that_averages_becomes_its_members(how):
    module = Lambda(AVERAGES[how], nets=members())
    ensemble = check(module)
    assert ensemble.weights == pytest.approx(np.full(3, 1 / 3))
    x = np.array([0.5, -1.0, 2.0])
    for member, net in zip(ensemble.members, module.nets, strict=True):
        theirs = net(torch.tensor(x[None], dtype=torch.float32)).item()
        assert member(x)[0] == pytest.approx(theirs, abs=1e-6)


def test_unequal_weights_are_kept():
    module = Lambda(
        lambda self, x: (
            0.5 * self.nets[0](x) + 0.3 * self.nets[1](x) + self.nets[2](x) / 5
        ),
        nets=members(),
    )
    assert check(module).weights == pytest.approx([0.5, 0.3, 0.2])


def test_scaling_with_buffers_is_folded_in():
    module = Lambda(
        lambda self, x: self.net((x - self.mean) / self.std) * 7.0 + self.shift,
        net=Lambda(AVERAGES["stack"], nets=members()),
        mean=torch.tensor([100.0, -5.0, 0.1]), std=torch.tensor([10.0, -2.0, 0.3]),
        shift=torch.tensor([3.0]),
    )  # fmt: skip
    ensemble = load(module)
    assert ensemble.deviation < 1e-5
    assert ensemble.num_members == 3
    assert ensemble.weights == pytest.approx(np.full(3, 1 / 3))


def test_a_residual_block_converts():
    torch.manual_seed(2)
    module = Lambda(
        lambda self, x: self.out(torch.relu(self.b(torch.relu(self.a(x))) + x)),
        a=nn.Linear(3, 4), b=nn.Linear(4, 3), out=nn.Linear(3, 1),
    )  # fmt: skip
    check(module)


def test_batched_weights_become_members():
    torch.manual_seed(4)
    parts = {
        "w": torch.randn(4, 3, 5),
        "b": torch.randn(4, 1, 5),
        "v": torch.randn(4, 5, 1),
    }

    def forward(self, x):
        wide = x.unsqueeze(0).expand(4, -1, -1)
        return torch.bmm(torch.relu(torch.baddbmm(self.b, wide, self.w)), self.v).mean(
            0
        )

    assert check(Lambda(forward, **parts)).num_members == 4


def test_views_slices_and_shapes_are_followed():
    torch.manual_seed(5)

    def forward(self, x):
        flat = x.view(x.size(0), -1)
        joined = torch.cat([flat[:, :1], flat[:, [2, 1]]], dim=1)
        return self.net(joined.reshape(x.shape[0], 3)).flatten()

    check(Lambda(forward, net=mlp()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions_convert(dtype):
    assert load(mlp().to(dtype)).deviation < 1e-5


def test_a_compiled_module_is_unwrapped():
    assert load(torch.compile(mlp())).num_neurons == 10


def test_a_list_of_modules_is_their_mean():
    nets = [mlp(0), mlp(1, (3, 5, 1)), nn.Linear(3, 1)]
    ensemble = load(nets)
    x = np.ones(3)
    theirs = [net(torch.ones(1, 3)).item() for net in nets]
    assert ensemble(x)[0] == pytest.approx(np.mean(theirs), abs=1e-6)
    assert ensemble.deviation < 1e-5


REFUSED = {
    "Mish": nn.Sequential(nn.Linear(3, 2), nn.Mish()),
    "Hardswish": nn.Sequential(nn.Linear(3, 2), nn.Hardswish(), nn.Linear(2, 1)),
    "LayerNorm": nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)),
    "ConvTranspose1d": nn.Sequential(nn.ConvTranspose1d(1, 1, 1)),
    "exp": Lambda(lambda self, x: torch.exp(self.net(x)), net=mlp()),
    "softmax as the last": Lambda(
        lambda self, x: self.net(x).softmax(-1) + 1, net=mlp(widths=(3, 4, 2))
    ),
    "softmax": Lambda(lambda self, x: self.net(x).softmax(-1), net=mlp()),
    "product of two values": Lambda(lambda self, x: self.net(x) * x[:, :1], net=mlp()),
    "track_running_stats=False": nn.Sequential(
        nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 1)
    ),
    "always on": Lambda(
        lambda self, x: functional.dropout(self.net(x), 0.5), net=mlp()
    ),
    "control flow": Lambda(
        lambda self, x: self.net(x) if x.sum() > 0 else -self.net(x), net=mlp()
    ),
    "one tensor": Lambda(lambda self, x: (self.net(x), x), net=mlp()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_converted_is_named(name):
    with pytest.raises(PredictorNotSupportedError, match=name):
        load(REFUSED[name])


def taking(forward):
    """A module of a class of its own with this forward pass."""
    kind = type("Arguments", (nn.Module,), {"forward": forward})
    module = kind()
    module.net = mlp()
    return module


NOT_ONE_TENSOR = {
    "got ModuleList, .*list\\(modules\\)": members(),
    "got ModuleDict, which has none": nn.ModuleDict({"a": mlp()}),
    "got 2: a, b, in Arguments. Wrap it": taking(lambda self, a, b: self.net(a) + b),
    "got 2: x, mask, in": taking(lambda self, x, *, mask: self.net(x) * mask),
    "KeyError: 'nothing'": taking(lambda self, x: {}["nothing"]),
    "none of the widths .*TypeError": taking(lambda self, x: self.net(x["a"])),
}


@pytest.mark.parametrize("reason", NOT_ONE_TENSOR)
def test_modules_that_do_not_take_one_tensor_are_told_so(reason):
    expected = (PredictorNotSupportedError, ModelConfigurationError)
    with pytest.raises(expected, match=f"Expected a (module|forward).*{reason}"):
        load(NOT_ONE_TENSOR[reason])


def test_further_arguments_with_defaults_are_left_at_them():
    check(taking(lambda self, x, scale=2.0, *rest, **options: self.net(x) * scale))


def test_a_wrong_number_of_input_names_is_told():
    with pytest.raises(ModelConfigurationError, match=r"3 input names.* got 2"):
        load(mlp(), input_names=["a", "b"])


@pytest.mark.parametrize(
    ("layer", "remedy"), [(nn.Mish(), "with ReLU"), (nn.LogSoftmax(-1), "leave it out")]
)
def test_the_usual_activations_come_with_a_remedy(layer, remedy):
    with pytest.raises(PredictorNotSupportedError, match=remedy):
        load(nn.Sequential(nn.Linear(3, 2), layer))


def test_torchscript_is_refused():
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(PredictorNotSupportedError, match="TorchScript"),
    ):
        load(torch.jit.script(mlp()))


def test_mixing_the_points_of_a_batch_is_refused():
    module = Lambda(lambda self, x: self.net(x) - self.net(x).mean(0), net=mlp())
    with pytest.raises(ModelConfigurationError, match="mixing the points of a batch"):
        load(module)


@pytest.mark.parametrize("where", ["module", "layer", "input of a layer"])
def test_hooks_are_refused_even_where_random_points_do_not_show_them(where):
    module = mlp()

    def clamped(layer, args, output=None):
        return args[0].clamp(-50, 50) if output is None else output.clamp(-50, 50)

    if where == "module":
        module.register_forward_hook(clamped)
    elif where == "layer":
        module[0].register_forward_hook(clamped)
    else:
        module[0].register_forward_pre_hook(clamped)
    with pytest.raises(PredictorNotSupportedError, match="forward hooks"):
        load(module)


def test_lazy_modules_are_refused():
    with pytest.raises(ModelConfigurationError, match="lazy module"):
        load(nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(1)))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ModelConfigurationError, match="none of the widths"):
        load(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 1)))


def test_the_number_of_inputs_can_be_given():
    module = Lambda(lambda self, x: self.net(x[:, [0, 3, 4]]), net=mlp())
    assert load(module, input_names=list("abcde")).num_inputs == 5


# State dicts.


def test_a_state_dict_file_is_rebuilt(tmp_path):
    module = mlp()
    torch.save(module.state_dict(), tmp_path / "net.pt")
    ours, theirs = load(tmp_path / "net.pt"), load(module)
    assert ours.source == "net.pt"
    for a, b in zip(ours.members[0].weights, theirs.members[0].weights, strict=True):
        assert np.array_equal(a, b)


def test_a_list_of_state_dicts_is_an_ensemble(tmp_path):
    torch.save([mlp(s).state_dict() for s in range(3)], tmp_path / "nets.pth")
    x = np.linspace(-1, 1, 12).reshape(4, 3)
    expected = load([mlp(s) for s in range(3)])(x)
    assert load(tmp_path / "nets.pth")(x) == pytest.approx(expected, abs=1e-12)
    assert load(mlp().state_dict()).num_members == 1


def test_a_checkpoint_with_a_state_dict_inside_is_read(tmp_path):
    torch.save({"epoch": 3, "state_dict": mlp().state_dict()}, tmp_path / "c.pt")
    assert load(tmp_path / "c.pt").num_neurons == 10


def test_named_layers_are_taken_in_order():
    names = {"0": "first", "2": "second", "4": "last"}
    state = {names[key[0]] + key[1:]: t for key, t in mlp().state_dict().items()}
    x = np.ones((1, 3))
    assert load(state)(x) == pytest.approx(load(mlp())(x), abs=1e-12)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_place_of_a_batch_norm_is_told_by_the_numbers(norm_first):
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(6), nn.ReLU()]
    module = nn.Sequential(
        nn.Linear(3, 6), *(middle if norm_first else middle[::-1]), nn.Linear(6, 1)
    )
    module(3 * torch.randn(30, 3) + 1)
    ours, theirs = load(module.state_dict()), load(module)
    x = np.linspace(-2, 2, 30).reshape(10, 3)
    assert ours(x) == pytest.approx(theirs(x), abs=1e-9)


AMBIGUOUS = {
    "no room for a ReLU": nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)),
    "holds 2 networks": nn.ModuleList([mlp(0, (1, 4, 1)), mlp(1, (1, 4, 1))]),
    "which side of the ReLU": nn.ModuleDict(
        {"a": nn.Linear(3, 4), "norm": nn.BatchNorm1d(4), "b": nn.Linear(4, 1)}
    ),
    "bias_hh_l0": nn.LSTM(3, 4),
    "shape \\(1, 1, 1\\)": nn.Sequential(nn.Conv1d(1, 1, 1)),
}


@pytest.mark.parametrize("reason", AMBIGUOUS)
def test_a_state_dict_that_leaves_doubt_is_refused(reason):
    with pytest.raises(PredictorNotSupportedError, match=reason):
        load(AMBIGUOUS[reason].state_dict())


def test_layers_of_a_state_dict_that_do_not_fit_are_refused():
    state = mlp().state_dict()
    state["2.weight"] = torch.ones(4, 5)
    with pytest.raises(ModelConfigurationError, match=r"6 inputs.*\(4, 5\)"):
        load(state)


class Trap:
    """Runs code when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


@pytest.mark.parametrize(
    "content", ["module", "script", "trap", "number", "text", "empty", "cut"]
)
def test_a_file_of_anything_else_gives_one_error(content, tmp_path):
    path = tmp_path / "bad.pt"
    torch.save(mlp().state_dict(), path)
    whole = path.read_bytes()
    {
        "module": lambda: torch.save(mlp(), path),
        "script": lambda: torch.jit.save(torch.jit.script(mlp()), path),
        "trap": lambda: torch.save({"w": Trap()}, path),
        "number": lambda: torch.save({"w": 3}, path),
        "text": lambda: path.write_text("not a model"),
        "empty": lambda: path.write_bytes(b""),
        "cut": lambda: path.write_bytes(whole[:500]),
    }[content]()
    with pytest.raises(ModelConfigurationError, match=r"bad\.pt") as caught:
        load(path)
    assert "weights_only" not in str(caught.value)
    assert not Trap.sprung
