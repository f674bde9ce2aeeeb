"""The data sets of scikit-learn, from CSV and npz: troupe's results equal those of scikit-learn on the same records.

Models with one best solution are compared in both directions. A network depends on its initial weights, so it may only
be better. Skipped if the Python package `sklearn` is missing. The data are part of that package."""

import csv
import io
import json
import pathlib
import statistics
import subprocess
import sys
import warnings

from program import EXIT_SKIPPED, PROGRAM, TestCase, run_tests

try:
    import numpy
    from sklearn import datasets
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import log_loss, r2_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
except ImportError as error:
    print(f"skipped: {error.name} is not installed (tests/python installs scikit-learn)")
    sys.exit(EXIT_SKIPPED)

# Tolerance: half a percentage point of accuracy or of explained variance.
POINTS = 0.005
FORMATS = ("csv", "npz")
SEEDS = range(1, 9)

LINEAR = """
model {{ layer {{ dense {{ units: {units} }} }} loss: {loss} }}
optimizer {{ kind: NESTEROV weight_decay: {decay} group {{ match: "*.bias" weight_decay: 0 }} }}
learning_rate {{ base: {rate} cosine {{}} }}
epochs: 200
"""

NETWORK = """
model {{
  layer {{ dense {{ units: 64 activation: RELU }} }}
  layer {{ dense {{ units: {units} }} }}
  loss: SOFTMAX_CROSS_ENTROPY
}}
optimizer {{ kind: ADAM }}
learning_rate {{ base: 0.001 }}
epochs: 60
"""

EXACT = """
model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR }
optimizer { weight_decay: %r group { match: "*.bias" weight_decay: 0 } }
solver: EXACT
"""


