"""`troupe train`: every protocol, in one process and in several processes, and the files of a run."""

import json
import os
import signal
import struct
import time
import xml.etree.ElementTree

from program import (IN_ONE_PROCESS, LONG_JOB, PROGRAM, QUICK_JOB, TestCase, arguments_of, children_of, protocols,
                     run_tests)

END_FIELDS = {
    "event", "protocol", "workers", "seconds", "samples", "samples_per_second", "train_loss", "test_loss",
    "test_accuracy", "applied", "rejected_stale", "requeued", "lost", "split", "staleness_mean", "staleness", "tasks",
    "weights_sha256",
}

PROGRESS_FIELDS = ["event", "seconds", "epoch", "samples", "train_loss", "samples_per_second", "updates",
                   "updates_per_second", "quarantined", "staleness_mean", "learning_rate"]


class Train(TestCase):
    def train(self, protocol, *more, workers=2):
        """Trains the quick job. Returns the last line of its metrics."""
        job = self.file("job.textproto", QUICK_JOB)
        out = self.folder / "out"
        process = self.start("train", f"--job={job}", f"--protocol={protocol}", f"--workers={workers}", f"--out={out}",
                             *more)
        self.assert_exit(process, 0)
        for text in ("seconds", "samples/s", "training loss", "test accuracy", "applied", "rejected", "lost", str(out)):
            self.assertIn(text, process.output)
        lines = [x for x in self.metrics(out) if x["event"] != "progress"]
        self.assertEqual([x["event"] for x in lines], ["epoch", "epoch", "end"])
        self.assertEqual([x["epoch"] for x in lines[:-1]], [1, 2])
        self.assertTrue((out / "weights.safetensors").is_file())
        self.assertEqual(len(list(out.glob("events.out.tfevents.*"))), 1)
        # The page is well-formed XML and describes this run.
        page = "".join(xml.etree.ElementTree.parse(out / "report.html").getroot().itertext())
        self.assertIn(lines[-1]["weights_sha256"], page)
        for file in out.glob("events.out.tfevents.*"):
            file.unlink()
        end = lines[-1]
        self.assertLessEqual(END_FIELDS, end.keys())
        self.assertEqual(end["protocol"], protocol)
        self.assertEqual(end["samples"], 2 * 640)
        self.assertEqual([end[x] for x in ("requeued", "lost", "split")], [0, 0, 0])
        return end

    def test_protocols_in_one_process(self):
        # An epoch has 640 / 16 gradients. Each gradient counts once for each of two shards or replicas, over two
        # epochs.
        for protocol in protocols():
            with self.subTest(protocol=protocol):
                self.assertEqual(self.train(protocol, "--ps=2")["applied"], 2 * 2 * 40)

    def test_protocols_in_several_processes(self):
        for protocol in set(protocols()) - IN_ONE_PROCESS:
            with self.subTest(protocol=protocol):
                self.assertEqual(self.train(protocol, "--processes", "--ps=2")["applied"], 2 * 2 * 40)

    def test_workers_that_are_bound_to_processors(self):
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            self.skipTest("this test needs two processors")
        # Two processors and two workers: each worker gets its own processor, and none is left over.
        os.sched_setaffinity(0, allowed[:2])
        self.addCleanup(os.sched_setaffinity, 0, allowed)
        job = self.file("job.textproto", LONG_JOB)
        for more, expected in (((), {(allowed[0],), (allowed[1],)}), (("--bind=none",), {tuple(allowed[:2])}),
                               (("--set", "runtime.threads=2"), {tuple(allowed[:2])})):
            with self.subTest(more=more):
                process = self.start("train", f"--job={job}", "--workers=2", "--processes", *more)
                process.wait_for("epoch 1/")
                workers = [x for x in children_of(process.pid) if "--role=worker" in arguments_of(x)]
                self.assertEqual(len(workers), 2)
                self.assertEqual({tuple(sorted(os.sched_getaffinity(x))) for x in workers}, expected)
                process.send(signal.SIGTERM)
                process.wait()

    def test_workers_that_share_weights_must_share_a_process(self):
        job = self.file("job.textproto", QUICK_JOB)
        for protocol in IN_ONE_PROCESS:
            for command in ("train", "check"):
                process = self.start(command, f"--job={job}", f"--protocol={protocol}", "--workers=2", "--processes")
                self.assert_exit(process, 2)
                self.assertIn("use `troupe train` without --processes", process.output)

    def test_parameter_servers_are_idle_in_a_ring(self):
        for more in ([], ["--processes"]):
            with self.subTest(more=more):
                self.assertEqual(self.train("ring", "--ps=1", *more)["applied"], 2 * 2 * 40)

    def test_synchronous_results_do_not_depend_on_processes(self):
        for protocol in ("sync_ps", "ring"):
            with self.subTest(protocol=protocol):
                here = self.train(protocol)["weights_sha256"]
                there = self.train(protocol, "--processes")["weights_sha256"]
                self.assertEqual(here, there)

    def test_rounding_does_not_depend_on_connections(self):
        rounded = ["--ps=2", "--set", "exchange_precision=BFLOAT16"]
        for protocol, workers in (("sync_ps", 2), ("ring", 2), ("ring", 3)):
            exact = self.train(protocol, workers=workers)["weights_sha256"]
            here = self.train(protocol, *rounded, workers=workers)["weights_sha256"]
            self.assertNotEqual(here, exact)
            for transport in ("auto", "tcp", "basp"):
                with self.subTest(protocol=protocol, workers=workers, transport=transport):
                    end = self.train(protocol, "--processes", f"--transport={transport}", *rounded, workers=workers)
                    self.assertEqual(end["weights_sha256"], here)
        for protocol in ("async_ps", "ssp"):
            with self.subTest(protocol=protocol):
                self.train(protocol, "--processes", "--transport=tcp", *rounded)

    def test_weights_file_names_the_job(self):
        self.train("async_ps")
        data = (self.folder / "out" / "weights.safetensors").read_bytes()
        length, = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + length])
        self.assertIn("job_hash", header["__metadata__"])
        shapes = sorted(x["shape"] for name, x in header.items() if name != "__metadata__")
        self.assertEqual(shapes, [[10], [10, 784]])

    def test_overrides_change_the_job(self):
        job = self.file("job.textproto", QUICK_JOB)
        out = self.folder / "out"
        process = self.start("train", f"--job={job}", f"--out={out}", "--set", "epochs=3", "--set", "data.batch=32")
        self.assert_exit(process, 0)
        end = self.metrics(out)[-1]
        self.assertEqual((end["samples"], end["applied"]), (3 * 640, 3 * 20))

    def test_a_run_that_fails_exits_with_1(self):
        # With a deadline of 1 ms, the run ends before the other processes have joined.
        job = self.file("job.textproto", LONG_JOB)
        process = self.start("train", f"--job={job}", "--processes", "--set", "runtime.join_timeout_ms=1")
        self.assert_exit(process, 1)
        self.assertIn("worker/0", process.output)

    def test_progress_is_recorded(self):
        job = self.file("job.textproto", LONG_JOB)
        out = self.folder / "out"
        process = self.start("train", f"--job={job}", f"--out={out}")

        def progress():
            file = out / "metrics.jsonl"
            lines = file.read_text().splitlines(keepends=True) if file.exists() else []
            events = [json.loads(x) for x in lines if x.endswith("\n")]
            return [x for x in events if x["event"] == "progress"]

        self.wait_until(lambda: len(progress()) >= 3, "three lines of progress")
        process.send(signal.SIGINT)
        self.assert_exit(process, 1)
        for x in progress():
            self.assertEqual(list(x), PROGRESS_FIELDS)
        times = [x["seconds"] for x in progress()]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[-1], 0)
        page = "".join(xml.etree.ElementTree.parse(out / "report.html").getroot().itertext())
        self.assertIn("stopped", page)
        self.assertIn("SIGINT", page)

    def test_the_timeline_of_a_run(self):
        waits = {"ps/0": "waiting for gradients", "worker/0": "waiting for updates", "worker/1": "waiting for updates"}
        job = self.file("job.textproto", LONG_JOB)
        for protocol, tasks in (("sync_ps", ("ps/0", "worker/0", "worker/1")), ("ring", ("worker/0", "worker/1"))):
            with self.subTest(protocol=protocol):
                out = self.folder / protocol
                process = self.start("train", f"--job={job}", f"--out={out}", "--processes", "--workers=2",
                                     f"--protocol={protocol}", "--set", "learning_rate.base=0.01")
                process.wait_for("epoch 3/")
                time.sleep(0.5)  # at first, the tasks report their activities every 50 ms
                process.send(signal.SIGINT)
                self.assert_exit(process, 1)
                timeline = self.timeline(out)
                self.assertEqual(sorted(timeline), sorted(tasks))
                for task in tasks:
                    names = [x[0] for x in timeline[task]]
                    self.assertIn("updating" if task == "ps/0" else "computing", names)
                    self.assertIn(waits[task], names)
                    self.assertGreater(len({x[3]["step"] for x in timeline[task]}), 20)
                if protocol == "sync_ps":
                    senders = {x[3].get("last message from") for x in timeline["ps/0"] if x[0] == waits["ps/0"]}
                    self.assertLessEqual({"worker/0", "worker/1"}, senders)
                page = xml.etree.ElementTree.parse(out / "report.html").getroot()
                charts = [x for x in page.iter() if x.get("aria-label") == "The last steps of each task"]
                self.assertEqual(len(charts), 1)
                self.assertGreater(len([x for x in charts[0].iter() if x.tag.endswith("rect")]), 20)

    def test_a_full_disk(self):
        # Limits files to 24 KiB. The weights need 31 KiB. Unlike permissions, this limit also applies to root.
        job = self.file("job.textproto", QUICK_JOB)
        out = self.folder / "out"
        process = self.start("train", f"--job={job}", f"--out={out}",
                             program=["sh", "-c", f"trap '' XFSZ; ulimit -f 48; exec '{PROGRAM}' \"$@\"", "sh"])
        self.assert_exit(process, 1)
        self.assertIn("not everything was written: ", process.output)
        self.assertIn("weights.safetensors", process.output)
        end = self.metrics(out)[-1]
        self.assertEqual(end["samples"], 2 * 640)
        self.assertIn("weights.safetensors", end["failure"])
        self.assertFalse((out / "weights.safetensors").exists())
        self.assertRegex(process.output, rf"\n  partly written to +{out}\n")
        self.assertIn("(weights.safetensors contains no weights of this run)", process.output)


if __name__ == "__main__":
    run_tests()
