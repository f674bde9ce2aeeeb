#!/usr/bin/env python3
"""Measures a model with a large table of weights, of which a batch reads only few rows.

Usage: tests/benchmarks/large_tables.py [--program=TROUPE] [--rounds=N] [--python=PYTHON] [--rows=N,N,...]
                                        [--optimizer=adagrad|adam]

The records are sparse: 20 features that are not 0, of N. The model has a table of N x 32 weights and two dense layers;
batch 64; ADAGRAD, or a lazy ADAM. Measures milliseconds per batch, alternately for troupe and for PyTorch (EmbeddingBag
with sparse gradients, one process, one thread; left out if PYTHON cannot import torch). Fails if a run learns nothing.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDS = 64000
ENTRIES = 20
BATCH = 64
EPOCHS = 3
STEPS = RECORDS // BATCH
LEAST_ACCURACY = 0.9

JOB = """
model {{
  layer {{ dense {{ units: 32 activation: RELU }} }}
  layer {{ dense {{ units: 2 }} }}
  loss: SOFTMAX_CROSS_ENTROPY
}}
data {{ libsvm {{ path: "{data}" features: {rows} }} batch: {batch} }}
learning_rate {{ base: {rate} }}
optimizer {{ {optimizer} }}
epochs: {epochs}
"""

# The rule in a job, its learning rate, and the rules in PyTorch, for the table and for all other parameters.
OPTIMIZERS = {
    "adagrad": ("kind: ADAGRAD", 0.05, "Adagrad Adagrad"),
    "adam": ("kind: ADAM lazy: true", 0.005, "SparseAdam Adam"),
}

RUNS = {
    "async_ps, 1 worker": ["--protocol=async_ps", "--workers=1"],
    "async_ps, 2 workers": ["--protocol=async_ps", "--workers=2"],
    "sync_ps, 2 workers": ["--protocol=sync_ps", "--workers=2"],
    "async_ps, 2 workers, 2 servers, processes": ["--protocol=async_ps", "--workers=2", "--ps=2", "--processes"],
    "sync_ps, 2 workers, 2 servers, processes": ["--protocol=sync_ps", "--workers=2", "--ps=2", "--processes"],
}

PYTORCH = """
import sys, time
import torch
torch.set_num_threads(1)
path, rows, batch, epochs, rate, sparse, dense = [int(x) if x.isdigit() else x for x in sys.argv[1:]]
records, labels = [], []
for line in open(path):
    label, *entries = line.split()
    labels.append(int(label))
    records.append([int(x.split(":")[0]) - 1 for x in entries])
labels = torch.tensor(labels)
table = torch.nn.EmbeddingBag(rows, 32, mode="sum", sparse=True)
torch.nn.init.xavier_uniform_(table.weight)
bias, out = torch.nn.Parameter(torch.zeros(32)), torch.nn.Linear(32, 2)
rules = [getattr(torch.optim, rule)(x, lr=float(rate), eps=1e-8)
         for rule, x in ((sparse, table.parameters()), (dense, [bias, *out.parameters()]))]
def forward(chosen):
    flat, starts = [], []
    for i in chosen.tolist():
        starts.append(len(flat))
        flat += records[i]
    return out(torch.relu(table(torch.tensor(flat), torch.tensor(starts)) + bias))
for epoch in range(epochs):
    if epoch == 1:
        began = time.perf_counter()
    for chosen in torch.randperm(len(records)).split(batch):
        for x in rules:
            x.zero_grad()
        torch.nn.functional.cross_entropy(forward(chosen), labels[chosen]).backward()
        for x in rules:
            x.step()
steps = (epochs - 1) * (len(records) // batch)
print((time.perf_counter() - began) / steps * 1e3)
right = (forward(torch.arange(len(records))).argmax(1) == labels).float().mean().item()
print(right)
"""


def write_records(path, rows):
    """A record's class is the sign of the sum of its features' weights. Half of the features are frequent ones."""
    draw = random.Random(1)
    weights = {}
    with open(path, "w") as out:
        for _ in range(RECORDS):
            chosen = {min(rows, int(draw.paretovariate(0.5))) if draw.random() < 0.5 else draw.randint(1, rows)
                      for _ in range(ENTRIES)}
            total = sum(weights.setdefault(x, draw.gauss(0, 1)) for x in chosen)
            out.write(f"{int(total > 0)} {' '.join(f'{x}:1' for x in sorted(chosen))}\n")


def train(options, folder, arguments):
    """Milliseconds per batch, without the first epoch. With sync_ps, an update has a batch of each worker."""
    out = folder / "out"
    subprocess.run([options.program, "train", f"--job={folder / 'job.textproto'}", f"--out={out}", *arguments],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(x) for x in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["test_accuracy"] >= LEAST_ACCURACY, (arguments, lines[-1]["test_accuracy"])
    ends = {x["epoch"]: x["seconds"] for x in lines if "epoch" in x and "test_loss" in x}
    return (ends[EPOCHS] - ends[1]) / ((EPOCHS - 1) * STEPS) * 1e3


def pytorch(options, folder, rows):
    _, rate, rules = OPTIMIZERS[options.optimizer]
    arguments = [folder / "data.libsvm", rows, BATCH, EPOCHS, rate, *rules.split()]
    said = subprocess.run([options.python, "-c", PYTORCH, *map(str, arguments)],
                          check=True, capture_output=True, text=True).stdout.split()
    assert float(said[1]) >= LEAST_ACCURACY, said
    return float(said[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/apps/troupe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rows", default="10000,100000,1000000")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adagrad")
    options = parser.parse_args()
    rule, rate, _ = OPTIMIZERS[options.optimizer]
    peer = subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode == 0
    for rows in map(int, options.rows.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            write_records(folder / "data.libsvm", rows)
            (folder / "job.textproto").write_text(
                JOB.format(data=folder / "data.libsvm", rows=rows, batch=BATCH, epochs=EPOCHS, optimizer=rule,
                           rate=rate))
            times = {}
            for _ in range(options.rounds):
                for name, arguments in RUNS.items():
                    times.setdefault(name, []).append(train(options, folder, arguments))
                if peer:
                    times.setdefault("PyTorch", []).append(pytorch(options, folder, rows))
        print(f"table of {rows} x 32, ms per {BATCH} records")
        for name, values in times.items():
            print(f"  {name:44} {statistics.median(values):8.3f}  ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
