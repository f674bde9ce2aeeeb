#!/usr/bin/env python3
"""Exports small PyTorch models to NAME.onnx beside this file by both exporters of PyTorch, and writes expected.txt.

    python3 export.py        # needs the Python packages torch and onnxscript; recorded with PyTorch 2.15

Of each model: its outputs for the batch below in testing, and the mean cross-entropy before each of ten steps of
gradient descent on that batch (rate 0.1), in float64. The files keep only those marks of the exporter that troupe
reads: the others name the files and lines of the model's source.
"""
import contextlib
import io
import math
import pathlib
import warnings

import onnx
import torch
from torch import nn
from torch.nn import functional

BATCH = 6
CLASSES = 3
RATE = 0.1
FOLDER = pathlib.Path(__file__).parent
EXPECTED = []


class Normal(nn.Module):
    """Batch normalization, and a dropout that is off."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(36, CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


class Residual(nn.Module):
    """Two residual blocks, as in ResNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (4, 4, 6, 6, 6))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, stride=s, padding=1, bias=False)
                                   for a, b, s in ((4, 4, 1), (4, 6, 2), (6, 6, 1)))
        self.down = nn.Conv2d(4, 6, 1, stride=2, bias=False)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norms[0](self.stem(x)))
        x = torch.relu(x + self.norms[1](self.convs[0](x)))
        y = torch.relu(self.norms[2](self.convs[1](x)))
        x = torch.relu(self.norms[3](self.convs[2](y)) + self.norms[4](self.down(x)))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Groups(nn.Module):
    """Group normalization, SiLU, RMS normalization and nearest-neighbour upsampling."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.mix = nn.Conv2d(8, 4, 3, padding=1)
        self.rms = nn.RMSNorm(4, eps=1e-5)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = functional.silu(self.norm(self.conv(x)))
        y = functional.interpolate(functional.max_pool2d(x, 2), scale_factor=2, mode="nearest")
        return self.head(self.rms(self.mix(torch.cat([x, y], 1)).mean((2, 3))))


class Patches(nn.Module):
    """A vision transformer: patches, a class token, positions, encoder."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class Encoder(nn.Module):
    """nn.TransformerEncoder over tokens (batch, 5)."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(self.table(x)).mean(1))


class Pair(nn.Module):
    """nn.Transformer: encoder and decoder, causal and cross-attention."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.query = nn.Parameter(torch.randn(1, 4, 8))
        self.body = nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.table(x)
        mask = nn.Transformer.generate_square_subsequent_mask(4)
        target = x[:, :4] + self.query
        return self.head(self.body(x, target, tgt_mask=mask, tgt_is_causal=True).mean(1))


class Rotary(nn.Module):
    """A decoder as in Llama: RMS normalization, rotary positions, causal attention, SwiGLU."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.first, self.second = nn.RMSNorm(8, eps=1e-5), nn.RMSNorm(8, eps=1e-5)
        self.mix = nn.Linear(8, 24, bias=False)
        self.out = nn.Linear(8, 8, bias=False)
        self.gate, self.up = nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False)
        self.down = nn.Linear(12, 8, bias=False)
        self.head = nn.Linear(8, CLASSES)

    @staticmethod
    def turned(x):
        time, half = x.shape[2], x.shape[3] // 2
        angles = torch.outer(torch.arange(time).float(), 100.0 ** (-torch.arange(half).float() / half))
        angles = torch.cat([angles, angles], -1)
        return x * angles.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angles.sin()

    def forward(self, x):
        x = self.table(x)
        batch, time, width = x.shape
        q, k, v = (t.view(batch, time, 2, 4).transpose(1, 2) for t in self.mix(self.first(x)).split(8, dim=2))
        y = functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time, width))
        y = self.second(x)
        return self.head((x + self.down(functional.silu(self.gate(y)) * self.up(y))).mean(1))


class Recurrent(nn.Module):
    """Recurrent layers over tokens (batch, 5)."""

    def __init__(self, kind, both):
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.cells = kind(6, 4, batch_first=True, bidirectional=both)
        self.head = nn.Linear(8 if both else 4, CLASSES)

    def forward(self, x):
        return self.head(self.cells(self.table(x))[0].mean(1))


def images():
    return torch.tensor([math.sin(0.7 * i) for i in range(BATCH * 64)], dtype=torch.float64).view(BATCH, 1, 8, 8)


def tokens():
    return torch.tensor([(3 * i + i * i) % 7 for i in range(BATCH * 5)]).view(BATCH, 5)


def labels():
    return torch.tensor([i % CLASSES for i in range(BATCH)])


def numbers(name, values):
    EXPECTED.append(" ".join([name, *(float(x).hex() for x in values)]) + "\n")


def keep(properties, *keys):
    kept = [(x.key, x.value) for x in properties if x.key in keys]
    del properties[:]
    for key, value in kept:
        properties.add(key=key, value=value)


def save(path, apart):
    """Removes the marks that troupe does not read; puts the weights into the file unless they shall be apart."""
    model = onnx.load(path)
    marked = {x.name for x in model.graph.initializer if x.data_type == onnx.TensorProto.FLOAT and x.dims}
    for node in model.graph.node:
        node.doc_string = ""
        keep(node.metadata_props, *(["pkg.torch.onnx.fx_node"] if marked.intersection(node.input) else []))
    del model.graph.metadata_props[:]
    values = [x for x in model.graph.value_info if x.name in marked]
    del model.graph.value_info[:]
    for x in values:
        keep(x.metadata_props, "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.torch.onnx.original_node_name")
        model.graph.value_info.append(x)
    path.with_suffix(".onnx.data").unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=apart, location=path.name + ".data", size_threshold=0)


def export(name, model, x, **options):
    path = FOLDER / (name + ".onnx")
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), str(path), input_names=["x"], output_names=["y"], **options)
    save(path, apart=name.startswith("normal"))


def show(name, model, x):
    example = x[:2].float() if x.is_floating_point() else x[:2]
    model.train()
    # Changes all values, because the exporter would merge parameters with equal values.
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    has_state = any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    # The exporter changes running statistics, so they are saved here.
    state = {k: v.clone() for k, v in model.state_dict().items()}
    export(name, model, example, dynamic_shapes=({0: torch.export.Dim("batch")},), optimize=False)
    model.load_state_dict(state)
    # With a fixed batch, the exporter would turn the class tokens of all samples into a constant.
    if not has_state and not isinstance(model, Patches):
        export(name + "_fixed", model, example)
    # The older exporter does not support RMS normalization, does not mark parameters that are added, and changes
    # running statistics before it writes them. So models with these are left out.
    if not has_state and not isinstance(model, (Groups, Pair, Patches, Rotary)):
        export(name + "_script", model, example, dynamo=False, training=torch.onnx.TrainingMode.TRAINING,
               do_constant_folding=False, dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
    model.load_state_dict(state)
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
show("normal", Normal(), images())
show("residual", Residual(), images())
show("groups", Groups(), images())
show("patches", Patches(), images())
show("encoder", Encoder(), tokens())
show("pair", Pair(), tokens())
show("rotary", Rotary(), tokens())
show("tagger", Recurrent(nn.LSTM, True), tokens())
show("gru", Recurrent(nn.GRU, True), tokens())
(FOLDER / "expected.txt").write_text("".join(EXPECTED))
