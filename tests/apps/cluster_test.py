"""Clusters that launchers describe in TensorFlow's form, and nodes that do not fit into a cluster."""

import json
import os
import re
import socket

from program import LONG_JOB, OTHER_VERSION, QUICK_JOB, Process, TestCase, free_ports, run_tests

RING_JOB = "protocol: RING\n" + QUICK_JOB


class LaunchedTasks(TestCase):
    """Every process is started by the same command. It finds its task in the variable TF_CONFIG."""

    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def addresses(self, **jobs):
        ports = iter(free_ports(sum(jobs.values())))
        return {job: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for job, n in jobs.items()}

    def launch(self, cluster, role, index, job, *more):
        text = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud",
                           "rpc_layer": "grpc"})
        process = Process("node", f"--job={job}", f"--out={self.out}", *more, name=f"{role}/{index}",
                          environment={"TF_CONFIG": text})
        self.addCleanup(process.kill)
        return process

    def run_cluster(self, job_text, **jobs):
        job = self.file("job", job_text)
        cluster = self.addresses(**jobs)
        processes = [self.launch(cluster, role, i, job) for role in reversed(jobs) for i in range(jobs[role])]
        for process in processes:
            self.assert_exit(process, 0)
        return self.metrics(self.out)[-1]

    def test_parameter_servers_with_a_chief(self):
        for chief in ("chief", "master"):
            with self.subTest(chief=chief):
                end = self.run_cluster(QUICK_JOB, **{chief: 1}, ps=2, worker=2)
                self.assertEqual((end["protocol"], end["workers"], end["samples"]), ("async_ps", 2, 2 * 640))

    def test_mirrored_workers_with_a_chief(self):
        end = self.run_cluster(RING_JOB, chief=1, worker=2)
        self.assertEqual((end["protocol"], end["workers"], end["samples"]), ("ring", 3, 2 * 640))

    def test_workers_only(self):
        end = self.run_cluster(RING_JOB, worker=3)
        self.assertEqual((end["protocol"], end["workers"], end["samples"]), ("ring", 3, 2 * 640))

    def test_workers_and_parameter_servers(self):
        for protocol in ("SYNC_PS", "ASYNC_PS"):
            with self.subTest(protocol=protocol):
                end = self.run_cluster(f"protocol: {protocol}\n" + QUICK_JOB, worker=2, ps=2)
                self.assertEqual((end["protocol"], end["workers"], end["samples"]), (protocol.lower(), 2, 2 * 640))

    def test_a_chief_alone(self):
        end = self.run_cluster(json.dumps({
            "model": {"layer": [{"dense": {"units": 10}}], "loss": "SOFTMAX_CROSS_ENTROPY"},
            "data": {"digits": {"train": 640, "test": 100}, "batch": 16},
            "learningRate": {"base": 0.1}, "protocol": "RING", "epochs": 2}), chief=1)
        self.assertEqual((end["workers"], end["samples"]), (1, 2 * 640))

    def start_with_evaluator(self, named):
        """A run that continues until it is stopped. It has an evaluator, which has already begun to evaluate."""
        job = self.file("job.textproto", LONG_JOB)
        cluster = self.addresses(chief=1, ps=1, worker=1, **({"evaluator": 1} if named else {}))
        self.others = [self.launch(cluster, role, 0, job) for role in ("ps", "worker")]
        self.evaluator = self.launch(cluster, "evaluator", 0, job)
        if not named:
            self.evaluator.wait_for("waiting for coordinator/0")
        self.chief = self.launch(cluster, "chief", 0, job)
        self.chief.wait_for("evaluator/0 evaluates")
        self.evaluator.wait_for("test loss")

    def end_run(self):
        self.chief.send(2)
        self.assert_exit(self.chief, 1)
        for process in self.others:
            self.assert_exit(process, 1)

    def test_an_evaluator(self):
        # Some launchers list the evaluator in the cluster that other tasks get, and some do not.
        for named in (True, False):
            with self.subTest(named=named):
                self.start_with_evaluator(named)
                # The results of an evaluation appear in the evaluator's output and in the chief's.
                epoch, loss = re.search(r"epoch (\d+): test loss (\S+)", self.evaluator.wait_for("test loss")).groups()
                self.assertIn(f"test loss {loss}", self.chief.wait_for(f"epoch {epoch}/100000  loss"))
                self.end_run()
                self.assert_exit(self.evaluator, 1)
                losses = {x["epoch"]: x["test_loss"] for x in self.metrics(self.out) if x["event"] == "epoch"}
                self.assertEqual(f"{losses[int(epoch)]:.4f}", loss)

    def test_an_evaluator_may_be_lost(self):
        for number, code in ((15, 0), (9, -9)):
            with self.subTest(signal=number):
                self.start_with_evaluator(named=True)
                self.evaluator.send(number)
                self.assert_exit(self.evaluator, code)
                self.chief.wait_for("the coordinator evaluates instead")
                epochs = len([x for x in self.chief.lines if "test loss" in x])
                self.wait_until(lambda: len([x for x in self.chief.lines if "test loss" in x]) > epochs + 2,
                                "epochs that the coordinator evaluates")
                self.end_run()

    def test_an_evaluator_without_data(self):
        job = self.file("job.textproto", QUICK_JOB.replace(
            "digits { train: 640 test: 100 }", 'csv { path: "${TABLE}" features: "x" target: "y" standardize: true }')
            .replace("units: 10", "units: 1").replace("SOFTMAX_CROSS_ENTROPY", "MEAN_SQUARED_ERROR")
            .replace("epochs: 2", "epochs: 1000000"))
        table = self.file("table.csv", "x,y\n" + "".join(f"{i},{2 * i + 1}\n" for i in range(64)))
        cluster = self.addresses(chief=1, ps=1, worker=1, evaluator=1)
        processes = {}
        for role in cluster:
            text = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
            processes[role] = Process("node", f"--job={job}", name=role, environment={
                "TF_CONFIG": text, "TABLE": "missing.csv" if role == "evaluator" else table})
            self.addCleanup(processes[role].kill)
        self.assert_exit(processes["evaluator"], 1)
        self.assertIn("missing.csv", processes["evaluator"].output)
        # The other tasks continue without the evaluator, until they are stopped.
        chief = processes["chief"]
        lines = len(chief.lines)
        self.wait_until(lambda: any("test loss" in x for x in chief.lines[lines:]), "another epoch")
        chief.send(2)
        for role in ("chief", "ps", "worker"):
            self.assert_exit(processes[role], 1)

    def test_a_name_of_this_host(self):
        name = socket.gethostname()
        try:
            socket.getaddrinfo(name, 1)
        except OSError:
            self.skipTest(f"this host's name, {name}, does not resolve")
        job = self.file("job.textproto", RING_JOB)
        ports = free_ports(2)
        cluster = {"worker": [f"{name}:{port}" for port in ports]}
        refused = self.launch(cluster, "worker", 0, job)
        self.assert_exit(refused, 2)
        self.assertIn("--insecure", refused.output)
        processes = [self.launch(cluster, "worker", i, job, "--insecure") for i in range(2)]
        for process in processes:
            self.assert_exit(process, 0)

    def test_precedence(self):
        ps, worker = free_ports(2)
        elsewhere = {"coordinator": ["127.0.0.1:1"], "ps": [f"127.0.0.1:{ps}"], "worker": [f"127.0.0.1:{worker}"]}
        file = self.file("cluster.json", json.dumps({"cluster": elsewhere, "task": {"type": "ps"}}))
        job = self.file("job.textproto", QUICK_JOB)
        for more, name in (([], "worker/3"), ([f"--cluster={file}"], "ps/0"),
                           ([f"--cluster={file}", "--role=worker"], "worker/0")):
            process = self.launch(self.addresses(coordinator=1, worker=4), "worker", 3, job, "--join-timeout=0.5",
                                  *more)
            self.assert_exit(process, 1)
            self.assertIn(f"{name}: gave up waiting for coordinator/0", process.output)


