"""tests/run if something is missing that tests need. Without options it reports this, and with --max-skipped it fails.

tests/run runs in a folder whose other programs are replaced by stand-ins, which install, build and test nothing."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

# A script that stands in for a program. It fails if its name and first argument are in MISSING.
STAND_IN = """#!/bin/sh
case ,$MISSING, in *,"{name}${{1:+ $1}}",*) exit 1 ;; esac
{then}
"""
# Stands in for CTest. Prints its lines about skipped tests, one for each word in SKIPPED.
CTEST = """
while [ $# -gt 0 ]; do
  [ "$1" != --output-log ] || log=$2
  shift
done
mkdir -p "$(dirname "$log")"
echo "1/9 Test #1: gpu_test.kernels ....***Skipped   0.01 sec" > "$log"
for i in $SKIPPED; do echo "$i/9 Test #$i: apps.test_$i ....***Skipped   0.01 sec"; done >> "$log"
echo "100% tests passed, 0 tests failed out of 9" >> "$log"
"""


class Run(unittest.TestCase):
    root = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tree = self.folder / "tree"
        for name, then in (("apps/install-packages", ""), ("apps/build", ""), ("tests/python", "echo /bin/python3"),
                           ("tests/caf-tsan", "echo /caf"), ("bin/ctest", CTEST)):
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(STAND_IN.format(name=path.name, then=then))
            path.chmod(0o755)
        shutil.copy(self.root / "tests/run", self.tree / "tests/run")
        (self.folder / "data").mkdir()

    def run_tests(self, *options, missing="", skipped="", data="data"):
        """(exit code, output)"""
        environment = {**os.environ, "PATH": f"{self.tree}/bin:{os.environ['PATH']}", "MISSING": missing,
                       "SKIPPED": skipped, "TROUPE_DATA": str(self.folder / data)}
        done = subprocess.run([self.tree / "tests/run", *options], env=environment, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def of_ci(self):
        """The options with which .ci/run calls tests/run."""
        command = re.search(r"^tests/run (.*)$", (self.root / ".ci/run").read_text(), re.M)[1]
        self.assertIn("--max-skipped=0", command)
        return command.split()

    def test_all_is_there(self):
        for options in ([], self.of_ci()):
            code, output = self.run_tests(*options)
            self.assertEqual(code, 0, output)
            self.assertNotIn("failed:", output)

    def test_something_is_missing(self):
        for missing, data, says in (
            ("install-packages --tests", "data", "Packages for some tests"),
            ("install-packages --peers", "data", "PyTorch or OpenMPI"),
            ("install-packages --fuzz", "data", "packages for --fuzz"),
            ("install-packages --openblas", "data", "packages for --openblas"),
            ("python", "data", "scikit-learn"),
            ("", "none", f"{self.folder}/none"),
        ):
            with self.subTest(says=says):
                # With these options, tests/run passes and says what is skipped. So it also works without data and
                # without PyPI.
                code, output = self.run_tests("--peers", "--release", "--fuzz", "--openblas", missing=missing,
                                              data=data)
                self.assertEqual(code, 0, output)
                self.assertRegex(output, rf"{says}.*skipped")
                code, output = self.run_tests("--openblas", *self.of_ci(), missing=missing, data=data)
                self.assertEqual(code, 1, output)
                self.assertIn("failed: packages", output)
                self.assertIn(says, output)
                self.assertNotIn(": build", output)

    def test_gpu_tests_need_no_other_packages_and_no_data(self):
        code, output = self.run_tests("--gpu", missing="install-packages --tests", data="none")
        self.assertEqual(code, 1, output)
        self.assertIn("1 tests were skipped", output)  # no test may be skipped
        self.assertNotIn("see above", output)
        self.assertNotIn("failed: packages", output)

    def test_skipped_tests_count(self):
        for options, skipped, expected in ((["--max-skipped=0"], "", 0), (["--max-skipped=0"], "7", 1),
                                           (["--max-skipped=2"], "7 8", 0), (["--max-skipped=2"], "7 8 9", 1),
                                           ([], "7 8 9", 0), (["--gpu"], "", 1)):
            with self.subTest(options=options, skipped=skipped):
                code, output = self.run_tests(*options, skipped=skipped)
                self.assertEqual(code, expected, output)


if __name__ == "__main__":
    Run.root = pathlib.Path(sys.argv.pop())
    unittest.main(verbosity=2)
