"""Models of Keras 3 on TensorFlow: exported by Keras and by tf2onnx, trained here and by Keras, and taken back.

    tests/apps/keras_test.py       # by a Python with keras, tensorflow, tf2onnx, onnxruntime and safetensors

CTest runs it if CMake knows such a Python (-DTROUPE_KERAS=PATH). Skipped without these packages."""

import contextlib
import io
import os
import sys
import warnings

from program import EXIT_SKIPPED, run_tests

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
try:
    import keras
    import numpy
    import onnx
    import onnxruntime
    import tensorflow
    import tf2onnx
    from keras import layers
    from safetensors.numpy import load_file
except ImportError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(EXIT_SKIPPED)

from elsewhere import BATCH, RECORDS, RUNS, TOLERANCE, Elsewhere, batches, difference

WORDS = 11
TIME = 9
CLASSES = 5


def cnn():
    return keras.Sequential([
        keras.Input((12, 12, 3)), layers.Conv2D(6, 3, padding="same", activation="relu"), layers.MaxPooling2D(2),
        layers.DepthwiseConv2D(3, activation="silu"), layers.Conv2D(8, 3, strides=2, activation="relu"),
        layers.Flatten(), layers.Dense(16, activation="gelu"), layers.Dense(CLASSES)])


def bag():
    """A bag of words: dense layers over the embedded words of a text."""
    return keras.Sequential([keras.Input((TIME,), dtype="int32"), layers.Embedding(WORDS, 8), layers.Flatten(),
                             layers.Dense(12, activation="tanh"), layers.Dense(CLASSES)])


def on_tokens(*others):
    return keras.Sequential([keras.Input((TIME,), dtype="int32"), layers.Embedding(WORDS, 8), *others,
                             layers.Dense(CLASSES)])


def lstm():
    return on_tokens(layers.LSTM(10, return_sequences=True), layers.LSTM(6))


def tagger():
    """A class for each token, by a bidirectional LSTM."""
    return on_tokens(layers.Bidirectional(layers.LSTM(6, return_sequences=True)))


def gru():
    return on_tokens(layers.GRU(10, return_sequences=True), layers.Bidirectional(layers.GRU(6)))


def gru_before():
    return on_tokens(layers.GRU(10, reset_after=False))


def rnn():
    return keras.Sequential([keras.Input((TIME, 4)), layers.SimpleRNN(10, go_backwards=True), layers.Dense(CLASSES)])


def transformer():
    """An encoder with learned positions."""
    x = keras.Input((TIME,), dtype="int32")
    y = layers.Embedding(WORDS, 16)(x)
    for _ in range(2):
        z = layers.LayerNormalization()(y)
        y = y + layers.MultiHeadAttention(4, 4)(z, z)
        z = layers.LayerNormalization()(y)
        y = y + layers.Dense(16)(layers.Dense(32, activation="gelu")(z))
    return keras.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(y)))


def decoder():
    """With causal attention and a residual of the normalized values: a class for each token."""
    x = keras.Input((TIME,), dtype="int32")
    y = layers.Embedding(WORDS, 12)(x)
    y = layers.LayerNormalization()(y + layers.MultiHeadAttention(3, 4)(y, y, use_causal_mask=True))
    return keras.Model(x, layers.Dense(CLASSES)(y))


def unet():
    x = keras.Input((16, 16, 3))
    a = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    b = layers.Conv2D(6, 3, padding="same", activation="relu")(layers.AveragePooling2D(2)(a))
    c = layers.Concatenate()([a, layers.Conv2DTranspose(4, 2, strides=2)(b), layers.UpSampling2D(2)(b)])
    return keras.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(c)))


def norms():
    return keras.Sequential([
        keras.Input((8, 8, 4)), layers.Conv2D(4, 3, padding="same"), layers.GroupNormalization(2),
        layers.Activation("relu"), layers.Conv2D(4, 3, strides=2), layers.RMSNormalization(),
        layers.GlobalAveragePooling2D(), layers.Dense(CLASSES)])


def temporal():
    return keras.Sequential([
        keras.Input((20, 2)), layers.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="relu"),
        layers.MaxPooling1D(2), layers.Conv1D(6, 3, activation="elu"), layers.GlobalAveragePooling1D(),
        layers.Dense(CLASSES)])


# Entries are NAME: (model, learning rate).
MODELS = {"cnn": (cnn, 0.05), "bag": (bag, 0.1), "lstm": (lstm, 0.5), "tagger": (tagger, 0.5), "gru": (gru, 0.5),
          "gru_before": (gru_before, 0.5), "rnn": (rnn, 0.1), "transformer": (transformer, 0.1),
          "decoder": (decoder, 0.1), "unet": (unet, 0.1), "norms": (norms, 0.1), "temporal": (temporal, 0.1)}


