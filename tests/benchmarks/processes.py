#!/usr/bin/env python3
"""Two worker processes on one host, in turns with one process of two threads, two runs that know nothing of each other,
and PyTorch's DistributedDataParallel over Gloo.

Usage: TROUPE_DATA=FOLDER tests/benchmarks/processes.py [--program=TROUPE] [--rounds=N] [--python=PYTHON] [--batch=N]

Trains the MNIST example. Prints the median of samples/s, and of the ratios within a round to the two independent runs
and to PyTorch, which is left out where PYTHON cannot import torch. Fails if a run ends below 93 % accuracy.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPOCHS = 10
LEAST_ACCURACY = 0.93

DDP = r"""
import gzip, os, sys, time
import numpy as np, torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
rank, batch, epochs, store = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
folder = os.path.join(os.environ["TROUPE_DATA"], "mnist10k")
def read(name, skip):
    return np.frombuffer(gzip.open(os.path.join(folder, name)).read(), np.uint8)[skip:]
x = torch.from_numpy(read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(np.float32) / 255)
y = torch.from_numpy(read("t10k-labels-idx1-ubyte.gz", 8).astype(np.int64))
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
model = DistributedDataParallel(net)
rule = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
began = time.perf_counter()
for epoch in range(epochs):
    order = torch.from_numpy(np.random.default_rng(epoch).permutation(8000))[rank::2]
    for i in range(0, 4000 - batch + 1, batch):
        rows = order[i:i + batch]
        rule.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        rule.step()
seconds = time.perf_counter() - began
accuracy = (net(x[8000:]).argmax(1) == y[8000:]).float().mean().item()
if rank == 0:
    print(epochs * 2 * (4000 // batch) * batch / seconds, accuracy)
"""


def start_troupe(options, folder, *more):
    return subprocess.Popen(
        [options.program, "train", f"--job={ROOT / 'apps/examples/mnist_mlp.textproto'}", f"--set=epochs={EPOCHS}",
         f"--set=data.batch={options.batch}", f"--out={folder}", *more],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def troupe(options, *more, copies=1):
    with tempfile.TemporaryDirectory() as folder:
        folders = [pathlib.Path(folder) / str(i) for i in range(copies)]
        for process in [start_troupe(options, x, *more) for x in folders]:
            assert process.wait() == 0
        ends = [json.loads((x / "metrics.jsonl").read_text().splitlines()[-1]) for x in folders]
        return sum(x["samples_per_second"] for x in ends), min(x["test_accuracy"] for x in ends)


def ddp(options):
    with tempfile.TemporaryDirectory() as folder:
        settings = [str(options.batch), str(EPOCHS), f"{folder}/store"]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([options.python, "-c", DDP, str(rank), *settings], stdout=subprocess.PIPE, text=True,
                                  env=one_thread) for rank in range(2)]
        said = [x.communicate()[0] for x in ranks]
        speed, accuracy = map(float, said[0].split())
        return speed, accuracy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build/release/apps/troupe")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    ways = {"two independent runs": lambda: troupe(options, "--workers=1", "--protocol=RING", copies=2)}
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        ways["PyTorch DDP, Gloo"] = lambda: ddp(options)
    for protocol in ("ASYNC_PS", "SYNC_PS", "RING"):
        both = ["--workers=2", f"--protocol={protocol}"]
        ways[f"{protocol.lower()}, threads"] = lambda both=both: troupe(options, *both)
        for transport in ("auto", "tcp", "basp"):
            ways[f"{protocol.lower()}, processes, {transport}"] = \
                lambda both=both, transport=transport: troupe(options, *both, "--processes", f"--transport={transport}")
    speeds = {x: [] for x in ways}
    for _ in range(options.rounds):
        for name, run in ways.items():
            speed, accuracy = run()
            assert accuracy >= LEAST_ACCURACY, (name, accuracy)
            speeds[name].append(speed)
    print(f"{'':<32} {'samples/s':>10} {'of two runs':>12} {'of DDP':>8}")
    for name, values in speeds.items():
        def ratio(other):
            return f"{statistics.median(a / b for a, b in zip(values, speeds[other])):.2f}" if other in speeds else "-"
        print(f"{name:<32} {statistics.median(values):>10,.0f} {ratio('two independent runs'):>12}"
              f" {ratio('PyTorch DDP, Gloo'):>8}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TROUPE_DATA", str(ROOT / "../shared/data"))
    sys.exit(main())
