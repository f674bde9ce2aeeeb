"""`troupe node`: each task is a process. Tasks start in any order, wait for each other, and end together."""

import json
import os
import random
import re
import time

from program import END_DEADLINE, QUICK_JOB, TestCase, run_tests


class Node(TestCase):
    def setUp(self):
        super().setUp()
        self.job = self.file("job.textproto", QUICK_JOB)
        self.out = self.folder / "out"

    def run_tasks(self, tasks, cluster, protocol, pause=0.0):
        """Starts tasks in this order and waits for all. They must end soon after the coordinator has ended."""
        processes = []
        for role, task in tasks:
            more = []
            if role == "coordinator":
                more = [f"--job={self.job}", f"--out={self.out}", "--set", f"protocol={protocol}"]
            processes.append(self.start_task(role, task, cluster, *more))
            time.sleep(pause)
        for process in processes:
            self.assert_exit(process, 0)
        coordinator = next(x for x in processes if x.name == "coordinator/0")
        for process in processes:
            self.assertLess(process.ended_at - coordinator.ended_at, END_DEADLINE, process.name)
        return self.metrics(self.out)[-1]

    def test_any_order(self):
        tasks = [("coordinator", 0), ("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
        seed = int(os.environ.get("TROUPE_SEED", "1"))
        orders = [tasks, tasks[::-1]] + [random.Random(seed + i).sample(tasks, len(tasks)) for i in range(2)]
        for i, order in enumerate(orders):
            protocol = ("ASYNC_PS", "SYNC_PS", "RING")[i % 3]
            with self.subTest(order=order, protocol=protocol):
                cluster, _ = self.cluster(ps=2, workers=2)
                end = self.run_tasks(order, cluster, protocol, pause=0.2)
                self.assertEqual((end["samples"], end["applied"]), (2 * 640, 2 * 2 * 40))

    def test_nodes_show_that_they_are_alive_while_others_are_missing(self):
        """The coordinator hears from each node within its job's limit, before it has anything to say to the node."""
        self.job = self.file("job.textproto", QUICK_JOB + "runtime { suspect_after_ms: 1000 }")
        tasks = [("coordinator", 0), ("worker", 0), ("ps", 0), ("worker", 1)]
        end = self.run_tasks(tasks, self.cluster(ps=1, workers=2)[0], "ASYNC_PS", pause=1.6)
        self.assertEqual(end["samples"], 2 * 640)

    def test_role_ring(self):
        cluster, _ = self.cluster(ring=3)
        end = self.run_tasks([("ring", 2), ("ring", 0), ("coordinator", 0), ("ring", 1)], cluster, "RING")
        self.assertEqual((end["protocol"], end["workers"], end["samples"]), ("ring", 3, 2 * 640))

    def test_parameter_servers_are_idle_in_a_ring(self):
        cluster, _ = self.cluster(ps=1, workers=2)
        self.run_tasks([("ps", 0), ("worker", 1), ("coordinator", 0), ("worker", 0)], cluster, "RING")

    def test_says_for_whom_it_waits(self):
        cluster, addresses = self.cluster(ps=1, workers=1)
        worker = self.start_task("worker", 0, cluster)
        line = worker.wait_for("waiting for")
        self.assertIn("coordinator/0 at " + addresses["coordinator"][0], line)
        self.assertRegex(line, r"\d+ s")
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={self.job}")
        line = coordinator.wait_for("ps/0")
        # If the worker has not joined yet, the list contains it, too.
        self.assertRegex(line, "waiting for .*ps/0 [(]" + re.escape(addresses["ps"][0]) + "[)]")
        self.assertRegex(line, r"for \d+ second")
        shard = self.start_task("ps", 0, cluster)
        for process in (worker, coordinator, shard):
            self.assert_exit(process, 0)

    def test_gives_up_waiting(self):
        cluster, addresses = self.cluster(ps=1, workers=1)
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={self.job}", "--set",
                                      "runtime.join_timeout_ms=1500")
        self.assert_exit(coordinator, 1)
        for text in ("worker/0", addresses["worker"][0], "ps/0", addresses["ps"][0]):
            self.assertIn(text, coordinator.output)

    def test_a_task_twice_is_refused(self):
        cluster, addresses = self.cluster(ps=1, workers=1)
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={self.job}")
        first = self.start_task("worker", 0, cluster)
        coordinator.wait_for("waiting for ps/0 ")
        elsewhere = self.file("elsewhere.json", json.dumps({"cluster": {**addresses, "worker": ["127.0.0.1:0"]}}))
        second = self.start_task("worker", 0, elsewhere)
        self.assert_exit(second, 1)
        self.assertIn("has joined already", second.output)
        shard = self.start_task("ps", 0, cluster)
        for process in (coordinator, first, shard):
            self.assert_exit(process, 0)

    def test_another_job_is_refused(self):
        cluster, _ = self.cluster(ps=1, workers=1)
        coordinator = self.start_task("coordinator", 0, cluster, f"--job={self.job}")
        other = self.file("other.textproto", QUICK_JOB.replace("batch: 16", "batch: 8"))
        worker = self.start_task("worker", 0, cluster, f"--job={other}")
        self.assert_exit(worker, 1)
        self.assertIn("data.batch", worker.output)
        same = [self.start_task("worker", 0, cluster, f"--job={self.job}"), self.start_task("ps", 0, cluster)]
        for process in (coordinator, *same):
            self.assert_exit(process, 0)

    def test_other_data_on_a_worker_are_refused(self):
        rows = [(i % 7, i % 5) for i in range(64)]
        for name, shift in (("here", 0), ("there", 1)):
            labels = [y for _, y in rows[shift:] + rows[:shift]]
            (self.folder / name).mkdir()
            self.file(f"{name}/table.csv", "x,y\n" + "".join(f"{x},{y}\n" for (x, _), y in zip(rows, labels)))
        job = self.file("table.textproto", """
            model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR }
            data { csv { path: "${TABLES}/table.csv" features: "x" target: "y" standardize: false } batch: 8 }
            epochs: 1""")
        for protocol in ("ASYNC_PS", "RING"):
            for wrong in (None, "worker/1", "worker/0"):
                with self.subTest(protocol=protocol, wrong=wrong):
                    cluster, _ = self.cluster(ps=1, workers=2)
                    processes = {}
                    for role, task in (("worker", 0), ("worker", 1), ("ps", 0), ("coordinator", 0)):
                        name = f"{role}/{task}"
                        more = [f"--job={job}", "--set", f"protocol={protocol}"] if role == "coordinator" else []
                        tables = self.folder / ("there" if name == wrong else "here")
                        processes[name] = self.start_task(role, task, cluster, *more,
                                                          environment={"TABLES": str(tables)})
                    for process in processes.values():
                        process.wait()
                    coordinator = processes["coordinator/0"]
                    self.assert_exit(coordinator, 0 if wrong is None else 1)
                    if wrong:
                        self.assertIn(f"{wrong} cannot take part: bad input: the training data differ from those "
                                      "of coordinator/0: other labels (", coordinator.output)
                        self.assertIn("give all tasks the same files", coordinator.output)
                        self.assert_exit(processes[wrong], 1)


if __name__ == "__main__":
    run_tests()
