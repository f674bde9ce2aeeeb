"""The TFJob and the container image of the manual's Kubernetes page, as far as they can be tested without Kubernetes.

Each replica runs the command of the page as Kubeflow would: TF_CONFIG names its task, and a container that fails is
started again with the same command."""

import json
import pathlib
import re
import shlex
import shutil
import signal

from program import LONG_JOB, PROGRAM, SOURCE, TestCase, free_ports, run_tests

PAGE = (SOURCE / "apps/manual/kubernetes.md").read_text()
IMAGE = (SOURCE / "apps/Dockerfile").read_text()

# A job with about 60 steps per epoch for four workers, as on the page. It is long, because it must not end before a
# test disturbs it.
JOB = LONG_JOB + """
optimizer { kind: MOMENTUM }
protocol: SYNC_PS
checkpoint { every_steps: 20 }
"""


class Kubernetes(TestCase):
    def setUp(self):
        super().setUp()
        replicas = {role.lower(): int(n) for role, n in
                    re.findall(r"^    (\w+):\s*{?\s*replicas: (\d+)", PAGE, re.M)}
        self.assertEqual(list(replicas), ["chief", "ps", "worker"])
        self.out = self.folder / "out"
        self.job = self.file("job.textproto", JOB)
        command = re.search(r"command: \[troupe, (.*?)\]", PAGE)[1].split(", ")
        self.command = [x.replace("/job.textproto", self.job).replace("/out", str(self.out)) for x in command]
        ports = iter(free_ports(sum(replicas.values())))
        self.services = {role: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for role, n in replicas.items()}
        self.pods = [(role, i) for role, n in replicas.items() for i in range(n)]

    def start_pod(self, role, index):
        text = json.dumps({"cluster": self.services, "task": {"type": role, "index": index}, "environment": "cloud"})
        return self.start(*self.command, name=f"{role}-{index}", environment={"TF_CONFIG": text})

    def start_pods(self, job=JOB):
        self.file("job.textproto", job)
        self.processes = {pod: self.start_pod(*pod) for pod in self.pods}
        return self.processes["chief", 0]

    def steps(self):
        return sorted(int(x.name.split("-")[1]) for x in self.out.glob("checkpoints/step-*"))

    def wait_for_checkpoint(self):
        self.wait_until(lambda: self.steps() or not self.processes["chief", 0].running(), "a checkpoint")

    def restart(self):
        """Starts all pods again. The job now ends soon after its newest checkpoint."""
        newest = self.out / f"checkpoints/step-{self.steps()[-1]:08}/checkpoint.json"
        epochs = json.loads(newest.read_text())["epoch"] + 2
        self.file("job.textproto", pathlib.Path(self.job).read_text().replace("epochs: 100000", f"epochs: {epochs}"))
        self.processes = {pod: self.start_pod(*pod) for pod in self.pods}

    def assert_result(self, same_weights=True):
        """Checks that the weights are those of an undisturbed run."""
        for process in self.processes.values():
            self.assert_exit(process, 0)
        if not same_weights:
            return
        reference = self.folder / "reference"
        shutil.rmtree(reference, ignore_errors=True)
        self.assert_exit(self.start("train", f"--job={self.job}", "--workers=4", "--ps=2", f"--out={reference}"), 0)
        self.assertEqual(*(self.metrics(out)[-1]["weights_sha256"] for out in (self.out, reference)))

    def test_lost_tasks(self):
        for lost in (("chief", 0), ("ps", 1), ("worker", 3)):
            with self.subTest(lost=lost):
                shutil.rmtree(self.out, ignore_errors=True)
                chief = self.start_pods()
                chief.wait_for("epoch 2/")
                self.wait_for_checkpoint()
                self.processes[lost].send(signal.SIGKILL)
                for pod, process in self.processes.items():
                    self.assert_exit(process, -signal.SIGKILL if pod == lost else 1)
                step = self.steps()[-1]
                self.restart()
                self.processes["chief", 0].wait_for(f"continuing from {self.out}/checkpoints/step-{step:08}")
                for pod in (("ps", 0), ("worker", 2)):
                    self.processes[pod].wait_for("ignores --resume and --out: only the coordinator uses it")
                self.assert_result()

    def test_all_pods_are_stopped(self):
        in_step, on_their_own = JOB, JOB.replace("SYNC_PS", "ASYNC_PS")
        for job, stopped in ((in_step, self.pods), (in_step, [("ps", 0)]), (in_step, [("worker", 1)]),
                             (on_their_own, self.pods), (on_their_own, [x for x in self.pods if x[0] == "worker"])):
            with self.subTest(stopped=stopped, in_step=job == in_step):
                shutil.rmtree(self.out, ignore_errors=True)
                chief = self.start_pods(job)
                chief.wait_for("epoch 2/")
                for pod in stopped:
                    self.processes[pod].send(signal.SIGTERM)
                for (role, _), process in self.processes.items():
                    # If an asynchronous worker is stopped, its exit code may be 0.
                    may_leave = role == "worker" and job != in_step
                    self.assertIn(process.wait(), (0, 1) if may_leave else (1,), process.output)
                # A run that gets a signal writes a checkpoint, whatever checkpoint.every_steps is.
                step = self.steps()[-1]
                self.assertRegex(chief.lines[-1], r"^(stopped: .*SIGTERM|failed: all workers have left).*"
                                 f"/step-{step:08} has the state, and --resume continues there$")
                self.restart()
                self.processes["chief", 0].wait_for(f"continuing from {self.out}/checkpoints/step-{step:08}")
                self.assert_result(same_weights=job == in_step)

    def test_image(self):
        """The commands of the manual build the image, and the files that they copy exist."""
        runs = [x.strip() for x in re.findall(r"^RUN (.*)$", IMAGE, re.M)]
        self.assertEqual(runs[:2], ["apps/install-packages", "apps/build release troupe"])
        for command in runs[:2]:
            self.assertIn(f"`{command}`", PAGE)
            self.assertTrue((SOURCE / command.split()[0]).is_file())
        for source in re.findall(r"^COPY (?!--from)(\S+) ", IMAGE, re.M):
            self.assertTrue((SOURCE / source).exists(), source)
        # The image installs no packages, and both of its stages use the same release of Debian.
        self.assertNotIn("apt", IMAGE)
        self.assertEqual(len({x.removesuffix("-slim") for x in re.findall(r"^FROM (\S+)", IMAGE, re.M)}), 1)

    def test_program_of_the_image(self):
        """The program runs with only the libraries that the image contains."""
        command = re.search(r"^RUN (mkdir.*?[^\\])$", IMAGE, re.M | re.S)[1]
        command = command.replace("build/release/apps/troupe", shlex.quote(PROGRAM)).replace(
            "/image", shlex.quote(str(self.folder / "image")))
        self.assert_exit(self.start("-euc", command, program=("sh",)), 0)
        libraries = {x.name for x in (self.folder / "image/lib").iterdir()}
        self.assertTrue(any(x.startswith("libcaf_core") for x in libraries), libraries)
        self.assertNotIn("libc.so.6", libraries)
        process = self.start("--version", program=(str(self.folder / "image/bin/troupe"),),
                             environment={"LD_LIBRARY_PATH": str(self.folder / "image/lib")})
        self.assert_exit(process, 0)


if __name__ == "__main__":
    run_tests()
