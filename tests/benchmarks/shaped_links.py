#!/usr/bin/env python3
"""Measures hosts that are connected by links of 1 Gbit/s: network namespaces on a bridge, with token bucket filters.

Usage: tests/benchmarks/shaped_links.py [--program=TROUPE] [--rounds=N] [--python=PYTHON] [--rate=1gbit]

Needs root, `ip` and `tc`. Measures milliseconds per step, alternately for: two workers with each protocol (MLP
784-256-128-10, batch 64), also if they exchange bfloat16, a plain TCP copy of the bytes that a parameter server's port
carries per step, and PyTorch's DistributedDataParallel over Gloo (left out if PYTHON cannot import torch). Then
measures an all-reduce of 64 MiB over four hosts, and prints the payload per second of each host. Fails if a run learns
nothing. Removes all namespaces at the end.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = 4
EPOCHS = 3
BATCH = 64
WORKERS = 2
PARAMETERS = 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10
LEAST_ACCURACY = 0.5

JOB = f"""
model {{
  layer {{ dense {{ units: 256 activation: RELU }} }} layer {{ dense {{ units: 128 activation: RELU }} }}
  layer {{ dense {{ units: 10 }} }} loss: SOFTMAX_CROSS_ENTROPY
}}
data {{ digits {{ train: 8000 test: 2000 }} batch: {BATCH} }}
optimizer {{ kind: MOMENTUM }}
learning_rate {{ base: 0.05 warmup_epochs: 1 cosine {{}} }}
epochs: {EPOCHS}
"""

# A program that sends `count` bytes to each peer and receives as many from it, `steps` times. Both directions run at
# the same time.
COPY_SERVER = """
import socket, sys, threading
address, peers, count, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
listener = socket.create_server((address, 7100))
print("listens", flush=True)
def serve(peer):
    data, space = bytes(count), bytearray(count)
    sender = threading.Thread(target=lambda: [peer.sendall(data) for _ in range(steps)])
    sender.start()
    view = memoryview(space)
    for _ in range(steps):
        done = 0
        while done < count:
            done += peer.recv_into(view[done:])
    sender.join()
threads = [threading.Thread(target=serve, args=(listener.accept()[0],)) for _ in range(peers)]
for x in threads: x.start()
for x in threads: x.join()
"""
COPY_CLIENT = """
import socket, sys, threading, time
address, count, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
server = socket.create_connection((address, 7100))
data, view = bytes(count), memoryview(bytearray(count))
began = time.perf_counter()
sender = threading.Thread(target=lambda: [server.sendall(data) for _ in range(steps)])
sender.start()
for _ in range(steps):
    done = 0
    while done < count:
        done += server.recv_into(view[done:])
sender.join()
print((time.perf_counter() - began) / steps * 1e3)
"""

DDP = """
import os, sys, time
import torch
from torch import nn
rank, batch, steps, address = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
torch.distributed.init_process_group("gloo", init_method=f"tcp://{address}:7200", rank=rank, world_size=2)
net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
model = nn.parallel.DistributedDataParallel(net)
if sys.argv[5:] == ["bfloat16"]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    model.register_comm_hook(None, bf16_compress_hook)
rule = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x, y = torch.rand(batch, 784), torch.randint(10, (batch,))
for step in range(steps + 10):
    if step == 10:
        began = time.perf_counter()
    rule.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    rule.step()
print((time.perf_counter() - began) / steps * 1e3)
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def name_of(host):
    return f"troupe-bench-{host}"


def address_of(host):
    return f"10.213.7.{host + 1}"


@contextlib.contextmanager
def shaped_hosts(rate):
    """Creates the hosts, and removes them at the end. The bridge has its own namespace, so nothing else here
    changes."""
    bridge = name_of("bridge")
    made = []
    try:
        ip("netns", "add", bridge)
        made.append(bridge)
        ip("-n", bridge, "link", "add", "bridge0", "type", "bridge")
        ip("-n", bridge, "link", "set", "bridge0", "up")
        for host in range(HOSTS):
            name = name_of(host)
            ip("netns", "add", name)
            made.append(name)
            ip("-n", bridge, "link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", bridge, "link", "set", f"port{host}", "master", "bridge0", "up")
            ip("-n", name, "addr", "add", f"{address_of(host)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            for space, device in ((bridge, f"port{host}"), (name, "eth0")):
                subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate,
                                "burst", "256kb", "latency", "50ms"], check=True)
        yield
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def start(host, *words, **options):
    return subprocess.Popen(["ip", "netns", "exec", name_of(host), *words], text=True, **options)


