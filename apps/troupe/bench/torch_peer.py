"""Trains a work of `troupe bench train` with PyTorch. It takes orders from standard input.

The input begins with a line of JSON (work, tensors, batches, threads, ...), followed by weights, inputs and labels as
binary. The answer is a line of JSON with the version of PyTorch and its BLAS. Each further line of input is the number
of steps of a round. The answer is a line of JSON: the seconds that the steps took, and the loss of each step. With
several ranks, DistributedDataParallel averages the gradients with Gloo, and each rank may have a processor of its own.

On a GPU, each step copies its batch from pinned memory, and time is measured between two events of the GPU. There are
three modes: "eager", "graph" (forward, backward and update are one CUDA graph) and "compile" (torch.compile).
Products and convolutions use no TF32.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time

# Makes this process end when its parent ends, even while this process is stopped (1 is PR_SET_PDEATHSIG).
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


class WidePerceptron(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(1, 5):
            setattr(self, f"dense_{i}", nn.Linear(4096, 4096))

    def forward(self, x):
        for layer in (self.dense_1, self.dense_2, self.dense_3):
            x = torch.relu(layer(x))
        return self.dense_4(x)


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
    def __init__(self, vocabulary=65, context=64, width=128, layers=4, heads=4, shares_head=False):
        super().__init__()
        self.shape = (context, width)
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(1, context * width)
        self.blocks = nn.ModuleList(Block(width, heads, context) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = None if shares_head else nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        h = self.tokens(x) + self.positions.weight.view(self.shape)
        for block in self.blocks:
            h = block(h)
        h = self.norm(h)
        return functional.linear(h, self.tokens.weight) if self.head is None else self.head(h)


MODELS = {
    "softmax": SoftmaxRegression,
    "mlp-64": Perceptron,
    "mlp-256": Perceptron,
    "mlp-4096": WidePerceptron,
    "cnn": lambda: Convolutional(5),
    "cnn-256": lambda: Convolutional(5),
    "cnn-3x3": lambda: Convolutional(3),
    "lstm": Recurrent,
    "gpt": Transformer,
    "gpt2-small": lambda: Transformer(50257, 1024, 768, 12, 12, shares_head=True),
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


def optimizer_of(model, rule, **options):
    kind, rate = rule["kind"], rule["rate"]
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate)
    if kind == "momentum":
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=rate, **options)
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, **options)


def read(count, dtype):
    size = count * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(bytearray(sys.stdin.buffer.read(size)), dtype=dtype)


class Host:
    """Steps on the processor."""

    def __init__(self, trainer, processor_time):
        self.trainer = trainer
        # thread_time counts only the calling thread, because other threads may use processor time while they wait.
        self.clock = time.thread_time if processor_time else time.perf_counter

    def run(self, batches):
        begin = self.clock()
        losses = [self.trainer.step(*batch).detach() for batch in batches]
        return self.clock() - begin, losses


class Device:
    """Steps on a GPU. Batches come from pinned memory."""

    def __init__(self, trainer, device):
        self.trainer = trainer
        self.device = device
        self.stream = torch.cuda.current_stream(device)

    def submit(self, inputs, labels):
        return self.trainer.step(inputs.to(self.device, non_blocking=True),
                                 labels.to(self.device, non_blocking=True)).detach()

    def kept(self, loss, _):
        return loss

    def run(self, batches):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        losses = []
        begin.record(self.stream)
        for batch in batches:
            losses.append(self.kept(self.submit(*batch), len(batches)))
        end.record(self.stream)
        end.synchronize()
        return begin.elapsed_time(end) / 1e3, losses


class DeviceGraph(Device):
    """The step is a CUDA graph, which reads its batch from fixed places."""

    def __init__(self, trainer, device, inputs, labels):
        super().__init__(trainer, device)
        self.inputs = inputs.to(device)
        self.labels = labels.to(device)
        initial = {name: x.clone() for name, x in trainer.model.state_dict().items()}
        side = torch.cuda.Stream(device)
        side.wait_stream(self.stream)
        with torch.cuda.stream(side):
            for _ in range(3):
                trainer.step(self.inputs, self.labels)
        self.stream.wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        trainer.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.loss = trainer.forward_and_backward(self.inputs, self.labels).detach()
            trainer.optimizer.step()
        # The steps above have changed the weights and the state of the optimizer, so both are reset. A momentum of 0
        # has the same effect as the missing momentum of a new optimizer.
        with torch.no_grad():
            for name, x in trainer.model.state_dict().items():
                x.copy_(initial[name])
            for state in trainer.optimizer.state.values():
                for x in state.values():
                    if torch.is_tensor(x):
                        x.zero_()

    def submit(self, inputs, labels):
        self.inputs.copy_(inputs, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        self.graph.replay()
        return self.loss

    def kept(self, loss, count):
        # The next step overwrites the loss, so the loss must be copied. In rounds of more than 10 steps, copies would
        # take too much time.
        return loss.clone() if count <= 10 else loss


class Trainer:
    def __init__(self, model, optimizer, device, precision):
        self.model = model
        self.forward = model
        self.optimizer = optimizer
        self.kind = device.type
        self.narrow = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision)

    def lower(self):
        """Computes in 16 bits if the work asks for it."""
        return torch.autocast(self.kind, dtype=self.narrow) if self.narrow else contextlib.nullcontext()

    def forward_and_backward(self, inputs, labels):
        with self.lower():
            logits = self.forward(inputs)
            loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels)
        loss.backward()
        return loss

    def step(self, inputs, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward_and_backward(inputs, labels)
        self.optimizer.step()
        return loss


def device_of(name):
    """The device. Ends the program if there is no such device."""
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            answer(error=f"{sys.executable}: this PyTorch ({torch.__version__}) finds no GPU or was built without CUDA")
            sys.exit(0)
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
    return device


def program_for(trainer, device, given, inputs, labels):
    """The object that runs the steps. Raises an exception if PyTorch cannot run them in this mode."""
    mode = given["mode"]
    if mode == "compile":
        if not hasattr(torch, "compile"):
            raise RuntimeError(f"PyTorch {torch.__version__} has no torch.compile")
        trainer.forward = torch.compile(trainer.model)
    if device.type == "cpu":
        if mode == "graph":
            raise RuntimeError("CUDA graphs need a GPU")
        return Host(trainer, given["processor_time"])
    if mode == "graph":
        return DeviceGraph(trainer, device, inputs[0], labels[0])
    return Device(trainer, device)


def main():
    given = json.loads(sys.stdin.buffer.readline())
    if "processor" in given:
        os.sched_setaffinity(0, {given["processor"]})
    torch.set_num_threads(given["threads"])
    device = device_of(given["device"])
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
    try:
        model.to(device)
        if device.type == "cuda":
            inputs, labels = inputs.pin_memory(), labels.pin_memory()
        options = {"capturable": True} if given["mode"] == "graph" else {}
        trainer = Trainer(model, optimizer_of(model, given["optimizer"], **options), device, given["precision"])
        if given["ranks"] > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            torch.distributed.init_process_group("gloo", init_method=f"tcp://{given['address']}", rank=given["rank"],
                                                 world_size=given["ranks"])
            trainer.forward = nn.parallel.DistributedDataParallel(model)
        program = program_for(trainer, device, given, inputs, labels)
    except (RuntimeError, TypeError) as error:
        answer(unavailable=f"PyTorch {torch.__version__}, {given['mode']}: {error}")
        return
    answer(version=torch.__version__, blas=blas())

    done = 0
    for line in sys.stdin.buffer:
        steps = int(line)
        order = [(done + i) % count for i in range(steps)]
        done += steps
        seconds, losses = program.run([(inputs[i], labels[i]) for i in order])
        answer(seconds=seconds, losses=[x.item() for x in losses])


if __name__ == "__main__":
    main()
