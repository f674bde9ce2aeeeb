"""TensorBoard reads the files of a run. Skipped if the Python package `tensorboard` is missing."""

import sys

from program import EXIT_SKIPPED, LONG_JOB, QUICK_JOB, TestCase, run_tests

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"skipped: TensorBoard is not installed ({error})")
    sys.exit(EXIT_SKIPPED)


class TensorBoard(TestCase):
    def train(self, job, *more):
        out = self.folder / "out"
        process = self.start("train", f"--job={self.file('job.textproto', job)}", "--workers=2", f"--out={out}", *more)
        self.assert_exit(process, 0)
        # 0 means: keep all values, not a sample of them.
        events = EventAccumulator(str(out), size_guidance={"scalars": 0, "histograms": 0})
        events.Reload()
        return self.metrics(out), events

    def values(self, events, tag):
        return [(x.step, x.value) for x in events.Scalars(tag)]

    def test_epochs(self):
        metrics, events = self.train(QUICK_JOB)
        epochs = [x for x in metrics if x["event"] == "epoch"]
        self.assertEqual(len(epochs), 2)
        for tag, field in (("loss/train_epoch", "train_loss"), ("loss/test", "test_loss"),
                           ("accuracy/test", "test_accuracy")):
            read = self.values(events, tag)
            self.assertEqual([step for step, _ in read], [640, 1280])
            for (_, value), line in zip(read, epochs):
                self.assertAlmostEqual(value, line[field], places=5)

    def test_progress(self):
        metrics, events = self.train(LONG_JOB, "--set=epochs=200")
        progress = [x for x in metrics if x["event"] == "progress" and x["samples"] > 0]
        read = self.values(events, "loss/train")
        self.assertEqual(len(read), len(progress))
        for (step, value), line in zip(read, progress):
            self.assertGreaterEqual(step, (line["epoch"] - 1) * 2000 + line["samples"])
            self.assertAlmostEqual(value, line["train_loss"], places=4)
        end = metrics[-1]
        told = sum(n for _, n in end["staleness"])
        self.assertGreater(told, 0)
        histograms = events.Histograms("staleness/distribution")
        self.assertEqual(sum(n for x in histograms for n in x.histogram_value.bucket), told)

    def test_a_second_run_takes_the_place_of_the_first(self):
        self.train(QUICK_JOB, "--set=epochs=4")
        _, events = self.train(QUICK_JOB)
        self.assertEqual([step for step, _ in self.values(events, "loss/test")], [640, 1280])


if __name__ == "__main__":
    run_tests()
