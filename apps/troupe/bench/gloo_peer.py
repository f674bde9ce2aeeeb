"""A rank of the all-reduces of `troupe bench allreduce` with PyTorch's gloo. It takes orders from standard input.

The first order is a line of JSON: rank, ranks, and the loopback port where rank 0 listens. The answer is a line of JSON
with the version of PyTorch. Each further order is a line for a round: elements of the vector, and number of
all-reduces. The answer is a line of JSON: the seconds of each all-reduce, and whether all sums were right.
"""

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
    from torch import distributed
except ImportError as error:
    answer(error=f"{sys.executable} cannot import torch ({error})")
    sys.exit(0)

given = json.loads(sys.stdin.buffer.readline())
rank, ranks = given["rank"], given["ranks"]
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{given['port']}", rank=rank, world_size=ranks)
answer(version=torch.__version__)

meet = torch.zeros(1)
for line in sys.stdin.buffer:
    elements, times = map(int, line.split())
    pattern = (torch.arange(elements) % 5 + 1).float()
    seconds = []
    right = True
    for k in range(times):
        x = pattern * float((rank + 1) * (k % 2 + 1))
        distributed.all_reduce(meet)
        begin = time.perf_counter()
        distributed.all_reduce(x)
        seconds.append(time.perf_counter() - begin)
        right = right and torch.equal(x, pattern * float(ranks * (ranks + 1) // 2 * (k % 2 + 1)))
    answer(seconds=seconds, right=right)
