"""A run with real processes is killed at any moment. It then continues from the newest complete checkpoint.

TROUPE_KILLS sets how often a run is killed (default 8).
"""

import contextlib
import json
import os
import random
import shutil
import signal
import time

from program import LONG_JOB, QUICK_JOB, TestCase, run_tests

KILLS = int(os.environ.get("TROUPE_KILLS", "8"))
SEED = int(os.environ.get("TROUPE_SEED", "1"))

# A job with 40 steps per epoch.
JOB = QUICK_JOB + "optimizer { kind: MOMENTUM }\nprotocol: SYNC_PS\ncheckpoint { every_steps: 10 keep: 2 }\n"


class Checkpoints(TestCase):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def steps(self):
        """Steps of the existing checkpoints, in order."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(int(x.name.split("-")[1]) for x in (self.out / "checkpoints").iterdir()
                          if x.name.startswith("step-"))
        return []

    def train(self, job, *more):
        return self.start("train", f"--job={job}", f"--out={self.out}", *more)

    def job(self, text=JOB):
        return self.file("job.textproto", text)

    def events(self, lines):
        """The lines of metrics.jsonl without progress, which depends on the speed of the machine."""
        return [x["event"] for x in lines if x["event"] != "progress"]

    def test_a_run_keeps_the_newest(self):
        self.assert_exit(self.train(self.job()), 0)
        self.assertEqual(self.steps(), [70, 80])
        newest = self.out / "checkpoints" / "step-00000080"
        self.assertEqual({x.name for x in newest.iterdir()},
                         {"checkpoint.json", "weights.safetensors", "optimizer.safetensors"})
        self.assertEqual(json.loads((newest / "checkpoint.json").read_text())["remaining"], [])

    def test_going_on_gives_the_same_weights(self):
        job = self.job()
        self.assert_exit(self.train(job), 0)
        whole = self.metrics(self.out)
        for more in ([], ["--ps=3"], ["--processes"]):
            with self.subTest(more=more):
                out = self.folder / "more"
                process = self.start("train", f"--job={job}", f"--out={out}",
                                     f"--resume={self.out}/checkpoints/step-00000070", *more)
                self.assert_exit(process, 0)
                self.assertIn("step 70", process.output)
                lines = self.metrics(out)
                self.assertEqual(self.events(lines), ["resume", "epoch", "end"])
                self.assertEqual(lines[-1]["weights_sha256"], whole[-1]["weights_sha256"])
                self.assertEqual(lines[-1]["samples"], 160)
                shutil.rmtree(out)

    def test_a_run_that_had_ended(self):
        job = self.job()
        self.assert_exit(self.train(job), 0)
        before = self.metrics(self.out)
        self.assert_exit(self.train(job, "--resume"), 0)
        after = self.metrics(self.out)
        self.assertEqual(self.events(after), ["epoch", "resume", "epoch", "end"])
        self.assertEqual(after[0], before[0])
        self.assertEqual(after[-1]["weights_sha256"], before[-1]["weights_sha256"])
        self.assertEqual(after[-1]["samples"], 0)
        # With more epochs, the run continues.
        self.assert_exit(self.train(job, "--resume", "--set", "epochs=3"), 0)
        self.assertEqual(self.events(self.metrics(self.out)), ["epoch", "resume", "resume", "epoch", "epoch", "end"])
        self.assertEqual(self.steps(), [110, 120])

    def test_the_first_start_needs_no_checkpoint(self):
        process = self.train(self.job(), "--resume")
        self.assert_exit(process, 0)
        self.assertIn("no checkpoint", process.output)

    def test_a_cluster_goes_on(self):
        cluster, _ = self.cluster(ps=2, workers=2)
        job = self.job(JOB.replace("SYNC_PS", "ASYNC_PS"))
        for more in ([], ["--resume", "--set", "epochs=3"]):
            tasks = [self.start_task(role, i, cluster) for role in ("ps", "worker") for i in range(2)]
            coordinator = self.start_task("coordinator", 0, cluster, f"--job={job}", f"--out={self.out}", *more)
            for process in (coordinator, *tasks):
                self.assert_exit(process, 0)
        lines = self.metrics(self.out)
        self.assertEqual(self.events(lines), ["epoch", "resume", "epoch", "epoch", "end"])
        self.assertEqual(lines[-1]["samples"], 640)

    def test_a_run_that_is_stopped(self):
        """SIGTERM and SIGINT write a checkpoint with any checkpoint.every_steps."""
        job = self.job(LONG_JOB + "checkpoint { every_steps: 1000000 }\n")
        for protocol, number, more in (("sync_ps", signal.SIGTERM, ["--ps=2"]), ("ring", signal.SIGINT, []),
                                       ("ring", signal.SIGTERM, ["--processes"]),
                                       ("async_ps", signal.SIGTERM, ["--ps=2", "--processes"]),
                                       ("local_sgd", signal.SIGTERM, ["--set=local_sgd.every=1"]),
                                       ("local_sgd", signal.SIGTERM,
                                        ["--set=local_sgd={every: 8 behind: CONTRIBUTE}", "--processes"])):
            with self.subTest(protocol=protocol, number=number, more=more):
                arguments = ["--workers=2", f"--protocol={protocol}", *more]
                process = self.train(job, *arguments)
                process.wait_for("epoch 2/")
                process.send(number)
                self.assert_exit(process, 1)
                step, = self.steps()
                newest = self.out / "checkpoints" / f"step-{step:08}"
                said = f"{number.name}; {newest} has the state, and --resume continues there"
                self.assertIn(f"stopped: {said}", process.output)
                self.assertEqual(self.metrics(self.out)[-1]["failure"], said)
                # The resumed run ends one epoch after the one that was interrupted.
                manifest = json.loads((newest / "checkpoint.json").read_text())
                epochs = manifest["epoch"] + 2
                process = self.train(job, "--resume", f"--set=epochs={epochs}", *arguments)
                self.assert_exit(process, 0)
                self.assertIn(f"step {step}", process.output)
                self.assertEqual(self.metrics(self.out)[-1]["samples"],
                                 2000 + sum(end - begin for begin, end in manifest["remaining"]))
                if protocol in ("sync_ps", "ring"):
                    undisturbed = self.folder / "undisturbed"
                    self.assert_exit(self.start("train", f"--job={job}", f"--out={undisturbed}", "--workers=2",
                                                f"--protocol={protocol}", f"--set=epochs={epochs}"), 0)
                    self.assertEqual(*(self.metrics(out)[-1]["weights_sha256"] for out in (self.out, undisturbed)))
                    shutil.rmtree(undisturbed)
                # The last checkpoint is that of the end of the run.
                if "CONTRIBUTE" in "".join(more):
                    self.assertGreaterEqual(self.steps()[-1], epochs * 125)
                else:
                    self.assertEqual(self.steps()[-1], epochs * (125 if protocol != "async_ps" else 250))
                shutil.rmtree(self.out)

    def test_wrong_input(self):
        job = self.job()
        self.assert_exit(self.train(job), 0)
        before = (self.out / "metrics.jsonl").read_text()

        def refused(*arguments, says):
            process = self.start(*arguments)
            self.assert_exit(process, 2)
            for text in says:
                self.assertIn(text, process.output)
            self.assertEqual((self.out / "metrics.jsonl").read_text(), before)

        def train_refused(*more, says):
            refused("train", f"--job={job}", f"--out={self.out}", *more, says=says)

        other = f"--out={self.folder / 'other'}"
        train_refused(says=["already has checkpoints", "--resume", "--out"])
        train_refused("--resume", "--set", "model.layer[0].name=head",
                      says=["missing: head.weight", "missing: head.bias", "extra: dense_1.weight",
                            "extra: dense_1.bias"])
        train_refused("--resume", "--set", "optimizer.kind=SGD", says=["optimizer.kind MOMENTUM", "SGD"])
        train_refused("--resume", "--set", "seed=7", says=["seed 1", "7"])
        train_refused("--resume", "--set", "data.digits.train=320", says=["640 training records", "320"])
        train_refused("--resume", "--set", "epochs=1", says=["epoch 2", "raise epochs"])
        train_refused(f"--resume={self.out}/checkpoints/step-00000070", says=["newer", "step-00000080"])
        refused("train", f"--job={job}", f"--resume={self.folder}/nowhere", other, says=["nowhere", "No such file"])
        refused("train", f"--job={job}", "--set", "checkpoint.keep=0", other, says=["checkpoint.keep"])
        refused("train", f"--job={job}", "--set", "checkpoint.every_steps=0", other, says=["checkpoint.every_steps"])
        refused("train", f"--job={job}", says=["checkpoint", "output"])
        weights = self.out / "checkpoints" / "step-00000080" / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
        refused("train", f"--job={job}", f"--resume={weights.parent}", other, says=[str(weights), "damaged"])
        # A run that itself searches for the newest checkpoint skips a damaged one.
        process = self.start("train", f"--job={job}", f"--out={self.out}", "--resume")
        self.assert_exit(process, 0)
        self.assertIn("skipped", process.output)
        self.assertIn("step 70", process.output)
        self.assertEqual(self.steps(), [70, 80])

    def test_a_disk_that_refuses_checkpoints(self):
        job = self.job()
        self.out.mkdir()
        folder = self.out / "checkpoints"
        folder.write_text("a file, where a folder should be")
        process = self.train(job)
        self.assert_exit(process, 2)
        self.assertIn(str(folder), process.output)
        # The folder is now a broken link, which is noticed only when the first checkpoint is written.
        folder.unlink()
        folder.symlink_to(self.folder / "missing" / "folder")
        (self.folder / "missing").write_text("a file, too")
        process = self.train(job)
        self.assert_exit(process, 0)
        self.assertIn("the checkpoint of step 10 was not written", process.output)
        self.assertIn("8 checkpoints were not written", process.output)
        self.assertEqual(self.metrics(self.out)[-1]["samples"], 2 * 640)

    def test_killed_at_any_moment(self):
        """Kills all processes with SIGKILL. The newest checkpoint can be read, and no step is lost that was on disk."""
        print(f"seed {SEED}")
        moments = random.Random(SEED)
        job = self.job(LONG_JOB + "optimizer { kind: MOMENTUM }\ncheckpoint { every_steps: 1 keep: 2 }\n")
        last = 0
        for kill in range(KILLS):
            # Most of the killed runs are a single process. Every fourth is a cluster, whose child processes end with
            # the coordinator.
            more = ["--processes", "--workers=2"] if kill % 4 == 1 else ["--workers=2"]
            process = self.train(job, "--resume", *more)
            self.wait_until(lambda: (self.steps() or [0])[-1] > last or not process.running(), "a new checkpoint")
            time.sleep(moments.uniform(0, 0.2))
            self.assertTrue(process.running(), process.output)
            on_disk = self.steps()
            process.kill()
            if last:
                self.assertIn(f"continuing from {self.out}/checkpoints/step-{last:08}", process.output)
            self.assertNotIn("skipped", process.output)
            last = self.steps()[-1]
            self.assertGreaterEqual(last, on_disk[-1])
        # A resumed run removes files that were partly written or partly removed.
        process = self.train(job, "--resume")
        self.wait_until(lambda: self.steps()[-1] > last or not process.running(), "a new checkpoint")
        process.kill()
        self.assertIn(f"step {last}", process.output)


if __name__ == "__main__":
    run_tests()
