"""Elastic runs of processes: tasks are killed, stopped and started again, and the run goes on."""

import json
import os
import pathlib
import signal

from program import LONG_JOB, TestCase, arguments_of, children_of, run_tests

# A long job. Its run must not end before a test disturbs it.
JOB = LONG_JOB + """
optimizer { kind: MOMENTUM }
checkpoint { every_steps: 500 }
elastic { rejoin_timeout_ms: 60000 }
"""


class Elastic(TestCase):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        self.job = self.file("job.textproto", JOB)

    def newest(self):
        """The step of the newest checkpoint; 0 if there is none."""
        return max((int(x.name.split("-")[1]) for x in self.out.glob("checkpoints/step-*")), default=0)

    def wait_for_progress(self):
        step = self.newest()
        self.wait_until(lambda: self.newest() > step, f"a checkpoint after step {step}")

    def end_soon(self):
        """Returns the epochs of the newest checkpoint plus two, so that the run ends soon."""
        manifest = self.out / f"checkpoints/step-{self.newest():08}/checkpoint.json"
        epochs = json.loads(manifest.read_text())["epoch"] + 2
        self.file("job.textproto", pathlib.Path(self.job).read_text().replace("epochs: 100000", f"epochs: {epochs}"))

    def assert_undisturbed(self, protocol):
        """Checks that the weights are those of an undisturbed run."""
        reference = self.folder / "reference"
        self.assert_exit(self.start("train", f"--job={self.job}", f"--protocol={protocol}", "--workers=2",
                                    f"--out={reference}"), 0)
        self.assertEqual(*(self.metrics(out)[-1]["weights_sha256"] for out in (self.out, reference)))

    def disturb(self, protocol, servers):
        file, _ = self.cluster(ps=servers, workers=2)

        def start(role, task):
            more = [f"--job={self.job}", f"--out={self.out}", "--resume", "--set", f"protocol={protocol}"]
            return self.start_task(role, task, file, *(more if role == "coordinator" else []))

        names = [("coordinator", 0), ("worker", 0), ("worker", 1)] + [("ps", i) for i in range(servers)]
        processes = {name: start(*name) for name in names}
        coordinator = processes["coordinator", 0]
        self.wait_for_progress()
        for view, lost in enumerate(names[1:], 1):
            processes[lost].send(signal.SIGKILL)
            self.assert_exit(processes[lost], -signal.SIGKILL)
            coordinator.wait_for(f"view {view} is over")
            processes[lost] = start(*lost)
            self.wait_for_progress()
        # Stops one task, as if its machine were needed for something else.
        processes["worker", 0].send(signal.SIGTERM)
        self.assert_exit(processes["worker", 0], 0)
        processes["worker", 0] = start("worker", 0)
        self.wait_for_progress()
        # Kills the coordinator. The other processes wait until it is back.
        coordinator.send(signal.SIGKILL)
        self.assert_exit(coordinator, -signal.SIGKILL)
        self.end_soon()
        processes["coordinator", 0] = start("coordinator", 0)
        for process in processes.values():
            self.assert_exit(process, 0)
        self.assert_undisturbed(protocol)

    def test_ring(self):
        self.disturb("RING", 0)

    def test_sync_ps(self):
        self.disturb("SYNC_PS", 1)

    def test_a_new_worker_joins(self):
        """The others do not wait for the new worker before it joins."""
        file, _ = self.cluster(ps=1, workers=2)
        arguments = [f"--job={self.job}", f"--out={self.out}", "--join-timeout=1"]
        processes = [self.start_task("coordinator", 0, file, *arguments), self.start_task("ps", 0, file),
                     self.start_task("worker", 1, file)]
        processes[0].wait_for("going on without worker/0")
        self.wait_for_progress()
        processes.append(self.start_task("worker", 0, file))
        processes[0].wait_for("view 1 is over")
        self.wait_for_progress()
        self.wait_for_progress()  # the first checkpoint may be one of view 1
        processes[0].send(signal.SIGTERM)
        for process in processes:
            self.assert_exit(process, 1)
        end = self.metrics(self.out)[-1]
        self.assertEqual((end["workers"], end["views"]), (2, 2))
        processes[0].wait_for("2; the following describes the last one")

    def test_tasks_are_started_again_at_once(self):
        """Over TCP, the coordinator hears of the end of a process later than a supervisor."""
        more = ("--transport=tcp",)
        file, _ = self.cluster(ps=1, workers=2)
        arguments = (f"--job={self.job}", f"--out={self.out}", "--set", "protocol=SYNC_PS")
        coordinator = self.start_task("coordinator", 0, file, *arguments, *more)
        tasks = [("worker", 0), ("worker", 1), ("ps", 0)]
        processes = {x: self.start_task(*x, file, *more) for x in tasks}
        for view, lost in enumerate(tasks, 1):
            self.wait_for_progress()
            processes[lost].send(signal.SIGKILL)
            self.assert_exit(processes[lost], -signal.SIGKILL)
            processes[lost] = self.start_task(*lost, file, *more)
            coordinator.wait_for(f"view {view} is over")
        self.wait_for_progress()
        self.assertNotIn("has joined already", coordinator.output)
        coordinator.send(signal.SIGTERM)
        for process in coordinator, *processes.values():
            self.assert_exit(process, 1)

    def test_a_task_moves_from_a_failed_host(self):
        """A paused process sends nothing, like a failed host. Its task is started at another address, and may join."""
        more = ("--transport=tcp",)
        file, cluster = self.cluster(ps=1, workers=2)
        arguments = (f"--job={self.job}", f"--out={self.out}", "--set", "protocol=SYNC_PS")
        coordinator = self.start_task("coordinator", 0, file, *arguments, *more)
        others = [self.start_task(*x, file, *more) for x in (("worker", 0), ("ps", 0))]
        paused = self.start_task("worker", 1, file, *more)
        self.wait_for_progress()
        paused.send(signal.SIGSTOP)
        cluster["worker"][1] = "127.0.0.1:0"
        moved = self.start_task("worker", 1, self.file("moved.json", json.dumps({"cluster": cluster})), *more)
        coordinator.wait_for("view 1 is over")
        self.wait_for_progress()
        self.assertNotIn("has joined already", coordinator.output + moved.output)
        paused.kill()
        coordinator.send(signal.SIGTERM)
        for process in coordinator, moved, *others:
            self.assert_exit(process, 1)

    def test_train_restarts_children(self):
        run = self.start("train", f"--job={self.job}", "--processes", "--protocol=ring", "--workers=2",
                         f"--out={self.out}")
        # Kills a child process in each of the first two views (sets of tasks that train together).
        run.wait_for("epoch 1/")
        for view in 1, 2:
            child = next(x for x in children_of(run.pid) if "--task=1" in arguments_of(x))
            os.kill(child, signal.SIGKILL)
            run.wait_for(f"view {view} is over")
            self.wait_for_progress()
        run.send(signal.SIGTERM)
        self.assert_exit(run, 1)
        self.end_soon()
        self.assert_exit(self.start("train", f"--job={self.job}", "--protocol=ring", "--workers=2",
                                    f"--out={self.out}", "--resume"), 0)
        self.assert_undisturbed("RING")


if __name__ == "__main__":
    run_tests()
