"""`troupe predict --features`: predictions for records without labels, from every kind of file."""

import csv
import gzip
import io
import json
import pathlib
import re
import struct
import subprocess
import zipfile
import zlib

from program import PROGRAM, TestCase, run_tests

MODEL = """
model { layer { flatten {} } layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY }
learning_rate { base: 0.1 }
epochs: 1
"""


def npy(kind, shape, values):
    """An .npy file. `kind` is a pair: a letter of struct, and NumPy's name of the type."""
    letter, name = kind
    header = f"{{'descr': '{name}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(
        f"<{len(values)}{letter}", *values)


BYTES, FLOATS, DOUBLES, WHOLE = ("B", "|u1"), ("f", "<f4"), ("d", "<f8"), ("q", "<i8")


def png(rows):
    """A picture from rows of (red, green, blue)."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    pixels = b"".join(b"\0" + bytes(x for pixel in row for x in pixel) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b""))


class Features(TestCase):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def train(self, data, model=MODEL):
        """Trains, and returns the predictions of all records."""
        self.job = self.file("job.textproto", model + f"data {{ {data} }}")
        process = self.start("train", f"--job={self.job}", f"--out={self.out}")
        self.assert_exit(process, 0)
        return self.predict()

    def predict(self, *more, code=0, job=None):
        done = subprocess.run(
            [PROGRAM, "predict", f"--weights={self.out}/weights.safetensors", f"--job={job or self.job}",
             "--predictions=-", *map(str, more)], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else list(csv.DictReader(io.StringIO(done.stdout)))

    def printed(self):
        """The test loss and the accuracy that `predict` prints."""
        done = subprocess.run([PROGRAM, "predict", f"--weights={self.out}", f"--job={self.job}"], capture_output=True,
                              text=True, timeout=120, check=True)
        return [float(re.search(rf"test {name} +([\d.]+)", done.stdout)[1]) for name in ("loss", "accuracy")]

    def same(self, features, labelled, name="record"):
        """Compares with the predictions for the same records in a file with labels."""
        found = self.predict(f"--features={features}")
        hidden = {"record", "label", "target", name}
        self.assertEqual(list(found[0]), [name] + [x for x in labelled[0] if x not in hidden])
        self.assertEqual([{k: v for k, v in x.items() if k != name} for x in found],
                         [{k: v for k, v in x.items() if k not in hidden} for x in labelled])
        return found

    def test_arrays_in_several_files_of_each_type(self):
        pixels = [i * 37 % 251 for i in range(12 * 4)]
        for kind in (BYTES, FLOATS, DOUBLES):
            with self.subTest(kind=kind):
                self.write("x.npy", npy(kind, (12, 2, 2), pixels))
                self.write("y.npy", npy(WHOLE, (12,), [i % 3 for i in range(12)]))
                wanted = self.train(f'npy {{ features: "{self.folder}/x.npy" labels: "{self.folder}/y.npy" }} '
                                    "normalize { kind: STANDARDIZE } batch: 4")
                for name in ("x.npy", "y.npy"):
                    (self.folder / name).unlink()  # predictions do not need the training data
                self.write("new-1.npy", npy(kind, (5, 2, 2), pixels[:20]))
                self.write("new-2.npy.gz", gzip.compress(npy(kind, (7, 2, 2), pixels[20:])))
                found = self.same(f"{self.folder}/new-*", wanted)
                self.assertEqual([x["record"] for x in found], [str(i) for i in range(12)])
        self.write("wide.npy", npy(FLOATS, (2, 3), range(6)))
        self.assertIn("wide.npy: records of (3) numbers; the model was trained with records of (2, 2) numbers",
                      self.predict(f"--features={self.folder}/wide.npy", code=2))
        self.write("bad.npy", npy(FLOATS, (1, 2, 2), [0, 1, float("nan"), 2]))
        self.assertIn("bad.npy: record 0", self.predict(f"--features={self.folder}/bad.npy", code=2))

    def test_named_arrays_and_images(self):
        pixels = [i * 37 % 251 for i in range(12 * 4)]
        def arrays(path, **named):
            with zipfile.ZipFile(path, "w") as file:
                for name, content in named.items():
                    file.writestr(name + ".npy", content)
        x, y = npy(BYTES, (12, 2, 2), pixels), npy(WHOLE, (12,), [i % 3 for i in range(12)])
        arrays(self.folder / "all.npz", x=x, y=y)
        arrays(self.folder / "new.npz", x=x)
        wanted = self.train(f'npz {{ path: "{self.folder}/all.npz" features: "x" labels: "y" }} batch: 4')
        self.same(self.folder / "new.npz", wanted)
        images = self.write("images", struct.pack(">IIII", 0x803, 12, 2, 2) + bytes(pixels))
        labels = self.write("labels", struct.pack(">II", 0x801, 12) + bytes(i % 3 for i in range(12)))
        wanted = self.train(f'idx {{ images: "{images}" labels: "{labels}" }} batch: 4')
        labels.unlink()
        self.same(images, wanted)

    def test_tokens_with_a_class_per_position(self):
        tokens = [i * 7 % 5 for i in range(8 * 3)]
        x = self.write("x.npy", npy(WHOLE, (8, 3), tokens))
        y = self.write("y.npy", npy(WHOLE, (8, 3), [t % 2 for t in tokens]))
        model = "model { layer { embedding { width: 4 } } layer { dense { units: 2 } } loss: SOFTMAX_CROSS_ENTROPY }"
        self.train(f'npy {{ features: "{x}" labels: "{y}" }} batch: 4', model)
        found = self.predict(f"--features={x}")
        self.assertEqual(list(found[0]), ["record", "position", "prediction", "probability", "probability_0",
                                          "probability_1"])
        self.assertEqual([(r["record"], r["position"]) for r in found],
                         [(str(i), str(k)) for i in range(8) for k in range(3)])
        same = {}  # a token must have the same output, whatever its neighbors are
        for row, token in zip(found, tokens):
            self.assertEqual(same.setdefault(token, row["probability_1"]), row["probability_1"])
        self.write("x.npy", npy(WHOLE, (1, 3), [0, 5, 1]))
        self.assertIn("record 0 has the token 5; expected 0 to 4", self.predict(f"--features={x}", code=2))

    TABLE = ["a,b,colour,size,y", "1,100,red,1,10", "2,NA,blue,2,20", "3,300,red,3.0,35", "4,500,green,2.0,39",
             "5,700,,1,52", "6,650,blue,3,60"]

    def test_losses_of_positions(self):
        tokens = [i * 7 % 5 for i in range(8 * 3)]
        x = self.write("x.npy", npy(WHOLE, (8, 3), tokens))
        labels = [2] * 3 + [t % 3 for t in tokens[3:]]
        y = self.write("y.npy", npy(WHOLE, (8, 3), labels))
        for more in ("", "ignored_label: 2", "ignored_label: 2 label_smoothing: 0.2"):
            model = """model { layer { embedding { width: 4 } } layer { dense { units: 3 } }
                loss: SOFTMAX_CROSS_ENTROPY %s }""" % more
            self.train(f'npy {{ features: "{x}" labels: "{y}" test_features: "{x}" test_labels: "{y}" }} batch: 4',
                       model)
            found = self.predict()
            counted = [sum(k != 2 or not more for k in labels[3 * i:3 * i + 3]) for i in range(8)]
            self.assertEqual(found[0]["accuracy"] == "nan", counted[0] == 0)
            loss, accuracy = self.printed()
            self.assertAlmostEqual(sum(float(r["loss"]) for r in found) / 8, loss, places=4)
            right = sum(float(r["accuracy"]) * n for r, n in zip(found, counted) if n > 0)
            self.assertAlmostEqual(100 * right / sum(counted), accuracy, places=1)

    NAMES = 'features: "a" features: "colour" features: "b" features: "size"'

    def table(self, *, missing="MEDIAN", drop_first="false", sparse="false", features=NAMES,
              columns="target: \"y\" standardize: true"):
        path = self.write("table.csv", "\n".join(self.TABLE))
        model = """model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR } learning_rate { base: 0.1 }"""
        return self.train(f"""csv {{ path: "{path}" {features}
            categories: "colour" categories: "size" {columns} missing: {missing} missing_text: "NA"
            drop_first: {drop_first} sparse: {sparse} }} split {{ test: 2 shuffle: false }} batch: 2""", model)

    def test_tables(self):
        for drop_first, sparse in (("false", "false"), ("true", "false"), ("false", "true"), ("true", "true")):
            with self.subTest(drop_first=drop_first, sparse=sparse):
                wanted = self.table(drop_first=drop_first, sparse=sparse)  # predictions for the last two records
                self.write("table.csv", "")
                rows = [x.rsplit(",", 1)[0] for x in self.TABLE]  # without the target; next, other order
                rows = [",".join(reversed(x.split(","))) for x in rows]
                new = self.write("new.csv", "\n".join(rows))
                found = self.predict(f"--features={new}")
                self.assertEqual(list(found[0]), ["record", "prediction"])
                self.assertEqual([x["prediction"] for x in found[4:]], [x["prediction"] for x in wanted])
                self.write("new.csv", "a,b,colour,size\n1,1,red,1\n1,1,pink,1\n1,1,,1\n")
                self.assertIn('new.csv: column "colour" has the category "pink", which the training data did not have',
                              self.predict(f"--features={new}", "--set=data.csv.missing=REFUSE", code=2))
                found = self.predict(f"--features={new}")  # a new category counts as a missing value
                self.assertEqual(found[1]["prediction"], found[2]["prediction"])
                self.assertNotEqual(found[0]["prediction"], found[1]["prediction"])
                found = self.predict(f"--features={new}", "--set=data.csv.missing=DROP")
                self.assertEqual([x["record"] for x in found], ["0"])

    def test_an_output_directory_stands_for_its_weights(self):
        wanted = self.table()
        done = subprocess.run([PROGRAM, "predict", f"--weights={self.out}", f"--job={self.job}", "--predictions=-"],
                              capture_output=True, text=True, timeout=120, check=True)
        self.assertEqual(list(csv.DictReader(io.StringIO(done.stdout))), wanted)
        again = self.start("train", f"--job={self.job}", "--set", f"model.initial_weights={self.out}")
        self.assert_exit(again, 0)

    def test_columns_by_wildcards(self):
        """Columns that the training data did not have are ignored."""
        wanted = self.table(features='features: "*"')
        rows = [",".join((number, *reversed(x.rsplit(",", 1)[0].split(",")))) for number, x in
                zip(("more", *"123456"), self.TABLE)]
        found = self.predict(f"--features={self.write('new.csv', chr(10).join(rows))}")
        self.assertEqual([x["prediction"] for x in found[4:]], [x["prediction"] for x in wanted])
        noted = self.write("noted.csv", "\n".join(f"{note},{x}" for note, x in zip(("note", *"abcdef"), self.TABLE)))
        self.assertEqual(self.predict(f"--set=data.csv.path={noted}"), wanted)

    def test_a_column_of_one_category(self):
        """With drop_first, such a column gives no feature."""
        table = self.write("one.csv", "a,b,y\n1,x,2\n2,x,3\n3,x,5\n4,x,7\n")
        columns = 'features: "*" categories: "b" drop_first: true target: "y"'
        model = "model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR } learning_rate { base: 0.01 }"
        wanted = self.train(f'csv {{ path: "{table}" {columns} }} batch: 2', model)
        found = self.predict(f"--features={table}")
        self.assertEqual([x["prediction"] for x in found], [x["prediction"] for x in wanted])

    def test_another_table_is_read_as_in_training(self):
        """Scaling, categories and replacements of missing values come from the weights file."""
        for sparse in ("false", "true"):
            with self.subTest(sparse=sparse):
                self.table(sparse=sparse)
                other = [self.TABLE[0], "91,1100,pink,1,11", "92,NA,grey,2,21", "93,1300,red,3.0,31",
                         "94,1500,green,2.0,41", "95,NA,pink,1,51", "96,650,blue,3,61"]
                new = self.write("new.csv", "\n".join(other))
                found = self.predict(f"--set=data.csv.path={new}", "--set=data.csv.missing=MEDIAN")
                expected = self.predict(f"--features={new}")[4:]
                for a, b in zip(found, expected, strict=True):
                    self.assertAlmostEqual(float(a["prediction"]), float(b["prediction"]), delta=1e-3)

    def test_tables_that_do_not_fit(self):
        self.table()
        new = self.write("new.csv", "\n".join(self.TABLE))
        text = pathlib.Path(self.job).read_text(encoding="utf-8").replace('features: "a"', "")
        other = self.write("other.textproto", text.replace('features: "b"', 'features: "b" features: "a"'))
        self.assertIn('new.csv: feature 0 is column "colour" in the job, but "a" in the trained model',
                      self.predict(f"--features={new}", job=other, code=2))
        new = self.write("new.csv", "a,b,size\n1,1,1\n")
        self.assertIn('no column "colour"', self.predict(f"--features={new}", code=2))
        self.write("new.csv", "a,b,colour,size\n1,1,red,1\n1,x,red,1\n")
        self.assertIn('new.csv:3: column "b": expected a finite number', self.predict(f"--features={new}", code=2))
        self.write("new.csv", "1,1,2,1\n1,1,3,1\n")
        self.assertIn("is the header line with the names of the columns missing?",
                      self.predict(f"--features={new}", code=2))
        self.write("new.csv", "a,b,colour,size\n")
        self.assertIn("new.csv: no records", self.predict(f"--features={new}", code=2))

    def test_missing_values_of_tables(self):
        self.table(missing="DROP")
        new = self.write("new.csv", "a,b,colour,size\n1,1,red,1\n1,NA,red,1\n1,1,red,3\n")
        self.assertEqual([x["record"] for x in self.predict(f"--features={new}")], ["0", "2"])
        self.assertIn('new.csv: record 1, column "b": no value. data.csv.missing says',
                      self.predict(f"--features={new}", "--set", "data.csv.missing=REFUSE", code=2))
        self.assertIn("trained without data.csv.missing: MEAN or MEDIAN",
                      self.predict(f"--features={new}", "--set", "data.csv.missing=MEAN", code=2))

    def test_sparse_rows(self):
        rows = ["1 1:1 3:2", "-1 2:1", "1 3:0.5 4:1", "-1 1:2 2:2"]
        path = self.write("rows.svm", "\n".join(rows))
        model = """model { layer { dense { units: 1 } } loss: HINGE } learning_rate { base: 0.1 }"""
        wanted = self.train(f'libsvm {{ path: "{path}" }} batch: 2', model)
        new = self.write("new.svm", "\n\n".join(x.split(" ", 1)[1] for x in rows))
        self.same(new, wanted)
        self.same(path, wanted)  # the file has labels, which are ignored
        self.write("new.svm", "1:1\n5:1\n")
        self.assertIn("index 5 is beyond the 4 features", self.predict(f"--features={new}", code=2))

    def test_pictures(self):
        for i in range(8):
            shade = [[(i * 30, 10, 20 * k + j) for j in range(2)] for k in range(2)]
            self.write(f"train/{'cat' if i % 2 else 'dog'}/{i}.png", png(shade))
            self.write(f"new/{'' if i % 3 else 'more/'}{i}.png", png(shade))
        wanted = self.train(f'image_folder {{ path: "{self.folder}/train" }} batch: 4', MODEL.replace("3", "2"))
        by_record = {}
        for i, row in enumerate(wanted):
            name = [1, 3, 5, 7, 0, 2, 4, 6][i]
            by_record[name] = {k: v for k, v in row.items() if k not in ("record", "label")}
        found = self.predict(f"--features={self.folder}/new")
        self.assertEqual([x["file"] for x in found], ["1.png", "2.png", "4.png", "5.png", "7.png", "more/0.png",
                                                      "more/3.png", "more/6.png"])
        self.assertIn(found[0]["prediction"], ("cat", "dog"))
        for row in found:
            which = int(pathlib.Path(row.pop("file")).stem)
            self.assertEqual(row, by_record[which])
        self.write("new/0.png", png([[(1, 2, 3)]]))
        self.assertIn("0.png: a picture of (3, 1, 1)", self.predict(f"--features={self.folder}/new", code=2))

    def test_weights_of_another_program_use_the_data_of_the_job(self):
        x = self.write("x.npy", npy(FLOATS, (6, 2), range(12)))
        y = self.write("y.npy", npy(WHOLE, (6,), [0, 1, 2] * 2))
        wanted = self.train(f'npy {{ features: "{x}" labels: "{y}" }} batch: 2')
        weights = self.out / "weights.safetensors"
        data = weights.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        del header["__metadata__"]
        text = json.dumps(header).encode()
        weights.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])
        self.same(x, wanted)
        y.unlink()
        self.assertIn(str(y), self.predict(f"--features={x}", code=2))

    def test_a_file_appears_when_it_is_complete(self):
        x = self.write("x.npy", npy(FLOATS, (6, 2), range(12)))
        y = self.write("y.npy", npy(WHOLE, (6,), [0, 1, 2] * 2))
        self.train(f'npy {{ features: "{x}" labels: "{y}" }} batch: 2')
        said = self.folder / "said"
        said.mkdir()
        bad = self.write("bad-2.npy", npy(FLOATS, (1, 3), range(3)))
        self.write("bad-1.npy", npy(FLOATS, (6, 2), range(12)))
        arguments = ["predict", f"--weights={self.out}/weights.safetensors", f"--job={self.job}",
                     f"--predictions={said}/p.csv"]
        process = self.start(*arguments, f"--features={self.folder}/bad-*.npy")
        self.assert_exit(process, 2)
        self.assertEqual(list(said.iterdir()), [])
        bad.unlink()
        process = self.start(*arguments, f"--features={self.folder}/bad-*.npy")
        self.assert_exit(process, 0)
        self.assertRegex(process.output, r"records +6\n")
        self.assertEqual(len((said / "p.csv").read_text().splitlines()), 7)

    def test_fewer_records_than_a_batch(self):
        table = self.write("many.csv", "a,b,y\n" + "".join(f"{i},{i % 3},{2 * i}\n" for i in range(20)))
        few = self.write("few.csv", "a,b,y\n1,2,3\n4,5,6\n7,8,9\n")
        self.train(f'csv {{ path: "{table}" features: "a" features: "b" target: "y" }} batch: 16',
                   "model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR } ")
        self.assertEqual(len(self.predict("--set", f"data.csv.path={few}")), 3)

    def test_other_data_and_arguments(self):
        self.train("digits { train: 64 test: 10 } batch: 16",
                   MODEL.replace("units: 3", "units: 10"))
        self.assertIn("the job's data are drawn digits or text", self.predict("--features=x.npy", code=2))
        for arguments, text in ((["--features=x"], "--predictions"),
                                (["--features=x", "--predictions=-", "--show=3"], "--show"),
                                (["--features=x", "--predictions=-", "--generate=3"], "--generate")):
            process = self.start("predict", "--weights=w", f"--job={self.job}", *arguments)
            self.assert_exit(process, 2)
            self.assertIn(text, process.output)

    def test_pictures_of_text(self):
        """--show refuses records that are no images, although their width is a square."""
        text = self.write("text.txt", "to be or not to be, that is the question. " * 40)
        layers = "layer { embedding { width: 4 } } layer { dense { units: 15 } }"
        self.train(f'text {{ path: "{text}" window: 16 }} batch: 4',
                   f"model {{ {layers} loss: SOFTMAX_CROSS_ENTROPY }} ")
        self.assertIn("--show draws square images", self.predict("--show=4", code=2))

    def test_devices(self):
        """Predictions on a GPU are compared with those of the CPU in tests/actors/devices."""
        x = self.write("x.npy", npy(FLOATS, (6, 2), range(12)))
        y = self.write("y.npy", npy(WHOLE, (6,), [0, 1, 2] * 2))
        wanted = self.train(f'npy {{ features: "{x}" labels: "{y}" }} batch: 2')
        self.assertEqual(self.predict("--device=CPU:0"), wanted)
        for more in ([], [f"--features={x}"]):
            # No host has this many GPUs. So the error is the same with and without a driver.
            said = self.predict("--device=GPU:99", *more, code=2)
            self.assertRegex(said, "^troupe: --device=GPU:99: .*. Without --device, the CPU computes\n$")
        for device in ("GPU", "0", "CPU:1", "/job:worker/task:0/device:GPU:0"):
            said = self.predict(f"--device={device}", code=2)
            self.assertIn(f'--device: "{device}" ', said)
            self.assertIn("expected GPU:N or CPU:0", said)


if __name__ == "__main__":
    run_tests()
