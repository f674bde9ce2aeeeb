"""`troupe check`, `predict`, `completion`, `--version`, `--help`, `--log-level`: commands before and after a run."""

import csv
import io
import json
import pathlib
import re
import struct
import subprocess

from program import PROGRAM, QUICK_JOB, SOURCE, TestCase, protocols, run_tests

COMMANDS = ("node", "train", "check", "predict", "export", "operators", "doctor", "completion")

TABLE_JOB = """
model {{ layer {{ dense {{ units: 1 }} }} loss: MEAN_SQUARED_ERROR }}
data {{
  csv {{ path: "{path}" features: "x" target: "y" standardize: true }}
  split {{ test: 10 shuffle: false }}
  batch: 10
}}
learning_rate {{ base: 0.1 }}
epochs: 30
"""


def value(output, what):
    """The value in a line of a table, such as "test loss"."""
    return re.search(rf"^  {what}  +(.*)$", output, re.MULTILINE)[1]


class Command(TestCase):
    def setUp(self):
        super().setUp()
        self.job = self.file("job.textproto", QUICK_JOB)
        self.out = self.folder / "out"

    def run_program(self, *arguments, code=0):
        """Standard output and standard error of a run, separately."""
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, f"{arguments} said:\n{done.stdout}{done.stderr}")
        return done.stdout, done.stderr


