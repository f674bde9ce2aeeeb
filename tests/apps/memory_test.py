"""A limit of memory or of threads is noticed before anything starts. A data file may be larger than memory."""

import struct

from program import PROGRAM, QUICK_JOB, TestCase, run_tests


class Memory(TestCase):
    def test_a_worker_with_too_little_memory(self):
        # A model with few parameters, whose activations for a step of 640 records need much memory.
        job = self.file("wide.textproto", QUICK_JOB.replace("batch: 16", "batch: 640").replace(
            "layer {", "layer { conv2d { filters: 2000 kernel: 1 } } layer { global_average_pool {} } layer {", 1))
        cluster, _ = self.cluster(ps=1, workers=1)
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={job}")
        shard = self.start_task("ps", 0, cluster)
        worker = self.start("node", "--role=worker", "--task=0", f"--cluster={cluster}",
                            program=("sh", "-c", f'ulimit -v {3 << 20}; exec "$0" "$@"', PROGRAM))
        self.assert_exit(coordinator, 1)
        self.assertRegex(coordinator.output, r"worker/0 cannot take part: bad input: this would take about "
                                             r"[\d.]+ GiB of memory, and this host has 3\.0 GiB")
        for process in (shard, worker):
            self.assert_exit(process, 1)

    def test_a_process_without_room_for_its_threads(self):
        job = self.file("job.textproto", QUICK_JOB)
        limited = ("sh", "-c", f'ulimit -v {100 << 10}; exec "$0" "$@"', PROGRAM)
        run = self.start("train", f"--job={job}", program=limited)
        self.assert_exit(run, 1)
        self.assertRegex(run.output, r"this process needs \d+ threads and could start only \d+: .*`ulimit -u`")

    def test_predictions_for_a_file_beyond_memory(self):
        job = self.file("job.textproto", QUICK_JOB)
        out, said = self.folder / "out", self.folder / "predictions.csv"
        images = self.folder / "images"
        count = 10 * 100
        images.write_bytes(struct.pack(">IIII", 0x803, count, 28, 28) + bytes(i % 251 for i in range(count * 784)))
        labels = self.folder / "labels"
        labels.write_bytes(struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))
        text = QUICK_JOB.replace("digits { train: 640 test: 100 }", f'idx {{ images: "{images}" labels: "{labels}" }}')
        job = self.file("job.textproto", text.replace("epochs: 2", "epochs: 1"))
        self.assert_exit(self.start("train", f"--job={job}", f"--out={out}"), 0)
        # Makes the file 627 MB long. The added images are zeros, which take no space on the disk.
        count = 800_000
        with open(images, "r+b") as file:
            file.write(struct.pack(">IIII", 0x803, count, 28, 28))
            file.truncate(16 + count * 784)
        limited = ("sh", "-c", f'ulimit -d {300 << 10}; exec "$0" "$@"', PROGRAM)
        predict = self.start("predict", f"--weights={out}/weights.safetensors", f"--job={job}",
                             f"--features={images}", f"--predictions={said}", program=limited)
        self.assert_exit(predict, 0)
        with open(said, encoding="utf-8") as file:
            lines = sum(1 for _ in file)
        self.assertEqual(lines, count + 1)


if __name__ == "__main__":
    run_tests()