def in_keras_order(gates):
    """ONNX orders the rows of the gates as i, o, f, c. Returns them as i, f, c, o."""
    i, o, f, c = numpy.split(gates, 4)
    return numpy.concatenate([i, f, c, o])


def readings(t):
    """The variables of Keras that a tensor of tf2onnx may contain. The key names the form in which it contains them."""
    result = {"same": t}
    if t.ndim == 4:
        result["convolution"] = t.transpose(2, 3, 1, 0)
    directions = range(len(t)) if t.ndim in (2, 3) else ()
    for at in directions:
        if t.ndim == 3 and t.shape[1] % 4 == 0:
            result[f"gates {at}"] = in_keras_order(t[at]).T
        if t.ndim == 2 and t.shape[1] % 8 == 0 and not t[at, t.shape[1] // 2:].any():
            result[f"bias {at}"] = in_keras_order(t[at, :t.shape[1] // 2])
    return result


def places_of(model, tensors):
    """For each variable, the name of the tensor of the file that has its values, and the form of this tensor."""
    result = []
    for variable in model.trainable_variables:
        w = variable.numpy()
        found = [(name, form) for name, t in tensors.items() for form, values in readings(t).items()
                 if numpy.array_equal(values.ravel(), w.ravel())]
        if not found:
            raise AssertionError(f"no tensor of the file has the values of {variable.path} {w.shape}")
        result.append(found[0])
    return result


def train_by_keras(model, x, y, rate, workers):
    """Trains by SGD. The number of workers does not matter, because no layer mixes samples."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for parts in batches(workers):
        records = sum(parts, [])
        with tensorflow.GradientTape() as tape:
            value = loss(y[records], model(x[records], training=True))
        variables = model.trainable_variables
        for w, g in zip(variables, tape.gradient(value, variables)):
            w.assign_sub(rate * tensorflow.convert_to_tensor(g))


class Keras(Elsewhere):
    def export(self, name, model, how):
        path = self.folder / f"{name}_{how}.onnx"
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            if how == "keras":
                model.export(path, format="onnx", verbose=False)
            else:
                port = tensorflow.TensorSpec(model.input_shape, model.inputs[0].dtype, name="x")
                tf2onnx.convert.from_function(tensorflow.function(lambda x: model(x), input_signature=[port]), [port],
                                              opset=17, output_path=str(path))
        return path

    def check(self, name):
        keras.utils.set_random_seed(1)
        numbers = numpy.random.default_rng(1)
        make, rate = MODELS[name]
        model = make()
        dims = (RECORDS, *model.input_shape[1:])
        whole = model.inputs[0].dtype == "int32"
        x = numbers.integers(WORDS, size=dims).astype(numpy.int32) if whole else numbers.standard_normal(dims, "f")
        y = numbers.integers(CLASSES, size=(RECORDS, *model.output_shape[1:-1]))
        model.predict(x[:2], verbose=0)
        for w in model.weights:  # changes all weights, because tf2onnx would leave out biases of 0
            w.assign(w.numpy() + 0.1 * numbers.standard_normal(w.shape, "f"))
        start = model.get_weights()
        for how in ("keras", "tf2onnx"):
            model.set_weights(start)
            path = self.export(name, model, how)
            tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
            places = places_of(model, tensors)
            for protocol, workers in RUNS:
                with self.subTest(model=name, exporter=how, protocol=protocol):
                    model.set_weights(start)
                    train_by_keras(model, x, y, rate, workers)
                    wanted = [w.numpy() for w in model.trainable_variables]
                    output = model(x).numpy()
                    weights, exported = self.train(path, x, y, rate, protocol, workers)
                    trained = load_file(weights)
                    for w, (tensor, form) in zip(model.trainable_variables, places):
                        w.assign(readings(trained[tensor])[form].reshape(w.shape))
                    found = [w.numpy() for w in model.trainable_variables]
                    moved = max(map(difference, wanted, (w for w in start)))
                    weight = max(map(difference, found, wanted))
                    session = onnxruntime.InferenceSession(str(exported), providers=["CPUExecutionProvider"])
                    onnx_output = session.run(None, {session.get_inputs()[0].name: x})[0]
                    outputs = max(difference(model(x).numpy(), output), difference(onnx_output, output))
                    print(f"{name} by {how}, {protocol}: weights moved by {moved:.1e}, differ by {weight:.1e}; outputs "
                          f"by {outputs:.1e}")
                    self.assertGreater(moved, 100 * TOLERANCE)
                    self.assertLessEqual(weight, TOLERANCE)
                    self.assertLessEqual(outputs, TOLERANCE)


for test in MODELS:
    setattr(Keras, f"test_{test}", lambda self, name=test: self.check(name))


if __name__ == "__main__":
    run_tests()