class Predict(Command):
    def train(self, *more):
        return self.run_program("train", f"--job={self.job}", f"--out={self.out}", *more)[0]

    def predict(self, *more, code=0):
        return self.run_program("predict", f"--weights={self.out}/weights.safetensors", f"--job={self.job}", *more,
                                code=code)

    def test_same_numbers_as_the_run(self):
        trained = self.train("--workers=2")
        output, _ = self.predict()
        for what in ("test loss", "test accuracy"):
            self.assertEqual(value(output, what), value(trained, what))
        self.assertNotIn("another job", output)

    def test_predictions_of_classes(self):
        self.train()
        end = self.metrics(self.out)[-1]
        file = self.folder / "predictions.csv"
        output, _ = self.predict(f"--predictions={file}")
        self.assertIn(str(file), output)
        rows = list(csv.DictReader(io.StringIO(file.read_text())))
        probabilities = [f"probability_{c}" for c in range(10)]
        self.assertEqual(list(rows[0]), ["record", "label", "prediction", "probability", *probabilities])
        # The last 100 of 740 digits are test records.
        self.assertEqual([int(x["record"]) for x in rows], list(range(640, 740)))
        for row in rows:
            self.assertAlmostEqual(sum(float(row[x]) for x in probabilities), 1, delta=1e-5)
            self.assertEqual(row[f"probability_{row['prediction']}"], row["probability"])
        right = sum(x["label"] == x["prediction"] for x in rows)
        self.assertAlmostEqual(right / 100, end["test_accuracy"], places=9)
        self.assertTrue(all(0.1 <= float(x["probability"]) <= 1 for x in rows))
        self.assertEqual([x.name for x in self.folder.iterdir() if "predictions" in x.name], ["predictions.csv"])

    def test_predictions_to_standard_output(self):
        self.train()
        output, report = self.predict("--predictions=-")
        self.assertEqual(len(list(csv.DictReader(io.StringIO(output)))), 100)
        self.assertIn("test accuracy", report)

    def test_predictions_of_targets(self):
        rows = [(x / 10, 3 + 2 * x / 10) for x in range(60)]
        table = self.file("table.csv", "x,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
        self.job = self.file("table.textproto", TABLE_JOB.format(path=table))
        self.train()
        output, _ = self.predict("--predictions=-")
        said = list(csv.DictReader(io.StringIO(output)))
        self.assertEqual(list(said[0]), ["record", "target", "prediction"])
        # The last ten records are test records. Predictions are in the units of the table, not standardized.
        for row, (_, target) in zip(said, rows[-10:], strict=True):
            self.assertAlmostEqual(float(row["target"]), target, delta=1e-4)
            self.assertAlmostEqual(float(row["prediction"]), target, delta=0.5)

    def flowers(self, more="", loss="SOFTMAX_CROSS_ENTROPY", units=3, split="test: 30"):
        """Writes a table that is sorted by species. The species are easy to distinguish."""
        rows = [(20 * k + i / 10, species) for k, species in enumerate(("a, b", "rose", "tulip")[:max(units, 2)])
                for i in range(50)]
        table = self.file("flowers.csv", "x,species\n" + "".join(f'{x},"{y}"\n' for x, y in rows))
        self.job = self.file("flowers.textproto", f"""
            model {{ layer {{ dense {{ units: {units} }} }} loss: {loss} }}
            data {{
              csv {{ path: "{table}" features: "x" label: "species" standardize: true }}
              split {{ {split} }}
              batch: 10
            }}
            learning_rate {{ base: 0.5 }}
            epochs: 30
            {more}""")
        return rows

    def test_predictions_of_named_classes(self):
        rows = self.flowers("evaluate { measure: CONFUSION }")
        trained = self.train()
        self.assertGreater(float(value(trained, "test accuracy").split()[0]), 90)
        self.assertRegex(trained, r"confusion +class a, b: \d+ \d+ \d+\n +class rose: \d+")
        self.assertIn("<td>rose</td>", (self.out / "report.html").read_text())
        output, report = self.predict("--predictions=-")
        self.assertIn("test accuracy", report)
        said = list(csv.DictReader(io.StringIO(output)))
        self.assertEqual(list(said[0]), ["record", "label", "prediction", "probability", "probability_a, b",
                                         "probability_rose", "probability_tulip"])
        self.assertEqual(len(said), 30)
        # The record numbers are those of the file, and all classes occur.
        for row in said:
            self.assertEqual(row["label"], rows[int(row["record"])][1])
            self.assertAlmostEqual(float(row[f"probability_{row['prediction']}"]), float(row["probability"]))
        self.assertEqual({x["label"] for x in said}, {"a, b", "rose", "tulip"})

    def test_other_records_are_scaled_as_the_training(self):
        rows = self.flowers()
        self.train()
        def said():
            return {float(rows[int(x["record"])][0]): float(x["probability_rose"])
                    for x in csv.DictReader(io.StringIO(self.predict("--predictions=-")[0]))}
        first = said()
        # The new table has these test records, and others that change the mean. Predictions must not change, because
        # records are scaled like the training data.
        rows = [x for x in rows if x[0] in first or x[0] > 43] + [(300, "rose")]
        self.file("flowers.csv", "x,species\n" + "".join(f'{x},"{y}"\n' for x, y in rows))
        self.job = self.file("all.textproto", re.sub(r"split {.*?}", "", pathlib.Path(self.job).read_text()))
        self.assertIn("(these records are scaled like the training data)", self.predict()[0])
        again = said()
        for x, probability in first.items():
            self.assertAlmostEqual(again[x], probability, delta=1e-4)
        # Other classes are refused, because the outputs of the model would belong to the wrong classes.
        self.file("flowers.csv", "x,species\n1,rose\n2,tulip\n3,zinnia\n")
        _, errors = self.predict("--set", "data.batch=1", code=2)
        self.assertIn('weights.safetensors: the model was trained with the classes ["a, b","rose","tulip"], '
                      'but the data have ["rose","tulip","zinnia"]; expected the same', errors)

    def test_other_targets_are_scaled_as_the_training(self):
        table = self.file("table.csv", "x,y\n" + "".join(f"{x / 10},{3 + 2 * x / 10}\n" for x in range(60)))
        self.job = self.file("table.textproto", TABLE_JOB.format(path=table) + "solver: EXACT")
        self.train()
        # The new records follow another line, y = 5 - x.
        self.file("table.csv", "x,y\n" + "".join(f"{x},{5 - x}\n" for x in range(100, 120)))
        output, _ = self.predict("--predictions=-")
        for row in csv.DictReader(io.StringIO(output)):
            x = 100 + int(row["record"])
            self.assertAlmostEqual(float(row["target"]), 5 - x, delta=1e-3)
            self.assertAlmostEqual(float(row["prediction"]), 3 + 2 * x, delta=1e-2)

    def test_predictions_of_two_classes(self):
        for loss, columns in (("BINARY_CROSS_ENTROPY", ["probability", "probability_a, b", "probability_rose"]),
                              ("HINGE", ["output"])):
            with self.subTest(loss=loss):
                self.flowers(loss=loss, units=1)
                self.assertGreater(float(value(self.train(), "test accuracy").split()[0]), 90)
                output, _ = self.predict("--predictions=-")
                said = list(csv.DictReader(io.StringIO(output)))
                self.assertEqual(list(said[0]), ["record", "label", "prediction", *columns])
                if loss == "HINGE":
                    for row in said:
                        self.assertEqual(row["prediction"], "rose" if float(row["output"]) > 0 else "a, b")

    def test_targets_of_binary_cross_entropy_are_predicted_as_probabilities(self):
        table = self.file("table.csv", "x,y\n" + "".join(f"{i},{int(i >= 30)}\n" for i in range(60)))
        self.job = self.file("table.textproto", TABLE_JOB.format(path=table)
                             .replace("MEAN_SQUARED_ERROR", "BINARY_CROSS_ENTROPY"))
        trained = self.train()
        # The target of a binary loss was once standardized by mistake. The loss then fell below 0 without limit.
        self.assertGreater(float(value(trained, "test loss")), 0)
        output, _ = self.predict("--predictions=-")
        for row in csv.DictReader(io.StringIO(output)):
            self.assertEqual(float(row["target"]), 1)
            self.assertTrue(0.5 < float(row["prediction"]) <= 1)
        text = pathlib.Path(self.job).read_text().replace('"y"', '"x"').replace('features: "x"', 'features: "y"')
        self.job = self.file("changed.textproto", text)
        _, errors = self.run_program("train", f"--job={self.job}", f"--out={self.out}", code=2)
        for text in ("training record 2 has target 2", "BINARY_CROSS_ENTROPY expects 0 to 1"):
            self.assertIn(text, errors)

    def test_pictures(self):
        self.train()
        output, _ = self.predict("--show=4")
        self.assertIn("Right", output)
        self.assertIn("Wrong", output)
        self.assertEqual(len(re.findall(r"\d+ %\)", output)), 4)
        self.assertLessEqual(max(map(len, output.split("Right")[1].splitlines())), 80)
        _, errors = self.predict("--show=4", "--set", "data.digits.test=0", code=0)
        self.assertEqual(errors, "")

    def test_weights_of_another_model(self):
        self.train()
        _, errors = self.predict("--set", "model.layer[0].dense.units=12", code=2)
        for text in ("weights.safetensors", "differs: dense_1.weight", "differs: dense_1.bias"):
            self.assertIn(text, errors)
        _, errors = self.predict("--set", "model.layer[0].name=other", code=2)
        for text in ("missing: other.weight", "missing: other.bias", "extra: dense_1.weight", "extra: dense_1.bias"):
            self.assertIn(text, errors)

    def test_weights_that_are_no_numbers(self):
        self.train()
        weights = self.out / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x00\xc0\x7f")
        text = ('weights.safetensors: tensor "dense_1.weight" (10, 784) holds nan as element 7839; '
                "expected finite numbers")
        self.assertIn(text, self.predict(code=2)[1])
        _, errors = self.run_program("export", f"--job={self.job}", f"--weights={weights}",
                                     f"--output={self.folder}/nan.onnx", code=2)
        self.assertIn(text, errors)
        self.assertFalse((self.folder / "nan.onnx").exists())
        _, errors = self.run_program("train", f"--job={self.job}", f"--out={self.folder}/again", "--set",
                                     f"model.initial_weights={weights}", code=2)
        self.assertIn(text, errors)

    def test_says_when_another_job_trained(self):
        self.train()
        self.assertIn("another job", self.predict("--set", "epochs=7")[0])

    def test_wrong_input(self):
        self.train()
        for more, texts in (
                ([f"--predictions={self.folder}/no/p.csv"], [f"{self.folder}/no/p.csv", "no directory"]),
                ([f"--predictions={self.folder}"], [str(self.folder), "is not a file"]),
                (["--predictions=/dev/null"], ["/dev/null", "is not a file"])):
            _, errors = self.predict(*more, code=2)
            for text in texts:
                self.assertIn(text, errors)
        missing = self.folder / "missing.safetensors"
        _, errors = self.run_program("predict", f"--weights={missing}", f"--job={self.job}", code=2)
        self.assertIn(str(missing), errors)
        weights = self.out / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:100])
        self.assertIn("weights.safetensors", self.predict(code=2)[1])


