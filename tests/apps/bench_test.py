"""`troupe bench`: it measures what it reports, in little time. No test requires a minimum speed."""

import json
import os
import shutil
import struct
import subprocess
import sys
import unittest

from program import DATA, PROGRAM, SOURCE, TestCase, run_tests

QUICK = ("--rounds=2", "--seconds=0.001")

# The processor of each of two workers of a peer: the same as that of two workers of `troupe train --processes`.
PROCESSORS_OF_TWO = """
import os
allowed = sorted(os.sched_getaffinity(0))
processors = allowed[:2] if 2 <= len(allowed) < 4 else []
"""

# Stands for a process with PyTorch. Its losses are wrong by a factor, which the benchmark must notice.
FAKE_PEER = """#!/usr/bin/env python3
import json, sys
PROCESSORS_OF_TWO
given = json.loads(sys.stdin.buffer.readline())
assert given.get("processor") == (processors[given["rank"]] if processors and given["ranks"] == 2 else None)
elements = 0
for _, shape in given["tensors"]:
    count = 1
    for extent in shape:
        count *= extent
    elements += count
samples = given["batches"] * given["batch"]
data = sys.stdin.buffer.read(4 * (elements + samples * (given["inputs"] + given["labels"])))
assert given["threads"] == 1 and given["rank"] < given["ranks"] and any(data)
assert given["optimizer"]["kind"] == ("sgd" if given["work"] == "softmax" else "momentum")
print(json.dumps({"version": "of a test", "blas": "none"}), flush=True)
for line in sys.stdin.buffer:
    print(json.dumps({"seconds": 1.0, "losses": [100.0] * int(line)}), flush=True)
""".replace("PROCESSORS_OF_TWO", PROCESSORS_OF_TWO)


# Stands for a process with TensorFlow.
FAKE_TENSORFLOW = """#!/usr/bin/env python3
import json, sys
PROCESSORS_OF_TWO
given = json.loads(sys.stdin.buffer.readline())
assert given["processors"] == processors
assert given["processes"] and given["steps"] == 20 and given["workers"] == 2 and given["layers"] == [256, 128, 10]
data = sys.stdin.buffer.read(4 * (given["train"] + given["test"]) * (given["features"] + 1))
assert any(data)
print(json.dumps({"version": "of a test"}), flush=True)
print(json.dumps({"accuracy": ACCURACY, "seconds": SECONDS * given["epochs"]}), flush=True)
""".replace("PROCESSORS_OF_TWO", PROCESSORS_OF_TWO)


# Trains with the classes of torch_peer.py for GPUs, without a GPU: a CUDA graph repeats the recorded calls of the
# trainer.
FAKE_CUDA = """
import contextlib, importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("torch_peer", sys.argv[1])
peer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peer)

class Event:
    def __init__(self, enable_timing): assert enable_timing
    def record(self, stream): pass
    def synchronize(self): pass
    def elapsed_time(self, end): return 2500.0

class Stream:
    def __init__(self, device=None): pass
    def wait_stream(self, other): pass

class Graph:
    def replay(self):
        loss = trainer.forward_and_backward(program.inputs, program.labels)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)
        program.loss.copy_(loss.detach())

torch.cuda.Event, torch.cuda.Stream, torch.cuda.CUDAGraph = Event, Stream, Graph
torch.cuda.current_stream = Stream
torch.cuda.stream = lambda x: contextlib.nullcontext()

@contextlib.contextmanager
def graph(x):
    saved = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    yield
    trainer.optimizer.zero_grad(set_to_none=True)
    for name, value in trainer.model.state_dict().items():
        value.copy_(saved[name])
torch.cuda.graph = graph

def batches():
    return [(torch.ones(4, 784) * (i + 1) / 99, torch.arange(4) + i) for i in range(3)]

def make(kind):
    torch.manual_seed(1)
    model = peer.SoftmaxRegression()
    rule = {"kind": kind, "rate": 0.01}
    return peer.Trainer(model, peer.optimizer_of(model, rule), torch.device("cpu"), "float32")

for mode in ("eager", "graph"):
    for kind in ("sgd", "momentum"):
        expected = [x.item() for x in peer.Host(make(kind), False).run(batches())[1]]
        trainer = make(kind)
        before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        if mode == "eager":
            program = peer.Device(trainer, torch.device("cpu"))
        else:
            program = peer.DeviceGraph(trainer, torch.device("cpu"), *batches()[0])
            for name, value in trainer.model.state_dict().items():
                assert torch.equal(value, before[name]), name
        seconds, losses = program.run(batches())
        assert seconds == 2.5
        actual = [x.item() for x in losses]
        assert all(abs(a - b) < 1e-6 for a, b in zip(actual, expected)), (actual, expected)
    print(mode)
"""


