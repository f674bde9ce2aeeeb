"""Models are read from ONNX files and exported again, with train, check, predict and export."""

import json
import os
import pathlib
import re
import shutil
import struct

from program import SOURCE, TestCase, idx, run_tests

FIXTURES = SOURCE / "tests/actors/model/onnx"

# A job for a model of images of 8 x 8 pixels.
JOB = """
model {{ onnx: "{onnx}" loss: SOFTMAX_CROSS_ENTROPY }}
data {{ idx {{ images: "{images}" labels: "{labels}" }} batch: 6 }}
optimizer {{ kind: SGD }}
learning_rate {{ base: 0.1 }}
epochs: {epochs}
"""

RECORDS = 60
CLASSES = 3


class Onnx(TestCase):
    def job(self, epochs=1, onnx=FIXTURES / "image.onnx", name="job.textproto"):
        images, labels = self.folder / "images", self.folder / "labels"
        images.write_bytes(idx([RECORDS, 8, 8], [(i * i * 7 + i // 64 * 31) % 256 for i in range(RECORDS * 64)]))
        labels.write_bytes(idx([RECORDS], [i % CLASSES for i in range(RECORDS)]))
        return self.file(name, JOB.format(onnx=onnx, images=images, labels=labels, epochs=epochs))

    def run_to_end(self, *arguments, code=0):
        process = self.start(*arguments)
        self.assert_exit(process, code)
        return process.output

    def weights(self, path):
        """Names and bytes of the tensors of a safetensors file."""
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        return {name: data[8 + size + x["data_offsets"][0]:8 + size + x["data_offsets"][1]]
                for name, x in header.items()}

    def train(self, job, out, *more):
        self.run_to_end("train", f"--job={job}", f"--out={self.folder / out}", *more)
        lines = [json.loads(x) for x in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
        return lines[-1]

    def test_training_begins_with_the_weights_of_the_file(self):
        job = self.job()
        # With this learning rate, an update does not change a weight by a bit. Only zeros become tiny numbers.
        still = ["--set", "learning_rate.base=1e-30"]
        for protocol, more in (("ring", []), ("sync_ps", ["--ps=2"]), ("async_ps", ["--ps=2", "--processes"])):
            with self.subTest(protocol=protocol):
                out = f"still_{protocol}"
                self.train(job, out, f"--protocol={protocol}", "--workers=2", *more, *still)
                weights = self.weights(self.folder / out / "weights.safetensors")
                self.assertEqual(set(weights), {"conv.weight", "conv.bias", "mid.weight", "mid.bias", "norm.weight",
                                                "norm.bias", "head.weight", "head.bias"})
                file = (FIXTURES / "image.onnx").read_bytes()
                for name, data in weights.items():
                    values = [x[0] if abs(x[0]) > 1e-20 else 0 for x in struct.iter_unpack("<f", data)]
                    self.assertTrue(struct.pack(f"<{len(values)}f", *values) in file, name)

    def test_nodes_need_no_file(self):
        shutil.copy(FIXTURES / "image.onnx", self.folder / "model.onnx")
        job = self.job(epochs=2, onnx=self.folder / "model.onnx")
        alone = self.train(job, "alone", "--protocol=sync_ps", "--workers=2")
        apart = self.train(job, "apart", "--protocol=sync_ps", "--workers=2", "--processes")
        self.assertEqual(alone["weights_sha256"], apart["weights_sha256"])

    def test_exported_models_compute_the_same(self):
        job = self.job(epochs=3)
        end = self.train(job, "first", "--protocol=ring")
        output = self.folder / "trained.onnx"
        text = self.run_to_end("export", f"--job={job}", f"--weights={self.folder / 'first'}", f"--output={output}")
        self.assertIn("features (batch, 1, 8, 8)", text)
        # A second job reads the exported model and starts from its weights.
        again = self.job(onnx=output, name="again.textproto")
        after = self.train(again, "second", "--protocol=ring", "--set", "learning_rate.base=1e-30")
        self.assertAlmostEqual(after["test_loss"], end["test_loss"], places=5)
        self.assertEqual(self.weights(self.folder / "first/weights.safetensors"),
                         self.weights(self.folder / "second/weights.safetensors"))
        shown = self.run_to_end("predict", f"--job={again}", f"--weights={self.folder / 'first/weights.safetensors'}")
        self.assertIn("test accuracy", shown)

    def test_mixed_precision(self):
        job = self.job(epochs=3)
        wide = self.train(job, "wide", "--protocol=ring")
        narrow = self.train(job, "narrow", "--protocol=ring", "--set", "precision=BFLOAT16")
        self.assertNotEqual(narrow["weights_sha256"], wide["weights_sha256"])
        self.assertAlmostEqual(narrow["train_loss"], wide["train_loss"], delta=0.05)
        # Weights are trained in 16 bits here, but they are stored and exported as float32.
        path = self.folder / "narrow/weights.safetensors"
        data = path.read_bytes()
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        header.pop("__metadata__", None)
        self.assertEqual({x["dtype"] for x in header.values()}, {"F32"})
        output = self.folder / "narrow.onnx"
        self.run_to_end("export", f"--job={job}", f"--weights={path}", f"--output={output}")
        again = self.job(onnx=output, name="again.textproto")
        shown = self.run_to_end("predict", f"--job={again}", f"--weights={path}")
        self.assertAlmostEqual(float(re.search(r"test loss +(\S+)", shown)[1]), narrow["test_loss"], delta=1e-4)

    def test_normalization_goes_into_the_model(self):
        images, labels = self.folder / "images", self.folder / "labels"
        job = self.job()
        text = pathlib.Path(job).read_text().replace("batch: 6", "normalize { kind: STANDARDIZE } batch: 6")
        job = self.file("job.textproto", text.replace(f'onnx: "{FIXTURES / "image.onnx"}"',
                                                      'layer { name: "head" dense { units: 3 } }'))
        end = self.train(job, "first")
        output = self.folder / "trained.onnx"
        text = self.run_to_end("export", f"--job={job}", f"--weights={self.folder / 'first'}", f"--output={output}")
        self.assertIn("unscaled features", text)
        # The exported model includes the normalization. So it reads the raw values of the file, and gives the same loss
        # without a normalization in the job.
        again = self.file("again.textproto", JOB.format(onnx=output, images=images, labels=labels, epochs=1))
        self.train(again, "second", "--set", "learning_rate.base=1e-30")
        for plain, what in ((again, "second"), (job, "first")):
            weights = self.folder / what / "weights.safetensors"
            shown = self.run_to_end("predict", f"--job={plain}", f"--weights={weights}")
            self.assertAlmostEqual(float(re.search(r"test loss +(\S+)", shown)[1]), end["test_loss"], delta=1e-4)
        # A second normalization of the data is refused.
        refused = self.run_to_end("check", f"--job={again}", "--set", "data.normalize.kind=STANDARDIZE", code=2)
        self.assertIn("normalizes the features itself", refused)
        # The same holds if the second model is exported.
        twice = self.folder / "twice.onnx"
        text = self.run_to_end("export", f"--job={again}", f"--weights={self.folder / 'second'}", f"--output={twice}")
        self.assertIn("unscaled features", text)
        refused = self.run_to_end("check", f"--job={again}", "--set", f"model.onnx={twice}",
                                  "--set", "data.normalize.kind=STANDARDIZE", code=2)
        self.assertIn("normalizes the features itself", refused)
        header = (self.folder / "first/weights.safetensors").read_bytes()
        metadata = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])["__metadata__"]
        self.assertEqual([len(json.loads(metadata[x])) for x in ("feature_mean", "feature_deviation")], [64, 64])

    def test_models_with_sparse_features_are_exported_with_dense_ones(self):
        rows = "".join(f"user {i % 9},{i * 5 % 7},{'yes' if i % 9 < i * 5 % 7 else 'no'}\n" for i in range(60))
        table = self.file("table.csv", "user,hour,likes\n" + rows)
        text = f"""data {{ csv {{ path: "{table}" features: "user" features: "hour" categories: "user" label: "likes" }}
                          batch: 6 }} learning_rate {{ base: 0.1 }} epochs: 5 model {{ loss: SOFTMAX_CROSS_ENTROPY """
        job = self.file("sparse.textproto", text + "layer { dense { units: 4 activation: RELU } } "
                        "layer { dense { units: 2 } } }")
        end = self.train(job, "sparse", "--set=data.csv.sparse=true", "--set=data.csv.standardize=true")
        output = self.folder / "sparse.onnx"
        said = self.run_to_end("export", f"--job={job}", f"--weights={self.folder / 'sparse'}", f"--output={output}",
                               "--set=data.csv.sparse=true", "--set=data.csv.standardize=true")
        self.assertIn("features (batch, 10)", said)
        again = self.file("again.textproto", text + f'onnx: "{output}" }}')
        after = self.train(again, "dense", "--set", "learning_rate.base=1e-30")
        self.assertAlmostEqual(after["test_loss"], end["test_loss"], places=5)

    def test_exported_models_that_read_rounded_features(self):
        for offset, rounded in ((1e9, True), (100, False)):
            table = self.file("table.csv", "x,y\n" + "".join(f"{offset + i},{3 * i}\n" for i in range(8)))
            job = self.file("table.textproto", f"""
                model {{ layer {{ dense {{ units: 1 }} }} loss: MEAN_SQUARED_ERROR }} solver: EXACT
                data {{ csv {{ path: "{table}" features: "x" target: "y" standardize: true }} batch: 2 }}""")
            self.train(job, "table")
            text = self.run_to_end("export", f"--job={job}", f"--weights={self.folder / 'table'}",
                                   f"--output={self.folder / 'table.onnx'}")
            self.assertEqual("warning" in text, rounded, text)
            if rounded:
                self.assertIn("feature x has mean 1e+09 and deviation 2.29", text)
        # Features from images and arrays are float32 in training, too.
        text = pathlib.Path(self.job()).read_text().replace("batch: 6", "normalize { mean: 0.5 stddev: 1e-6 } batch: 6")
        job = self.file("image.textproto", text.replace(f'onnx: "{FIXTURES / "image.onnx"}"',
                                                        'layer { name: "head" dense { units: 3 } }'))
        self.train(job, "image", "--set", "learning_rate.base=1e-30")
        text = self.run_to_end("export", f"--job={job}", f"--weights={self.folder / 'image'}",
                               f"--output={self.folder / 'image.onnx'}")
        self.assertNotIn("warning", text)

    def test_initial_weights(self):
        job = self.job()
        self.train(job, "first")
        first = self.folder / "first/weights.safetensors"
        self.train(job, "second", "--set", f"model.initial_weights={first}", "--set", "learning_rate.base=1e-30")
        self.assertEqual(self.weights(first), self.weights(self.folder / "second/weights.safetensors"))
        other = self.file("other.textproto", """
            model { layer { name: "head" dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }
            data { digits { train: 64 test: 10 } batch: 16 }""")
        text = self.run_to_end("train", f"--job={other}", "--set", f"model.initial_weights={first}", code=2)
        for part in ("first/weights.safetensors", "head.weight", "conv.weight", "norm.bias"):
            self.assertIn(part, text)

    def test_resuming_goes_before_initial_weights(self):
        job = self.job(epochs=2)
        whole = self.train(job, "whole", "--protocol=sync_ps", "--set", "checkpoint.every_steps=5")
        resumed = self.train(job, "resumed", "--protocol=sync_ps",
                             f"--resume={self.folder / 'whole/checkpoints/step-00000010'}")
        self.assertEqual(whole["weights_sha256"], resumed["weights_sha256"])

    def test_check_lists_the_tensors(self):
        text = self.run_to_end("check", f"--job={self.job()}")
        self.assertRegex(text, r"conv\.weight +\(4, 1, 3, 3\) +trainable +36 ")
        self.assertNotIn("frozen", text)
        text = self.run_to_end("check", f"--job={self.job()}", "--set", "model.freeze[0]=conv.*")
        self.assertRegex(text, r"conv\.weight +\(4, 1, 3, 3\) +frozen +36 ")

    def test_frozen_tensors_keep_the_values_of_the_file(self):
        job = self.job()
        self.train(job, "nothing", "--set", "learning_rate.base=1e-30")
        self.train(job, "half", "--set", "model.freeze[0]=*", "--set", "model.train[0]=head.*")
        before, after = (self.weights(self.folder / x / "weights.safetensors") for x in ("nothing", "half"))
        # Biases of 0 become numbers such as 1e-31, which do not count as a change.
        moved = {name for name in before
                 if max(abs(a - b) for a, b in zip(*(memoryview(x[name]).cast("f") for x in (before, after)))) > 1e-20}
        self.assertEqual(moved, {"head.weight", "head.bias"})
        exported = self.folder / "half.onnx"
        self.run_to_end("export", f"--job={job}", f"--weights={self.folder / 'half'}", f"--output={exported}",
                        "--set", "model.freeze[0]=*", "--set", "model.train[0]=head.*")
        self.assertIn(after["conv.weight"], exported.read_bytes())

    def test_check_prints_the_plan(self):
        job = self.file("digits.textproto", """
            model { layer { dense { units: 16 activation: RELU } } layer { dense { units: 10 } }
                    loss: SOFTMAX_CROSS_ENTROPY }
            data { digits { train: 64 test: 10 } batch: 32 }
            optimizer { kind: ADAM }""")
        self.assertNotIn("instructions", self.run_to_end("check", f"--job={job}"))
        text = self.run_to_end("check", f"--job={job}", "--plan")
        self.assertIn("plan of a step of 32 samples", text)
        # Operations of 32 x 16 outputs: 784 products and sums each, a bias and a maximum.
        flops = 32 * 16 * (2 * 784 + 2) / 1000
        self.assertRegex(text, rf"matmul \+ bias \+ relu +32x784, 16x784', 16 +32x16 +arena \d+ +{flops:.0f} k")
        parameters = 784 * 16 + 16 + 16 * 10 + 10
        self.assertRegex(text, rf"bucket 0: gradient of parameters 0 to {parameters} is final")
        self.assertRegex(text, rf"parameters +{parameters * 4 / 1024:.1f} KiB")
        self.assertRegex(text, rf"optimizer state +{parameters * 8 / 1024:.1f} KiB")
        # The needed minimum does not count scratch space, which is most of the memory of such a small model.
        self.assertRegex(text, r"all +[\d.]+ .iB, [\d.]+ times what is needed at least")
        ratio = re.search(r"activations +[\d.]+ .iB, ([\d.]+) times", text)
        self.assertLessEqual(float(ratio[1]), 1.3)
        self.assertLessEqual(max(map(len, text[text.index("plan of a step"):].splitlines())), 120)

    def test_wrong_files(self):
        for name, data, expected in (
            ("missing", None, "cannot open"),
            ("text", b"no model at all", "not an ONNX model"),
            ("short", (FIXTURES / "image.onnx").read_bytes()[:-9], "model.onnx"),
        ):
            with self.subTest(name=name):
                path = self.folder / f"{name}_model.onnx"
                if data is not None:
                    path.write_bytes(data)
                text = self.run_to_end("train", f"--job={self.job(onnx=path)}", code=2)
                self.assertIn(expected, text)
        text = self.run_to_end("train", f"--job={self.job(onnx=FIXTURES / 'lstm.onnx')}", code=2)
        self.assertIn("input \"x\" takes whole numbers, but the data's features are real", text)
        both = self.file("both.textproto", pathlib.Path(self.job()).read_text().replace(
            "loss:", "layer { dense { units: 3 } } loss:"))
        self.assertIn("model.onnx already describes the model", self.run_to_end("check", f"--job={both}", code=2))

    def test_the_manual_lists_the_operators(self):
        text = self.run_to_end("operators")
        self.assertGreater(text.count("\n| `"), 100)
        page = (SOURCE / "apps/manual/onnx_operators.md").read_text()
        # Keeps the page up to date. If this fails, replace the table by the output of: troupe operators
        self.assertEqual(page[page.index("| element by element"):].strip(), text.strip())

    def test_export_refuses_other_weights(self):
        job = self.job()
        self.train(job, "first")
        other = self.file("other.textproto", """
            model { layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }
            data { digits { train: 64 test: 10 } batch: 16 }""")
        text = self.run_to_end("export", f"--job={other}", f"--weights={self.folder / 'first'}",
                               f"--output={self.folder / 'x.onnx'}", code=2)
        self.assertIn("dense_1.weight", text)
        self.assertFalse((self.folder / "x.onnx").exists())
        # A pipe is not replaced by a file.
        os.mkfifo(self.folder / "pipe")
        self.assertIn("exists but is not a file",
                      self.run_to_end("export", f"--job={job}", f"--weights={self.folder / 'first'}",
                                      f"--output={self.folder / 'pipe'}", code=2))
        self.assertTrue((self.folder / "pipe").is_fifo())


if __name__ == "__main__":
    run_tests()
