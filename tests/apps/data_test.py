"""Wrong data: exit code 2, no output files, and a message with the file, the record and the expected value."""

import gzip
import json
import os
import struct
import subprocess

from program import PROGRAM, QUICK_JOB, TestCase, run_tests


def images(count, rows=4, columns=4):
    return struct.pack(">IIII", 0x803, count, rows, columns) + bytes(i % 251 for i in range(count * rows * columns))


def labels(values):
    return struct.pack(">II", 0x801, len(values)) + bytes(values)


class Data(TestCase):
    def setUp(self):
        super().setUp()
        self.images = self.folder / "images"
        self.labels = self.folder / "labels"
        self.images.write_bytes(images(20))
        self.labels.write_bytes(labels([i % 10 for i in range(20)]))
        self.out = self.folder / "out"
        self.text = QUICK_JOB.replace(
            "digits { train: 640 test: 100 }", f'idx {{ images: "{self.images}" labels: "{self.labels}" }}')
        self.job = self.file("job.textproto", self.text)

    def refused(self, *says, job=None, more=()):
        for command in (["train", f"--out={self.out}", *more], ["check"]):
            process = self.start(command[0], f"--job={job or self.job}", *command[1:])
            self.assert_exit(process, 2)
            for text in says:
                self.assertIn(text, process.output)
            self.assertEqual([x for x in process.output if not x.isprintable() and x != "\n"], [])
        self.assertFalse((self.out / "metrics.jsonl").exists())

    def table(self, text, features=("x",), encoding="utf-8"):
        path = self.folder / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        columns = " ".join(f'features: "{x}"' for x in features)
        return self.file("table.textproto", f"""
            model {{ layer {{ dense {{ units: 1 }} }} loss: MEAN_SQUARED_ERROR }}
            data {{ csv {{ path: "{path}" {columns} target: "y" }} batch: 1 }}""")

    def test_good_data_is_accepted(self):
        process = self.start("train", f"--job={self.job}")
        self.assert_exit(process, 0)
        notice = "the test loss and the test accuracy are those of the training records"
        self.assertEqual(process.output.count(notice), 1)
        process = self.start("train", f"--job={self.job}", "--set=data.split.test=4")
        self.assert_exit(process, 0)
        self.assertNotIn(notice, process.output)

    def test_missing_file(self):
        self.labels.unlink()
        self.refused(str(self.labels), "No such file")

    def test_unset_variable(self):
        job = self.file("variable.textproto", self.text.replace(str(self.folder), "${TROUPE_NOT_SET}"))
        self.refused("data.idx.images", "TROUPE_NOT_SET", job=job)

    def test_truncated_file(self):
        self.images.write_bytes(images(20)[:-1])
        self.refused(str(self.images), "truncated", "320", "319")
        self.images.write_bytes(images(20)[:7])
        self.refused(str(self.images), "truncated")
        self.images.write_bytes(gzip.compress(images(20))[:-9])
        self.refused(str(self.images), "gzip")

    def test_mislabelled_file(self):
        self.images.write_bytes(labels([1] * 20))
        self.refused(str(self.images), "expected 3 dimensions (images, rows, columns)", "found shape")
        self.images.write_bytes(b"\x1b[2Jno images here")
        self.refused(str(self.images), "not an IDX file")

    def test_counts_differ(self):
        self.labels.write_bytes(labels([1] * 19))
        self.refused(str(self.images), str(self.labels), "20 images", "19 labels")

    def test_label_outside_the_classes(self):
        self.labels.write_bytes(labels([0] * 13 + [10] + [0] * 6))
        self.refused(str(self.labels), "record 13", "label 10", "classes 0 to 9")
        self.labels.write_bytes(labels([i % 10 + 1 for i in range(20)]))
        self.refused("record 9", "no record has label 0: do the labels start at 1?")

    def test_batch_larger_than_the_data(self):
        job = self.file("batch.textproto", self.text.replace("batch: 16", "batch: 21"))
        self.refused("data.batch", "21", "20 training records", job=job)

    def test_default_batch_larger_than_the_data(self):
        job = self.file("batch.textproto", self.text.replace("batch: 16", ""))
        self.refused("64 (the default) is more than the 20 training records", "data.batch to at most 20", job=job)

    def test_notices(self):
        """`check` and `train` say what is probably not meant, and go on."""
        self.labels.write_bytes(labels([i % 3 for i in range(20)]))
        job = self.file("odd.textproto", self.text.replace(
            "batch: 16", "split { train: 10 test: 4 } batch: 5").replace("units: 10", "units: 4 activation: RELU"))
        for command in ("check", "train"):
            process = self.start(command, f"--job={job}", "--set", "epochs=1")
            self.assert_exit(process, 0)
            for text in ("6 of 20 records are in no part", "class 3 has no record",
                         "has outputs of 0 or more (RELU), but SOFTMAX_CROSS_ENTROPY takes logits"):
                self.assertEqual(process.output.count(text), 1, process.output)

    def test_a_column_without_a_name(self):
        job = self.table(",x,y\n0,1,1\n1,2,2\n", features=("*",))
        for command in ("check", "train"):
            process = self.start(command, f"--job={job}", "--set", "epochs=1")
            self.assert_exit(process, 0)
            self.assertIn("table.csv: column 1 has no name, so data.csv.features leaves it out", process.output)

    def test_a_table_without_a_header(self):
        self.refused("The first line has only numbers", job=self.table("1,2\n3,4\n"))

    def test_split_larger_than_the_data(self):
        job = self.file("split.textproto", self.text.replace("batch: 16", "split { train: 19 test: 2 } batch: 4"))
        self.refused("data.split", "19", "20 records", job=job)

    def test_table(self):
        self.refused("table.csv:3", 'column "x"', "expected a finite number", '"two"',
                     job=self.table("x,y\n1,1\ntwo,2\n"))
        self.refused("table.csv:2", "expected 2 fields", "found 3", job=self.table("x,y\n1,1,1\n"))
        self.refused('no column "z"', 'valid: "x", "y"', job=self.table("x,y\n1,1\n", features=("z",)))
        self.refused("no records", job=self.table("x,y\n"))
        self.refused("empty", job=self.table(""))

    def test_binary_garbage_is_escaped(self):
        garbage = bytes(range(256)) * 20
        self.refused("table.csv", "\\x00", job=self.table(garbage))
        self.refused("table.csv:2", "\\x1b[31m", job=self.table(b"x,y\n\x1b[31m\xff\x07,1\n"))
        self.refused("\\x1b]0;owned\\x07", job=self.table(b"x\x1b]0;owned\x07,y\n1,1\n"))

    def test_too_many_workers_or_shards(self):
        job = self.file("quick.textproto", QUICK_JOB)
        for arguments, texts in (
                (["--workers=100000"], ["--workers", "100000 workers", "40 batches", "640 records in batches of 16"]),
                (["--workers=41", "--protocol=ring"], ["41 workers", "use 40 workers or fewer"]),
                (["--ps=7851"], ["--ps", "7851", "7850 parameters"])):
            process = self.start("train", f"--job={job}", *arguments)
            self.assert_exit(process, 2)
            for text in texts:
                self.assertIn(text, process.output)
        cluster, _ = self.cluster(ps=1, workers=41)
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={job}")
        self.assert_exit(coordinator, 2)
        self.assertIn(f"{cluster}: 41 workers", coordinator.output)

    def test_more_memory_than_there_is(self):
        job = self.file("large.textproto", QUICK_JOB.replace(
            "layer {", "layer { dense { units: 60000 } } layer { dense { units: 60000 } } layer {", 1))
        process = self.start("train", f"--job={job}", "--workers=40", "--ps=2", "--processes")
        self.assert_exit(process, 2)
        for text in ("TiB of memory", "this host has", "troupe check"):
            self.assertIn(text, process.output)

    def test_a_model_beyond_memory(self):
        job = self.file("huge.textproto", QUICK_JOB.replace(
            "layer {", "layer { dense { units: 16777216 } } layer { dense { units: 16777216 } } layer {", 1))
        problem = r"this would take about [\d.]+ [TP]iB of memory, and this host has [\d.]+ [GT]iB"
        checked = self.start("check", f"--job={job}")
        self.assert_exit(checked, 0)
        self.assertRegex(checked.output, r"one process .* [\d.]+ PiB")
        self.assertRegex(checked.output, "warning +" + problem)
        cluster, _ = self.cluster(ps=1, workers=1)
        checked = self.start("check", f"--job={job}", f"--cluster={cluster}")
        self.assert_exit(checked, 0)
        self.assertRegex(checked.output, "warning +for 3 processes on the host of coordinator/0, " + problem)
        apart = {x: [f"{x}.example:7000"] for x in ("coordinator", "ps", "worker")}
        cluster = self.file("apart.json", json.dumps({"cluster": apart}))
        checked = self.start("check", f"--job={job}", f"--cluster={cluster}")
        self.assert_exit(checked, 0)
        self.assertNotIn("processes on the host", checked.output)
        self.assertRegex(checked.output, "warning +for its largest process, " + problem)
        cluster, _ = self.cluster(ps=1, workers=1)
        for arguments in (["train"], ["node", "--role=coordinator", f"--cluster={cluster}"],
                          ["predict", f"--weights={self.labels}"],
                          ["export", f"--weights={self.labels}", f"--output={self.out}"]):
            with self.subTest(arguments=arguments):
                process = self.start(*arguments, f"--job={job}")
                self.assert_exit(process, 2)
                self.assertRegex(process.output, problem)

    def test_processes_on_one_host_that_fit_only_alone(self):
        # A model of which one worker takes about a thirtieth of the host's memory. One worker fits, but 40 do not.
        units = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // (160 * 4 * 800)
        job = self.file("many.textproto", QUICK_JOB.replace(
            "layer {", f"layer {{ dense {{ units: {units} }} }} layer {{", 1) + "protocol: RING")
        cluster, _ = self.cluster(workers=40)
        whole = r"this would take about [\d.]+ [GT]iB of memory"
        here = r"and this host has [\d.]+ [GT]iB"
        checked = self.start("check", f"--job={job}", f"--cluster={cluster}")
        self.assert_exit(checked, 0)
        self.assertRegex(checked.output, r"\n +41 processes on the host of coordinator/0: [\d.]+ [GT]iB\n")
        self.assertRegex(checked.output, f"warning +for 41 processes on the host of coordinator/0, {whole}, {here}")
        by_job = r"for coordinator/0 \([\d.]+ [MGT]iB\), 40 workers \(up to [\d.]+ [MGT]iB each\)"
        for arguments in (["node", "--role=coordinator", f"--cluster={cluster}"],
                          ["train", "--workers=40", "--processes"]):
            with self.subTest(arguments=arguments):
                process = self.start(*arguments, f"--job={job}")
                self.assert_exit(process, 2)
                self.assertRegex(process.output, f"{whole} {by_job}, {here}: ")

    def test_batch_normalization_of_one_sample(self):
        job = self.file("norm.textproto", QUICK_JOB.replace(
            "layer {", "layer { dense { units: 7 } } layer { batch_norm {} } layer {", 1))
        for more, code in (([], 2), (["--set", "data.batch=2"], 0),
                           # With `sync`, the normalization is over the batches of all workers. So one sample per worker
                           # is enough.
                           (["--set", "model.layer[1].batch_norm.sync=true", "--protocol=sync_ps", "--workers=2"], 0),
                           # The batch normalization is now over an image. A single image has 784 numbers per channel,
                           # which is enough.
                           (["--set", "model.layer[0]={ dropout { rate: 0 } }"], 0)):
            process = self.start("check", f"--job={job}", "--set", "data.batch=1", *more)
            self.assert_exit(process, code)
            self.assertEqual("data.batch: 1 sample, but batch normalization of (batch, 7)" in process.output, code == 2,
                             process.output)

    def test_output_directory(self):
        job = self.file("quick.textproto", QUICK_JOB)
        for place in ("/proc/nowhere", "/dev/null/out"):
            process = self.start("train", f"--job={job}", f"--out={place}")
            self.assert_exit(process, 2)
            for text in (place, "choose another with --out"):
                self.assertIn(text, process.output)
        if os.geteuid() != 0:  # root can write to any folder
            closed = self.folder / "closed"
            closed.mkdir(mode=0o500)
            process = self.start("train", f"--job={job}", f"--out={closed}")
            self.assert_exit(process, 2)
            self.assertIn(str(closed), process.output)

    def test_full_disk(self):
        job = self.file("quick.textproto", QUICK_JOB)
        disk = self.folder / "disk"
        disk.mkdir()
        own = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
        small = f"mount -t tmpfs -o size=40k troupe {disk}"
        if subprocess.run([*own, small], capture_output=True, check=False).returncode != 0:
            self.skipTest("no small file system can be mounted here")
        done = subprocess.run([*own, f"{small} && exec {PROGRAM} train --job={job} --out={disk}/out"],
                              capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        # The disk has 40 KiB, which is too little for two copies of 7,850 parameters. The run ends before training.
        for text in (f"{disk}/out has room for", "the weights take 61.3 KiB", "--out"):
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    run_tests()