def python_with_torch():
    for python in ("python3", "/usr/bin/python3"):
        try:
            if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
                return python
        except OSError:
            pass
    return None


def has_torch():
    return python_with_torch() is not None


class Bench(TestCase):
    def run_program(self, *arguments, code=0, **environment):
        """Standard output and standard error of a run, separately."""
        done = subprocess.run([PROGRAM, "bench", *arguments], capture_output=True, text=True, timeout=240, check=False,
                              env=os.environ | environment)
        self.assertEqual(done.returncode, code, f"{arguments} said:\n{done.stdout}{done.stderr}")
        return done.stdout, done.stderr

    def results(self, *arguments):
        return json.loads(self.run_program(*arguments, "--json")[0])


class Train(Bench):
    def test_results(self):
        results = self.results("train", "--work=softmax", "--work=cnn-3x3", *QUICK)
        self.assertEqual([x["work"] for x in results], ["softmax", "cnn-3x3"])
        for x in results:
            self.assertEqual((x["threads"], x["rounds"]), (1, 2))
            speed = x["samples_per_second"]
            self.assertTrue(0 < speed["least"] <= speed["median"] <= speed["most"], x)
            self.assertGreaterEqual(x["steps_per_round"], 1)
            # A random guess among ten classes has a loss of about 2.3.
            self.assertTrue(1 < x["first_loss"] < 5, x)
            self.assertTrue(0 < x["last_loss"] < 5, x)
        # The problem is convex, so each step on a batch reduces its loss.
        self.assertLess(results[0]["last_loss"], results[0]["first_loss"])

    def test_table(self):
        output, _ = self.run_program("train", "--work=softmax", *QUICK)
        self.assertIn("us/step", output)
        self.assertIn("softmax", output)
        self.assertNotIn("torch", output)
        self.assertNotIn("mlp-64", output)

    def test_threads_and_processor_time_change_no_loss(self):
        one = self.results("train", "--work=mlp-64", "--rounds=1", "--seconds=1e-6")[0]
        two = self.results("train", "--work=mlp-64", "--rounds=1", "--seconds=1e-6", "--threads=2")[0]
        own = self.results("train", "--work=mlp-64", "--rounds=1", "--seconds=1e-6", "--processor-time")[0]
        self.assertEqual(two["threads"], 2)
        for x in (two, own):
            self.assertEqual((x["first_loss"], x["last_loss"]), (one["first_loss"], one["last_loss"]))

    def test_profile(self):
        output, _ = self.run_program("train", "--work=softmax", "--profile", *QUICK)
        for what in ("matmul", "softmax_cross_entropy", "update of the weights"):
            self.assertIn(what, output)
        profile = self.results("train", "--work=softmax", "--profile", *QUICK)[0]["profile"]
        self.assertTrue(all(x["microseconds"] > 0 for x in profile), profile)

    def test_bad_input(self):
        for arguments, said in (
            (["--work=resnet"], "--work=resnet: there is no such work; known are softmax, mlp-64"),
            (["--peer=tensorflow"], "expected torch"),
            (["--threads=0"], "at least 1"),
            (["--threads=2", "--processor-time"], "--processor-time"),
            (["--work=softmax", "--peer=torch", "--python=/no/such/python"], "there is no program /no/such/python"),
            (["--work=softmax", "--peer=torch", "--python=false"], "false ended without an answer"),
        ):
            self.assertIn(said, self.run_program("train", *arguments, code=2)[1])

    def test_incomplete_answers_of_the_peer(self):
        for change in (("* int(line)", "* 2"), ('"seconds": 1.0', '"seconds": 0')):
            fake = self.file("python", FAKE_PEER.replace(*change))
            os.chmod(fake, 0o755)
            _, said = self.run_program("train", "--work=softmax", "--peer=torch", f"--python={fake}", *QUICK, code=1)
            self.assertRegex(said, "PyTorch has answered [0-9]+ losses and [01] s for 10 steps; expected a loss per")

    def test_peer_that_computes_something_else(self):
        fake = self.file("python", FAKE_PEER)
        os.chmod(fake, 0o755)
        output, said = self.run_program(
            "train", "--work=softmax", "--peer=torch", f"--python={fake}", *QUICK, code=1)
        self.assertIn("the losses of the first 10 steps differ", said)
        self.assertIn("PyTorch of a test, none", output)
        self.assertIn("(!)", output)

    @unittest.skipUnless(has_torch(), "no Python with PyTorch")
    def test_pytorch_computes_the_same(self):
        names = ("softmax", "mlp-64", "cnn-3x3", "gpt")
        results = self.results("train", "--peer=torch", "--rounds=1", "--seconds=1e-6", *(f"--work={x}" for x in names))
        self.assertEqual([x["work"] for x in results], list(names))
        for x in results:
            self.assertTrue(x["agrees"], x)
            self.assertLess(x["largest_relative_difference"], 1e-4)
            self.assertGreater(x["ratio"], 0)
            self.assertIn("PyTorch", x["peer"])


