"""Runs the program `troupe` for tests: processes that are always ended, their output, cluster files, job files."""

import collections
import contextlib
import functools
import gzip
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

# In a test that is run by hand, these variables are not set. Then it tests the release build.
SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TROUPE_PROGRAM", str(SOURCE / "build/release/apps/troupe"))
# A node that claims to have another version of troupe.
OTHER_VERSION = os.environ.get("TROUPE_OTHER_VERSION", str(SOURCE / "build/release/tests/apps/other_version"))
# Seconds in which all processes of a run must end after the first one has ended. Longer for instrumented programs,
# which are slow.
END_DEADLINE = float(os.environ.get("TROUPE_END_DEADLINE", "2"))
os.environ.setdefault("TROUPE_DATA", str(SOURCE / "../shared/data"))
DATA = pathlib.Path(os.environ["TROUPE_DATA"])

# The exit code of a test file if nothing failed and something was skipped. CTest then reports the file as skipped.
EXIT_SKIPPED = 77

# Seconds in which every process ends by itself, even in instrumented builds on busy machines.
PATIENCE = 60.0

# An environment variable that all processes of a test inherit, even those that leave their parent's process group. Its
# value is different for each test.
MARK = "TROUPE_TEST_MARK"
SHARED_FILES = pathlib.Path("/dev/shm")

QUICK_JOB = """
model { layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }
data { digits { train: 640 test: 100 } batch: 16 }
learning_rate { base: 0.1 }
epochs: 2
"""

# A job that trains until it is stopped, for tests that need a run in progress.
LONG_JOB = """
model { layer { dense { units: 64 activation: RELU } } layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }
data { digits { train: 2000 test: 100 } batch: 8 }
learning_rate { base: 0.05 }
epochs: 100000
"""


# Protocols whose tasks must all be in one process.
IN_ONE_PROCESS = {"hogwild"}


def protocols():
    """All protocols, in the order of the help."""
    text = subprocess.run([PROGRAM, "train", "--help"], check=True, capture_output=True, text=True).stdout
    return re.search(r"--protocol \{([a-z_,]+)\}", text)[1].split(",")


class Process:
    """A running `troupe` (or another program). Collects its standard output and standard error together."""

    def __init__(self, *arguments, name="", program=(PROGRAM,), environment=None):
        self.name = name or " ".join(arguments)
        self.lines = []
        self.ended_at = None
        self._changed = threading.Condition()
        # Starts the process in its own group, so that a failing test can end all its processes.
        self._process = subprocess.Popen(
            [*program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True, env={**os.environ, **(environment or {})})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()

    def _read(self):
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def _wait(self):
        self._process.wait()
        self.ended_at = time.monotonic()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self):
        return self._process.pid

    @property
    def output(self):
        return "\n".join(self.lines)

    def send(self, number):
        self._process.send_signal(number)

    def wait(self):
        """The exit code. It is negative, with the number of the signal, if a signal ended the process."""
        self._waiter.join(PATIENCE)
        if self._process.returncode is None:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {PATIENCE} s:\n{self.output}")
        self._reader.join(PATIENCE)
        return self._process.returncode

    def wait_for(self, text):
        """Waits for a line that contains the text. Returns this line."""
        limit = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                for line in self.lines:
                    if text in line:
                        return line
                if self._process.returncode is not None and not self._reader.is_alive():
                    raise AssertionError(f"{self.name} ended with {self._process.returncode} before '{text}':\n"
                                         f"{self.output}")
                if time.monotonic() > limit:
                    raise AssertionError(f"{self.name} did not say '{text}' within {PATIENCE} s:\n{self.output}")
                self._changed.wait(0.2)

    def running(self):
        return self._process.returncode is None

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._waiter.join()
        self._reader.join()
        self._process.stdout.close()


def children_of(pid):
    """Process ids of the children of a process."""
    result = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            result += [int(x) for x in (task / "children").read_text().split()]
    return result


