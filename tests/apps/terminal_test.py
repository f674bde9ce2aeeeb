"""The output on a terminal. A bar is redrawn in place, notices appear above it, and at the end the terminal is
usable."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from program import LONG_JOB, PATIENCE, PROGRAM, QUICK_JOB, TestCase, arguments_of, children_of, run_tests

# The bar appears after 0.25 s. A run with this many epochs takes longer, even on a fast machine.
EPOCHS = 100

COLOUR = re.compile(r"\033\[[0-9;]*m")


class Screen:
    """The functions of a terminal that troupe uses: characters, new lines, up, erase to the end of line or screen."""

    SEQUENCE = re.compile(r"\033\[([0-9;]*)([A-Za-z])")

    def __init__(self, columns):
        self.columns = columns
        self.lines = [""]
        self.row = self.column = 0

    def feed(self, text):
        i = 0
        while i < len(text):
            if match := self.SEQUENCE.match(text, i):
                self.control(match[1], match[2])
                i = match.end()
                continue
            c = text[i]
            i += 1
            if c == "\r":
                self.column = 0
            elif c == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            else:
                assert c >= " ", repr(c)
                if self.column == self.columns:
                    raise AssertionError("a line is wider than the terminal: " + self.lines[self.row])
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[:self.column] + c + line[self.column + 1:]
                self.column += 1

    def control(self, argument, what):
        if what == "A":
            self.row -= int(argument)
            assert self.row >= 0
        elif what == "K":
            self.lines[self.row] = self.lines[self.row][:self.column]
        elif what == "J":
            self.lines[self.row] = self.lines[self.row][:self.column]
            del self.lines[self.row + 1:]
        else:
            assert what == "m", f"an unexpected sequence: {argument}{what}"


class Terminal(TestCase):
    COLUMNS = 100
    ROWS = 12

    def start_on_terminal(self, *arguments, **environment):
        self.master, self.slave = master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.ROWS, self.COLUMNS, 0, 0))
        self.before = termios.tcgetattr(slave)
        variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")}
        variables |= {"TERM": "xterm", "LANG": "C.UTF-8", **environment}
        self.process = process = subprocess.Popen([PROGRAM, *arguments], stdin=slave, stdout=slave, stderr=slave,
                                                  env=variables, start_new_session=True)
        self.seen = b""

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(slave)
            os.close(master)

        self.addCleanup(end)

    @property
    def text(self):
        return self.seen.decode(errors="replace")

    def read_until(self, condition, what):
        limit = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), limit, f"{what}: not within {PATIENCE} s:\n{self.text}")
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)

    def finish(self):
        self.read_until(lambda: self.process.poll() is not None, "the end")
        while select.select([self.master], [], [], 0.1)[0]:
            self.seen += os.read(self.master, 65536)
        self.assertEqual(termios.tcgetattr(self.slave), self.before)
        screen = Screen(self.COLUMNS)
        screen.feed(self.text)
        return screen

    def job(self, text=LONG_JOB):
        return f"--job={self.file('job.textproto', text)}"

    def test_a_bar_is_redrawn_in_place(self):
        self.start_on_terminal("train", self.job(), f"--set=epochs={EPOCHS}", "--workers=2")
        screen = self.finish()
        self.assertEqual(self.process.returncode, 0, self.text)
        self.assertIn("━", self.text)
        self.assertRegex(self.text, COLOUR)
        # At the end, the screen has a line per epoch and the table, but no bar.
        self.assertTrue(screen.lines[0].startswith("batch: "))
        self.assertEqual([x.split()[1] for x in screen.lines[1:EPOCHS + 1]],
                         [f"{i}/{EPOCHS}" for i in range(1, EPOCHS + 1)])
        self.assertTrue(all(x.startswith("epoch ") for x in screen.lines[1:EPOCHS + 1]))
        self.assertIn("protocol", screen.lines[EPOCHS + 1])
        self.assertNotIn("━", "".join(screen.lines))
        self.assertEqual((screen.row, screen.column), (len(screen.lines) - 1, 0))

    def test_no_colour(self):
        for environment in ({"NO_COLOR": "1"}, {"NO_COLOR": "1", "LANG": "C"}):
            with self.subTest(environment=environment):
                self.start_on_terminal("train", self.job(), **environment)
                self.read_until(lambda: " left" in self.text, "a bar")
                self.process.send_signal(signal.SIGINT)
                self.finish()
                self.assertNotRegex(self.text, COLOUR)
                # No part of the bar may be filled yet.
                self.assertEqual("━" in self.text or "─" in self.text, "LANG" not in environment)

    def test_a_terminal_that_cannot_draw(self):
        self.start_on_terminal("train", self.job(QUICK_JOB), TERM="dumb")
        self.finish()
        self.assertNotIn("\033", self.text)
        self.assertIn("epoch 2/2", self.text)

    def test_interrupted(self):
        self.start_on_terminal("train", self.job())
        self.read_until(lambda: "━" in self.text, "a bar")
        self.process.send_signal(signal.SIGINT)
        screen = self.finish()
        self.assertEqual(self.process.returncode, 1)
        self.assertIn("stopped: SIGINT", "\n".join(screen.lines))
        self.assertNotIn("━", "".join(screen.lines))
        self.assertEqual(screen.column, 0)

    def test_killed(self):
        # After SIGKILL, no process could clean up the terminal. So the cursor must always be below the bar.
        self.start_on_terminal("train", self.job())
        self.read_until(lambda: "━" in self.text, "a bar")
        self.process.send_signal(signal.SIGKILL)
        screen = self.finish()
        self.assertEqual((screen.row, screen.column), (len(screen.lines) - 1, 0))
        self.assertNotIn("\033[?25l", self.text)

    def test_notices_stand_above_the_bar(self):
        self.start_on_terminal("train", self.job(), "--processes", "--workers=2")
        self.read_until(lambda: "━" in self.text, "a bar")
        worker = next(x for x in children_of(self.process.pid) if {"--role=worker", "--task=1"} <= set(arguments_of(x)))
        os.kill(worker, signal.SIGKILL)
        self.read_until(lambda: "━" in self.text.partition("worker/1 is gone")[2], "a bar after the notice")
        self.process.send_signal(signal.SIGTERM)
        screen = self.finish()
        notices = [x for x in screen.lines if "worker/1 is gone" in x]
        self.assertEqual(len(notices), 1, self.text)
        self.assertTrue(notices[0].endswith("the others train its samples"), notices)


if __name__ == "__main__":
    run_tests()
