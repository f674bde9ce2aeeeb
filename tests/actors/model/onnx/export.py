#!/usr/bin/env python3
"""Exports small PyTorch models to NAME.onnx beside this file, and prints their outputs: expected.txt.

    python3 export.py > expected.txt        # needs the Python package torch

For each model: its outputs for the batch below in testing, and the mean cross-entropy before each of ten steps of
gradient descent on that batch (rate 0.1), in float64.
"""
import math
import pathlib
import warnings

import torch
from torch import nn
from torch.nn import functional

BATCH = 6
CLASSES = 3
RATE = 0.1


class Image(nn.Module):
    """(batch, 1, 8, 8) to classes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.mid = nn.Linear(64, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = functional.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1)
        return self.head(functional.gelu(self.norm(self.mid(x))))


class Normal(nn.Module):
    """(batch, 1, 8, 8) to classes, with batch normalization."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(36, CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


class Recurrent(nn.Module):
    """Tokens (batch, 5) to classes at the last position."""

    def __init__(self, kind):
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.cells = kind(6, 4, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.cells(self.table(x))[0][:, -1])


class Attention(nn.Module):
    """Tokens (batch, 5) through causal attention, averaged over time, to classes."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.place = nn.Embedding(5, 8)
        self.mix = nn.Linear(8, 24)
        self.head = nn.Linear(8, CLASSES)
        self.register_buffer("mask", torch.tril(torch.ones(5, 5)).view(1, 1, 5, 5))

    def forward(self, x):
        batch, time = x.size()
        x = self.table(x) + self.place(torch.arange(time))
        q, k, v = (t.view(batch, time, 2, 4).transpose(1, 2) for t in self.mix(x).split(8, dim=2))
        scores = (q @ k.transpose(-2, -1)) * 0.5
        scores = scores.masked_fill(self.mask[:, :, :time, :time] == 0, -math.inf).softmax(-1)
        x = x + (scores @ v).transpose(1, 2).contiguous().view(batch, time, 8)
        return self.head(x.mean(1))


def images():
    return torch.tensor([math.sin(0.7 * i) for i in range(BATCH * 64)], dtype=torch.float64).view(BATCH, 1, 8, 8)


def tokens():
    return torch.tensor([(3 * i + i * i) % 7 for i in range(BATCH * 5)]).view(BATCH, 5)


def labels():
    return torch.tensor([i % CLASSES for i in range(BATCH)])


def numbers(name, values):
    print(name, *(float(x).hex() for x in values))


def show(name, model, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, x[:1].float() if x.is_floating_point() else x[:1],
                          str(pathlib.Path(__file__).with_name(name + ".onnx")), opset_version=13,
                          input_names=["x"], output_names=["y"], do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING,
                          dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
    model = model.double().eval()
    numbers(name, model(x).flatten().tolist())
    model.train()
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(10):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), labels())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    numbers(name + "_losses", losses)


torch.manual_seed(1)
show("image", Image(), images())
show("lstm", Recurrent(nn.LSTM), tokens())
show("gru", Recurrent(nn.GRU), tokens())
show("attention", Attention(), tokens())
show("normal", Normal(), images())