class Kernels(Bench):
    def test_results(self):
        result = self.results("kernels", "--rounds=1", "--seconds=1e-6", "--elements=4096")
        self.assertGreater(result["peak_gflops"], 0)
        for x in result["products"]:
            self.assertTrue(0 < x["gflops"] <= result["peak_gflops"], x)
            self.assertLess(x["difference"], 1e-6)
            self.assertEqual(x["openblas_gflops"] > 0, result["openblas"] != "")
        names = [x["what"] for x in result["streams"]]
        self.assertIn("AdamW update", names)
        self.assertIn("tanh", names)
        self.assertTrue(all(x["of_copy"] > 0 for x in result["streams"]))

    def test_table(self):
        output, _ = self.run_program("kernels", "--rounds=1", "--seconds=1e-6", "--elements=4096")
        self.assertIn("of the better one", output)
        self.assertIn("momentum update", output)


class Gpu(Bench):
    """`troupe bench gpu` from the outside. Its measurements are tested on a simulated GPU (gpu_bench_test)."""

    def built_with_cuda(self):
        done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
        return "built without CUDA" not in done.stdout

    def test_without_a_gpu(self):
        for arguments in ([], ["--device=1"], ["--peer=torch"]):
            _, said = self.run_program("gpu", *arguments, code=2, CUDA_VISIBLE_DEVICES="")
            self.assertRegex(said, "built without CUDA|no driver for NVIDIA GPUs was found|"
                                   "driver for NVIDIA GPUs is too old|there is no GPU [01]: this machine has 0|"
                                   "cannot be listed")

    def test_bad_input(self):
        if not self.built_with_cuda():
            self.skipTest("built without CUDA")
        for arguments, said in (
            (["--peer=tensorflow"], "expected torch"),
            (["--work=resnet"], "--work=resnet: there is no such work; known are mlp-64, mlp-4096, cnn-256"),
            (["--measure=speed"], "--measure=speed: there is no such measure; known are memory, products"),
            (["--rounds=0"], "at least 1"),
            (["--seconds=0"], "--seconds"),
            (["--peer=torch", "--peer-mode=fast"], "--peer-mode"),
            (["--peer-mode=eager"], "--peer-mode requires --peer"),
        ):
            self.assertIn(said, self.run_program("gpu", *arguments, code=2)[1])


