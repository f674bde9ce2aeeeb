"""For tests that train a model of another program with troupe: data, jobs, and which samples a step takes."""

import pathlib
import subprocess

import numpy

from program import PROGRAM, TestCase

MASK = (1 << 64) - 1
GOLDEN = 0x9e3779b97f4a7c15

STEPS = 10
# Number of records in a step, over all workers.
BATCH = 8
EPOCHS = 2
RECORDS = BATCH * STEPS // EPOCHS

# Tolerance: weights and outputs of both programs differ by at most this much, relative to the value if it is above 1.
TOLERANCE = 1e-5

# Pairs (protocol, number of workers).
RUNS = (("async_ps", 1), ("ring", 2))

JOB = """
seed: {seed}
model {{ onnx: "{onnx}" loss: SOFTMAX_CROSS_ENTROPY }}
data {{
  npy {{ features: "{folder}/x.npy" labels: "{folder}/y.npy" }}
  batch: {batch}
}}
optimizer {{ kind: SGD }}
learning_rate {{ base: {rate} }}
epochs: {epochs}
"""
SEED = 3


def mix(x):
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def rotated(x, n):
    return (x << n | x >> 64 - n) & MASK


def random_numbers(seed, count):
    """The first numbers of random_stream (kernels/random.cpp)."""
    state = [mix(seed + i * GOLDEN & MASK) for i in range(1, 5)]
    for _ in range(count):
        yield (rotated(state[0] + state[3] & MASK, 23) + state[0]) & MASK
        shifted = state[1] << 17 & MASK
        state[2] ^= state[0]
        state[3] ^= state[1]
        state[1] ^= state[2]
        state[0] ^= state[3]
        state[2] ^= shifted
        state[3] = rotated(state[3], 45)


def order_of_records(records, seed, epoch):
    """The order in which an epoch visits the records (kernels/data/permutation.cpp)."""
    key = 0xcbf29ce484222325
    name = b"permutation"
    for byte in name:
        key = (key ^ byte) * 0x100000001b3 & MASK
    key = mix(mix(seed + GOLDEN & MASK) ^ mix(key ^ len(name)))
    key = mix(key + GOLDEN & MASK)
    key = mix((key * GOLDEN & MASK) + mix(epoch + GOLDEN & MASK) & MASK)
    keys = list(random_numbers(key, 6))
    bits = max((records - 1).bit_length(), 8)
    low_bits = bits // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << bits - low_bits) - 1
    result = []
    for x in range(records):
        while True:
            low, high = x & low_mask, x >> low_bits
            for i in range(0, 6, 2):
                high ^= mix(low + keys[i] & MASK) & high_mask
                low ^= mix(high + keys[i + 1] & MASK) & low_mask
            x = high << low_bits | low
            if x < records:
                break
        result.append(x)
    return result


def batches(workers):
    """For each step, the records of each worker."""
    size = BATCH // workers
    for epoch in range(EPOCHS):
        order = order_of_records(RECORDS, SEED, epoch)
        for begin in range(0, RECORDS, BATCH):
            yield [order[begin + i * size:begin + (i + 1) * size] for i in range(workers)]


def difference(found, wanted):
    """The largest difference of two arrays, relative to values above 1. Infinity if they cannot be compared."""
    found, wanted = numpy.asarray(found, numpy.float64), numpy.asarray(wanted, numpy.float64)
    if found.shape != wanted.shape:
        return float("inf")
    result = numpy.max(numpy.abs(found - wanted) / numpy.maximum(1, numpy.abs(wanted)), initial=0)
    return float(result) if result == result else float("inf")


class Elsewhere(TestCase):
    """Trains an ONNX file of another program with troupe."""

    def run_program(self, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, f"{arguments} said:\n{done.stdout}{done.stderr}")

    def train(self, onnx, x, y, rate, protocol, workers):
        """Trains with the records x and labels y. Returns the weights file and the exported model."""
        folder = pathlib.Path(self.folder)
        numpy.save(folder / "x.npy", x)
        numpy.save(folder / "y.npy", y)
        job = self.file("job.textproto", JOB.format(seed=SEED, onnx=onnx, folder=folder, batch=BATCH // workers,
                                                    rate=rate, epochs=EPOCHS))
        out = folder / f"{onnx.stem}_{protocol}"
        self.run_program("train", f"--job={job}", f"--out={out}", f"--protocol={protocol}", f"--workers={workers}")
        exported = out / "trained.onnx"
        self.run_program("export", f"--job={job}", f"--weights={out}", f"--output={exported}")
        return out / "weights.safetensors", exported