class Strangers(TestCase):
    """Nodes that do not fit are refused. The others continue, and train when the right nodes join."""

    def setUp(self):
        super().setUp()
        self.job = self.file("job.textproto", QUICK_JOB)
        self.path, self.addresses = self.cluster(ps=1, workers=1)
        self.coordinator = self.start_task("coordinator", 0, self.path, f"--job={self.job}")

    def train(self):
        processes = [self.start_task("ps", 0, self.path), self.start_task("worker", 0, self.path)]
        for process in (self.coordinator, *processes):
            self.assert_exit(process, 0)

    def test_another_job(self):
        other = self.file("other.textproto", QUICK_JOB.replace("batch: 16", "batch: 8"))
        worker = self.start_task("worker", 0, self.path, f"--job={other}")
        self.assert_exit(worker, 1)
        for output in (worker.output, self.coordinator.wait_for("refused worker/0")):
            self.assertRegex(output, r"hash [0-9a-f]{12}, the coordinator's [0-9a-f]{12}")
            self.assertIn("data.batch: 8 here, 16 there", output)
        self.train()

    def test_another_version(self):
        worker = Process(self.addresses["coordinator"][0], name="another version", program=(OTHER_VERSION,))
        self.addCleanup(worker.kill)
        self.assert_exit(worker, 1)
        self.coordinator.wait_for("refused worker/0")
        for output in (worker.output, self.coordinator.output):
            self.assertIn("worker/0 runs troupe 0.0.0-other, the coordinator ", output)
            self.assertIn("install the same version", output)
        self.train()

    def test_a_task_that_the_coordinator_does_not_know(self):
        wider = self.file("wider.json", json.dumps({"cluster": {
            **self.addresses, "worker": self.addresses["worker"] + ["127.0.0.1:0"]}}))
        worker = self.start_task("worker", 1, wider)
        self.assert_exit(worker, 1)
        self.assertIn("worker/1 is not in the cluster of this coordinator", worker.output)
        self.train()

    def with_secret(self, name, text):
        """Writes the same cluster file with a secret."""
        (self.folder / "secret").write_text(text)
        (self.folder / "secret").chmod(0o600)
        return self.file(name, json.dumps({"cluster": self.addresses, "secret_file": "secret"}))

    def copy_with_secret(self, text):
        """Writes the same cluster file in a different folder, as on another machine."""
        folder = self.folder / "other"
        folder.mkdir(exist_ok=True)
        (folder / "secret").write_text(text)
        (folder / "secret").chmod(0o644)
        (folder / "cluster.json").write_text(json.dumps({"cluster": self.addresses, "secret_file": "secret"}))
        return str(folder / "cluster.json")

    def test_a_secret(self):
        self.coordinator.kill()
        good = self.with_secret("secret.json", "0123456789abcdef\n")
        self.coordinator = self.start_task("coordinator", 0, good, f"--job={self.job}")
        for path, here, there in (
                (self.path, "coordinator/0 wants a secret, and this node has none", "worker/0 has no secret"),
                (self.copy_with_secret("fedcba9876543210"), "coordinator/0 has another secret",
                 "worker/0 has another secret")):
            worker = self.start_task("worker", 0, path, "--join-timeout=2")
            self.assertIn("secret_file", self.coordinator.wait_for(there))
            self.assert_exit(worker, 1)
            self.assertIn(here, worker.output)
        self.assertIn("chmod 600", worker.output)
        self.path = good
        self.train()
        self.assertNotIn("chmod", self.coordinator.output)

    def test_a_secret_that_the_coordinator_does_not_have(self):
        worker = self.start_task("worker", 0, self.copy_with_secret("0123456789abcdef"), "--join-timeout=2")
        self.coordinator.wait_for("worker/0 wants a secret, and this node has none")
        self.assert_exit(worker, 1)
        self.assertIn("coordinator/0 has no secret", worker.output)
        self.train()

    def test_a_bad_secret_file(self):
        worker = self.start_task("worker", 0, self.copy_with_secret("short"))
        self.assert_exit(worker, 2)
        self.assertIn("at least 16", worker.output)

    def test_one_that_never_comes(self):
        self.coordinator.kill()
        coordinator = self.start_task("coordinator", 0, self.path, f"--job={self.job}", "--join-timeout=2")
        shard = self.start_task("ps", 0, self.path)
        for process in (coordinator, shard):
            self.assert_exit(process, 1)
            self.assertIn("missing worker/0 (" + self.addresses["worker"][0] + ")", process.output)
            self.assertIn("within 2 seconds", process.output)
        alone = self.start_task("worker", 0, self.path, "--join-timeout=1")
        self.assert_exit(alone, 1)
        self.assertIn("gave up waiting for coordinator/0 at " + self.addresses["coordinator"][0], alone.output)


if __name__ == "__main__":
    run_tests()