@unittest.skipUnless(has_torch(), "no Python with PyTorch")
class TorchPeer(TestCase):
    """The script that trains with PyTorch, on the processor."""

    SCRIPT = SOURCE / "apps/troupe/bench/torch_peer.py"
    STEPS = 3

    def run_peer(self, mode="eager", device="cpu", precision="float32", kind="momentum"):
        """The answers to the task and to one round."""
        batches, batch, inputs, classes = 2, 4, 784, 10
        task = {"work": "softmax", "threads": 1, "processor_time": False, "device": device, "mode": mode,
                "precision": precision, "tensors": [["dense_1.weight", [classes, inputs]], ["dense_1.bias", [classes]]],
                "batches": batches, "batch": batch, "inputs": inputs, "ids": False, "labels": 1, "ranks": 1, "rank": 0,
                "address": "", "optimizer": {"rate": 0.01, "kind": kind}}
        numbers = [(i % 13 - 6) / 50 for i in range(classes * inputs + classes)]
        features = [(i % 17 - 8) / 8 for i in range(batches * batch * inputs)]
        labels = [i % classes for i in range(batches * batch)]
        data = struct.pack(f"<{len(numbers)}f{len(features)}f{len(labels)}i", *numbers, *features, *labels)
        done = subprocess.run([python_with_torch(), "-B", self.SCRIPT], capture_output=True, check=True,
                              input=json.dumps(task).encode() + b"\n" + data + f"{self.STEPS}\n".encode())
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_precision(self):
        hello, wide = self.run_peer()
        _, narrow = self.run_peer(precision="bfloat16")
        self.assertIn("version", hello)
        self.assertEqual(len(wide["losses"]), self.STEPS)
        self.assertNotEqual(narrow["losses"], wide["losses"])
        for a, b in zip(narrow["losses"], wide["losses"]):
            self.assertLess(abs(a - b), 0.02 * wide["losses"][0])

    def test_what_is_not_possible(self):
        for arguments, field, said in (
            ({"mode": "graph"}, "unavailable", "CUDA graphs need a GPU"),
            ({"device": "cuda:99"}, "error", "GPU"),
        ):
            answers = self.run_peer(**arguments)
            self.assertEqual(len(answers), 1, answers)
            self.assertIn(said, answers[0][field])

    def test_steps_on_a_gpu(self):
        """With fakes of the functions of torch.cuda, the steps of a GPU compute the same on the processor. Recording
        a step changes neither the weights nor the optimizer's state."""
        done = subprocess.run([python_with_torch(), "-B", "-c", FAKE_CUDA, self.SCRIPT], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.split(), ["eager", "graph"])


