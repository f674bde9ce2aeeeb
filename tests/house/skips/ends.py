import atexit
import os
import pathlib
import unittest

from program import TestCase, run_tests


class Passes(unittest.TestCase):
    def test(self):
        print("skipped: only a word")


class Skips(unittest.TestCase):
    def test(self):
        self.skipTest("nothing is here")


class LeavesAProcess(TestCase):
    def test(self):
        # The process moves to another group, so it does not end with its parent.
        process = self.start(program=("setsid", "--fork", "sh", "-c", "echo away; exec sleep 60 >/dev/null 2>&1"))
        process.wait_for("away")


class LeavesAFile(TestCase):
    def test(self):
        # Only this test looks for files with the number of this process. Other tests may run at the same time.
        process = self.start(program=("true",))
        process.wait()
        file = pathlib.Path("/dev/shm", f"left-{process.pid}")
        file.write_text("left")
        atexit.register(file.unlink)


class SkipsAndFails(Skips):
    def test_other(self):
        self.fail("as it should")


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(globals()[os.environ["CASES"]])


if __name__ == "__main__":
    run_tests()
