"""The TCP connections of a run break again and again, and a process stops for a while. The weights are those of an
undisturbed run.

The processes run in their own network namespace, in which the test destroys connections (`ss -K`). TROUPE_CUTS sets how
often it destroys all of them."""

import os
import shutil
import signal
import subprocess
import time
import unittest

from program import LONG_JOB, PROGRAM, TestCase, children_of, run_tests

CUT = ["ss", "-K", "-H", "-n", "state", "established", "dst", "127.0.0.1"]
CUTS = int(os.environ.get("TROUPE_CUTS", "5"))
PAUSE = 0.2  # seconds between two cuts
LONG_PAUSE = 12  # seconds; CAF gives up one of its own connections after 10
LIMIT = 100 * max(12, CUTS)  # number of epochs of the longest run that is tried


def can_cut():
    if not shutil.which("ss") or not shutil.which("ip"):
        return False
    commands = "ip link set lo up && " + " ".join(CUT)
    return subprocess.run(["unshare", "--net", "sh", "-c", commands], capture_output=True, check=False).returncode == 0


class Links(TestCase):
    def train(self, name, *more):
        script = 'ip link set lo up && exec "$0" "$@"'
        return self.start("train", f"--job={self.job}", f"--out={self.folder / name}", "--workers=2", "--processes",
                          "--transport=tcp", *more, program=("unshare", "--net", "sh", "-c", script, PROGRAM))

    def end_of(self, name):
        return self.metrics(self.folder / name)[-1]

    @unittest.skipUnless(can_cut(), "connections cannot be destroyed here")
    def test_connections_that_break(self):
        for protocol in ("RING", "SYNC_PS", "LOCAL_SGD"):
            with self.subTest(protocol=protocol):
                epochs, cuts = max(12, CUTS), 0
                while cuts < CUTS and epochs <= LIMIT:
                    cuts = self.compare_with_cuts(protocol, epochs)
                    print(f"{protocol}: {cuts} cuts in {epochs} epochs", flush=True)
                    epochs *= 4  # on a fast machine, the run may end before enough connections were cut
                self.assertGreaterEqual(cuts, CUTS)

    def compare_with_cuts(self, protocol, epochs):
        """Trains without and with cuts. The weights must be the same. Returns how often connections were cut."""
        self.job = self.file("job.textproto", LONG_JOB.replace("epochs: 100000", f"epochs: {epochs}"))
        calm, disturbed = f"calm_{protocol}_{epochs}", f"cut_{protocol}_{epochs}"
        choice = f"--protocol={protocol}"
        self.assert_exit(self.train(calm, choice), 0)
        run = self.train(disturbed, choice)
        run.wait_for("epoch 1/")
        cuts = 0
        while run.running():
            cut = subprocess.run(["nsenter", f"--net=/proc/{run.pid}/ns/net", *CUT], capture_output=True, text=True,
                                 check=False)
            cuts += len(cut.stdout.splitlines()) > 0
            time.sleep(PAUSE)
        self.assert_exit(run, 0)
        self.assertEqual(self.end_of(disturbed)["weights_sha256"], self.end_of(calm)["weights_sha256"])
        return cuts

    def test_a_pause_that_is_too_long(self):
        self.job = self.file("job.textproto", LONG_JOB)
        for transport in ("tcp", "auto"):
            with self.subTest(transport=transport):
                run = self.start("train", f"--job={self.job}", "--workers=2", "--processes", "--protocol=RING",
                                 f"--transport={transport}", "--set=runtime.suspect_after_ms=3000")
                run.wait_for("epoch 1/")
                worker = children_of(run.pid)[0]
                subprocess.run(["kill", f"-{int(signal.SIGSTOP)}", str(worker)], check=True)
                self.assert_exit(run, 1)
                self.assertRegex(run.output, "nothing was received from it|did not come back|did not answer")

    def test_a_pause_within_the_limit_of_the_job(self):
        """A process is stopped for longer than the time-out of CAF's own connections. The job allows this. With
        --transport=basp, there are only CAF's connections, so the time-out ends the run."""
        self.job = self.file("job.textproto", LONG_JOB.replace("epochs: 100000", "epochs: 20"))
        runs = {}
        stopped = []
        for transport in ("tcp", "auto"):
            for victim in ("worker", "coordinator"):
                name = f"{transport}_{victim}"
                run = self.start("train", f"--job={self.job}", f"--out={self.folder / name}", "--workers=2",
                                 "--processes", "--protocol=RING", f"--transport={transport}",
                                 "--set=runtime.suspect_after_ms=60000", name=name)
                run.wait_for("epoch 1/")
                pid = run.pid if victim == "coordinator" else children_of(run.pid)[0]
                os.kill(pid, signal.SIGSTOP)
                runs[name] = run
                stopped.append(pid)
        time.sleep(LONG_PAUSE)
        for name, run in runs.items():
            self.assertTrue(run.running(), f"{name}: {run.output}")
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        for run in runs.values():
            self.assert_exit(run, 0)
        hashes = {self.end_of(name)["weights_sha256"] for name in runs}
        self.assertEqual(len(hashes), 1, "all runs are one run")


if __name__ == "__main__":
    run_tests()