class Async(Bench):
    QUICK = ("--work=digits", "--seeds=1", "--epochs=1")

    def test_results(self):
        result = self.results("async", *self.QUICK, "--workers=2", "--recipes=AUTO,STALENESS_RATE", "--rounds=1")
        work, = result["works"]
        self.assertEqual(work["work"], "digits")
        serial, = work["serial"]["accuracies"]
        self.assertGreater(serial, 0.5)
        self.assertEqual([x["recipe"] for x in work["cells"]], ["AUTO", "STALENESS_RATE"])
        for x in work["cells"]:
            self.assertEqual((x["workers"], x["not_finite"]), (2, 0))
            self.assertGreater(x["accuracies"][0], 0.5)
            # Two workers take turns, so each gradient is stale by one update.
            self.assertTrue(0.9 < x["staleness"] < 1.1, x)
            self.assertTrue(1.8 < x["speed"] <= 2, x)
            self.assertAlmostEqual(x["difference"], 100 * (x["accuracies"][0] - serial))
        self.assertEqual([x["recipe"] for x in work["speeds"]], ["AUTO", "STALENESS_RATE"])
        self.assertTrue(all(x["samples_per_second"] > 0 and x["ratio"] > 0 for x in work["speeds"]))

    def test_the_numbers_do_not_depend_on_other_runs(self):
        arguments = ("async", *self.QUICK, "--workers=2,3", "--recipes=AUTO", "--rounds=0")
        one, two = (self.results(*arguments, f"--jobs={n}") for n in (1, 2))
        self.assertEqual(one, two)
        self.assertNotIn("speeds", one["works"][0])

    def test_table(self):
        output, _ = self.run_program("async", *self.QUICK, "--workers=2", "--rounds=0")
        recipes = ("serial", "AUTO", "BUFFERED", "PULL_AHEAD", "NONE", "STALENESS_RATE", "GAP_AWARE", "DC", "SSP",
                   "SYNC_PS")
        for name in (*recipes, "to serial", "staleness", "speed"):
            self.assertIn(name, output)
        # HOGWILD supports only SGD, and this work uses momentum.
        self.assertNotIn("HOGWILD", output)

    def test_bad_input(self):
        for arguments, said in (
            (["--work=mpl"], 'did you mean "mlp"'),
            (["--work=digits", "--recipes=HOGWILD", "--rounds=0"], "optimizer.kind: MOMENTUM"),
            (["--recipes=AUTOO"], 'did you mean "AUTO"'),
            (["--workers=1"], "one worker alone is never stale"),
            (["--seeds=0"], "at least 1"),
            (["--peer=torch"], "expected tf"),
            (["--peer=tf", "--work=mlp,digits"], "--peer=tf trains only the work mlp, not digits"),
            (["--work=straggler", "--workers=8"], "--work=straggler always has 4 workers; leave out --workers"),
            (["--work=backup", "--recipes=AUTO"], "--work=backup has no recipes; leave out --recipes"),
            (["--work=replicas", "--recipes=AUTO"], "--work=replicas has no recipes; leave out --recipes"),
        ):
            self.assertIn(said, self.run_program("async", *arguments, code=2)[1])

    @unittest.skipUnless((DATA / "mnist10k").exists(), f"no {DATA}/mnist10k (TROUPE_DATA)")
    def test_table_of_replicas(self):
        output, _ = self.run_program("async", "--work=replicas", "--workers=2", "--seeds=1", "--epochs=1")
        lines = output.splitlines()
        first = next(i for i, line in enumerate(lines) if line.endswith("KiB at once"))
        header, ring = lines[first], lines[first + 2]
        # Each cell ends at the end of its heading.
        for heading, cell in (("to serial", "[+-][0-9.]+"), ("bytes/sample", "[0-9]+"), ("fewer than a ring", "1.0x"),
                              ("KiB at once", "[0-9]+")):
            end = header.index(heading) + len(heading)
            self.assertRegex(ring[:end], f" {cell}$", output)
        self.assertEqual(len(ring), len(header))

    @unittest.skipUnless((DATA / "mnist10k").exists(), f"no {DATA}/mnist10k (TROUPE_DATA)")
    def test_without_tensorflow(self):
        path = self.file("python", """#!/bin/sh\necho '{"error": "python cannot import tensorflow"}'\n""")
        os.chmod(path, 0o755)
        output, said = self.run_program("async", "--work=mlp", "--seeds=1", "--peer=tf", f"--python={path}", code=2)
        self.assertEqual(output, "")
        self.assertRegex(said, "cannot import tensorflow; to get TensorFlow: .*pip install tensorflow-cpu")


# Stands for a process with PyTorch that measures Gloo's all-reduce. RIGHT says whether its sums are right.
FAKE_GLOO = """#!/usr/bin/env python3
import json, sys
given = json.loads(sys.stdin.buffer.readline())
assert given["ranks"] == 2 and 0 < given["port"] < 65536
print(json.dumps({"version": "of a test"}), flush=True)
for line in sys.stdin.buffer:
    elements, times = map(int, line.split())
    print(json.dumps({"seconds": [1.0] * times, "right": RIGHT}), flush=True)
"""


