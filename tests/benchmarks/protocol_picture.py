#!/usr/bin/env python3
"""Draws apps/manual/protocols.svg: accuracy and speed of the protocols with one slow worker of four.

Usage: TROUPE_DATA=FOLDER tests/benchmarks/protocol_picture.py [--program=TROUPE] [--seeds=N] [--results SLOW BACKUP]

Runs `troupe bench async --work=slow` and `--work=backup` (virtual time: the same numbers on every machine), or reads
what they printed with --json from two files.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKERS = 4
WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 30, 60
# Where the label of a point is: how far to the right and down, and which end of the text is there.
PLACES = {"serial, one worker": (10, -6, "start"), "ssp, staleness 4": (10, 14, "start"), "sync_ps": (10, 16, "start"),
          "local_sgd, H = 8": (10, 4, "start"), "async_ps": (-10, -8, "end"),
          "sync_ps, 1 backup, REQUEUE": (-10, 18, "end"), "local_sgd, H = 8, CONTRIBUTE": (-10, 4, "end")}


def bench(options, *more):
    return json.loads(subprocess.run(
        [options.program, "bench", "async", f"--workers={WORKERS}", f"--seeds={options.seeds}", "--rounds=0", "--json",
         *more], check=True, capture_output=True, text=True).stdout)


def points(slow, backup):
    """For each protocol: its name, the samples/s of all workers relative to sync_ps, and the mean accuracy in
    percent."""
    rows = {x["protocol"]: x for x in backup["backups"]}
    reference = statistics.mean(rows["sync_ps"]["samples_per_second"])
    result = []
    for name, x in rows.items():
        name = "serial, one worker" if name == "serial" else name
        if name in PLACES:
            result.append((name, statistics.mean(x["samples_per_second"]) / reference,
                           100 * statistics.mean(x["accuracies"])))
    # In this table, speeds are relative to one worker, which is the serial run.
    serial = next(speed for name, speed, _ in result if name.startswith("serial"))
    for x in slow["works"][0]["cells"]:
        if x["recipe"] == "SSP":
            result.append(("ssp, staleness 4", x["speed"] * serial, x["mean_percent"]))
    return result


def picture(data):
    least, most = 95.5, 97.25
    fastest = 4.0

    def place(speed, accuracy):
        x = LEFT + (WIDTH - LEFT - RIGHT) * speed / fastest
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (most - accuracy) / (most - least)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="13">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for k in range(int(fastest) + 1):
        x, y = place(k, least)
        out.append(f'<line x1="{x:.0f}" y1="{TOP}" x2="{x:.0f}" y2="{y:.0f}" stroke="#e0e0e0"/>')
        out.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle" fill="#555555">{k}x</text>')
    for k in range(4):
        accuracy = least + 0.5 * k
        x, y = place(0, accuracy)
        out.append(f'<line x1="{x}" y1="{y:.0f}" x2="{WIDTH - RIGHT}" y2="{y:.0f}" stroke="#e0e0e0"/>')
        out.append(f'<text x="{x - 8}" y="{y + 4:.0f}" text-anchor="end" fill="#555555">{accuracy:.1f} %</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle">'
               'samples per second of all workers, relative to sync_ps</text>')
    out.append(f'<text x="{LEFT}" y="18">test accuracy</text>')
    for name, speed, accuracy in data:
        x, y = place(speed, accuracy)
        dx, dy, anchor = PLACES[name]
        color = "#888888" if name.startswith("serial") else "#1f6feb"
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>')
        out.append(f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build/release/apps/troupe")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--results", nargs=2, type=pathlib.Path)
    options = parser.parse_args()
    if options.results:
        slow, backup = (json.loads(x.read_text()) for x in options.results)
    else:
        slow, backup = bench(options, "--work=slow", "--recipes=SSP"), bench(options, "--work=backup")
    data = points(slow, backup)
    (ROOT / "apps/manual/protocols.svg").write_text(picture(data))
    for name, speed, accuracy in data:
        print(f"{name:<30} {speed:5.2f}x  {accuracy:.2f} %")


if __name__ == "__main__":
    main()
