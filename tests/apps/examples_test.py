"""The job files of apps/examples. Each is checked, trains for a few steps, and tests its weights."""

import json

from program import DATA, SOURCE, TestCase, run_tests

EXAMPLES = SOURCE / "apps/examples"

TEXT = ["data.split={ train: 4000 test: 1000 }", "data.batch=16"]

# Changes that make the run of each example short: fewer records and a single epoch. An example without an entry makes
# the test fail.
SHORT = {
    "a9a_logistic": [],
    "advertising": [],
    "advertising_ridge": [],
    "digits_mlp": ["data.digits={ train: 128 test: 64 }"],
    "digits_resnet": ["data.digits={ train: 128 test: 64 }"],
    "mnist_lenet": ["data.split={ train: 192 test: 64 }"],
    "mnist_mlp": ["data.split={ train: 192 test: 64 }"],
    "mnist_softmax": ["data.split={ train: 192 test: 64 }"],
    "shakespeare_gpt": TEXT,
    "shakespeare_gru": TEXT,
    "shakespeare_lstm": TEXT,
}


class Examples(TestCase):
    def needs_data(self, path):
        if "${TROUPE_DATA}" in path.read_text() and not DATA.is_dir():
            self.skipTest(f"there is no folder of data: {DATA} (TROUPE_DATA)")

    def test_all_are_listed(self):
        self.assertEqual([x.name for x in EXAMPLES.glob("*.textproto") if x.stem not in SHORT], [])

    def test_all_train(self):
        for path in sorted(EXAMPLES.glob("*.textproto")):
            name = path.stem
            with self.subTest(example=name):
                changes = SHORT[name]
                self.needs_data(path)
                out = self.folder / name
                changes = [f"--set={x}" for x in [*changes, "epochs=1", "learning_rate.warmup_epochs=0"]]
                self.assert_exit(self.start("check", f"--job={path}", *changes), 0)
                self.assert_exit(self.start("train", f"--job={path}", *changes, "--workers=2", f"--out={out}"), 0)
                end = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
                self.assertGreaterEqual(end["applied"], 2)
                # This also checks that the value is finite, because the file has null for other values.
                self.assertGreater(end["test_loss"], 0)
                predict = self.start("predict", f"--job={path}", f"--weights={out / 'weights.safetensors'}", *changes)
                self.assert_exit(predict, 0)
                self.assertIn(f"{end['test_loss']:.5g}", predict.output)


if __name__ == "__main__":
    run_tests()
