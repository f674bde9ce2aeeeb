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
    """Of words."""
    return keras.Sequential([keras.Input((TIME,), dtype="int32"), layers.Embedding(WORDS, 8), layers.Flatten(),
                             layers.Dense(12, activation="tanh"), layers.Dense(CLASSES)])


# Name: (model, learning rate)
MODELS = {"cnn": (cnn, 0.05), "bag": (bag, 0.1)}


# How tf2onnx writes a variable of Keras, and back.
FORMS = {
    "same": (lambda w: w, lambda t, shape: t.reshape(shape)),
    "convolution": (lambda w: w.transpose(3, 2, 0, 1), lambda t, shape: t.transpose(2, 3, 1, 0).reshape(shape)),
}


def places_of(model, tensors):
    """For each variable, the name of the tensor of the file that has its values, and its form."""
    result = []
    for variable in model.trainable_variables:
        w = variable.numpy()
        found = [(name, form) for name, t in tensors.items() for form, (there, _) in FORMS.items()
                 if t.size == w.size and (w.ndim == 4 or form == "same")
                 and numpy.array_equal(there(w).ravel(), t.ravel())]
        if not found:
            raise AssertionError(f"no tensor of the file has the values of {variable.path} {w.shape}")
        result.append(found[0])
    return result


def train_by_keras(model, x, y, rate, workers):
    """SGD; workers do not matter, because no layer mixes samples."""
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
        y = numbers.integers(CLASSES, size=RECORDS)
        model.predict(x[:2], verbose=0)
        for w in model.weights:  # tf2onnx leaves out biases of 0.
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
                        w.assign(FORMS[form][1](trained[tensor], tuple(w.shape)))
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
