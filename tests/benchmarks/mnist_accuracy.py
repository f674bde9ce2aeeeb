#!/usr/bin/env python3
"""Test accuracy and speed of the MNIST example in all protocols, in one process and in several, over three seeds.

Usage: TROUPE_DATA=FOLDER tests/benchmarks/mnist_accuracy.py [PROGRAM]

Runs one after the other, on an otherwise idle machine. Exits with 1 if a run fails or a mean accuracy is below 95 %.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOAL = 0.95


def train(program, folder, protocol, processes, seed):
    """Returns the last line of a run's metrics."""
    command = [program, "train", f"--job={ROOT / 'apps/examples/mnist_mlp.textproto'}", "--workers=2", "--ps=2",
               f"--protocol={protocol}", f"--set=seed={seed}", f"--out={folder}"]
    subprocess.run(command + ["--processes"] * processes, check=True, stdout=subprocess.DEVNULL)
    return json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])


def protocols(program):
    """All protocols, in the order of the help."""
    text = subprocess.run([program, "train", "--help"], check=True, capture_output=True, text=True).stdout
    return re.search(r"--protocol \{([a-z_,]+)\}", text)[1].split(",")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/apps/troupe"
    well = True
    print(f"{'protocol':<10} {'where':<14} {'accuracy (3 seeds)':<28} {'mean':>8} {'samples/s (median)':>20}")
    for protocol in protocols(program):
        for processes in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                runs = [train(program, folder, protocol, processes, seed) for seed in (1, 2, 3)]
            accuracy = [x["test_accuracy"] for x in runs]
            mean = statistics.mean(accuracy)
            well = well and mean >= GOAL
            where = "processes" if processes else "one process"
            each = "  ".join(f"{100 * x:.2f} %" for x in accuracy)
            print(f"{protocol:<10} {where:<14} {each:<28} {100 * mean:6.2f} %"
                  f" {statistics.median(x['samples_per_second'] for x in runs):>20,.0f}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
