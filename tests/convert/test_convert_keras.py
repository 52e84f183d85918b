"""Keras models against their own call."""

import json
import zipfile

import keras
import numpy as np
import pytest
from keras import layers

from ennopt.convert import PredictorNotSupportedError, load
from ennopt.network import ModelConfigurationError


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(11)


def dense(widths=(6, 4), outputs=1):
    stack = [keras.Input((3,))]
    stack += [layers.Dense(w, "relu", bias_initializer="normal") for w in widths]
    return keras.Sequential([*stack, layers.Dense(outputs, bias_initializer="normal")])


def functional(build, num_inputs=3):
    x = keras.Input((num_inputs,))
    return keras.Model(x, build(x))


def check(model, rng, scale=1.0, abs=1e-5):
    ensemble = load(model)
    assert ensemble.deviation < 1e-5 * scale
    x = (2 * rng.standard_normal((40, ensemble.num_inputs))).astype(np.float32)
    theirs = keras.ops.convert_to_numpy(model(x, training=False))
    assert ensemble(x) == pytest.approx(theirs.reshape(40, -1), abs=abs * scale)
    return ensemble


def test_sequential_models_keep_their_layers(rng):
    model = dense(outputs=2)
    ensemble = check(model, rng)
    assert ensemble.members[0].hidden_widths == (6, 4)
    kernel = keras.ops.convert_to_numpy(model.layers[0].kernel)
    assert np.array_equal(ensemble.members[0].weights[0], kernel.T.astype(float))


def test_every_accepted_layer_is_followed(rng):
    model = keras.Sequential(
        [
            keras.Input((3,)),
            layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 5.0, 0.5]),
            layers.Dense(6, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dropout(0.4),
            layers.Reshape((2, 3)),
            layers.Flatten(),
            layers.Dense(4),
            layers.Activation("relu"),
            layers.BatchNormalization(scale=False),
            layers.Dense(2, activation="linear"),
            layers.Rescaling(-3.0, offset=0.5),
        ]
    )
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            size = layer.moving_mean.shape[0]
            layer.moving_mean.assign(rng.normal(size=size))
            layer.moving_variance.assign(rng.uniform(0.5, 2.0, size=size))
            layer.beta.assign(rng.normal(size=size))
            if layer.scale:
                layer.gamma.assign(rng.normal(size=size))
    check(model, rng)


def test_the_average_of_members_becomes_its_members(rng):
    nets = [dense(), dense((5,)), dense(())]
    ensemble = check(functional(lambda x: layers.Average()([n(x) for n in nets])), rng)
    assert [m.hidden_widths for m in ensemble.members] == [(6, 4), (5,), ()]
    assert ensemble.weights == pytest.approx(np.full(3, 1 / 3))
    point = np.array([[0.3, -1.0, 2.0]], dtype=np.float32)
    for member, net in zip(ensemble.members, nets, strict=True):
        theirs = keras.ops.convert_to_numpy(net(point))
        assert member(point) == pytest.approx(theirs, abs=1e-6)


def test_members_behind_a_shared_normalization_stay_apart(rng):
    def build(x):
        x = layers.Normalization(mean=[0.0, 1.0, 2.0], variance=[1.0, 2.0, 3.0])(x)
        outs = [layers.Dense(1)(layers.Dense(4, "relu")(x)) for _ in range(3)]
        return layers.Rescaling(10.0, 4.0)(layers.Average()(outs))

    ensemble = check(functional(build), rng, scale=10)
    assert ensemble.num_members == 3
    assert ensemble.weights == pytest.approx(np.full(3, 1 / 3))


BUILDS = {
    "add": lambda x: layers.Add()([dense()(x), dense()(x)]),
    "subtract": lambda x: layers.Subtract()([dense()(x), dense()(x)]),
    "arithmetic": lambda x: (dense()(x) + dense()(x)) / 2 * 3 - 1,
    "ops": lambda x: keras.ops.mean(
        keras.ops.stack([dense()(x), dense()(x)], axis=0), axis=0
    ),
    "ops relu": lambda x: layers.Dense(1)(keras.ops.relu(layers.Dense(4)(x))),
    "maximum": lambda x: layers.Dense(1)(keras.ops.maximum(layers.Dense(4)(x), 0.0)),
    "concatenate": lambda x: layers.Dense(1)(
        layers.Concatenate()([layers.Dense(3, "relu")(x), x])
    ),
    "residual": lambda x: layers.Dense(1)(
        layers.ReLU()(layers.Add()([layers.Dense(3)(layers.Dense(5, "relu")(x)), x]))
    ),
}


@pytest.mark.parametrize("name", BUILDS)
def test_functional_graphs_are_followed(name, rng):
    check(functional(BUILDS[name]), rng)


def test_several_inputs_are_joined_in_order(rng):
    a, b = keras.Input((1,)), keras.Input((2,))
    model = keras.Model([a, b], dense()(layers.Concatenate()([b, a])))
    ensemble = load(model)
    x = rng.standard_normal((5, 3)).astype(np.float32)
    theirs = keras.ops.convert_to_numpy(model([x[:, :1], x[:, 1:]]))
    assert ensemble(x) == pytest.approx(theirs, abs=1e-5)