class Set:
    """A data set in random order. The first records are for training, and the others for testing."""

    def __init__(self, name, test, **how):
        loaded = getattr(datasets, f"load_{name}")(**how)
        order = numpy.random.default_rng(1).permutation(len(loaded.target))
        # Rounds the data to float32 for both programs, because troupe reads numbers as float32.
        self.x = loaded.data[order].astype(numpy.float32).astype(float)
        self.y = loaded.target[order]
        self.features = [str(x) for x in loaded.feature_names]
        self.classes = [f"class {x}" for x in getattr(loaded, "target_names", [])]
        self.train = len(order) - round(test * len(order))

    @property
    def training(self):
        return self.x[:self.train], self.y[:self.train]

    @property
    def testing(self):
        return self.x[self.train:], self.y[self.train:]

    def write(self, folder, form, standardize):
        """Writes the records to a file. Returns the field `data` of a job."""
        path = folder / f"records.{form}"
        if form == "npz":
            (x, y), (test_x, test_y) = self.training, self.testing
            numpy.savez(path, x=x, y=y, test_x=test_x, test_y=test_y)
            return (f'npz {{ path: "{path}" features: "x" labels: "y" test_features: "test_x" test_labels: "test_y" }}'
                    + (" normalize { kind: STANDARDIZE }" if standardize else ""))
        with open(path, "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow([*self.features, "result"])
            for x, y in zip(self.x, self.y):
                table.writerow([*map(repr, map(float, x)), self.classes[y] if self.classes else float(y)])
        features = " ".join(f'features: "{x}"' for x in self.features)
        return (f'csv {{ path: "{path}" {features} {"label" if self.classes else "target"}: "result"'
                + (" standardize: true" if standardize else "") + " }"
                f" split {{ train: {self.train} test: {len(self.y) - self.train} shuffle: false }}")


class ScikitLearn(TestCase):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        warnings.simplefilter("ignore", ConvergenceWarning)

    def train(self, job, data, *more):
        """Trains. Returns the last line of metrics.jsonl."""
        self.job = self.file("job.textproto", job + f"data {{ {data} batch: 32 }}\n")
        process = self.start("train", f"--job={self.job}", f"--out={self.out}", "--workers=1", *more)
        self.assert_exit(process, 0)
        self.output = process.output
        return self.metrics(self.out)[-1]

    def predictions(self):
        done = subprocess.run([PROGRAM, "predict", f"--weights={self.out}/weights.safetensors", f"--job={self.job}",
                               "--predictions=-"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return numpy.array([float(x["prediction"]) for x in csv.DictReader(io.StringIO(done.stdout))])

    def weights(self):
        """The trained weights by name."""
        content = pathlib.Path(self.out / "weights.safetensors").read_bytes()
        begin = 8 + int.from_bytes(content[:8], "little")
        tensors = json.loads(content[8:begin])
        tensors.pop("__metadata__", None)
        return {name: numpy.frombuffer(content[begin + x["data_offsets"][0]:begin + x["data_offsets"][1]], "<f4")
                for name, x in tensors.items()}

    def compare_logistic(self, data, loss, units, decay=1):
        x, y = data.training
        reference = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, y)
        test_x, test_y = data.testing
        accuracy = reference.score(test_x, test_y)
        test_loss = log_loss(test_y, reference.predict_proba(test_x))
        # scikit-learn minimizes the sum of the losses plus half of the squared weights. troupe uses the mean of the
        # losses, so the decay is divided by the number of records.
        job = LINEAR.format(units=units, loss=loss, decay=decay / len(y), rate=0.2)
        for form in FORMATS:
            with self.subTest(form=form):
                end = self.train(job, data.write(self.folder, form, True))
                print(f"{form}: accuracy {end['test_accuracy']:.4f}, scikit-learn {accuracy:.4f}; "
                      f"loss {end['test_loss']:.4f}, scikit-learn {test_loss:.4f}")
                self.assertAlmostEqual(end["test_accuracy"], accuracy, delta=POINTS)
                self.assertAlmostEqual(end["test_loss"], test_loss, delta=POINTS)
                self.assertIn("C = 1 of scikit-learn's LogisticRegression", self.output)

    def test_logistic_regression_on_wine(self):
        self.compare_logistic(Set("wine", 0.4), "SOFTMAX_CROSS_ENTROPY", 3)

    def test_logistic_regression_on_breast_cancer(self):
        self.compare_logistic(Set("breast_cancer", 0.4), "BINARY_CROSS_ENTROPY", 1)

    def test_softmax_regression_of_two_classes(self):
        """scikit-learn has one output for two classes, and troupe has two. So scikit-learn's penalty counts twice."""
        self.compare_logistic(Set("breast_cancer", 0.4), "SOFTMAX_CROSS_ENTROPY", 2, decay=2)

    def test_logistic_regression_on_digits(self):
        self.compare_logistic(Set("digits", 0.4), "SOFTMAX_CROSS_ENTROPY", 10)

    def test_network_on_digits(self):
        data = Set("digits", 0.4)
        references = []
        for seed in SEEDS:
            network = MLPClassifier(64, alpha=0, batch_size=32, max_iter=60, n_iter_no_change=60, random_state=seed)
            references.append(make_pipeline(StandardScaler(), network).fit(*data.training).score(*data.testing))
        job = NETWORK.format(units=10)
        for form in FORMATS:
            with self.subTest(form=form):
                records = data.write(self.folder, form, True)
                found = [self.train(job, records, f"--set=seed={seed}")["test_accuracy"] for seed in SEEDS]
                print(f"{form}: accuracy {statistics.mean(found):.4f}, scikit-learn {statistics.mean(references):.4f}")
                self.assertGreater(statistics.mean(found), statistics.mean(references) - POINTS)

    def test_ridge_on_diabetes(self):
        """Trained step by step, the weights are almost the exact solution."""
        data = Set("diabetes", 0.3, scaled=False)
        x, y = data.training
        reference = make_pipeline(StandardScaler(), Ridge(alpha=1)).fit(x, y)
        explained = reference.score(*data.testing)
        job = LINEAR.format(units=1, loss="MEAN_SQUARED_ERROR", decay=2 / len(y), rate=0.02)
        for form in FORMATS:
            with self.subTest(form=form):
                self.train(job, data.write(self.folder, form, True))
                found = r2_score(data.testing[1], self.predictions())
                print(f"{form}: explained {found:.4f}, scikit-learn {explained:.4f}")
                self.assertAlmostEqual(found, explained, delta=POINTS)

    def test_exact_ridge_on_diabetes(self):
        data = Set("diabetes", 0.3, scaled=False)
        x, y = data.training
        for alpha in (0.0, 1.0, 100.0):
            reference = Ridge(alpha=alpha, solver="cholesky").fit(x, y)
            expected = [*reference.coef_, reference.intercept_]
            for form in FORMATS:
                with self.subTest(alpha=alpha, form=form):
                    self.train(EXACT % (2 * alpha / len(y)), data.write(self.folder, form, False))
                    weights = self.weights()
                    found = [*weights["dense_1.weight"], *weights["dense_1.bias"]]
                    numpy.testing.assert_allclose(found, expected, rtol=1e-6)
                    numpy.testing.assert_allclose(self.predictions(), reference.predict(data.testing[0]), rtol=1e-6)

    def test_exact_ridge_on_standardized_diabetes(self):
        data = Set("diabetes", 0.3, scaled=False)
        x, y = data.training
        reference = make_pipeline(StandardScaler(), Ridge(alpha=10, solver="cholesky")).fit(x, y)
        for form in FORMATS:
            with self.subTest(form=form):
                self.train(EXACT % (2 * 10 / len(y)), data.write(self.folder, form, True))
                numpy.testing.assert_allclose(self.predictions(), reference.predict(data.testing[0]), rtol=1e-6)


if __name__ == "__main__":
    run_tests()