def train(options, name, folder):
    """Milliseconds per step. The coordinator is on host 0, a parameter server on host 1, the workers on hosts 2 and
    3."""
    folder = pathlib.Path(folder)
    protocol, *fields = name.split(", ")
    protocol = protocol.upper()
    servers = {"ps": [f"{address_of(1)}:7001"]} if protocol != "RING" else {}
    cluster = {"cluster": {"coordinator": [f"{address_of(0)}:7000"], **servers,
                           "worker": [f"{address_of(2 + i)}:7002" for i in range(WORKERS)]}}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    (folder / "job.textproto").write_text(JOB + f"protocol: {protocol}\n" + "".join(fields) + "\n")
    node = [options.program, "node", f"--cluster={folder / 'cluster.json'}", "--insecure"]
    out = folder / "out"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    nodes = [start(2 + i, *node, "--role=worker", f"--task={i}", **quiet) for i in range(WORKERS)]
    if servers:
        nodes.append(start(1, *node, "--role=ps", "--task=0", **quiet))
    nodes.append(start(0, *node, "--role=coordinator", f"--job={folder / 'job.textproto'}", f"--out={out}", **quiet))
    for x in nodes:
        assert x.wait() == 0, (protocol, x.args)
    end = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert end["test_accuracy"] >= LEAST_ACCURACY, (protocol, end["test_accuracy"])
    return 1e3 * BATCH * WORKERS / end["samples_per_second"]


def copy(_options):
    """Milliseconds to copy the bytes that a parameter server's port carries in one step of both workers."""
    count, steps = 4 * PARAMETERS, 100
    server = start(1, sys.executable, "-c", COPY_SERVER, address_of(1), str(WORKERS), str(count), str(steps),
                   stdout=subprocess.PIPE)
    server.stdout.readline()
    clients = [start(2 + i, sys.executable, "-c", COPY_CLIENT, address_of(1), str(count), str(steps),
                     stdout=subprocess.PIPE) for i in range(WORKERS)]
    times = [float(x.communicate()[0]) for x in clients]
    assert server.wait() == 0
    return max(times)


def ddp(options, *more):
    ranks = [start(2 + i, options.python, "-c", DDP, str(i), str(BATCH), "100", address_of(2), *more,
                   stdout=subprocess.PIPE) for i in range(2)]
    return max(float(x.communicate()[0]) for x in ranks)


def all_reduce(options):
    """Milliseconds of a ring all-reduce of 64 MiB over all hosts."""
    addresses = ",".join(f"{address_of(i)}:7300" for i in range(HOSTS))
    ranks = [start(i, options.program, "bench", "allreduce", f"--ranks={HOSTS}", "--sizes=64MiB", "--rounds=4",
                   "--schedule=ring", "--transport=tcp", f"--rank={i}", f"--addresses={addresses}", "--processes",
                   "--json", stdout=subprocess.PIPE) for i in range(HOSTS)]
    said = [x.communicate()[0] for x in ranks]
    assert all(x.returncode == 0 for x in ranks), said
    return json.loads(said[0])[0]["microseconds"]["median"] / 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build/release/apps/troupe")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rate", default="1gbit")
    options = parser.parse_args()
    plain = "plain TCP copy for 1 ps"
    rounded = ", exchange_precision: BFLOAT16"
    peer = "PyTorch DDP, gloo"
    names = ["ring", "async_ps", "async_ps, pull_ahead: 1", "sync_ps", plain, "ring" + rounded, "async_ps" + rounded,
             "sync_ps" + rounded]
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        names += [peer, peer + ", bfloat16"]
    times = {x: [] for x in names}
    with shaped_hosts(options.rate):
        for _ in range(options.rounds):
            for name, values in times.items():
                with tempfile.TemporaryDirectory() as folder:
                    if name == plain:
                        values.append(copy(options))
                    elif name.startswith(peer):
                        values.append(ddp(options, *name.split(", ")[2:]))
                    else:
                        values.append(train(options, name, folder))
        print(f"{'':<38} {'ms per step':>12} {'least':>8} {'most':>8} {'of copy':>8}")
        for name, values in times.items():
            of_copy = statistics.median(a / b for a, b in zip(times[plain], values))
            print(f"{name:<38} {statistics.median(values):>12.2f} {min(values):>8.2f} {max(values):>8.2f}"
                  f" {of_copy:>7.2f}x")
        wire = all_reduce(options)
        sent = 64 * 2**20 * 2 * (HOSTS - 1) / HOSTS
        print(f"ring of {HOSTS} hosts, 64 MiB: {wire:.0f} ms, "
              f"{sent / wire / 1e3:.1f} MB/s of payload per host each way")
    return 0


if __name__ == "__main__":
    sys.exit(main())
