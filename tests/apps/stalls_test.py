"""A process is paused in the middle of a run. The coordinator names it. When it is resumed, the run continues."""

import signal

from program import LONG_JOB, TestCase, run_tests


class Stalls(TestCase):
    def pause_one(self, protocol, name):
        cluster, _ = self.cluster(ps=2, workers=2)
        job = self.file("job.textproto", LONG_JOB)
        tasks = {f"{role}/{i}": self.start_task(role, i, cluster) for role in ("ps", "worker") for i in range(2)}
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={job}", f"--out={self.folder / 'out'}",
                                      f"--set=protocol={protocol}")
        coordinator.wait_for("epoch 2/")
        tasks[name].send(signal.SIGSTOP)
        try:
            line = coordinator.wait_for(f"{name} is paused")
            # The timeline is written at once, and shows which task waits since then. The notice comes after 1 s, and a
            # report may be some 0.5 s old.
            out = self.folder / "out"
            self.wait_until(lambda: self.timeline(out), "a timeline")
            timeline = self.timeline(out)
            end = max(x[2] for activities in timeline.values() for x in activities)
            waiting = [task for task, activities in timeline.items() if task != name and end - activities[-1][1] > 2e5]
            self.assertNotEqual(waiting, [])
            self.assertLess(max((x[2] for x in timeline[name]), default=0), end - 2e5)
        finally:
            tasks[name].send(signal.SIGCONT)
        self.assertIn("nothing has moved for ", line)
        self.assertIn("Root: ", line)
        coordinator.wait_for("training continues; nothing had moved for ")
        epochs = len([x for x in coordinator.lines if "test loss" in x])
        self.wait_until(lambda: len([x for x in coordinator.lines if "test loss" in x]) > epochs, "another epoch")
        coordinator.send(signal.SIGTERM)
        for process in (coordinator, *tasks.values()):
            self.assert_exit(process, 1)
        self.assertEqual(self.metrics(self.folder / "out")[-1]["failure"], "SIGTERM")

    def test_a_worker(self):
        self.pause_one("SYNC_PS", "worker/1")

    def test_a_worker_of_a_ring(self):
        self.pause_one("RING", "worker/0")

    def test_a_shard(self):
        self.pause_one("ASYNC_PS", "ps/1")


if __name__ == "__main__":
    run_tests()
