#!/usr/bin/env python3
"""Test accuracy and speed of examples that learn from images, over three seeds.

Usage: TROUPE_DATA=FOLDER tests/benchmarks/examples_accuracy.py [PROGRAM] [EXAMPLE...]

Runs one after the other, with one worker. Exits with 1 if a run fails or a mean accuracy is below its goal.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOALS = {"mnist_lenet": 0.98, "digits_resnet": 0.98}


def train(program, example, seed):
    """Returns the last line of a run's metrics."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "train", f"--job={ROOT / 'apps/examples' / example}.textproto", "--workers=1",
                   f"--set=seed={seed}", f"--out={folder}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/apps/troupe"
    well = True
    print(f"{'example':<16} {'accuracy (3 seeds)':<28} {'mean':>8} {'samples/s (median)':>20}")
    for example in sys.argv[2:] or GOALS:
        runs = [train(program, example, seed) for seed in (1, 2, 3)]
        accuracy = [x["test_accuracy"] for x in runs]
        mean = statistics.mean(accuracy)
        well = well and mean >= GOALS.get(example, 0)
        print(f"{example:<16} {'  '.join(f'{100 * x:.2f} %' for x in accuracy):<28} {100 * mean:6.2f} %"
              f" {statistics.median(x['samples_per_second'] for x in runs):>20,.0f}", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
