"""apps/quickstart with an existing program: its options, the data files that it finds, and its output."""

import gzip
import os
import random
import subprocess

from program import PROGRAM, SOURCE, TestCase, idx, run_tests

QUICKSTART = SOURCE / "apps" / "quickstart"


class Quickstart(TestCase):
    def quickstart(self, *arguments, code=0):
        # Runs the script without language settings.
        done = subprocess.run(
            [str(QUICKSTART), *map(str, arguments), f"--out={self.folder}/out"], capture_output=True, text=True,
            env={**os.environ, "LC_ALL": "C", "TROUPE_PROGRAM": PROGRAM}, cwd=self.folder, timeout=280, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def data(self, names, count=200, classes=10):
        """A folder with images that are easy to distinguish: each class has a bright row."""
        folder = self.folder / 'my "data"'
        folder.mkdir(exist_ok=True)
        source = random.Random(1)
        for images, labels in names:
            said = [i % classes for i in range(count)]
            pixels = bytearray(source.randrange(40) for _ in range(count * 144))
            for i, label in enumerate(said):
                row = i * 144 + 12 * (label % 12)
                pixels[row:row + 12] = b"\xff" * 12
            for name, text in ((images, idx((count, 12, 12), pixels)), (labels, idx((count,), said))):
                (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return folder

    def test_options(self):
        self.assertIn("--data DIR", self.quickstart("--help"))
        self.assertIn("--data needs a directory", subprocess.run(
            [str(QUICKSTART), "--data"], capture_output=True, text=True, check=False).stderr)
        self.assertIn('no option "--dta=x"', self.quickstart("--dta=x", code=2))

    def test_missing_files(self):
        self.assertIn("no such directory", self.quickstart("--data", "missing", code=2))
        folder = self.data([("pictures", "train-labels-idx1-ubyte")])
        output = self.quickstart("--data", folder, code=2)
        self.assertIn("does not contain train-images-idx3-ubyte", output)
        self.assertIn("pictures", output)
        (folder / "train-labels-idx1-ubyte").unlink()
        self.assertIn("train-images-idx3-ubyte and train-labels-idx1-ubyte", self.quickstart("--data", folder, code=2))

    def test_training_and_test_files(self):
        folder = self.data([("train-images.idx3-ubyte", "train-labels.idx1-ubyte"),
                            ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")])
        output = self.quickstart(f"--data={folder}")
        self.assertIn("200 records train, 200 records test", output)
        for text in ("test accuracy", "Right", "predictions.csv", "What to try next"):
            self.assertIn(text, output)
        for name in ("job.textproto", "weights.safetensors", "metrics.jsonl", "predictions.csv"):
            self.assertTrue((self.folder / "out" / name).is_file())
        self.assertGreater(self.metrics(self.folder / "out")[-1]["test_accuracy"], 0.9)

    def test_one_pair_is_split(self):
        folder = self.data([("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")], classes=12)
        output = self.quickstart("--data", folder)
        self.assertIn("160 records train, 40 records test", output)
        self.assertIn("12 classes", output)


if __name__ == "__main__":
    run_tests()
