"""The commands and job files of README.md and the manual, run page by page, each page in its own folder.

A fenced block is, by its first words:
    sh                run by bash, in the order of the page; runs train for two epochs
    sh fails          the same, and its last command ends with exit code 1
    sh not-run        not run; its commands and options are those of the program
    python FILE       written to that file, and run if the packages that it imports are among PACKAGES and installed
    textproto         a job, or some fields of one: `troupe check` takes it
    textproto refused the same, and `troupe check` refuses it
    LANGUAGE FILE     written to that file; ports become free ones
Commands and options in the prose must exist as well."""

import functools
import importlib.util
import os
import re
import shlex
import struct
import subprocess
import sys
import zipfile
import zlib

from program import PROGRAM, QUICK_JOB, SOURCE, TestCase, free_ports, idx, run_tests

# Packages that Python code in the manual may import. Code that exports PyTorch models is tested by pytorch_test.py.
PACKAGES = {"numpy"}

PAGES = [SOURCE / "README.md", *sorted((SOURCE / "apps/manual").glob("*.md"))]

BASE = {
    "model": "model { layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }",
    "data": "data { digits { train: 512 test: 100 } batch: 16 }",
}

# A script that is `troupe` on the PATH for the commands of a page. It shortens runs to two epochs.
WRAPPER = """#!/bin/sh
case $*,$1 in
  *--job=*,train | *--job=*,node) exec {program} "$@" --set=epochs=2 ;;
  *) exec {program} "$@" ;;
esac
"""


def blocks(text):
    """For each fenced block: its language, the rest of its first line, and its text."""
    return re.findall(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", text, re.M | re.S)


def fields(text):
    """Names of the fields that a text sets outside all braces."""
    result, depth = [], 0
    for token in re.findall(r"\w+(?=\s*[:{])|[{}]", re.sub(r"#.*", "", text)):
        if token not in "{}":
            result += [token] if depth == 0 else []
        else:
            depth += 1 if token == "{" else -1
    return result


def whole_job(text):
    """Returns the text, completed with those fields of the base job that it does not set."""
    return "\n".join([text, *(value for name, value in BASE.items() if name not in fields(text))])


def npy(dims, values):
    """A NumPy array of float32, little-endian."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(dims)}, }}"
    header = header.ljust(-(10 + len(header) + 1) % 64 + len(header)) + "\n"
    header = struct.pack("<H", len(header)) + header.encode()
    return b"\x93NUMPY\x01\x00" + header + struct.pack(f"<{len(values)}f", *values)


def grey_png(size, value):
    """A PNG file with a grey square."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    rows = (b"\0" + bytes([value]) * size) * size
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@functools.cache
def help_of(*command):
    done = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=False)
    return done.stdout if f"Usage: troupe {' '.join(command)} " in done.stdout else None


def command_lines(page):
    """Everything that a page tells readers to type: lines of shell blocks, lines after a prompt, and `troupe ...`."""
    result = []
    for language, _, block in blocks(page):
        block = block.replace("\\\n", " ")
        if language == "sh":
            result += re.findall(r"\btroupe ([^\n;&|)]*)", block)
        elif language == "text":
            result += re.findall(r"^\$ troupe (.*)", block, re.M)
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    return result + [" ".join(x.split()) for x in re.findall(r"`troupe ([^`]*)`", prose)]


def unknown_words(lines):
    """Commands and options in these lines (without a leading `troupe`) that the program does not have."""
    result = []
    for line in lines:
        words = line.split("#")[0].split()
        if not words[0][0].isalpha():
            continue
        command = words[:2] if words[0] == "bench" else words[:1]
        page = help_of(*command)
        if page is None:
            result.append(" ".join(command))
            continue
        for word in words:
            if word.startswith("--") and not re.search(rf"(?<![\w-]){re.escape(word.split('=')[0])}(?![\w-])", page):
                result.append(f"{' '.join(command)} {word}")
    return result


