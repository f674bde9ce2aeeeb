"""A kernel that keeps registers in memory ("spills") fails the build of developers. This test shows that the compiler
reports it. With the flags of the build, it refuses one kernel that spills and accepts one that does not."""

import os
import pathlib
import subprocess
import tempfile
import unittest

NVCC = os.environ["TROUPE_NVCC"]
FLAGS = os.environ["TROUPE_NVCC_FLAGS"].split()
ARCHITECTURE = os.environ["TROUPE_CUDA_ARCHITECTURE"]

# 64 values that depend on each other. With 1024 threads, each thread has only 64 registers.
SPILLS = """
__global__ void __launch_bounds__(1024) f(float* x, int n) {
  float y[64];
  for (int i = 0; i < 64; ++i)
    y[i] = x[i * 1024 + threadIdx.x];
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int i = 0; i < 64; ++i)
      y[i] = y[i] * y[(i + 7) % 64] + y[i * 5 % 64];
  for (int i = 0; i < 64; ++i)
    x[i * 1024 + threadIdx.x] = y[i];
}
"""
# The compiler does not know the index into this array, so the array is in memory.
INDEXED = """
__global__ void f(float* x, int n) {
  float y[64];
  for (int i = 0; i < 64; ++i)
    y[i] = x[i];
  for (int i = 0; i < n; ++i)
    y[i % 64] += y[i * 5 % 64];
  x[0] = y[n % 64];
}
"""
PLAIN = """
__global__ void f(float* x) {
  x[threadIdx.x] *= 2;
}
"""


def compile_with_flags(text):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "kernel.cu"
        source.write_text(text)
        return subprocess.run([NVCC, *FLAGS, f"-arch=sm_{ARCHITECTURE}", "-c", source, "-o", source.with_suffix(".o")],
                              capture_output=True, text=True)


class Resources(unittest.TestCase):
    def test_spills_are_seen(self):
        found = compile_with_flags(SPILLS)
        self.assertIn("Registers are spilled", found.stdout + found.stderr)
        self.assertIn("Local memory used", compile_with_flags(INDEXED).stderr)

    def test_a_kernel_without_spills_is_taken(self):
        found = compile_with_flags(PLAIN)
        self.assertEqual((found.returncode, found.stdout + found.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
