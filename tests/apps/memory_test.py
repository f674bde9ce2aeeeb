"""A memory limit is detected before anything is allocated."""

from program import PROGRAM, QUICK_JOB, TestCase, run_tests


class Memory(TestCase):
    def test_a_worker_with_too_little_memory(self):
        # A model that needs much memory for the activations of a step with 640 records, but has hardly any parameters.
        job = self.file("wide.textproto", QUICK_JOB.replace("batch: 16", "batch: 640").replace(
            "layer {", "layer { conv2d { filters: 2000 kernel: 1 } } layer { global_average_pool {} } layer {", 1))
        cluster, _ = self.cluster(ps=1, workers=1)
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={job}")
        shard = self.start_task("ps", 0, cluster)
        worker = self.start("node", "--role=worker", "--task=0", f"--cluster={cluster}",
                            program=("sh", "-c", f'ulimit -v {3 << 20}; exec "$0" "$@"', PROGRAM))
        self.assert_exit(coordinator, 1)
        self.assertRegex(coordinator.output, r"worker/0 cannot take part: bad input: this would take about [\d.]+ GiB of "
                                             r"memory, and this host has 3\.0 GiB")
        for process in (shard, worker):
            self.assert_exit(process, 1)


if __name__ == "__main__":
    run_tests()