class Manual(TestCase):
    def sandbox(self, name):
        """A folder with the program, the examples, and the data for the pages."""
        folder = self.folder / name
        (folder / "bin").mkdir(parents=True)
        (folder / "apps").mkdir()
        (folder / "apps/examples").symlink_to(SOURCE / "apps/examples")
        (folder / "bin/troupe").write_text(WRAPPER.format(program=shlex.quote(PROGRAM)))
        (folder / "bin/troupe").chmod(0o755)
        (folder / "job.textproto").write_text(QUICK_JOB)
        (folder / "train-images-idx3-ubyte.gz").write_bytes(idx([100, 4, 4], [i % 251 for i in range(1600)]))
        (folder / "train-labels-idx1-ubyte.gz").write_bytes(idx([100], [i % 10 for i in range(100)]))
        for name, value in (("daisy", 60), ("tulip", 200)):
            (folder / "flowers" / name).mkdir(parents=True)
            for i in range(50):
                (folder / "flowers" / name / f"{i}.png").write_bytes(grey_png(8, value + i))
        # Writes the arrays that arrays.py would write, without NumPy.
        x = [(i * 7919 % 1000) / 500 - 1 for i in range(2400)]
        y = [x[4 * i] - 2 * x[4 * i + 1] + x[4 * i + 2] / 2 + 3 for i in range(600)]
        with zipfile.ZipFile(folder / "arrays.npz", "w") as archive:
            for array, dims, values in (("x", [500, 4], x[:2000]), ("y", [500], y[:500]),
                                        ("test_x", [100, 4], x[2000:]), ("test_y", [100], y[500:])):
                archive.writestr(f"{array}.npy", npy(dims, values))
        return folder

    def run_page(self, name, text):
        """Runs the commands and returns a list of problems."""
        folder = self.sandbox(name)
        for port, free in zip(range(7000, 7010), free_ports(10)):
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
        environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "DATA": str(folder)}
        environment.pop("TF_CONFIG", None)
        self.ran = 0
        failures = []

        def execute(what, *command, code=0):
            self.ran += 1
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250,
                                  check=False)
            if done.returncode != code:
                failures.append(f"{what}\nexit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")

        for language, about, block in blocks(text):
            if about and about not in ("fails", "refused", "not-run"):
                (folder / about).write_text(block)
            if language == "python":
                compile(block, name, "exec")
                imports = set(re.findall(r"^(?:import|from) (\w+)", block, re.M))
                if imports <= PACKAGES and all(importlib.util.find_spec(x) for x in imports):
                    execute(block, sys.executable, about)
            if language == "textproto":
                (folder / "checked.textproto").write_text(whole_job(block))
                execute(block, PROGRAM, "check", "--job=checked.textproto", "--workers=2",
                        code=2 if about == "refused" else 0)
            if language == "sh" and about != "not-run":
                execute(block, "bash", "-euo", "pipefail", "-c", block, code=1 if about == "fails" else 0)
        return failures + unknown_words(command_lines(text))

    def test_pages(self):
        ran = 0
        for page in PAGES:
            with self.subTest(page=page.name):
                failures = self.run_page("-".join(page.relative_to(SOURCE).with_suffix("").parts), page.read_text())
                self.assertEqual(failures, [], "\n\n".join(failures))
                ran += self.ran
        self.assertGreater(ran, 25)

    def test_container_command(self):
        """The container's command on the Kubernetes page uses only options that exist."""
        text = (SOURCE / "apps/manual/kubernetes.md").read_text()
        command = re.search(r"command: \[troupe, (.*?)\]", text)[1].replace(",", " ")
        self.assertEqual(unknown_words([command]), [])
        self.assertEqual(len(unknown_words([command.replace("--insecure", "--secure")])), 1)

    def test_mistakes_would_be_seen(self):
        for text, expected in (
            ("```sh\ntroupe check --job=job.textproto\nfalse\n```\n", "exit code 1"),
            ("```sh not-run\ntroupe train --jobs=x\n```\n", "train --jobs=x"),
            ("Try `troupe chek`.\n", "chek"),
            ("```sh fails\ntroupe check --job=job.textproto\n```\n", "exit code 0"),
            ("```python fails.py\n1 / 0\n```\n", "ZeroDivisionError"),
            ("```textproto\nepoch: 3\n```\n", "exit code 2"),
            ("```textproto refused\nepochs: 3\n```\n", "exit code 0"),
        ):
            with self.subTest(text=text):
                failures = self.run_page(f"page{abs(hash(text))}", text)
                self.assertEqual(len(failures), 1, failures)
                self.assertIn(expected, failures[0])


if __name__ == "__main__":
    run_tests()