def arguments_of(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    return []


def alive(pid):
    """True if a process exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(mark):
    """Running processes with this value of MARK."""
    wanted = f"{MARK}={mark}".encode()
    result = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0") and alive(int(folder.name)):
                result.append(int(folder.name))
    return result


def abstract_sockets_of(pid):
    """Names of the abstract sockets that a process holds. The system removes such a socket with its last process."""
    held = set()
    with contextlib.suppress(OSError):
        for x in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held |= set(re.findall(r"^socket:\[(\d+)\]$", os.readlink(x)))
        lines = pathlib.Path(f"/proc/{pid}/net/unix").read_text(errors="replace").splitlines()[1:]
        return [x.split()[7] for x in lines if len(x.split()) > 7 and x.split()[6] in held and x.split()[7][0] == "@"]
    return []


@functools.cache
def own_ports():
    """Ports that no other test chooses: a socket that holds them, and an endless iterator. They are below the range
    that the system gives to connections. The system removes the socket's name when this process ends."""
    while True:
        first = random.randrange(10000, 32000, 100)
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0troupe-test-ports-{first}")
            return holder, itertools.cycle(range(first, first + 100))
        except OSError:
            holder.close()


def free_ports(n):
    """Loopback ports that were free a moment ago. Tests that run at the same time get different ones."""
    ports = []
    while len(ports) < n:
        port = next(own_ports()[1])
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in ports:
                ports.append(port)
    return ports


def idx(dims, values):
    """An IDX file of bytes."""
    return struct.pack(f">I{len(dims)}I", 0x800 + len(dims), *dims) + bytes(values)


class TestCase(unittest.TestCase):
    """Gives each test a folder, and ends the processes that it started."""

    def setUp(self):
        # Cleanups run in reverse order. This one is added first, so it runs last.
        self.mark = uuid.uuid4().hex
        self.pids = []
        self.shared_before = set(SHARED_FILES.glob("*"))
        self.addCleanup(self.check_leftovers)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="troupe-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def cluster(self, ps=0, workers=0, ring=0):
        """A cluster file with free ports: (path, the cluster)."""
        ports = iter(free_ports(1 + ps + workers + ring))
        cluster = {"coordinator": [f"127.0.0.1:{next(ports)}"]}
        for job, n in (("ps", ps), ("worker", workers), ("ring", ring)):
            if n:
                cluster[job] = [f"127.0.0.1:{next(ports)}" for _ in range(n)]
        return self.file("cluster.json", json.dumps({"cluster": cluster})), cluster

    def start(self, *arguments, name="", program=(PROGRAM,), environment=None):
        process = Process(*map(str, arguments), name=name, program=program,
                          environment={**(environment or {}), MARK: self.mark})
        self.pids.append(process.pid)
        self.addCleanup(process.kill)
        return process

    def leftovers(self):
        """What this test has left: its processes that still run, with their sockets, and files in shared memory whose
        names contain the name of the program or of one of its processes."""
        processes = [f"process {pid} ({' '.join(arguments_of(pid))}) {' '.join(abstract_sockets_of(pid))}"
                     for pid in marked(self.mark)]
        ours = re.compile("troupe|" + "|".join(rf"\b{pid}\b" for pid in self.pids))
        files = [str(x) for x in set(SHARED_FILES.glob("*")) - self.shared_before if ours.search(x.name)]
        return processes + files

    def check_leftovers(self):
        limit = time.monotonic() + 5
        while (left := self.leftovers()) and time.monotonic() < limit:
            time.sleep(0.02)
        for pid in marked(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [], "the test has left something behind")

    def start_task(self, role, task, cluster, *more, environment=None):
        return self.start("node", f"--role={role}", f"--task={task}", f"--cluster={cluster}", *more,
                          name=f"{role}/{task}", environment=environment)

    def assert_exit(self, process, code):
        self.assertEqual(process.wait(), code, f"{process.name} said:\n{process.output}")

    def wait_until(self, condition, what):
        limit = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), limit, f"{what}: not within {PATIENCE} s")
            time.sleep(0.02)

    def metrics(self, directory):
        """All lines of metrics.jsonl; each must be complete."""
        text = (pathlib.Path(directory) / "metrics.jsonl").read_text()
        self.assertTrue(text.endswith("\n"))
        return [json.loads(line) for line in text.splitlines()]

    def timeline(self, directory):
        """The activities in timeline.json.gz: for each task, a list of (name, begin, end, arguments) in order; times
        are in microseconds. Activities of a thread must not overlap."""
        events = json.loads(gzip.decompress((pathlib.Path(directory) / "timeline.json.gz").read_bytes()))["traceEvents"]
        tasks = {x["pid"]: x["args"]["name"] for x in events if x["ph"] == "M" and x["name"] == "process_name"}
        threads = collections.defaultdict(list)
        for x in events:
            if x["ph"] == "X":
                threads[x["pid"], x["tid"]].append((x["name"], x["ts"], x["ts"] + x["dur"], x["args"]))
        result = collections.defaultdict(list)
        for (task, _), activities in threads.items():
            for before, after in itertools.pairwise(activities):
                self.assertLessEqual(before[2], after[1] + 0.002)
                self.assertLessEqual(before[3]["step"], after[3]["step"])
            result[tasks[task]] += activities
        return result


def run_tests():
    """The main function of a test file."""
    result = unittest.main(exit=False).result
    sys.exit(1 if not result.wasSuccessful() else EXIT_SKIPPED if result.skipped else 0)