class AllReduce(Bench):
    QUICK = ("--ranks=2", "--sizes=64,4KiB", "--rounds=4")

    def fake_gloo(self, right, seconds="[1.0] * times"):
        fake = self.file(f"python-{right}", FAKE_GLOO.replace("RIGHT", str(right)).replace("[1.0] * times", seconds))
        os.chmod(fake, 0o755)
        return f"--python={fake}"

    def test_results(self):
        for more in ((), ("--schedule=ring",), ("--processes",), ("--processes", "--transport=tcp", "--schedule=ring")):
            with self.subTest(more=more):
                results = self.results("allreduce", *self.QUICK, *more)
                self.assertEqual([x["bytes"] for x in results], [64, 4096])
                for x in results:
                    self.assertEqual((x["ranks"], x["times"], x["processes"]), (2, 4, "--processes" in more))
                    self.assertEqual(x["schedule"], "ring" if "--schedule=ring" in more else "auto")
                    time = x["microseconds"]
                    self.assertTrue(0 < time["least"] <= time["median"] <= time["most"], x)
                    # For each byte of the vector, a rank sends 2 (R - 1) / R bytes, which is 1 for two ranks.
                    self.assertAlmostEqual(x["gib_per_second"] * time["median"] * 2**30, 1e6 * x["bytes"], delta=1)

    def test_table(self):
        output, _ = self.run_program("allreduce", *self.QUICK)
        self.assertIn("GiB/s", output)
        self.assertNotIn("gloo", output)

    def test_peer(self):
        result = self.results("allreduce", *self.QUICK, "--peer=gloo", self.fake_gloo(True))[0]
        self.assertEqual(result["peer"], "PyTorch of a test, gloo")
        self.assertAlmostEqual(result["peer_microseconds"], 1e6)
        self.assertAlmostEqual(result["ratio"] * result["microseconds"]["median"], 1e6, delta=1)
        _, said = self.run_program("allreduce", *self.QUICK, "--peer=gloo", self.fake_gloo(False), code=1)
        self.assertIn("gloo's sum is wrong", said)
        for seconds in ("[]", "[0.0] * times"):
            _, said = self.run_program("allreduce", *self.QUICK, "--peer=gloo", self.fake_gloo(True, seconds), code=1)
            self.assertRegex(said, r"PyTorch of a test, gloo has answered the durations \[.*\] of 5 all-reduces")

    @unittest.skipUnless(has_torch(), "no Python with PyTorch")
    def test_gloo(self):
        for x in self.results("allreduce", *self.QUICK, "--processes", "--peer=gloo"):
            self.assertGreater(x["ratio"], 0)

    @unittest.skipUnless(shutil.which("mpicc"), "no OpenMPI (libopenmpi-dev)")
    def test_mpi(self):
        before = set(os.listdir("/dev/shm"))
        for x in self.results("allreduce", *self.QUICK, "--processes", "--peer=mpi"):
            self.assertRegex(x["peer"], r"OpenMPI [0-9]")
            self.assertGreater(x["ratio"], 0)
        self.assertLessEqual({x for x in os.listdir("/dev/shm") if "vader" in x}, before)

    def test_no_mpi(self):
        _, said = self.run_program("allreduce", *self.QUICK, "--peer=mpi", f"--python={sys.executable}", code=2,
                                   PATH=str(self.folder))
        for text in ("libopenmpi-dev", "there is no mpicc"):
            self.assertIn(text, said)

    def test_bad_input(self):
        for arguments, said in (
            (["--sizes=4KB"], "--sizes=4KB: expected bytes"),
            (["--sizes=6"], "a multiple of 4"),
            (["--ranks=1"], "--ranks must be 2 to 64"),
            (["--rounds=3"], "--rounds must be at least 4"),
            (["--schedule=tree"], "auto, direct, ring or one_shot was expected"),
            (["--transport=tcp"], "--transport=tcp is for --processes"),
            (["--processes", "--transport=udp"], "expected auto or tcp"),
            (["--peer=nccl"], "expected gloo or mpi"),
            (["--peer=gloo", "--python=/no/such/python"], "there is no program /no/such/python"),
        ):
            self.assertIn(said, self.run_program("allreduce", *arguments, code=2)[1])


