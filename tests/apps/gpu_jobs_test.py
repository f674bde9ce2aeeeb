"""Whole jobs on a real GPU, compared with the CPU. Skipped without a GPU. `tests/actors/devices` runs more jobs, on a
simulated GPU.

The test needs only the program: TROUPE_PROGRAM=/opt/troupe-.../bin/troupe python3 tests/apps/gpu_jobs_test.py runs it
with an archive that was built elsewhere (apps/manual/installed.md). TROUPE_TEST_DEVICE=CPU:0 tries this file without a
GPU.
"""

import json
import os
import subprocess
import unittest

from program import DATA, PROGRAM, SOURCE, TestCase, run_tests

DEVICE = os.environ.get("TROUPE_TEST_DEVICE", "GPU:0")
EXAMPLES = SOURCE / "apps/examples"
TRAINS = "/job:worker/task:*"
UPDATES = "/job:ps/task:*"
EVALUATES = "/job:coordinator/task:0"


def missing_gpu():
    """Why there is no usable GPU; empty if there is one."""
    done = subprocess.run([PROGRAM, "check", f"--job={EXAMPLES / 'digits_mlp.textproto'}", "--workers=1",
                           "--set", f"device[0]={TRAINS}/device:{DEVICE}"], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


@unittest.skipIf(missing_gpu(), missing_gpu())
class GpuJobs(TestCase):
    def train(self, name, devices, *arguments, example="digits_mlp", code=0):
        """Trains an example with these tasks on the GPU. Returns the end of the run, and the output."""
        text = (EXAMPLES / f"{example}.textproto").read_text()
        text += "".join(f'device: "{task}/device:{DEVICE}"\n' for task in devices)
        out = self.folder / name
        process = self.start("train", f"--job={self.file(name + '.textproto', text)}", f"--out={out}", *arguments)
        self.assert_exit(process, code)
        if code:
            return None, process.output
        lines = (out / "metrics.jsonl").read_text().splitlines()
        return [x for x in map(json.loads, lines) if x["event"] == "end"][-1], process.output

    def compare(self, devices, *arguments, loss=0.02, accuracy=0.01, **options):
        """Trains on the GPU and on the CPU. The results differ by at most this part of the loss, and this much
        accuracy."""
        there, _ = self.train("gpu", devices, *arguments, **options)
        here, _ = self.train("cpu", [], *arguments, **options)
        self.assertAlmostEqual(there["test_loss"], here["test_loss"], delta=loss * here["test_loss"])
        self.assertAlmostEqual(there["test_accuracy"], here["test_accuracy"], delta=accuracy)
        return there, here

    def test_in_step(self):
        for arguments in (["--protocol=ring", "--workers=1"], ["--protocol=ring", "--workers=4"],
                          ["--protocol=local_sgd", "--workers=2"], ["--protocol=ring", "--workers=2", "--processes"]):
            with self.subTest(arguments):
                self.compare([TRAINS, EVALUATES], *arguments)

    def test_parameter_servers(self):
        self.compare([TRAINS, UPDATES, EVALUATES], "--protocol=sync_ps", "--workers=2", "--ps=2")
        for kind in ("MOMENTUM momentum: 0.9", "ADAMW", "ADAGRAD"):
            with self.subTest(kind):
                there, here = self.compare([UPDATES], "--protocol=sync_ps", "--workers=2", "--set",
                                           f"optimizer={{kind: {kind}}}", "--set", "learning_rate={base: 0.01}")
                self.assertEqual(there["weights_sha256"], here["weights_sha256"])

    def test_asynchronous(self):
        for protocol in ("async_ps", "ssp"):
            with self.subTest(protocol):
                # Tolerances are wide, because asynchronous gradients arrive in a different order in each run.
                self.compare([TRAINS, UPDATES], f"--protocol={protocol}", "--workers=4", loss=0.3, accuracy=0.02)

    def test_precision(self):
        for change in ("precision=BFLOAT16", "precision=FLOAT16", "tf32=true"):
            with self.subTest(change):
                self.compare([TRAINS], "--protocol=ring", "--workers=2", "--set", change, loss=0.05, accuracy=0.015)

    def test_convolutions(self):
        for precision in ("FLOAT32", "BFLOAT16", "FLOAT16"):
            with self.subTest(precision):
                self.compare([TRAINS], "--protocol=ring", "--workers=2", "--set", "epochs=2", "--set",
                             f"precision={precision}", loss=0.3, accuracy=0.02, example="digits_resnet")

    @unittest.skipUnless((DATA / "tinyshakespeare.txt").exists(), f"no {DATA}/tinyshakespeare.txt (TROUPE_DATA)")
    def test_sequences(self):
        for example in ("shakespeare_gru", "shakespeare_gpt"):
            with self.subTest(example):
                self.compare([TRAINS, EVALUATES], "--protocol=ring", "--workers=1", "--set", "epochs=1", "--set",
                             "data.split={train: 0.05 test: 0.02}", loss=0.005, example=example)

    @unittest.skipUnless((DATA / "a9a.gz").exists(), f"no {DATA}/a9a.gz (TROUPE_DATA)")
    def test_sparse_features(self):
        self.compare([TRAINS, UPDATES, EVALUATES], "--protocol=sync_ps", "--workers=2", "--set", "epochs=2",
                     loss=0.001, example="a9a_logistic")

    @unittest.skipUnless(DEVICE.startswith("GPU"), "needs a GPU")
    def test_no_such_gpu(self):
        text = (EXAMPLES / "digits_mlp.textproto").read_text() + f'device: "{TRAINS}/device:GPU:97"\n'
        process = self.start("train", f"--job={self.file('job.textproto', text)}", f"--out={self.folder / 'out'}")
        self.assert_exit(process, 2)
        self.assertIn("there is no GPU 97: this machine has", process.output)

    @unittest.skipUnless(DEVICE.startswith("GPU"), "needs a GPU")
    def test_full_memory(self):
        # This job needs two tensors of 400,000 x 65,536 floats, which are 210 GB.
        wide = "model={ layer { dense { units: 65536 activation: TANH } } layer { dense { units: 10 } } " \
               "loss: SOFTMAX_CROSS_ENTROPY }"
        _, output = self.train("full", [TRAINS], "--set", wide, "--set", "data.digits={train: 400000 test: 100}",
                               "--set", "data.batch=400000", code=1)
        self.assertRegex(output, "worker/0.*(out of memory of the GPU|MB are needed at once)")
        self.assertIn("are free", output)


if __name__ == "__main__":
    run_tests()
