"""Early stopping, best weights, measures of classifiers, and the learning rate, in the output of a run."""

import re
import shutil
import signal

from program import LONG_JOB, QUICK_JOB, TestCase, run_tests

# A job that ends early: after a few epochs, its loss improves by less than min_delta.
EARLY_JOB = LONG_JOB + """
protocol: SYNC_PS
early_stopping { patience: 3 min_delta: 0.02 }
checkpoint { every_steps: 100000 }
"""


class Evaluations(TestCase):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def train(self, text, *more):
        job = self.file("job.textproto", text)
        return self.start("train", f"--job={job}", f"--out={self.out}", *more)

    def events(self, event):
        return [x for x in self.metrics(self.out) if x["event"] == event]

    def test_early_stopping(self):
        process = self.train(EARLY_JOB, "--workers=2")
        self.assert_exit(process, 0)
        end = self.metrics(self.out)[-1]
        losses = {x["epoch"]: x["test_loss"] for x in self.events("epoch")}
        best = None
        since = 0
        for epoch, loss in losses.items():
            better = best is None or loss < losses[best] - 0.02
            best, since = (epoch, 0) if better else (best, since + 1)
            # When the third of them is known, one more epoch may be in evaluation, and one may wait for it.
            self.assertLessEqual(since, 3 + 2)
        self.assertEqual((end["best"]["epoch"], end["best"]["step"]), (best, best * 125))
        self.assertAlmostEqual(end["best"]["loss"], losses[best])
        reason = (f"early_stopping: the last 3 evaluations were not better than that of epoch {best} "
                  f"(step {best * 125})")
        self.assertEqual(end["ended_early"], reason)
        self.assertNotIn("failure", end)
        self.assertEqual(process.lines[-1], f"ended early: {reason}")
        self.assertIn("weights in best.safetensors", process.output)
        self.assertIn(reason, (self.out / "report.html").read_text())
        job = self.folder / "job.textproto"
        tested = self.start("predict", f"--weights={self.out / 'best.safetensors'}", f"--job={job}")
        self.assert_exit(tested, 0)
        self.assertIn(f"{losses[best]:.5g}", tested.output)
        # A resumed run continues to count the evaluations without an improvement.
        shutil.rmtree(self.out)
        process = self.train(EARLY_JOB, "--workers=2")
        process.wait_for(f"epoch {best + 1}/")
        process.send(signal.SIGTERM)
        if process.wait() == 1:
            self.assert_exit(self.train(EARLY_JOB, "--workers=2", "--resume"), 0)
        again = self.metrics(self.out)[-1]
        self.assertEqual(again["best"], end["best"])
        self.assertRegex(again["ended_early"], rf"^early_stopping: .* epoch {best} \(step {best * 125}\)$")
        # The count had reached the limit before, so the run ends at once.
        process = self.train(EARLY_JOB, "--workers=2", "--resume")
        self.assert_exit(process, 0)
        self.assertIn("ended early: early_stopping", process.lines[-1])

    def test_the_best_weights(self):
        process = self.train(QUICK_JOB + "checkpoint { every_steps: 20 keep_best: true }\nevaluate { every_steps: 7 }\n"
                             "protocol: SYNC_PS\n")
        self.assert_exit(process, 0)
        evaluations = self.events("evaluation") + self.events("epoch")
        tested = [(x["test_loss"], x.get("step", x["epoch"] * 40)) for x in evaluations]
        best = self.metrics(self.out)[-1]["best"]
        self.assertEqual((best["loss"], best["step"]), min(tested))
        self.assertTrue(best["kept"])
        self.assertTrue((self.out / "best.safetensors").is_file())
        # A run that was killed may have replaced best.safetensors after the checkpoint. No evaluation was at step 79.
        shutil.rmtree(sorted((self.out / "checkpoints").iterdir())[-1])
        others = (self.out / "weights.safetensors").read_bytes()
        self.assertIn(b'"model_version":"80"', others)
        (self.out / "best.safetensors").write_bytes(others.replace(b'"model_version":"80"', b'"model_version":"79"'))
        process = self.train(QUICK_JOB + "checkpoint { every_steps: 20 keep_best: true }\nprotocol: SYNC_PS\n",
                             "--resume", "--set=learning_rate.base=50")
        self.assert_exit(process, 0)
        self.assertFalse(self.metrics(self.out)[-1]["best"]["kept"])
        self.assertIn("its weights were not kept", process.output)

    def test_measures(self):
        process = self.train(QUICK_JOB + "evaluate { measure: [TOP_5, F1, PERPLEXITY, CONFUSION] }\n"
                             "protocol: SYNC_PS\n")
        self.assert_exit(process, 0)
        for line in self.events("epoch") + self.events("end"):
            self.assertGreater(line["test_top_5"], line["test_accuracy"])
            self.assertAlmostEqual(line["test_f1"], line["test_accuracy"], delta=0.1)
            matrix = line["test_confusion"]
            self.assertEqual([len(row) for row in matrix], [10] * 10)
            self.assertEqual(sum(map(sum, matrix)), 100)
            self.assertEqual(sum(matrix[i][i] for i in range(10)), round(100 * line["test_accuracy"]))
        self.assertRegex(process.output, r"epoch 2/2 .* top_5 0\.\d+  f1 0\.\d+  perplexity \d+\.\d+")
        self.assertRegex(process.output, r"confusion +class 0: \d+ ")
        self.assertIn("Confusion matrix", (self.out / "report.html").read_text())
        events = next(self.out.glob("events.out.tfevents.*")).read_bytes()
        for tag in (b"top_5/test", b"f1/test", b"perplexity/test"):
            self.assertIn(tag, events)
        for wrong, says in (("AUC", "AUC needs two classes, and the model has 10"), ("MSE", "no value \"MSE\"")):
            process = self.train(QUICK_JOB + f"evaluate {{ measure: {wrong} }}\n")
            self.assert_exit(process, 2)
            self.assertIn(says, process.output)

    def test_learning_rate(self):
        process = self.train(LONG_JOB.replace("epochs: 100000", "epochs: 150").replace(
            "base: 0.05", "base: 0.05 cosine {}"), "--set=data.batch=4")
        self.assert_exit(process, 0)
        rates = [x["learning_rate"] for x in self.events("progress")]
        self.assertGreater(len(rates), 0)
        self.assertTrue(all(0 < x <= 0.05 for x in rates), rates)
        self.assertEqual(rates, sorted(rates, reverse=True))
        self.assertIn(b"learning_rate/schedule", next(self.out.glob("events.out.tfevents.*")).read_bytes())

    def test_a_job_of_one_step_with_cosine(self):
        """The only step uses the rate at its middle, which is half of the base. So weights of 0 become -0.5 * 0.1 *
        gradient."""
        table = self.file("table.csv", "x,y\n1,3\n-1,-1\n")
        process = self.train(f"""
            model {{ layer {{ dense {{ units: 1 weights {{ constant {{}} }} }} }} loss: MEAN_SQUARED_ERROR }}
            data {{ csv {{ path: "{table}" features: "x" target: "y" }} batch: 0 }}
            learning_rate {{ base: 0.1 cosine {{ final: 0 }} }}
            epochs: 1""")
        self.assert_exit(process, 0)
        # The gradients are the means of 2 (0 - y) and of 2 (0 - y) x, which are -2 and -4.
        intercept, slope = re.search(r"coefficients +(\S+) +(\S+)", process.output).groups()
        self.assertEqual((float(intercept), float(slope)), (0.1, 0.2))


if __name__ == "__main__":
    run_tests()