class ParameterStore(Bench):
    QUICK = ("--bytes=64,4KiB", "--rounds=3")

    def check(self, results, **expected):
        for x in results:
            self.assertLessEqual(expected.items(), x.items())
            time = x["microseconds"]
            self.assertTrue(0 < time["least"] <= time["median"] <= time["most"], x)
            # A round is a push and a pull, so its bytes count twice.
            self.assertAlmostEqual(x["gb_per_second"] * time["median"] * 1e3, 2 * x["bytes"], delta=1)
            self.assertGreater(x["pushes_per_second"], 0)

    def test_threads(self):
        results = self.results("ps", "--servers=2", "--workers=3", *self.QUICK)
        self.assertEqual([x["bytes"] for x in results], [64, 4096])
        self.check(results, servers=2, workers=3, processes=False, times=3)

    def test_processes(self):
        for transport in ("auto", "tcp", "basp"):
            with self.subTest(transport=transport):
                results = self.results("ps", "--servers=2", "--workers=2", "--processes", f"--transport={transport}",
                                       *self.QUICK)
                self.check(results, servers=2, workers=2, processes=True, times=3, transport=transport)

    def test_fewer_values_than_servers(self):
        self.check(self.results("ps", "--servers=3", "--bytes=8", "--rounds=1"), servers=3, bytes=8)
        # The second server only has the gap after the key.
        self.check(self.results("ps", "--servers=2", "--keys=1", "--bytes-per-key=4", "--rounds=1"), bytes=4, keys=1)

    def test_keys(self):
        results = self.results("ps", "--keys=100", "--bytes-per-key=16", "--rounds=1")
        self.check(results, bytes=1600, keys=100)

    def test_table(self):
        output, _ = self.run_program("ps", *self.QUICK)
        self.assertIn("pushes/s", output)

    def test_bad_input(self):
        for arguments, said in (
            (["--bytes=4KB"], "--bytes=4KB: expected bytes"),
            (["--workers=0"], "--servers and --workers must be 1 to 64"),
            (["--rounds=0"], "--rounds must be at least 1"),
            (["--keys=3", "--bytes-per-key=6"], "of a multiple of 4 bytes"),
            (["--transport=tcp"], "--transport=tcp is for --processes"),
            (["--processes", "--transport=udp"], "auto, tcp or basp was expected"),
        ):
            self.assertIn(said, self.run_program("ps", *arguments, code=2)[1])


