"""No text file contains the marks of an unfinished merge."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

# The lines that git writes between two versions in a conflict. A line of equals signs can also be a heading. It counts
# only if the file has one of the other lines, too.
MARKS = re.compile(rb"^(?:<{7}|\|{7}|>{7})(?: |\r?$)", re.M)
IGNORED = {"build", "out", ".git", ".cache"}


def tracked(root):
    """All files that git knows. An unpacked archive has no git repository, so there all files count."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode == 0:
        return [root / x.decode() for x in listed.stdout.split(b"\0") if x]
    return [x for x in root.rglob("*") if not IGNORED & set(x.relative_to(root).parts)]


def conflicts(paths):
    """Returns "file:line" for each mark. A file with a zero byte is not a text file."""
    result = []
    for path in paths:
        if not path.is_file() or path.is_symlink():
            continue
        content = path.read_bytes()
        if b"\0" not in content:
            result += [f"{path}:{content.count(bytes([10]), 0, x.start()) + 1}" for x in MARKS.finditer(content)]
    return result


class Conflicts(unittest.TestCase):
    root = None

    def test_no_merge_is_unfinished(self):
        paths = tracked(self.root)
        self.assertIn(self.root / "README.md", paths)
        self.assertEqual(conflicts(paths), [])

    def test_marks_would_be_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "text.md")
            text.write_text("a\n" + "<" * 7 + " ours\nb\n" + "=" * 7 + "\nc\n" + ">" * 7 + " 12ab\n")
            self.assertEqual(conflicts([text]), [f"{text}:2", f"{text}:6"])
            text.write_text("Heading\n" + "=" * 7 + "\n" + "<" * 8 + " a\n  " + ">" * 7 + " b\n")
            self.assertEqual(conflicts([text]), [])
            text.write_bytes(b"\0\n" + b"<" * 7 + b" ours\n")
            self.assertEqual(conflicts([text]), [])


if __name__ == "__main__":
    Conflicts.root = pathlib.Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
