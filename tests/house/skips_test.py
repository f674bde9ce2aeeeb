"""skips_test.py SOURCE BUILD COMPILER: a test that fails is a failure, even if it prints "skipped" or skips a part. A
test that leaves descriptors, threads or shared memory behind fails.

Builds tests/house/skips, whose tests are registered like all other tests, and reads the results that CTest reports."""

import pathlib
import re
import subprocess
import sys

EXPECTED = {
    "ends.passes": "Passed",
    "ends.skips": "Skipped",
    "ends.skips_and_fails": "Failed",
    "ends.leaves_a_descriptor": "Failed",
    "ends.leaves_a_thread": "Failed",
    "ends.leaves_memory": "Failed",
    "ends.leaves_nothing": "Passed",
    "ends.mixed": "Passed",
    "ends.mixed.skips": "Skipped",
    "python.LeavesAFile": "Failed",
    "python.LeavesAProcess": "Failed",
    "python.Passes": "Passed",
    "python.Skips": "Skipped",
    "python.SkipsAndFails": "Failed",
}


def main(source, build, compiler):
    source = pathlib.Path(source).resolve()
    subprocess.run(["cmake", "-S", source / "tests/house/skips", "-B", build, "-G", "Ninja",
                    f"-DSOURCE={source}", f"-DCMAKE_CXX_COMPILER={compiler}"], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    done = subprocess.run(["ctest", "--test-dir", build, "--output-on-failure", "-j4"], capture_output=True, text=True,
                          check=False)
    print(done.stdout, done.stderr)
    found = dict(re.findall(r"Test +#\d+: (\S+) \.+ *(?:\*\*\*)?(\w+)", done.stdout))
    wrong = [f"{x}: {found.get(x, 'did not run')}, expected {y}" for x, y in EXPECTED.items() if found.get(x) != y]
    print("\n".join(wrong) or "CTest counts skips and failures as it should")
    return 1 if wrong or done.returncode == 0 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
