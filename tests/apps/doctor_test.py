"""`troupe doctor`: which tasks of a cluster reach each other, and what to do if they do not."""

import json
import re
import socket

from program import LONG_JOB, QUICK_JOB, TestCase, run_tests


class Doctor(TestCase):
    def setUp(self):
        super().setUp()
        self.job = self.file("job.textproto", QUICK_JOB)
        self.path, self.addresses = self.cluster(ps=1, workers=2)

    def doctor(self, code, *more, cluster=None):
        process = self.start("doctor", f"--cluster={cluster or self.path}", *more)
        self.assert_exit(process, code)
        return process.output

    def assert_pair(self, output, a, b, state):
        self.assertRegex(output, rf"(?m)^  {re.escape(a)} +-> +{re.escape(b)} +{state}")

    def test_nothing_runs(self):
        output = self.doctor(1)
        self.assertIn("Connection refused", output)
        self.assertIn("troupe node --role=ps --task=0", output)
        self.assert_pair(output, "worker/0", "ps/0", "unknown +worker/0 could not be asked")
        # With --role and --task, the command stands for a task that will run on this host, and shows which peers it can
        # reach.
        output = self.doctor(1, "--role=worker", "--task=1")
        self.assert_pair(output, "worker/1", "ps/0", "FAILED +127.0.0.1:[0-9]+: Connection refused")
        self.assert_pair(output, "worker/0", "ps/0", "unknown")

    def test_one_is_missing(self):
        # ps/0 is missing. While the other nodes wait for it, they answer the command's questions.
        processes = [self.start_task("coordinator", 0, self.path, f"--job={self.job}"),
                     self.start_task("worker", 0, self.path), self.start_task("worker", 1, self.path)]
        processes[0].wait_for("waiting for ps/0 ")
        output = self.doctor(1)
        for worker in ("worker/0", "worker/1"):
            self.assert_pair(output, worker, "coordinator/0", "ok")
            self.assert_pair(output, worker, "ps/0", "FAILED +127.0.0.1:[0-9]+: Connection refused")
        self.assert_pair(output, "worker/0", "worker/1", "ok .*not needed")
        self.assert_pair(output, "ps/0", "coordinator/0", "unknown +ps/0 could not be asked")
        self.assertIn("ps/0 at " + self.addresses["ps"][0] + ": nothing listens there", output)
        # The last node joins. The questions have not disturbed the run.
        processes.append(self.start_task("ps", 0, self.path))
        for process in processes:
            self.assert_exit(process, 0)

    def test_all_is_well(self):
        job = self.file("long.textproto", LONG_JOB)
        coordinator = self.start_task("coordinator", 0, self.path, f"--job={job}")
        others = [self.start_task("ps", 0, self.path), self.start_task("worker", 0, self.path),
                  self.start_task("worker", 1, self.path)]
        coordinator.wait_for("epoch 2/")
        output = self.doctor(0)
        self.assertNotIn("FAILED", output)
        self.assertNotIn("what to do", output)
        coordinator.send(2)
        for process in (coordinator, *others):
            self.assert_exit(process, 1)

    def test_a_foreign_server(self):
        address = self.addresses["ps"][0].split(":")
        with socket.create_server((address[0], int(address[1]))):
            worker = self.start_task("worker", 0, self.path)
            worker.wait_for("waiting for coordinator/0")
            output = self.doctor(1)
            self.assert_pair(output, "worker/0", "ps/0", "FAILED +.*something else listens there")
            self.assertIn("a program that is not a troupe node listens there", output)
            shard = self.start_task("ps", 0, self.path)
            self.assert_exit(shard, 2)
            self.assertIn("ps/0 cannot listen on " + self.addresses["ps"][0] + ": the port is in use", shard.output)

    def test_a_task_at_the_wrong_place(self):
        swapped = {**self.addresses, "worker": self.addresses["worker"][::-1]}
        other = self.file("swapped.json", json.dumps({"cluster": swapped}))
        worker = self.start_task("worker", 1, other)
        worker.wait_for("waiting for coordinator/0")
        output = self.doctor(1)
        self.assertIn("worker/1 answers there", output)

    def test_names_and_ports(self):
        cluster = self.file("names.json", json.dumps({"cluster": {
            "coordinator": ["no-such-host.invalid:7000"], "worker": ["127.0.0.1:0"]}}))
        output = self.doctor(1, cluster=cluster)
        self.assertIn("the name does not resolve", output)
        self.assert_pair(output, "worker/0", "coordinator/0", "unknown +.*known once it has joined")

    def test_wrong_input(self):
        self.doctor(2, cluster=self.folder / "missing.json")
        self.doctor(2, "--role=ps", "--task=7")


if __name__ == "__main__":
    run_tests()