def test_a_list_of_models_and_files_is_their_mean(tmp_path, rng):
    models = [dense(), functional(BUILDS["add"])]
    models[0].save(tmp_path / "one.keras")
    ensemble = load([tmp_path / "one.keras", models[1]])
    x = rng.standard_normal((5, 3)).astype(np.float32)
    theirs = np.mean([keras.ops.convert_to_numpy(m(x)) for m in models], axis=0)
    assert ensemble(x) == pytest.approx(theirs, abs=1e-5)
    assert ensemble.deviation < 1e-5


@pytest.mark.parametrize("name", ["add", "arithmetic", "ops"])
def test_saved_models_load_as_they_were(name, tmp_path, rng):
    model = functional(BUILDS[name])
    model.save(tmp_path / "model.keras")
    ours = load(tmp_path / "model.keras")
    x = rng.standard_normal((5, 3))
    assert ours(x) == pytest.approx(load(model)(x), abs=1e-12)
    assert ours.source == "model.keras"


REFUSED = {
    "mish": lambda: layers.Dense(3, activation="mish"),
    "LayerNormalization": lambda: layers.LayerNormalization(),
    "threshold=1": lambda: layers.ReLU(threshold=1.0),
    "softmax": lambda: layers.Activation("softmax"),
    "Lambda": lambda: layers.Lambda(lambda x: x),
    "SelfMade": lambda: SelfMade(3),
}


class SelfMade(layers.Dense):
    """A layer of the user's own, whatever it computes."""


@pytest.mark.parametrize("name", REFUSED)
def test_other_layers_are_refused_by_name(name):
    model = keras.Sequential([keras.Input((3,)), REFUSED[name](), layers.Dense(1)])
    with pytest.raises(PredictorNotSupportedError, match=name):
        load(model)


def test_other_operations_are_refused_by_name():
    with pytest.raises(PredictorNotSupportedError, match="Exp"):
        load(functional(lambda x: keras.ops.exp(layers.Dense(1)(x))))
    with pytest.raises(PredictorNotSupportedError, match="product of two values"):
        load(functional(lambda x: x * x))


def test_an_operation_with_arguments_that_are_no_numbers_is_refused_by_name():
    model = functional(lambda x: layers.Dense(1)(x[:, :2]))
    with pytest.raises(PredictorNotSupportedError, match="got GetItem"):
        load(model)


def test_a_subclassed_model_is_refused():
    class Hidden(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(1)

        def call(self, x):
            return self.inner(x)

    model = Hidden()
    model(np.zeros((1, 3)))
    with pytest.raises(PredictorNotSupportedError, match="subclass Hidden"):
        load(model)


def test_models_that_are_not_ready_are_refused():
    with pytest.raises(ModelConfigurationError, match="not built"):
        load(keras.Sequential([layers.Dense(1)]))
    with pytest.raises(ModelConfigurationError, match="known size"):
        load(functional(lambda x: layers.ReLU()(x), num_inputs=None))
    x = keras.Input((3,))
    with pytest.raises(ModelConfigurationError, match="one output"):
        load(keras.Model(x, [layers.Dense(1)(x), layers.Dense(1)(x)]))


def test_a_layer_alone_is_refused():
    with pytest.raises(PredictorNotSupportedError, match="Dense"):
        load(layers.Dense(3))


def test_weights_that_are_not_numbers_are_refused():
    model = dense()
    model.layers[1].kernel.assign(np.full((6, 4), np.inf))
    with pytest.raises(ModelConfigurationError, match="NaN or infinity"):
        load(model)


def test_a_file_with_code_in_it_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((3,)), layers.Lambda(lambda x: x * 2)])
    model.save(tmp_path / "code.keras")
    with pytest.raises(PredictorNotSupportedError, match="run code from the file"):
        load(tmp_path / "code.keras")


def test_a_file_that_names_other_modules_is_refused(tmp_path):
    dense().save(tmp_path / "good.keras")
    with (
        zipfile.ZipFile(tmp_path / "good.keras") as good,
        zipfile.ZipFile(tmp_path / "evil.keras", "w") as evil,
    ):
        for name in good.namelist():
            data = good.read(name)
            if name == "config.json":
                config = json.loads(data)
                config["config"]["layers"][1] |= {
                    "module": "os",
                    "class_name": "system",
                }
                data = json.dumps(config).encode()
            evil.writestr(name, data)
    with pytest.raises(PredictorNotSupportedError, match="got system"):
        load(tmp_path / "evil.keras")


@pytest.mark.parametrize("content", ["cut", "flipped", "no weights", "text", "empty"])
def test_a_damaged_file_gives_one_error(content, tmp_path):
    path = tmp_path / "bad.keras"
    dense().save(path)
    whole = path.read_bytes()
    if content == "no weights":
        with zipfile.ZipFile(path) as archive:
            config = archive.read("config.json")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", config)
            archive.writestr("metadata.json", "{}")
    else:
        middle = len(whole) // 2
        path.write_bytes(
            {
                "cut": whole[:middle],
                "flipped": bytes(
                    b ^ 255 if abs(i - middle) < 9 else b for i, b in enumerate(whole)
                ),
                "text": b"not a model",
                "empty": b"",
            }[content]
        )
    with pytest.raises(ModelConfigurationError, match=r"bad\.keras"):
        load(path)