class Check(Command):
    def check(self, *more, code=0):
        return self.run_program("check", f"--job={self.job}", *more, code=code)

    def test_what_would_run(self):
        output, _ = self.check("--workers=2", "--ps=2", "--processes")
        for text in ("7,850 parameters", "softmax cross entropy", "640 records train, 100 records test", "10 classes",
                     "40 per epoch", "ps/0", "ps/1", "parameters 0 to 3,919: dense_1.weight (3,920 of 7,840)",
                     "parameters 3,920 to 7,849: dense_1.weight (3,920 of 7,840), dense_1.bias", "coordinator/0",
                     "worker/1", "2 epochs", "async_ps"):
            self.assertIn(text, output)
        self.assertRegex(output, r"dense_1 +dense +1 x 28 x 28 +10 +7,850 +30.7 KiB")

    def test_placement(self):
        output, _ = self.check("--ps=3", "--set", "placement=BY_TENSOR")
        self.assertRegex(output, r"ps/0 +30.6 KiB  parameters 0 to 7,839: dense_1.weight\n"
                                 r" +ps/1 +40 B  parameters 7,840 to 7,849: dense_1.bias\n"
                                 r" +ps/2 +0 B  no parameters\n")
        _, errors = self.check("--protocol=ring", "--set", "placement=BY_TENSOR", code=2)
        self.assertIn("placement: RING has no parameter servers", errors)

    def test_precision(self):
        output, _ = self.check("--set", "precision=BFLOAT16")
        self.assertIn("\nprecision   bfloat16 products, convolutions and the operations between them; "
                      "float32 weights and gradients\n", output)
        self.assertNotIn("precision", self.check()[0])

    def test_buffer(self):
        output, _ = self.check("--workers=2", "--set", "async_ps.buffer=4")
        self.assertIn("the mean of each 4 gradients is applied when the last of them arrives", output)
        self.assertIn("10 per epoch, each of 64 samples (16 from each of 4 gradients of 2 workers)", output)

    def test_a_full_disk_under_the_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = subprocess.run([PROGRAM, "check", f"--job={self.job}"], stdout=full, stderr=subprocess.PIPE,
                                     text=True, check=False)
        self.assertEqual((process.returncode, process.stderr),
                         (1, "troupe: cannot write to standard output: the output is incomplete\n"))

    def test_ring(self):
        output, _ = self.check("--workers=4", "--protocol=ring")
        self.assertIn("whole on each of 4 workers", output)
        self.assertIn("10 per epoch, each of 64 samples", output)
        self.assertNotIn("ps/0", output)

    def test_cluster(self):
        cluster, addresses = self.cluster(ps=1, workers=2)
        output, _ = self.check(f"--cluster={cluster}")
        for jobs in addresses.values():
            for address in jobs:
                self.assertIn("at " + address, output)
        self.assertRegex(output, r"worker/1 +\d")
        _, errors = self.check(f"--cluster={cluster}", "--workers=2", code=2)
        self.assertIn("--workers", errors)

    def test_classes_of_each_part(self):
        table = self.file("flowers.csv", "x,species\n" + "".join(f"{i},{'abc'[i // 50]}\n" for i in range(150)))
        self.job = self.file("flowers.textproto", f"""
            model {{ layer {{ dense {{ units: 3 }} }} loss: SOFTMAX_CROSS_ENTROPY }}
            data {{
              csv {{ path: "{table}" features: "x" label: "species" }}
              split {{ test: 30 stratify: true }}
              batch: 10
            }}""")
        output, _ = self.check()
        for c in "abc":
            self.assertRegex(output, rf"\n +{c} +40 +10\n")
        self.assertNotIn("warning", output)
        output, _ = self.check("--set", "data.split={ test: 30 shuffle: false }")
        self.assertRegex(output, r"warning +class a has no record in test\n")
        self.assertRegex(output, r"warning +class c is 100.0 % of test, but 33.3 % of all records\n")
        self.assertIn("data.split.stratify", output)
        # This split is stratified already, so there is no advice to stratify it.
        self.file("flowers.csv", "x,species\n1,größer\n2,größer\n3,b\n4,b\n5,日本\n")
        output, _ = self.check("--set", "data.split={ test: 2 stratify: true }", "--set", "data.batch=1")
        self.assertRegex(output, r"\n +class +train +test\n +b +1 +1\n +größer +1 +1\n +日本 +1 +0\n")
        lines = [x for x in output.splitlines() if re.match(r" +(class|b|größer|日本) ", x)]
        self.assertEqual({len(x) for x in lines}, {len(lines[0])}, lines)
        self.assertRegex(output, r"warning +class 日本 has no record in test: it has only 1 in all\n")
        self.assertNotIn("data.split.stratify", output)
        # Class c has only one record, so no split can help, and there is no advice.
        self.file("flowers.csv", "x,species\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(80)) + "80,c\n")
        output, _ = self.check("--set", "data.split={ test: 20 }")
        self.assertRegex(output, r"warning +class c has no record in (train|test): it has only 1 in all\n")
        self.assertNotIn("data.split.s", output)
        self.file("flowers.csv", "x,species\n" + "".join(f"{i},{'aab'[min(i // 10, 2)]}\n" for i in range(23)))
        output, _ = self.check("--set", "data.split={ test: 2 }", "--set", "data.batch=1")
        self.assertRegex(output, r"warning +draw the parts with the same share of each class \(data.split.stratify\)\n")

    def test_advice_about_splits(self):
        # Generated digits are not split, so there is no advice about splits.
        output, _ = self.check("--set", "data.digits.test=5", "--set", "data.batch=1")
        self.assertRegex(output, r"warning +class . has no record in test\n")
        self.assertNotIn("data.split", output)
        # At least five classes have no record in any part.
        output, _ = self.check("--set", "data.digits={ train: 3 test: 2 }", "--set", "data.batch=1")
        self.assertRegex(output, r"warning +class . has no record\n")

    def test_evaluations(self):
        output, _ = self.check("--set", "evaluate={ every_steps: 7 }")
        self.assertIn("evaluated every 7 steps and after each epoch", output)
        output, _ = self.check("--set", "evaluate={ measure: CONFUSION }")
        self.assertNotIn("evaluated every", output)

    def test_batches(self):
        output, _ = self.check("--workers=4", "--protocol=ring")
        self.assertRegex(output, r"batch +16 samples per worker, 64 over all 4 workers\n")
        text = pathlib.Path(self.job).read_text()
        self.job = self.file("changed.textproto", text.replace("batch: 16", "global_batch: 32"))
        output, _ = self.check("--workers=4", "--protocol=ring")
        self.assertRegex(output, r"batch +8 samples per worker, 32 over all 4 workers\n")
        self.assertIn("20 per epoch, each of 32 samples", output)
        _, errors = self.check("--workers=3", code=2)
        self.assertIn("data.global_batch: 32 samples cannot be divided among 3 workers", errors)
        first, _ = self.run_program("train", f"--job={self.job}", "--workers=4", "--protocol=ring",
                                    f"--out={self.folder / 'four'}")
        second, _ = self.run_program("train", f"--job={self.job}", "--workers=2", "--protocol=ring", "--processes",
                                     f"--out={self.folder / 'two'}")
        self.assertAlmostEqual(float(value(first, "test loss")), float(value(second, "test loss")), delta=1e-3)
        # The number of workers does not change the job. So weights that were trained with 4 workers belong to this job.
        self.assertNotIn("another job", self.run_program(
            "predict", f"--job={self.job}", "--set", "protocol=RING",
            f"--weights={self.folder / 'four/weights.safetensors'}")[0])

    def test_a_run_says_its_batches_first(self):
        process = self.start("train", f"--job={self.job}", "--workers=2")
        self.assert_exit(process, 0)
        self.assertEqual(process.lines[0], "batch: 16 samples per worker, 32 over all 2 workers")

    def test_ridge(self):
        table = self.file("table.csv", "x,y\n" + "".join(f"{i},{3 + 2 * i}\n" for i in range(20)))
        self.job = self.file("ridge.textproto", TABLE_JOB.format(path=table).replace("standardize: true", "")
                             + 'solver: EXACT optimizer { weight_decay: 0.5 }')
        for command in ("check", "train"):
            output, _ = self.run_program(command, f"--job={self.job}")
            self.assertIn("alpha = 2.5 of scikit-learn's Ridge; unlike there, it also penalizes the intercept",
                          output)
            output, _ = self.run_program(command, f"--job={self.job}", "--set", "data.csv.standardize=true")
            self.assertIn("on standardized features and target", output)
            self.assertNotIn("also penalizes the intercept", output)
            output, _ = self.run_program(command, f"--job={self.job}", "--set", "optimizer.weight_decay=0")
            self.assertNotIn("alpha", output)

    def test_the_penalty_of_other_linear_models(self):
        """scikit-learn's C is 1 / (weight_decay N): here 1 / (0.1 * 20), and twice that for a softmax of two units."""
        table = self.file("table.csv", "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
        for loss, units, column, says in (
                ("BINARY_CROSS_ENTROPY", 1, "label", "C = 0.5 of scikit-learn's LogisticRegression"),
                ("SOFTMAX_CROSS_ENTROPY", 2, "label", "C = 1 of scikit-learn's LogisticRegression"),
                ("SOFTMAX_CROSS_ENTROPY", 3, "label", "C = 0.5 of scikit-learn's LogisticRegression"),
                ("HINGE", 1, "label", "C = 0.5 of scikit-learn's SVC(kernel=\"linear\")"),
                ("MEAN_ABSOLUTE_ERROR", 1, "target", "C = 0.5 of scikit-learn's SVR(kernel=\"linear\", epsilon=0)")):
            self.job = self.file("job.textproto", f"""
                model {{ layer {{ dense {{ units: {units} }} }} loss: {loss} }}
                data {{ csv {{ path: "{table}" features: "x" {column}: "y" }} batch: 4 }}
                optimizer {{ weight_decay: 0.1 }} learning_rate {{ base: 0.01 }} epochs: 1""")
            for command in ("check", "train"):
                with self.subTest(loss=loss, units=units, command=command):
                    output, _ = self.run_program(command, f"--job={self.job}")
                    self.assertIn(f"weight_decay is {says}; unlike there, it also penalizes the intercept; to exempt "
                                  'it, set optimizer.group { match: "dense_1.bias" weight_decay: 0 }', output)
                    output, _ = self.run_program(command, f"--job={self.job}", "--set",
                                                 "optimizer.group[0]={match: '*.bias' weight_decay: 0}")
                    self.assertIn(says, output)
                    self.assertNotIn("intercept", output)
            output, _ = self.run_program("check", f"--job={self.job}", "--set=optimizer.kind=ADAMW")
            self.assertNotIn("penalty", output)
            if loss.startswith("SOFTMAX"):
                output, _ = self.run_program("check", f"--job={self.job}", "--set=model.label_smoothing=0.1")
                self.assertIn("\npenalty     unlike in scikit-learn, weight_decay also penalizes the intercept; to",
                              output)

    def test_tables_with_many_categories(self):
        rows = "".join(f"user {i % 150},{i % 7},{i % 5}\n" for i in range(300))
        table = self.file("table.csv", "user,hour,stars\n" + rows)
        self.job = self.file("job.textproto", f"""
            model {{ layer {{ dense {{ units: 4 activation: RELU }} }} layer {{ dense {{ units: 1 }} }}
                     loss: MEAN_SQUARED_ERROR }}
            data {{ csv {{ path: "{table}" features: "user" features: "hour" target: "stars" categories: "user" }}
                    batch: 10 }} epochs: 2""")
        advice = "\nadvice      149 of the 151 features of a record are 0; with data.csv.sparse: true, they take"
        self.assertIn(advice, self.run_program("check", f"--job={self.job}")[0])
        sparse = "--set=data.csv.sparse=true"
        output, _ = self.run_program("check", f"--job={self.job}", sparse)
        self.assertNotIn("advice", output)
        self.assertIn("; 151 sparse features, 1 target", output)
        losses = [re.search(r"test loss +([0-9.]+)", self.run_program("train", f"--job={self.job}", *more)[0])[1]
                  for more in ([], [sparse])]
        self.assertAlmostEqual(float(losses[0]), float(losses[1]), delta=0.1)  # layers begin with other weights

    def test_ridge_without_the_intercept(self):
        table = self.file("table.csv", "x,y\n" + "".join(f"{i},{3 + 2 * i}\n" for i in range(20)))
        self.job = self.file("ridge.textproto", TABLE_JOB.format(path=table).replace("standardize: true", "")
                             + 'solver: EXACT optimizer { weight_decay: 0.5 '
                             'group { match: "*.bias" weight_decay: 0 } }')
        for command in ("check", "train"):
            output, _ = self.run_program(command, f"--job={self.job}")
            self.assertIn("alpha = 2.5 of scikit-learn's Ridge", output)
            self.assertNotIn("intercept", output)

    def test_frozen_parameters_and_groups(self):
        text = (SOURCE / "apps/manual/parameters.md").read_text()
        jobs = dict(re.findall(r"^```textproto (\S+)\n(.*?)^```$", text, re.M | re.S))
        self.job = self.file("head.textproto", jobs["head.textproto"])
        output, _ = self.check()
        self.assertIn("\nfrozen      240 parameters in 6 tensors of 11,770\n"
                      "            convolution.weight, convolution.bias, norm.weight, norm.bias, norm.running_mean, "
                      'norm.running_var: model.freeze "*"\n'
                      "            they take memory like others: 960 B in each gradient, "
                      "1.9 KiB of optimizer state\n", output)
        output, _ = self.check("--set=optimizer.kind=SGD")
        self.assertIn("960 B in each gradient, 0 B of optimizer state\n", output)
        self.assertNotIn("groups", output)
        self.job = self.file("groups.textproto", jobs["groups.textproto"])
        output, _ = self.check()
        self.assertIn('\ngroups      "*.bias": 42 parameters in 2 tensors, weight decay 0\n'
                      '            "first.*": 25,088 parameters in 1 tensor, weight decay 0.01, learning rate x 0.1\n'
                      "            others: 320 parameters in 1 tensor, weight decay 0.01\n", output)
        self.assertNotIn("frozen", output)
        _, notices = self.run_program("train", f"--job={self.job}", f"--out={self.out}", "--set=epochs=1",
                                      "--set", "model.freeze[0]=first.*",
                                      "--set", 'optimizer.group[1]={match: "head.*" l1: 0.1}')
        self.assertIn("\nfrozen: 25,120 parameters in 2 tensors of 25,450; troupe check says which\n", notices)

    def test_patterns_that_match_nothing(self):
        group = 'optimizer {\n  group { match: "*.bais" weight_decay: 0 }\n}\n'
        self.job = self.file("job.textproto", QUICK_JOB + group)
        line = QUICK_JOB.count("\n") + 2
        for command in ("check", "train"):
            _, errors = self.run_program(command, f"--job={self.job}", code=2)
            self.assertIn(f'job.textproto:{line}: optimizer.group[0].match: "*.bais" matches no parameter; did you '
                          'mean "dense_1.bias"? valid: "dense_1.weight", "dense_1.bias"', errors)
        _, errors = self.check("--set", "optimizer.group[0].match=*", "--set", "model.freeze[0]=dense_2.*", code=2)
        self.assertIn('model.freeze[0]: "dense_2.*" matches no parameter', errors)

    def test_fields_that_do_not_fit_the_number_of_workers(self):
        self.job = self.file("job.textproto", QUICK_JOB + "protocol: SYNC_PS\nsync_ps {\n  backup_workers: 2\n}\n")
        line = QUICK_JOB.count("\n") + 3
        for command in ("check", "train"):
            _, errors = self.run_program(command, f"--job={self.job}", "--workers=2", code=2)
            self.assertIn(f"job.textproto:{line}: sync_ps.backup_workers: 2 of 2 workers would leave no worker", errors)

    def test_nothing_is_written(self):
        self.check("--set", f"output={self.out}")
        self.assertFalse(self.out.exists())

    def test_overrides_count(self):
        self.assertIn("20 per epoch", self.check("--set", "data.batch=32")[0])

    def test_missing_data(self):
        # The command shows the model even if the data is missing, if its shapes are known without the data.
        self.job = self.file("table.textproto", TABLE_JOB.format(path=f"{self.folder}/missing.csv"))
        output, errors = self.check(code=2)
        self.assertIn("2 parameters", output)
        self.assertIn("missing.csv", errors)
        self.job = self.file("images.textproto", QUICK_JOB.replace(
            "digits { train: 640 test: 100 }",
            f'idx {{ images: "{self.folder}/missing" labels: "{self.folder}/labels" }}'))
        output, errors = self.check(code=2)
        self.assertNotIn("parameters", output)
        self.assertIn(f"{self.folder}/missing", errors)
        (self.folder / "missing").write_bytes(struct.pack(">IIII", 0x803, 2, 3, 3) + bytes(18))
        output, errors = self.check(code=2)
        self.assertIn("100 parameters", output)
        self.assertIn(f"{self.folder}/labels", errors)

    def test_wrong_input(self):
        self.assertIn("parameter servers", self.check("--ps=0", code=2)[1])
        self.assertIn("100000 workers", self.check("--workers=100000", code=2)[1])
        self.assertIn('did you mean "ring"', self.check("--protocol=rings", code=2)[1])
        self.assertIn("ring, ", self.check("--protocol=RING")[0])


class CommandLine(Command):
    def test_version(self):
        output, _ = self.run_program("--version")
        for text in (r"^troupe \d+\.\d+\.\d+", r"build +\w", r"compiler +\w+ \d", r"CAF +0\.17", r"architecture +\w",
                     r"GPUs +(CUDA|no )"):
            self.assertRegex(output, text)

    def test_examples_in_every_help(self):
        """The help of each command has examples. They use only existing commands and options."""
        main_help, _ = self.run_program("--help")
        self.assertIn("Examples:", main_help)
        for command in COMMANDS:
            self.assertIn(command, main_help)
            text, _ = self.run_program(command, "--help")
            examples = re.findall(rf"troupe {command}\b(.*)", text.split("Examples:")[1])
            self.assertTrue(examples)
            for option in re.findall(r"--[a-z-]+", " ".join(examples)):
                self.assertRegex(text.split("Examples:")[0], rf"{option}\b")

    def test_unknown_words(self):
        for arguments, texts in (
                (["trian"], ['no command "trian"', 'did you mean "train"']),
                (["check", "a.textproto"], ["--job is required; did you mean --job=a.textproto?"]),
                (["train", f"--job={self.job}", "--worker=2"], ['"--worker=2"', 'did you mean "--workers"']),
                (["predict", "--job", self.job, "--wieghts=x"], ['did you mean "--weights"']),
                (["bench", "train", "--pear=torch"],
                 ['option "--pear=torch" of troupe bench train;', 'did you mean "--peer"']),
                (["--versoin"], ['did you mean "--version"'])):
            _, errors = self.run_program(*arguments, code=2)
            for text in texts:
                self.assertIn(text, errors)
        # Internal options are not suggested.
        self.assertNotIn("ends-with-parent", self.run_program("node", "--zzz", code=2)[1])

    def complete(self, script, *words):
        """The completions that bash offers for the last word."""
        line = " ".join(f"'{x}'" for x in words)
        done = subprocess.run(
            ["bash", "--norc", "-c", f"source {script}; complete -p troupe >/dev/null; COMP_WORDS=({line}); "
             f"COMP_CWORD={len(words) - 1}; _troupe; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
            capture_output=True, text=True, check=True, cwd=self.folder, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_completion_in_bash(self):
        script = self.file("completion.bash", self.run_program("completion", "bash")[0])
        self.assertEqual(self.complete(script, "troupe", "tr"), ["train"])
        self.assertLessEqual(set(COMMANDS), set(self.complete(script, "troupe", "")))
        self.assertEqual(self.complete(script, "troupe", "train", "--wor"), ["--workers="])
        self.assertEqual(self.complete(script, "troupe", "train", "--proc"), ["--processes"])
        self.assertEqual(self.complete(script, "troupe", "predict", "--wor"), [])
        # The shell passes an equals sign as a separate word.
        self.assertEqual(self.complete(script, "troupe", "train", "--protocol", "=", "s"), ["sync_ps", "ssp"])
        self.assertEqual(self.complete(script, "troupe", "train", "--protocol", "="), protocols())
        self.assertEqual(self.complete(script, "troupe", "train", "--protocol", "r"), ["ring"])
        self.assertEqual(self.complete(script, "troupe", "train", "--job", "=", "job."), ["job.textproto"])
        self.assertEqual(self.complete(script, "troupe", "completion", "f"), ["fish"])
        self.assertEqual(self.complete(script, "troupe", "bench", "k"), ["kernels"])
        self.assertEqual(self.complete(script, "troupe", "bench", "train", "--pr"),
                         ["--processor-time", "--profile", "--processes", "--protocols="])
        self.assertEqual(self.complete(script, "troupe", "bench", "train", "--peer", "="),
                         ["torch", "tf", "gloo", "mpi", "ddp"])
        self.assertEqual(self.complete(script, "troupe", "bench", "async", "--rec"), ["--recipes="])
        self.assertNotIn("--ends-with-parent=", self.complete(script, "troupe", "node", "--"))
        # The completion of a command offers all options that its help lists.
        for command in COMMANDS:
            options = re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", self.run_program(command, "--help")[0], re.MULTILINE)
            offered = [x.rstrip("=") for x in self.complete(script, "troupe", command, "--")]
            self.assertEqual(sorted(options), sorted(offered))

    def test_completion_in_other_shells(self):
        for shell, begins in (("zsh", "#compdef troupe"), ("fish", "# made by")):
            text, _ = self.run_program("completion", shell)
            self.assertTrue(text.startswith(begins))
            for word in (*COMMANDS, "workers", "async_ps"):
                self.assertIn(word, text)
        self.assertIn("bash", self.run_program("completion", "tcsh", code=2)[1])


class Log(Command):
    def start_refusing(self, level):
        """A coordinator that refuses one worker and then gives up. The tasks log something at every level."""
        cluster, _ = self.cluster(ps=1, workers=1)
        more = [f"--log-level={level}"] if level else []
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={self.job}", "--set",
                                      "runtime.join_timeout_ms=60000", *more)
        other = self.file("other.textproto", QUICK_JOB.replace("batch: 16", "batch: 8"))
        worker = self.start_task("worker", 0, cluster, f"--job={other}", *more)
        self.assert_exit(worker, 1)
        shard = self.start_task("ps", 0, cluster, *more)
        last = self.start_task("worker", 0, cluster, *more)
        for process in (coordinator, shard, last):
            self.assert_exit(process, 0)
        return coordinator.output, worker.output, last.output

    def test_levels(self):
        stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "
        # Each entry: a log level, the process that writes at this level (0: coordinator, 1: the refused worker, 2: the
        # other worker), and a text that it writes.
        said = [("trace", 2, "step 1 of 16 samples"), ("debug", 0, "worker/0 joined from 127.0.0.1"),
                ("warn", 0, "refused worker/0"), ("error", 1, "data.batch")]
        order = ["trace", "debug", "info", "warn", "error", "off"]
        for level in ("trace", "debug", "warn", "error", "off"):
            outputs = self.start_refusing(level)
            for least, who, text in said:
                pattern = stamp + rf"{least}[a-z]* +\w+/0: .*{re.escape(text)}"
                expected = order.index(least) >= order.index(level)
                self.assertEqual(bool(re.search(pattern, outputs[who])), expected, f"{level}: {text}\n{outputs[who]}")

    def test_debug_tells_the_course_of_a_run(self):
        process = self.start("train", f"--job={self.job}", "--processes", "--log-level=debug")
        self.assert_exit(process, 0)
        for text in ("dialling", "link to", "is up", "joined", "opening view 1", "view 1 opens for ps/0",
                     "worker/0 is ready", "leases are settled", "snapshot of version 40", "is evaluated"):
            self.assertIn(text, process.output)
        self.assertNotIn("gets lease", process.output)

    def test_info_is_plain_unless_asked_for(self):
        cluster, addresses = self.cluster(ps=1, workers=1)
        plain = self.start_task("worker", 0, cluster)
        self.assertRegex(plain.wait_for("waiting for"), "^worker/0: waiting for coordinator/0 at ")
        stamped = self.start_task("ps", 0, cluster, "--log-level=info")
        self.assertRegex(stamped.wait_for("waiting for"), r"^\d{4}-.* info +ps/0: waiting for coordinator/0 at ")
        self.assertIn(addresses["coordinator"][0], stamped.output)

    def test_unknown_level(self):
        _, errors = self.run_program("train", f"--job={self.job}", "--log-level=inof", code=2)
        self.assertIn('did you mean "info"', errors)
        self.assertIn("trace", errors)


class Numbers(Command):
    def test_check_and_train_agree(self):
        """`check` and `train` report the same number of updates and the same hash of the job."""
        output, _ = self.run_program("check", f"--job={self.job}", "--set", "epochs=1")
        steps = int(re.search(r"^steps +(\d+) per epoch", output, re.MULTILINE)[1])
        self.run_program("train", f"--job={self.job}", f"--out={self.out}", "--set", "epochs=1")
        self.assertEqual(self.metrics(self.out)[-1]["applied"], steps)
        data = (self.out / "weights.safetensors").read_bytes()
        length, = struct.unpack_from("<Q", data)
        job_hash = json.loads(data[8:8 + length])["__metadata__"]["job_hash"]
        self.assertIn("hash " + job_hash[:12], output)


if __name__ == "__main__":
    run_tests()
