"""Signals in the middle of a run: which processes end, how they end, and whether all samples are accounted for."""

import contextlib
import os
import signal
import time

from program import END_DEADLINE, LONG_JOB, TestCase, alive, arguments_of, children_of, run_tests

# Numbers of epochs to try. The run must end by itself, but not before the signal arrives. If it does, the next number
# is tried.
EPOCHS = (20, 200, 2000)

# A job whose evaluation after the training takes a second or more. Instrumented programs are slow, so they get fewer
# records.
SLOW_EVALUATION = f"""
model {{ layer {{ dense {{ units: 2000 activation: RELU }} }} layer {{ dense {{ units: 2000 activation: RELU }} }}
        layer {{ dense {{ units: 10 }} }} loss: SOFTMAX_CROSS_ENTROPY }}
data {{ digits {{ train: 64 test: {8000 if END_DEADLINE < 10 else 800} }} batch: 32 }}
learning_rate {{ base: 0.01 }}
epochs: 1
"""


class Signals(TestCase):
    def run_cluster(self, job, protocol):
        """Starts 2 workers, 2 shards and the coordinator, and waits until they train."""
        cluster, _ = self.cluster(ps=2, workers=2)
        self.out = self.folder / "out"
        job = self.file("job.textproto", job)
        self.tasks = {f"{role}/{i}": self.start_task(role, i, cluster) for role in ("ps", "worker") for i in range(2)}
        self.coordinator = self.start_task("coordinator", 0, cluster, f"--job={job}", f"--out={self.out}", "--set",
                                           f"protocol={protocol}")
        self.coordinator.wait_for("epoch 2/")

    def lose_a_worker(self, number, says):
        """An asynchronous run. One worker gets this signal during training, and the other worker finishes the run."""
        for self.epochs in EPOCHS:
            self.run_cluster(LONG_JOB.replace("epochs: 100000", f"epochs: {self.epochs}"), "ASYNC_PS")
            self.tasks["worker/1"].send(number)
            self.assert_exit(self.coordinator, 0)
            if says in self.coordinator.output:
                break
            for process in self.tasks.values():
                process.wait()
        self.assertIn(says, self.coordinator.output)

    def assert_balanced(self):
        end = self.metrics(self.out)[-1]
        self.assertEqual(end["event"], "end")
        self.assertNotIn("failure", end)
        self.assertEqual(end["samples"], self.epochs * 2000)
        self.assertEqual(end["split"], 0)
        return end

    def test_others_go_on_without_a_worker_that_was_stopped(self):
        self.lose_a_worker(signal.SIGTERM, "worker/1 left (SIGTERM)")
        for process in self.tasks.values():
            self.assert_exit(process, 0)
        end = self.assert_balanced()
        self.assertEqual(end["applied"], self.epochs * 250 * 2)
        self.assertEqual(end["lost"], 0)

    def test_others_go_on_without_a_worker_that_was_killed(self):
        self.lose_a_worker(signal.SIGKILL, "worker/1 is gone")
        for name, process in self.tasks.items():
            self.assert_exit(process, -signal.SIGKILL if name == "worker/1" else 0)
        self.assert_balanced()

    def test_synchronous_runs_fail_without_a_worker(self):
        for protocol, number in (("SYNC_PS", signal.SIGTERM), ("RING", signal.SIGTERM), ("RING", signal.SIGKILL)):
            with self.subTest(protocol=protocol, number=number):
                self.run_cluster(LONG_JOB, protocol)
                self.tasks["worker/1"].send(number)
                self.assert_exit(self.coordinator, 1)
                self.assertIn("worker/1", self.coordinator.output)
                for name, process in self.tasks.items():
                    if name != "worker/1":
                        self.assert_exit(process, 1)
                self.assertIn("worker/1", self.metrics(self.out)[-1]["failure"])

    def test_a_run_fails_without_a_shard(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number=number):
                self.run_cluster(LONG_JOB, "ASYNC_PS")
                self.tasks["ps/1"].send(number)
                self.assert_exit(self.coordinator, 1)
                self.assertIn("ps/1", self.coordinator.output)
                for name, process in self.tasks.items():
                    if name != "ps/1":
                        self.assert_exit(process, 1)

    def test_stopping_the_coordinator_stops_all(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                self.run_cluster(LONG_JOB, "ASYNC_PS")
                self.coordinator.send(number)
                for process in (self.coordinator, *self.tasks.values()):
                    self.assert_exit(process, 1)
                self.assertIn("stopped: " + number.name, self.coordinator.output)
                self.assertEqual(self.metrics(self.out)[-1]["failure"], number.name)

    def test_losing_the_coordinator_ends_all(self):
        self.run_cluster(LONG_JOB, "ASYNC_PS")
        self.coordinator.send(signal.SIGKILL)
        for process in self.tasks.values():
            self.assert_exit(process, 1)
            self.assertIn("coordinator", process.output)

    def train(self, *more):
        """Starts `troupe train` with the long job. Returns its process and child processes when it trains."""
        job = self.file("job.textproto", LONG_JOB)
        process = self.start("train", f"--job={job}", "--workers=2", f"--out={self.folder / 'out'}", *more)
        process.wait_for("epoch 2/")
        children = []
        with contextlib.suppress(FileNotFoundError):  # the process may have ended already
            children = children_of(process.pid)
        return process, children

    def test_interrupted_training_leaves_no_process_behind(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number=number):
                process, children = self.train("--processes", "--ps=2")
                self.assertEqual(len(children), 4)
                process.send(number)
                self.assert_exit(process, -number if number == signal.SIGKILL else 1)
                self.wait_until(lambda: not any(map(alive, children)), "children end")

    def test_a_signal_that_arrives_twice(self):
        """`timeout` sends its signal to the process and to its group. The checkpoint is written all the same."""
        process, _ = self.train("--set", "checkpoint.every_steps=1000000")
        for _ in range(3):
            process.send(signal.SIGTERM)
            time.sleep(0.11)  # so that the process receives each
        self.assert_exit(process, 1)
        self.assertIn("has the state", process.output)

    def test_interrupted_training_in_one_process(self):
        process, children = self.train()
        self.assertEqual(children, [])
        process.send(signal.SIGINT)
        self.assert_exit(process, 1)
        self.assertEqual(self.metrics(self.folder / "out")[-1]["failure"], "SIGINT")

    def test_interrupted_reading(self):
        path = self.file("table.csv", "x,y\n" + "1,2\n3,5\n" * 2_000_000)  # takes seconds to read
        job = self.file("job.textproto", f"""
            model {{ layer {{ dense {{ units: 1 }} }} loss: MEAN_SQUARED_ERROR }}
            data {{ csv {{ path: "{path}" features: "x" target: "y" }} batch: 2 }}""")
        for command in ("check", "train"):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(command=command, number=number):
                    process = self.start(command, f"--job={job}")
                    time.sleep(0.3)
                    process.send(number)
                    self.assert_exit(process, -number)

    def lose_a_child(self, number, epochs):
        """Starts `troupe train`. Its worker 1 gets this signal during training. Returns the child processes."""
        process, children = self.train("--processes", "--ps=2", f"--set=epochs={epochs}")
        for x in children:
            if {"--role=worker", "--task=1"} <= set(arguments_of(x)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(x, number)
        return process, children

    def test_training_goes_on_without_a_child_that_was_killed(self):
        for epochs in EPOCHS:
            process, children = self.lose_a_child(signal.SIGKILL, epochs)
            process.wait()
            if "worker/1 is gone" in process.output:
                break
        self.assertIn("worker/1 is gone", process.output)
        self.assert_exit(process, 0)
        self.wait_until(lambda: not any(map(alive, children)), "children end")

    def test_training_goes_on_without_a_child_that_hangs(self):
        """The job is done. So it does not matter if the worker's process does not end, or ends later with an error."""
        for wakes in (False, True):
            with self.subTest(wakes=wakes):
                for epochs in EPOCHS:
                    process, children = self.lose_a_child(signal.SIGSTOP, epochs)
                    gone = "worker/1 is gone"
                    self.wait_until(lambda p=process: gone in p.output or not p.running(), gone)
                    if gone in process.output:
                        break
                self.assertIn(gone, process.output)
                for x in children if wakes else ():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(x, signal.SIGCONT)
                self.assert_exit(process, 0)
                # A child that continues may also take too long to end, and is then killed.
                ends = ("worker/1 did not end, and was killed", "worker/1 ended with exit code 1")
                self.assertTrue(any(x in process.output for x in ends[: 1 + wakes]), process.output)
                self.wait_until(lambda: not any(map(alive, children)), "children end")

    def test_a_child_that_ends_badly_after_training(self):
        """The last evaluation takes a while. The run no longer needs its workers, so it does not give one up. It is no
        failure if somebody kills a worker, but it is one if a worker hangs."""
        job = self.file("job.textproto", SLOW_EVALUATION)
        for number, end, code in ((signal.SIGKILL, "worker/1 was killed by signal 9 (Killed)", 0),
                                  (signal.SIGSTOP, "failed: worker/1 did not end, and was killed", 1)):
            with self.subTest(number=number):
                process = self.start("train", f"--job={job}", "--workers=2", "--ps=1", "--processes",
                                     "--log-level=debug")
                process.wait_for("training has ended")
                for x in children_of(process.pid):
                    if {"--role=worker", "--task=1"} <= set(arguments_of(x)):
                        os.kill(x, number)
                self.assert_exit(process, code)
                self.assertIn("epoch 1/1", process.output)
                self.assertIn(end, process.output)

    def test_the_last_evaluation_needs_no_worker(self):
        job = self.file("job.textproto", SLOW_EVALUATION)
        for protocol, number in (("ring", signal.SIGKILL), ("ring", signal.SIGTERM), ("sync_ps", signal.SIGTERM),
                                 ("local_sgd", signal.SIGKILL)):
            with self.subTest(protocol=protocol, number=number):
                process = self.start("train", f"--job={job}", "--workers=2", "--processes", f"--protocol={protocol}",
                                     "--log-level=debug")
                process.wait_for("all counts are known")
                for x in children_of(process.pid):
                    if {"--role=worker", "--task=1"} <= set(arguments_of(x)):
                        os.kill(x, number)
                self.assert_exit(process, 0)
                self.assertIn("epoch 1/1", process.output)
                self.assertIn("sha256", process.output)

    def test_a_worker_that_starts_again_when_the_run_is_over(self):
        """An elastic run starts a worker again if it is killed. At the end of the run, it finds no coordinator."""
        job = self.file("job.textproto",
                        SLOW_EVALUATION + "checkpoint { every_steps: 1000 } elastic { min_workers: 1 }")
        process = self.start("train", f"--job={job}", f"--out={self.folder / 'out'}", "--workers=2", "--processes",
                             "--log-level=debug")
        process.wait_for("training has ended")
        for x in children_of(process.pid):
            if {"--role=worker", "--task=1"} <= set(arguments_of(x)):
                os.kill(x, signal.SIGKILL)
        self.assert_exit(process, 0)

    def test_interrupted_while_processes_start(self):
        """Processes that have not joined yet do not hear that the run has ended. They must end all the same, soon."""
        job = self.file("job.textproto", LONG_JOB)
        for delay in (0.03, 0.06, 0.1, 0.15, 0.2):
            with self.subTest(delay=delay):
                process = self.start("train", f"--job={job}", "--workers=2", "--processes")
                time.sleep(delay)
                os.kill(process.pid, signal.SIGTERM)
                process.wait()
                self.assertNotRegex(process.output, r"waiting for coordinator/0.*\((6|7|8|9) s")


if __name__ == "__main__":
    run_tests()