class Cluster(Bench):
    QUICK = ("--rounds=1", "--epochs=2", "--set=data.digits={train: 8000 test: 2000}")

    def test_results(self):
        result, = self.results("cluster", *self.QUICK, "--protocols=async_ps,ring", "--transports=threads,auto")
        self.assertEqual((result["work"], result["batch"], result["workers"]), ("mlp-64", 64, 2))
        names = ["async_ps, threads", "async_ps, auto", "ring, threads", "ring, auto", "independent runs"]
        self.assertEqual([x["name"] for x in result["rows"]], names)
        alone = result["rows"][-1]["samples_per_second"]["median"]
        for x in result["rows"]:
            self.assertAlmostEqual(x["to_independent"], x["samples_per_second"]["median"] / alone)
            self.assertTrue(0 < x["waiting"] < 1, x)
            self.assertTrue("hidden" not in x if x["name"] == "independent runs" else 0 <= x["hidden"] < 1, x)

    def test_a_run_that_learns_nothing(self):
        _, said = self.run_program("cluster", *self.QUICK, "--protocols=ring", "--transports=threads",
                                   "--set=learning_rate.base=1e-9", code=1)
        self.assertIn("ring, threads: a run has reached an accuracy of only", said)

    def test_peer_that_computes_something_else(self):
        fake = self.file("python", FAKE_PEER)
        os.chmod(fake, 0o755)
        _, said = self.run_program("cluster", *self.QUICK, "--peer=ddp", f"--python={fake}", code=1)
        self.assertIn("mlp-64: PyTorch's loss of step 1 is 100", said)

    @unittest.skipUnless(has_torch(), "no Python with PyTorch")
    def test_ddp(self):
        result, = self.results("cluster", *self.QUICK, "--protocols=ring", "--transports=threads", "--peer=ddp")
        self.assertEqual(result["rows"][-1]["name"], "PyTorch DDP, gloo")
        self.assertIn("PyTorch", result["peers"][0])
        self.assertTrue(all(x["to_ddp"] > 0 for x in result["rows"]), result)

    def fake_tensorflow(self, accuracy, seconds=0.5):
        path = self.file("python",
                         FAKE_TENSORFLOW.replace("ACCURACY", str(accuracy)).replace("SECONDS", str(seconds)))
        os.chmod(path, 0o755)
        return f"--python={path}"

    def test_tensorflow_in_the_table(self):
        arguments = ("cluster", *self.QUICK, "--protocols=ring", "--transports=threads", "--peer=tf")
        result, = self.results(*arguments, self.fake_tensorflow(0.9))
        row = result["rows"][-1]
        self.assertEqual(row["name"], "TensorFlow ParameterServerStrategy")
        self.assertEqual(result["peers"], ["TensorFlow of a test"])
        self.assertAlmostEqual(row["samples_per_second"]["median"], 2 * 8000)
        for x in result["rows"]:
            self.assertAlmostEqual(x["to_tf"], x["samples_per_second"]["median"] / 16000)
        self.assertIn("to TF", self.run_program(*arguments, "--set=data.batch=32", self.fake_tensorflow(0.9))[0])

    def test_tensorflow_that_learns_nothing(self):
        _, said = self.run_program("cluster", *self.QUICK, "--protocols=ring", "--transports=threads", "--peer=tf",
                                   self.fake_tensorflow(0.2), code=1)
        self.assertIn("TensorFlow: a run has reached an accuracy of only 0.2", said)

    def test_tensorflow_that_takes_no_time(self):
        _, said = self.run_program("cluster", *self.QUICK, "--protocols=ring", "--transports=threads", "--peer=tf",
                                   self.fake_tensorflow(0.9, 0), code=1)
        self.assertIn("TensorFlow: the training took 0 s; expected more than 0", said)

    def test_without_tensorflow(self):
        path = self.file("python", """#!/bin/sh\necho '{"error": "python cannot import tensorflow"}'\n""")
        os.chmod(path, 0o755)
        _, said = self.run_program("cluster", *self.QUICK, "--protocols=ring", "--transports=threads", "--peer=tf",
                                   f"--python={path}", code=2)
        self.assertRegex(said, "cannot import tensorflow; to get TensorFlow: .*pip install tensorflow-cpu")

    if "TROUPE_TENSORFLOW" in os.environ:  # A Python that has TensorFlow. It is large, so CI does without it.
        def test_tensorflow(self):
            result, = self.results("cluster", *self.QUICK, "--protocols=ring", "--transports=threads", "--peer=tf",
                                   f"--python={os.environ['TROUPE_TENSORFLOW']}")
            self.assertTrue(all(x["to_tf"] > 0 for x in result["rows"]), result)

    def test_bad_input(self):
        for arguments, said in (
            (["--work=resnet"], "--work=resnet: there is no such work"),
            (["--workers=0"], "--workers must be from 1 to 64"),
            (["--rounds=0"], "--rounds and --epochs must be at least 1"),
            (["--transports=udp"], "expected threads, auto, tcp or basp"),
            (["--protocols=rings"], 'did you mean "RING"'),
            (["--set=optimizer.kin=SGD"], 'did you mean "kind"'),
            (["--peer=tensorflow"], "--peer=tensorflow: expected ddp or tf"),
            (["--peer=tf", "--work=cnn"], "--peer=tf trains only models of dense layers"),
            (["--peer=ddp", "--python=/no/such/python"], "there is no program /no/such/python"),
            (["--peer=ddp", "--set=data.batch=32"],
             "--set=data.batch=32: --peer=ddp cannot make this change; leave out --peer or --set"),
            (["--peer=tf", "--set=epochs=1", "--set=optimizer={kind: SGD}"],
             "--set=optimizer={kind: SGD}: --peer=tf cannot make this change; leave out --peer or --set"),
        ):
            self.assertIn(said, self.run_program("cluster", *arguments, code=2)[1])


if __name__ == "__main__":
    run_tests()
