"""`cpack` makes an archive that runs on a machine without the packages that the build needed. All libraries come from
the archive, except the C library."""

import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TROUPE_BUILD"])
# Libraries that an archive must not contain. They belong to the C library, the loader, or the kernel of the machine.
OF_THE_MACHINE = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv))\.so\.\d+$|ld-linux")

JOB = """
model { layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }
data { digits { train: 200 test: 100 } batch: 20 }
optimizer { kind: SGD }
learning_rate { base: 0.05 }
epochs: 1
"""


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.temporary.name)
        subprocess.run([os.environ["TROUPE_CPACK"], "--config", BUILD / "CPackConfig.cmake", "-B", folder / "packed"],
                       check=True, stdout=subprocess.DEVNULL, cwd=folder)
        archives = list((folder / "packed").glob("troupe-*-linux-*.tar.gz"))
        assert len(archives) == 1, archives
        with tarfile.open(archives[0]) as archive:
            archive.extractall(folder / "elsewhere")
        (cls.root,) = (folder / "elsewhere").iterdir()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_there(self, *command):
        return subprocess.run(command, cwd=self.root, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_libraries_come_from_the_archive(self):
        listed = self.run_there("ldd", "bin/troupe").stdout
        bundled = 0
        for line in listed.splitlines():
            name, _, place = line.strip().partition(" => ")
            place = place.split(" (")[0]
            if OF_THE_MACHINE.search(name.split(" (")[0]):
                continue
            self.assertTrue(pathlib.Path(place).resolve().is_relative_to(self.root.resolve()), line)
            bundled += 1
        self.assertGreater(bundled, 5, listed)
        # The archive must not contain parts of the C library, because these must fit the loader of the machine.
        self.assertEqual([x.name for x in (self.root / "lib").iterdir() if OF_THE_MACHINE.search(x.name)], [])

    def test_the_tests_for_gpus_run(self):
        if not (BUILD / "tests/kernels/cuda/gpu_test").exists():
            self.skipTest("gpu_test is not built: nvcc was not found, or only other targets were built")
        listed = self.run_there("ldd", "bin/gpu_test").stdout
        for line in listed.splitlines():
            name, _, place = line.strip().partition(" => ")
            if not OF_THE_MACHINE.search(name.split(" (")[0]):
                self.assertTrue(pathlib.Path(place.split(" (")[0]).resolve().is_relative_to(self.root.resolve()), line)
        tests = self.run_there("bin/gpu_test")
        # Without a GPU, the tests are skipped, and the exit code is 77.
        self.assertIn(tests.returncode, (0, 77), tests.stdout)
        self.assertEqual(tests.returncode == 77, "skipped: " in tests.stdout)

    def test_the_program_trains(self):
        self.assertEqual(self.run_there("bin/troupe", "--version").returncode, 0)
        (self.root / "job.textproto").write_text(JOB)
        trained = self.run_there("bin/troupe", "train", "--job=job.textproto", "--workers=2", "--out=out")
        self.assertEqual(trained.returncode, 0, trained.stdout)
        self.assertTrue((self.root / "share/troupe/examples").is_dir())


if __name__ == "__main__":
    unittest.main()
