"""Models of PyTorch 2 from its default exporter. troupe and PyTorch train them. Results return as safetensors and ONNX.

    tests/apps/pytorch_test.py     # by a Python with torch, torchvision, onnxscript, onnxruntime and safetensors

CTest runs it if CMake knows such a Python (-DTROUPE_PYTORCH=PATH). Skipped without these packages."""

import contextlib
import copy
import io
import sys
import warnings

from program import EXIT_SKIPPED, run_tests

try:
    import numpy
    import onnxruntime
    import onnxscript  # noqa: F401 the exporter needs it
    import torch
    import torchvision
    from safetensors.torch import load_file
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(EXIT_SKIPPED)

from elsewhere import BATCH, RECORDS, RUNS, TOLERANCE, Elsewhere, batches, difference

WORDS = 11
CLASSES = 5


class Transformer(nn.Module):
    """An encoder and a decoder. The first 6 tokens are the source, and the others are the beginning of the target."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, 16), nn.Embedding(WORDS, 16)
        angles = torch.arange(6.0)[:, None] * 100 ** -(torch.arange(0, 16, 2) / 16)
        self.register_buffer("places", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.body = nn.Transformer(16, 4, 2, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(16, WORDS)

    def forward(self, x):
        source, target = self.source(x[:, :6]) + self.places, self.target(x[:, 6:]) + self.places[:5]
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        return self.head(self.body(source, target, tgt_mask=mask, tgt_is_causal=True))


class Tagger(nn.Module):
    """Predicts a class for each token, by a bidirectional LSTM of two layers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, 8)
        self.cells = nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x):
        return self.head(self.cells(self.table(x))[0])


class Reader(nn.Module):
    """Predicts the class of a text, by the last states of a bidirectional GRU of two layers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, 8)
        self.cells = nn.GRU(8, 10, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(20, CLASSES)

    def forward(self, x):
        _, last = self.cells(self.table(x))
        return self.head(torch.cat([last[-2], last[-1]], 1))


def double_convolution(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                         nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())


class UNet(nn.Module):
    """Predicts a class for each pixel. The output is (batch, pixels, classes)."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([double_convolution(3, 8), double_convolution(8, 16)])
        self.middle = double_convolution(16, 32)
        self.grow = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)])
        self.up = nn.ModuleList([double_convolution(32, 16), double_convolution(16, 8)])
        self.head = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x):
        kept = []
        for step in self.down:
            x = step(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for grow, step in zip(self.grow, self.up):
            x = step(torch.cat([kept.pop(), grow(x)], 1))
        return self.head(x).flatten(2).transpose(1, 2)


class Block(nn.Module):
    """A block as in Llama: RMS normalization, rotary positions, grouped queries, SwiGLU."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.RMSNorm(16, eps=1e-6), nn.RMSNorm(16, eps=1e-6)
        self.q = nn.Linear(16, 16, bias=False)
        self.kv = nn.Linear(16, 16, bias=False)
        self.out = nn.Linear(16, 16, bias=False)
        self.gate, self.up = nn.Linear(16, 40, bias=False), nn.Linear(16, 40, bias=False)
        self.down = nn.Linear(40, 16, bias=False)

    def forward(self, x, cos, sin):
        def turned(t):
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin
        batch, time, _ = x.shape
        y = self.first(x)
        q = self.q(y).view(batch, time, 4, 4).transpose(1, 2)
        k, v = self.kv(y).view(batch, time, 2, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        k, v = (t.repeat_interleave(2, dim=1) for t in (turned(k), v))
        y = functional.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time, 16))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Gpt(nn.Module):
    """Predicts the next token after each token."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.RMSNorm(16, eps=1e-6)
        self.head = nn.Linear(16, WORDS, bias=False)
        angles = torch.outer(torch.arange(9.0), 10000 ** -(torch.arange(2.0) / 2)).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x):
        x = self.table(x)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


class Mix(nn.Module):
    """A layer of MLP-Mixer."""

    def __init__(self, places, width):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.places = nn.Sequential(nn.Linear(places, 24), nn.GELU(), nn.Linear(24, places))
        self.channels = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))

    def forward(self, x):
        x = x + self.places(self.norms[0](x).mT).mT
        return x + self.channels(self.norms[1](x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 20, 8, stride=8)
        self.layers = nn.Sequential(Mix(16, 20), Mix(16, 20), nn.LayerNorm(20))
        self.head = nn.Linear(20, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h * w).permute(0, 2, 1)
        return self.head(self.layers(x).mean(dim=1))


class Temporal(nn.Module):
    """A temporal convolutional network: causal, dilated convolutions with normalized weights, and residuals."""

    def __init__(self):
        super().__init__()
        self.steps, self.sides = nn.ModuleList(), nn.ModuleList()
        for i, (a, b) in enumerate(((2, 8), (8, 8), (8, 12))):
            convolution = nn.Conv1d(a, b, 3, dilation=2 ** i)
            self.steps.append(nn.utils.parametrizations.weight_norm(convolution))
            self.sides.append(nn.Conv1d(a, b, 1) if a != b else nn.Identity())
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        for i, (step, side) in enumerate(zip(self.steps, self.sides)):
            y = functional.relu(step(functional.pad(x, (2 * 2 ** i, 0))))
            x = functional.leaky_relu(y + side(x), 0.1)
        return self.head(x[:, :, -1])


def vision_transformer():
    result = torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=24,
                                                  mlp_dim=48, num_classes=CLASSES)
    nn.init.normal_(result.heads.head.weight)  # these weights are 0 at first
    return result


