#!/usr/bin/env python3
"""Trains the example models for ten steps with PyTorch in float64. Its output is training.txt beside this file.

    python3 training.py > training.txt        # needs the Python package torch

Weights and data follow from formulas that the test computes, too. Per model: the mean losses of the steps, and for each
tensor afterwards the sum of its squares and its product with a tensor of these formulas, in which every element counts.
"""
import torch
from torch import nn

STEPS = 10
ROWS = 6
torch.set_default_dtype(torch.float64)


def numbers(name, n):
    """n numbers in [-1, 1), exact in float64: a name's hash (FNV-1a), stepped and mixed."""
    h = 0x811c9dc5
    for c in name.encode():
        h = ((h ^ c) * 0x01000193) & 0xffffffff
    result = []
    for i in range(n):
        x = (h + i * 0x9e3779b9) & 0xffffffff
        x = ((x ^ (x >> 16)) * 0x7feb352d) & 0xffffffff
        x = ((x ^ (x >> 15)) * 0x846ca68b) & 0xffffffff
        result.append((x ^ (x >> 16)) / 2**31 - 1)
    return torch.tensor(result)


def scaled(name, shape):
    """A tensor of float32 numbers. Each row adds up to about one."""
    fan_in = 1
    for x in shape[1:]:
        fan_in *= x
    scale = fan_in ** -0.5 if len(shape) > 1 else 0.1
    return (numbers(name, torch.Size(shape).numel()) * scale).float().double().reshape(shape)


def integers(name, shape, below):
    """Whole numbers from 0 to below - 1."""
    return ((numbers(name, torch.Size(shape).numel()) + 1) / 2 * below).floor().long().reshape(shape)


class Add(nn.Module):
    """Returns relu(h + branch(h)), or relu(shortcut(h) + branch(h))."""

    def __init__(self, shortcut=None, **branch):
        super().__init__()
        for name, module in branch.items():
            self.add_module(name, module)
        self.names = list(branch)
        if shortcut is not None:
            self.shortcut = shortcut

    def forward(self, x):
        y = x
        for name in self.names:
            y = getattr(self, name)(y)
        if hasattr(self, "shortcut"):
            x = self.shortcut(x)
        return torch.relu(x + y)


