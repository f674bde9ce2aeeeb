"""The C++ in README.md and in the manual is compiled: each piece stands, line by line, in the example that it is taken
from."""

import pathlib
import re
import sys
import textwrap
import unittest

HEADING = "## Using it from another program"
EXAMPLE = "apps/examples/embedding/embedding.cpp"
# Pages of the manual, and the program that each takes its C++ from.
PAGES = {"apps/manual/own_protocol.md": "apps/examples/gossip/gossip.cpp"}


def code_blocks(text, heading):
    """Indented blocks below a heading; blank lines within a block belong to it."""
    section = text.split(heading + "\n", 1)[1].split("\n## ", 1)[0]
    return [textwrap.dedent(block).strip("\n") for block in re.findall(r"(?:^(?: {4}.*|)\n)+", section, re.M)
            if block.strip()]


def fenced_blocks(text):
    """Blocks between ```cpp and ```."""
    return [textwrap.dedent(block).strip("\n") for block in re.findall(r"^```cpp\n(.*?)^```$", text, re.M | re.S)]


def unindented(lines):
    return "".join("\n" + line.strip() for line in lines.splitlines()) + "\n"


class Readme(unittest.TestCase):
    root = None

    def test_example_is_compiled(self):
        blocks = code_blocks((self.root / "README.md").read_text(), HEADING)
        example = unindented((self.root / EXAMPLE).read_text())
        self.assertGreaterEqual(len(blocks), 1)
        self.assertGreater(sum(len(block.splitlines()) for block in blocks), 15)
        for block in blocks:
            with self.subTest(block=block.splitlines()[0]):
                self.assertIn(unindented(block), example)

    def test_manual_is_compiled(self):
        for page in sorted((self.root / "apps/manual").glob("*.md")):
            name = page.relative_to(self.root).as_posix()
            blocks = fenced_blocks(page.read_text())
            self.assertEqual(bool(blocks), name in PAGES, name)
            for block in blocks:
                with self.subTest(page=name, block=block.splitlines()[0]):
                    self.assertIn(unindented(block), unindented((self.root / PAGES[name]).read_text()))

    def test_other_text_would_be_seen(self):
        text = f"# x\n\n{HEADING}\n\nProse.\n\n    int main() {{\n\n      f();\n    }}\n\nMore.\n\n    g();\n\n## Next\n\n    h();\n"
        self.assertEqual(code_blocks(text, HEADING), ["int main() {\n\n  f();\n}", "g();"])
        self.assertEqual(fenced_blocks("a\n\n```cpp\nf();\n  g();\n```\n\n```\nh();\n```\n"), ["f();\n  g();"])


if __name__ == "__main__":
    Readme.root = pathlib.Path(sys.argv.pop())
    unittest.main(verbosity=2)
