import os
import unittest

from program import run_tests


class Passes(unittest.TestCase):
    def test(self):
        print("skipped: only a word")


class Skips(unittest.TestCase):
    def test(self):
        self.skipTest("nothing is here")


class SkipsAndFails(Skips):
    def test_other(self):
        self.fail("as it should")


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(globals()[os.environ["CASES"]])


if __name__ == "__main__":
    run_tests()
