#!/usr/bin/env python3
"""Test accuracy and speed of logistic regression on sparse rows (a9a) in all protocols, over three seeds.

Usage: TROUPE_DATA=FOLDER tests/benchmarks/a9a_accuracy.py [PROGRAM]

Exits with 1 if a run fails or a mean accuracy is below 84.8 %.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOAL = 0.848


def train(program, folder, protocol, workers, seed):
    """Returns the last line of a run's metrics."""
    subprocess.run([program, "train", f"--job={ROOT / 'apps/examples/a9a_logistic.textproto'}", f"--workers={workers}",
                    f"--protocol={protocol}", f"--set=seed={seed}", f"--out={folder}"], check=True,
                   stdout=subprocess.DEVNULL)
    return json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])


def protocols(program):
    """All protocols, in the order of the help."""
    text = subprocess.run([program, "train", "--help"], check=True, capture_output=True, text=True).stdout
    return re.search(r"--protocol \{([a-z_,]+)\}", text)[1].split(",")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/apps/troupe"
    well = True
    print(f"{'protocol':<10} {'workers':<8} {'accuracy (3 seeds)':<28} {'mean':>8} {'samples/s (median)':>20}")
    for protocol in protocols(program):
        for workers in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                runs = [train(program, folder, protocol, workers, seed) for seed in (1, 2, 3)]
            accuracy = [x["test_accuracy"] for x in runs]
            mean = statistics.mean(accuracy)
            well = well and mean >= GOAL
            each = "  ".join(f"{100 * x:.2f} %" for x in accuracy)
            print(f"{protocol:<10} {workers:<8} {each:<28} {100 * mean:6.2f} %"
                  f" {statistics.median(x['samples_per_second'] for x in runs):>20,.0f}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
