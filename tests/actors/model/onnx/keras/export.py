#!/usr/bin/env python3
"""Exports small Keras models to NAME.onnx beside this file by tf2onnx, and writes expected.txt.

    python3 export.py        # needs the Python packages keras, tensorflow and tf2onnx; recorded with Keras 3.15

Of each model: its outputs for the batch below, and the mean cross-entropy before each of ten steps of gradient descent
on that batch (rate 0.1), in float64.
"""
import math
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import keras
import numpy
import onnx
import tensorflow
import tf2onnx
from keras import layers

BATCH = 6
CLASSES = 3
WORDS = 7
RATE = 0.1
FOLDER = pathlib.Path(__file__).parent
EXPECTED = []


def tokens_to(*others):
    return keras.Sequential([keras.Input((5,), dtype="int32"), layers.Embedding(WORDS, 6), *others,
                             layers.Dense(CLASSES)])


def lstm():
    return tokens_to(layers.Bidirectional(layers.LSTM(4, return_sequences=True)), layers.LSTM(3))


def gru():
    return tokens_to(layers.GRU(4, return_sequences=True), layers.GRU(3, go_backwards=True, reset_after=False))


def transformer():
    """Attention over all tokens, and causal attention."""
    x = keras.Input((5,), dtype="int32")
    y = layers.Embedding(WORDS, 8)(x)
    for causal in (False, True):
        z = layers.LayerNormalization()(y)
        y = y + layers.MultiHeadAttention(2, 4)(z, z, use_causal_mask=causal)
    y = y + layers.Dense(8)(layers.Dense(12, activation="gelu")(layers.LayerNormalization()(y)))
    return keras.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(0.5 * y)))


def convolutions():
    return keras.Sequential([
        keras.Input((8, 8, 1)), layers.Conv2D(4, 3, padding="same"), layers.GroupNormalization(2),
        layers.Activation("silu"), layers.MaxPooling2D(2), layers.Reshape((16, 4)),
        layers.Conv1D(4, 3, padding="causal", activation="tanh"), layers.RMSNormalization(),
        layers.GlobalAveragePooling1D(), layers.Dense(CLASSES)])


def images():
    return numpy.array([math.sin(0.7 * i) for i in range(BATCH * 64)]).reshape(BATCH, 8, 8, 1)


def tokens():
    return numpy.array([(3 * i + i * i) % WORDS for i in range(BATCH * 5)], numpy.int32).reshape(BATCH, 5)


def numbers(name, values):
    EXPECTED.append(" ".join([name, *(float(x).hex() for x in values)]) + "\n")


def export(name, model):
    path = FOLDER / (name + ".onnx")
    port = tensorflow.TensorSpec(model.input_shape, model.inputs[0].dtype, name="x")
    tf2onnx.convert.from_function(tensorflow.function(lambda x: model(x), input_signature=[port]), [port], opset=17,
                                  output_path=str(path))
    saved = onnx.load(path)
    del saved.graph.value_info[:]
    onnx.save(saved, path)


def show(make, x):
    keras.config.set_dtype_policy("float32")
    model = make()
    model(x[:2])
    # Gives the biases values, because the exporter leaves out biases of 0.
    random = numpy.random.default_rng(1)
    for w in model.weights:
        w.assign(w.numpy() + 0.1 * random.standard_normal(w.shape, numpy.float32))
    export(make.__name__, model)
    keras.config.set_dtype_policy("float64")
    exact = make()
    exact.set_weights(model.get_weights())
    numbers(make.__name__, exact(x).numpy().ravel())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
    labels = numpy.arange(BATCH) % CLASSES
    losses = []
    for _ in range(10):
        with tensorflow.GradientTape() as tape:
            value = loss(labels, exact(x))
        for w, g in zip(exact.trainable_variables, tape.gradient(value, exact.trainable_variables)):
            w.assign_sub(RATE * tensorflow.convert_to_tensor(g))
        losses.append(float(value))
    numbers(make.__name__ + "_losses", losses)


keras.utils.set_random_seed(1)
show(lstm, tokens())
show(gru, tokens())
show(transformer, tokens())
show(convolutions, images())
(FOLDER / "expected.txt").write_text("".join(EXPECTED))