def densenet():
    return torchvision.models.DenseNet(growth_rate=6, block_config=(2, 2), num_init_features=8, bn_size=2,
                                       num_classes=CLASSES)


def images(side):
    return lambda: torch.randn(RECORDS, 3, side, side)


def tokens(length):
    return lambda: torch.randint(WORDS, (RECORDS, length))


def labels(*shape, classes=CLASSES):
    return lambda: torch.randint(classes, (RECORDS, *shape))


# Entries are NAME: (model, records, labels, learning rate). Rates are low, because rounding errors can move an input of
# ReLU across 0, which happens more often at high rates.
MODELS = {
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=CLASSES), images(64), labels(), 1e-5),
    "vision_transformer": (vision_transformer, images(32), labels(), 0.05),
    "transformer": (Transformer, tokens(11), labels(5, classes=WORDS), 0.1),
    "tagger": (Tagger, tokens(9), labels(9), 0.5),
    "unet": (UNet, images(16), labels(256), 0.01),
    "mobilenet": (lambda: torchvision.models.mobilenet_v3_small(num_classes=CLASSES, dropout=0.0), images(64), labels(),
                  1e-3),
    "densenet": (densenet, images(32), labels(), 0.003),
    "reader": (Reader, tokens(9), labels(), 0.5),
    "gpt": (Gpt, tokens(9), labels(9, classes=WORDS), 0.1),
    "mixer": (Mixer, images(32), labels(), 0.05),
    "temporal": (Temporal, lambda: torch.randn(RECORDS, 2, 20), labels(), 0.1),
}


def mean_loss(model, x, y):
    output = model(x)
    return functional.cross_entropy(output.flatten(0, -2), y.flatten())


def train_by_pytorch(model, x, y, rate, workers):
    """Each worker has its own batch statistics. The running statistics follow their mean over the workers."""
    for parts in batches(workers):
        replicas = [copy.deepcopy(model) for _ in parts]
        for replica, records in zip(replicas, parts):
            mean_loss(replica, x[records], y[records]).backward()
        with torch.no_grad():
            for name, w in model.named_parameters():
                w -= rate * sum(r.get_parameter(name).grad for r in replicas) / workers
            for name, w in model.named_buffers():
                if w.is_floating_point():
                    w.copy_(sum(r.get_buffer(name) for r in replicas) / workers)


class PyTorch(Elsewhere):
    def export(self, name, model, x):
        path = self.folder / f"{name}.onnx"
        state = copy.deepcopy(model.state_dict())
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(model, (x,), str(path), input_names=["x"], output_names=["y"],
                              dynamic_shapes=({0: torch.export.Dim("batch")},), optimize=False)
        model.load_state_dict(state)  # undoes the exporter's changes to running statistics
        return path

    def compare(self, model, weights, exported, x):
        """Returns the largest differences of the weights (from safetensors) and of the outputs (from ONNX)."""
        trained = load_file(weights)
        loaded = copy.deepcopy(model)
        missing = loaded.load_state_dict(trained, strict=False).missing_keys
        constant = [k for k, _ in model.named_buffers() if not k.endswith(("running_mean", "running_var"))]
        self.assertLessEqual(set(missing), set(constant))
        ours = loaded.state_dict()
        worst = max((difference(ours[k], v), k) for k, v in model.state_dict().items()
                    if not k.endswith("num_batches_tracked"))
        with torch.no_grad():
            wanted = loaded.eval()(x).numpy()
        session = onnxruntime.InferenceSession(str(exported), providers=["CPUExecutionProvider"])
        port = session.get_inputs()[0]
        found = session.run(None, {port.name: x.numpy()})[0]  # tokens have the type INT64, as before the import
        return worst, difference(found, wanted)

    def check(self, name):
        torch.manual_seed(1)
        make, records, classes, rate = MODELS[name]
        model, x, y = make().train(), records(), classes()
        path = self.export(name, model, x[:2])
        start = copy.deepcopy(model.state_dict())
        for protocol, workers in RUNS:
            with self.subTest(model=name, protocol=protocol):
                weights, exported = self.train(path, x.numpy(), y.numpy(), rate, protocol, workers)
                model.load_state_dict(start)
                model.train()
                train_by_pytorch(model, x, y, rate, workers)
                moved = max(difference(w.detach(), start[k]) for k, w in model.named_parameters())
                (weight, where), output = self.compare(model, weights, exported, x[:BATCH])
                print(f"{name}, {protocol}: weights moved by {moved:.1e}, differ by {weight:.1e} ({where}); outputs by "
                      f"{output:.1e}")
                self.assertGreater(moved, 3 * TOLERANCE)
                self.assertLessEqual(weight, TOLERANCE, where)
                self.assertLessEqual(output, TOLERANCE)


for test in MODELS:
    setattr(PyTorch, f"test_{test}", lambda self, name=test: self.check(name))


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_tests()
