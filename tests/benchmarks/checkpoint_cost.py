#!/usr/bin/env python3
"""The cost of checkpoints: samples/s of the MNIST example alternately with a checkpoint every 50 steps and without.

Usage: TROUPE_DATA=FOLDER tests/benchmarks/checkpoint_cost.py [PROGRAM] [ROUNDS]

async_ps, 2 workers, in one process and in several, on an otherwise idle machine. Prints minimum, median and maximum of
each, and the cost: the median over rounds of 1 - (with / without). Exits with 1 if that is more than 2 %.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST = 0.02
STEPS = 50
EPOCHS = 20


def samples_per_second(program, processes, checkpoints):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "train", f"--job={ROOT / 'apps/examples/mnist_mlp.textproto'}", "--workers=2", "--ps=1",
                   f"--set=epochs={EPOCHS}", f"--out={folder}"]
        command += ["--processes"] * processes + [f"--set=checkpoint.every_steps={STEPS}"] * checkpoints
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        end = json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])
        written = list((pathlib.Path(folder) / "checkpoints").glob("step-*"))
        # An epoch has 125 batches. The newest checkpoint is at the last multiple of STEPS.
        newest = EPOCHS * 125 // STEPS * STEPS
        assert bool(written) == checkpoints
        assert not checkpoints or f"step-{newest:08}" in {x.name for x in written}, written
        return end["samples_per_second"]


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/apps/troupe"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    well = True
    print(f"{'where':<14} {'checkpoints':<14} {'samples/s: minimum':>20} {'median':>10} {'maximum':>10}")
    for processes in (False, True):
        where = "processes" if processes else "one process"
        results = {False: [], True: []}
        for _ in range(rounds):
            for checkpoints in (False, True):
                results[checkpoints].append(samples_per_second(program, processes, checkpoints))
        for checkpoints, speeds in results.items():
            print(f"{where:<14} {f'every {STEPS} steps' if checkpoints else 'none':<14} {min(speeds):>20,.0f}"
                  f" {statistics.median(speeds):>10,.0f} {max(speeds):>10,.0f}")
        cost = statistics.median(1 - b / a for a, b in zip(results[False], results[True]))
        print(f"{where:<14} cost {100 * cost:.1f} %")
        well = well and cost <= MOST
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
