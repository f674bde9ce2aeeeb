"""The pages: README.md, the manual, and a page per folder. Links have targets. C++ blocks are part of a program that is
compiled. Lines are short, in pages and in all other files that people write."""

import os
import pathlib
import re
import sys
import tempfile
import textwrap
import unittest

# Pages with C++ code, and the programs that contain this code.
PROGRAMS = {
    "apps/manual/embedding.md": ("apps/examples/embedding/embedding.cpp", "apps/examples/allreduce/allreduce.cpp",
                                   "apps/examples/store/store.cpp"),
    "apps/manual/own_protocol.md": ("apps/examples/gossip/gossip.cpp",),
}
# The languages of fenced blocks. tests/apps/manual_test.py explains how each is tested.
LANGUAGES = {"sh", "textproto", "json", "csv", "yaml", "python", "cpp", "cmake", "text"}
LONGEST_LINE = 120
# Lines must be short in files with these endings, and in scripts (#!).
WRITTEN = {".cmake", ".cpp", ".cu", ".hpp", ".in", ".json", ".md", ".proto", ".py", ".sh", ".textproto", ".txt",
           ".yaml", ".yml"}
# Files that programs have written: inputs of fuzzers, results of other frameworks. Their lines may be long.
RECORDED = ("tests/fuzz/corpus/**", "tests/actors/model/onnx/**/expected.txt", "**/references/*.txt")
IGNORED_FOLDERS = {"build", "out", ".git", ".cache", "__pycache__"}
LONGEST_README = 130


def files(root):
    """All files except builds and their outputs."""
    for folder, folders, names in os.walk(root):
        folders[:] = set(folders) - IGNORED_FOLDERS
        yield from (pathlib.Path(folder, x) for x in names)


def pages(root):
    return sorted(x for x in files(root) if x.suffix == ".md")


def written(root):
    """Files that people write."""
    recorded = {x for pattern in RECORDED for x in root.glob(pattern)}
    for file in files(root):
        if file not in recorded and file.is_file():
            if file.suffix in WRITTEN or (not file.suffix and file.read_bytes()[:2] == b"#!"):
                yield file


def long_lines(root):
    return sorted(f"{file.relative_to(root)}:{i}" for file in written(root)
                  for i, line in enumerate(file.read_text().splitlines(), 1) if len(line) > LONGEST_LINE)


def fenced_blocks(text):
    """(language, text) of each fenced block."""
    return [(language, textwrap.dedent(block).strip("\n"))
            for language, block in re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.M | re.S)]


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def anchors(text):
    """The anchors of headings, as GitHub generates them."""
    return {re.sub(r"[^\w\- ]", "", x.strip().lower()).replace(" ", "-")
            for x in re.findall(r"^#+ (.*)$", without_blocks(text), re.M)}


def broken_links(page, text):
    """Relative links to a file or heading that does not exist."""
    result = []
    for link in re.findall(r"\]\(([^)]+)\)", without_blocks(text)):
        name, _, anchor = link.partition("#")
        if "://" in name:
            continue
        target = (page.parent / name) if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            result.append(link)
    return result


def unindented(lines):
    return "".join("\n" + line.strip() for line in lines.splitlines()) + "\n"


class Readme(unittest.TestCase):
    root = None

    def setUp(self):
        self.pages = {x.relative_to(self.root).as_posix(): x.read_text() for x in pages(self.root)}
        self.assertIn("README.md", self.pages)

    def test_lines_are_short(self):
        self.assertEqual(long_lines(self.root), [])
        self.assertLessEqual(len(self.pages["README.md"].splitlines()), LONGEST_README)

    def test_long_lines_would_be_seen(self):
        long = "x" * (LONGEST_LINE + 1)
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (
                    ("a.cpp", long[1:]), ("b.hpp", f"\n{long}"), ("c/CMakeLists.txt", long), (".ci/run", f"#!{long}"),
                    ("data", long), ("c/references/d.txt", long), ("build/e.cpp", long)):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(long_lines(root), [".ci/run:1", "b.hpp:2", "c/CMakeLists.txt:1"])

    def test_links_lead_somewhere(self):
        broken = {name: broken_links(self.root / name, text) for name, text in self.pages.items()}
        self.assertEqual({name: links for name, links in broken.items() if links}, {})

    def test_the_manual_lists_its_pages(self):
        listed = set(re.findall(r"\]\((\w+\.md)\)", self.pages["apps/manual/README.md"]))
        self.assertEqual(listed, {x.name for x in (self.root / "apps/manual").glob("*.md")} - {"README.md"})

    def test_languages_are_known(self):
        for name, text in self.pages.items():
            self.assertEqual(len(re.findall("^```", text, re.M)) % 2, 0, name)
            self.assertLessEqual({language for language, _ in fenced_blocks(text)}, LANGUAGES, name)

    def test_programs_are_compiled(self):
        for name, text in self.pages.items():
            blocks = [block for language, block in fenced_blocks(text) if language == "cpp"]
            self.assertEqual(bool(blocks), name in PROGRAMS, name)
            programs = [unindented((self.root / x).read_text()) for x in PROGRAMS.get(name, ())]
            for block in blocks:
                with self.subTest(page=name, block=block.splitlines()[0]):
                    self.assertTrue(any(unindented(block) in x for x in programs))

    def test_mistakes_would_be_seen(self):
        text = "# A b\n\n[x](none.md) [y](#a-b) [z](#c)\n\n```cpp\nf();\n  g();\n```\n\n```\n[h](h.md)\n# i\n```\n"
        self.assertEqual(fenced_blocks(text), [("cpp", "f();\n  g();"), ("", "[h](h.md)\n# i")])
        self.assertEqual(anchors(text), {"a-b"})
        # Links are relative to the folder of a page, which must exist.
        page = self.root / "README.md"
        self.assertEqual(broken_links(page, text.replace("#a-b", "README.md#troupe")), ["none.md", "#c"])


if __name__ == "__main__":
    Readme.root = pathlib.Path(sys.argv.pop())
    unittest.main(verbosity=2)