def conv(inputs, filters, kernel, stride=1):
    return nn.Conv2d(inputs, filters, kernel, stride, kernel // 2, bias=False)


def named(**modules):
    result = nn.Sequential()
    for name, module in modules.items():
        result.add_module(name, module)
    return result


class Attention(nn.Module):
    """nn.MultiheadAttention over a sequence. Each position sees only earlier ones."""

    def __init__(self, width, heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.inner(x, x, x, attn_mask=hidden, need_weights=False)[0]


class Block(nn.Module):
    """A block of a GPT, as in nanoGPT. Only the names of the attention's tensors differ."""

    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = named(c_fc=nn.Linear(width, 4 * width), gelu=nn.GELU(), c_proj=nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, time, width, heads, blocks):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(time, width)
        self.h = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        y = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        return self.lm_head(self.ln_f(self.h(y)))


class Recurrent(nn.Module):
    def __init__(self, kind, vocabulary, width, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = kind(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, x):
        return self.head(self.rnn(self.embedding(x))[0])


class Sequence(nn.Module):
    """The outputs of a recurrent module over (batch, time, features), or the last states of both directions."""

    def __init__(self, module, last=False):
        super().__init__()
        self.inner = module
        self.last = last

    def forward(self, x):
        y, state = self.inner(x)
        if not self.last:
            return y
        directions = 2 if self.inner.bidirectional else 1
        return state[-directions:].transpose(0, 1).flatten(1)


class EncoderDecoder(nn.Module):
    """Attention over all positions, then attention from half of the positions to the whole sequence."""

    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm_1 = nn.RMSNorm(width, eps=1e-6)
        self.encoder = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm_2 = nn.RMSNorm(width, eps=0.01)
        self.cross = nn.MultiheadAttention(width, 3, batch_first=True)
        self.plain = nn.MultiheadAttention(width, 1, bias=False, batch_first=True)
        self.gate = nn.Linear(width, 2 * width)
        self.head = nn.Linear(2 * width, vocabulary)

    def forward(self, x):
        x = self.embedding(x)
        y = self.norm_1(x)
        x = x + self.encoder(y, y, y, need_weights=False)[0]
        y = self.norm_2(x)
        half = y[:, :y.shape[1] // 2]
        y = self.cross(half, x, x, need_weights=False)[0] + self.plain(half, half, half, need_weights=False)[0]
        y = torch.nn.functional.silu(self.gate(y)).mean(1)
        return self.head(y)


def train(name, model, rate, dims, classes, tokens=False, pooled=False, smoothing=0.0, ignored=-100):
    """Removes the word `inner` from the names of tensors: it stands for a module that a class here only wraps."""
    names = {key: key.replace("inner.", "") for key in model.state_dict() if not key.endswith("num_batches_tracked")}
    state = model.state_dict()
    for key, short in names.items():
        tensor = scaled(short, state[key].shape)
        norm = state[key].dim() == 1 and key.endswith("weight") or key.endswith("running_var")
        state[key].copy_(1 + tensor if norm else tensor)
    optimizer = torch.optim.SGD(model.parameters(), rate, 0.9)
    losses = []

    def mean_loss(logits, labels):
        """The mean over all labels, which includes ignored labels."""
        return nn.functional.cross_entropy(logits.reshape(-1, classes), labels.reshape(-1), reduction="sum",
                                           label_smoothing=smoothing, ignore_index=ignored) / labels.numel()

    for step in range(STEPS):
        x = f"{name} features {step}"
        if tokens:
            x = integers(x, [ROWS, *dims], classes)
        else:
            x = numbers(x, ROWS * torch.Size(dims).numel()).float().double()
        labels = integers(f"{name} labels {step}", [ROWS, *dims] if tokens and not pooled else [ROWS], classes)
        logits = model(x.reshape(ROWS, *dims))
        loss = mean_loss(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print("model", name)
    print("losses", *(x.hex() for x in losses))
    for key, short in names.items():
        w = model.state_dict()[key].reshape(-1)
        print(short, (w * w).sum().item().hex(), (w * numbers("check " + short, w.numel())).sum().item().hex())
    # The loss of the trained model on the last batch, in testing mode.
    model.eval()
    with torch.no_grad():
        logits = model(x.reshape(ROWS, *dims))
    print("testing", mean_loss(logits, labels).item().hex())


def main():
    print(f"# PyTorch {torch.__version__.split('+')[0]}")
    image = [1, 28, 28]
    train("mnist_mlp", named(flatten=nn.Flatten(), dense_1=nn.Linear(784, 12), relu_1=nn.ReLU(),
                             dense_2=nn.Linear(12, 8), relu_2=nn.ReLU(), dense_3=nn.Linear(8, 10)), 0.05, image, 10)
    train("mnist_lenet", named(conv_1=nn.Conv2d(1, 3, 5, padding=2), relu_1=nn.ReLU(), pool_1=nn.MaxPool2d(2),
                               conv_2=nn.Conv2d(3, 4, 5), relu_2=nn.ReLU(), pool_2=nn.MaxPool2d(2),
                               flatten=nn.Flatten(), dense_1=nn.Linear(100, 9), relu_3=nn.ReLU(),
                               dense_2=nn.Linear(9, 8), relu_4=nn.ReLU(),
                               head=nn.Linear(8, 10)), 0.05, image, 10, smoothing=0.1)

    def stage(inputs, filters, stride):
        shortcut = named(conv=conv(inputs, filters, 1, stride), bn=nn.BatchNorm2d(filters)) if stride > 1 else None
        return Add(shortcut, conv_1=conv(inputs, filters, 3, stride), bn_1=nn.BatchNorm2d(filters), relu=nn.ReLU(),
                   conv_2=conv(filters, filters, 3), bn_2=nn.BatchNorm2d(filters))

    train("digits_resnet", named(conv=conv(1, 4, 3, 2), bn=nn.BatchNorm2d(4), relu=nn.ReLU(), layer1=stage(4, 4, 1),
                                 layer2=stage(4, 6, 2), layer3=stage(6, 8, 2), pool=nn.AdaptiveAvgPool2d(1),
                                 flatten=nn.Flatten(), fc=nn.Linear(8, 10)), 0.05, image, 10)
    train("shakespeare_lstm", Recurrent(nn.LSTM, 11, 6, 7), 0.5, [9], 11, tokens=True)
    train("shakespeare_gru", Recurrent(nn.GRU, 11, 6, 7), 0.5, [9], 11, tokens=True, ignored=3)
    train("shakespeare_gpt", Gpt(11, 9, 8, 2, 2), 0.1, [9], 11, tokens=True)
    train("image_layers", named(
        conv_1=nn.Conv2d(1, 4, 3, padding=2, dilation=2), silu_1=nn.SiLU(),
        pool_1=nn.MaxPool2d(3, 2, ceil_mode=True), norm_1=nn.GroupNorm(2, 4, eps=1e-5),
        conv_2=nn.Conv2d(4, 6, (3, 2), 2, (2, 1), (2, 3), groups=2), silu_2=nn.SiLU(),
        pool_2=nn.AvgPool2d(4, 3, 1, ceil_mode=True), norm_2=nn.GroupNorm(3, 6, eps=0.01),
        up_1=nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, groups=2), relu_1=nn.ReLU(),
        up_2=nn.ConvTranspose2d(4, 3, (2, 3), (3, 1), (0, 2), (2, 0), dilation=(1, 2), bias=False), tanh=nn.Tanh(),
        flatten=nn.Flatten(), head=nn.Linear(3 * 19 * 6, 10)), 0.02, image, 10)
    train("attention_layers", EncoderDecoder(11, 6), 0.1, [9], 11, tokens=True, pooled=True)
    both = {"batch_first": True, "bidirectional": True}
    train("bidirectional_layers", named(
        rnn=Sequence(nn.RNN(5, 4, **both)), lstm=Sequence(nn.LSTM(8, 3, 2, **both)),
        gru=Sequence(nn.GRU(6, 4, 2, **both), last=True), head=nn.Linear(8, 10)), 0.2, [7, 5], 10)


main()
