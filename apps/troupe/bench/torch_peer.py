"""Trains a work of `troupe bench train` with PyTorch. It takes orders from standard input.

First a line of JSON (work, weights, batches, threads), then weights, inputs and labels as binary; then a line per
round: the number of steps. It answers each line with a line of JSON: the version of PyTorch and its BLAS; then the
seconds that the steps took, and the loss of each. With several ranks, DistributedDataParallel averages the gradients
with Gloo.
"""

import ctypes
import json
import os
import signal
import sys
import time

# Ends with the process that started it, even while it is stopped (PR_SET_PDEATHSIG).
ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def answer(**fields):
    print(json.dumps(fields), flush=True)


try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    answer(error=f"{sys.executable} cannot import torch ({error})")
    sys.exit(0)


class SoftmaxRegression(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense_1 = nn.Linear(784, 10)

    def forward(self, x):
        return self.dense_1(x)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense_1 = nn.Linear(784, 256)
        self.dense_2 = nn.Linear(256, 128)
        self.dense_3 = nn.Linear(128, 10)

    def forward(self, x):
        return self.dense_3(torch.relu(self.dense_2(torch.relu(self.dense_1(x)))))


class Convolutional(nn.Module):
    def __init__(self, side):
        super().__init__()
        self.conv_1 = nn.Conv2d(1, 16, side, padding=side // 2)
        self.conv_2 = nn.Conv2d(16, 32, side, padding=side // 2)
        self.dense_1 = nn.Linear(32 * 7 * 7, 10)

    def forward(self, x):
        h = functional.max_pool2d(torch.relu(self.conv_1(x.view(-1, 1, 28, 28))), 2)
        h = functional.max_pool2d(torch.relu(self.conv_2(h)), 2)
        return self.dense_1(h.flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(65, 64)
        self.lstm = nn.LSTM(64, 256, batch_first=True)
        self.dense_1 = nn.Linear(256, 65)

    def forward(self, x):
        return self.dense_1(self.lstm(self.embedding(x))[0])


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)
        mask = torch.triu(torch.ones(context, context, dtype=torch.bool), 1)
        self.register_buffer("mask", mask, persistent=False)

    def attention(self, x):
        batch, context, width = x.shape
        shape = (batch, context, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).split(width, 2))
        if hasattr(functional, "scaled_dot_product_attention"):
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(2, 3)) * (width // self.heads) ** -0.5
            mixed = scores.masked_fill(self.mask, float("-inf")).softmax(3) @ v
        return self.projection(mixed.transpose(1, 2).reshape(batch, context, width))

    def forward(self, x):
        h = x + self.attention(self.norm_1(x))
        return h + self.outer(functional.gelu(self.inner(self.norm_2(h))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(65, 128)
        self.positions = nn.Embedding(1, 64 * 128)
        self.blocks = nn.ModuleList(Block(128, 4, 64) for _ in range(4))
        self.norm = nn.LayerNorm(128)
        self.head = nn.Linear(128, 65, bias=False)

    def forward(self, x):
        h = self.tokens(x) + self.positions.weight.view(64, 128)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


MODELS = {
    "softmax": SoftmaxRegression,
    "mlp-64": Perceptron,
    "mlp-256": Perceptron,
    "cnn": lambda: Convolutional(5),
    "cnn-3x3": lambda: Convolutional(3),
    "lstm": Recurrent,
    "gpt": Transformer,
}


def blas():
    """The library that multiplies matrices for PyTorch."""
    if "blas_info=mkl" in torch.__config__.show().lower():
        return "mkl"
    with open("/proc/self/maps", encoding="utf-8") as maps:
        names = {line.split("/")[-1].strip() for line in maps if "/" in line}
    for known in ("openblas", "blis", "atlas"):
        if any(known in name for name in names):
            return known
    return "reference BLAS" if any(name.startswith("libblas.so") for name in names) else "unknown"


def optimizer_of(model, rule):
    kind, rate = rule["kind"], rule["rate"]
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate)
    if kind == "momentum":
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=rate)
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)


def read(count, dtype):
    size = count * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(bytearray(sys.stdin.buffer.read(size)), dtype=dtype)


def main():
    given = json.loads(sys.stdin.buffer.readline())
    torch.set_num_threads(given["threads"])
    model = MODELS[given["work"]]()
    parameters = dict(model.named_parameters())
    weights = {}
    for name, shape in given["tensors"]:
        count = 1
        for extent in shape:
            count *= extent
        weights[name] = read(count, torch.float32).reshape(parameters[name].shape)
    model.load_state_dict(weights)
    count, batch = given["batches"], given["batch"]
    inputs = read(count * batch * given["inputs"], torch.int32 if given["ids"] else torch.float32)
    inputs = inputs.reshape(count, batch, given["inputs"])
    if given["ids"]:
        inputs = inputs.long()
    labels = read(count * batch * given["labels"], torch.int32).reshape(count, -1).long()
    optimizer = optimizer_of(model, given["optimizer"])
    if given["ranks"] > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group("gloo", init_method=f"tcp://{given['address']}", rank=given["rank"],
                                             world_size=given["ranks"])
        model = nn.parallel.DistributedDataParallel(model)
    answer(version=torch.__version__, blas=blas())

    # The time of the calling thread. Other threads may spin, and do not count.
    clock = time.thread_time if given["processor_time"] else time.perf_counter
    done = 0
    for line in sys.stdin.buffer:
        steps = int(line)
        losses = []
        begin = clock()
        for _ in range(steps):
            i = done % count
            done += 1
            optimizer.zero_grad(set_to_none=True)
            logits = model(inputs[i])
            loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels[i])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        seconds = clock() - begin
        answer(seconds=seconds, losses=[x.item() for x in losses])


main()
