"""A protocol is a folder and a row of traits. Other sources ask the row. None of them compares a job's protocol by
name."""

import pathlib
import re
import sys
import tempfile
import unittest

FOLDERS = ("kernels", "messages", "actors", "apps", "tests")
# Files that may name protocols: the folders of the protocols, and the table of the parts of a protocol that need no
# actor system. Tests of parsers may, too, because they compare parsed values.
OWN = ("actors/protocols/", "actors/model/protocol_traits.cpp", "tests/actors/model/")
# Names of protocols that also mean a role in a cluster file, and are allowed in these files.
ROLES = {"actors/cluster/cluster_spec.cpp": {"ring"}}


def protocols(root):
    """The names of the protocols in the schema, such as ASYNC_PS."""
    schema = (root / "messages/proto/job.proto").read_text()
    body = re.search(r"enum Protocol \{(.*?)\n\}", schema, re.S)[1]
    return [name for name in re.findall(r"^\s*(\w+) = \d+;", body, re.M) if name != "PROTOCOL_UNSET"]


def comparison(names):
    """A regular expression that finds a comparison with one of these names."""
    value = r"(?:(?:troupe::)?proto::)?(?:" + "|".join(names) + r")\b"
    text = '"(?:' + "|".join([*names, *(name.lower() for name in names)]) + ')"'
    return re.compile(rf"[=!]=\s*(?:{value}|{text})|(?:{value}|{text})\s*[=!]=|\bcase\s+{value}")


def violations(root):
    names = protocols(root)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in (".cpp", ".hpp") or name.startswith(OWN):
                continue
            roles = ROLES.get(name, set())
            found = comparison([x for x in names if x.lower() not in roles])
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if found.search(line.split("//", 1)[0]):
                    yield f"{name}:{number}: compares a protocol's name: {line.strip()}"


class Sources(unittest.TestCase):
    root = None

    def test_ask_the_row(self):
        self.assertEqual(list(violations(self.root)), [])

    def test_files_with_roles_need_to_be_named(self):
        found = comparison(protocols(self.root))
        for name in ROLES:
            self.assertRegex((self.root / name).read_text(), found, name)


class Violations(unittest.TestCase):
    def seen(self, path, line):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {
                "messages/proto/job.proto":
                    "enum Protocol {\n  PROTOCOL_UNSET = 0;\n  // First.\n  ASYNC_PS = 1;\n  RING = 3;\n"
                    "  CUSTOM = 100;\n}\n",
                path: f"// a\n{line}\n",
            }
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(violations(root))

    def test_are_seen(self):
        for path, line in (
            ("actors/output/a.cpp", 'if (x.protocol == "ring")'),
            ("actors/output/a.cpp", 'if ("async_ps" != x.protocol)'),
            ("actors/cluster/a.hpp", "return job.protocol() != proto::RING;"),
            ("apps/troupe/a.cpp", "troupe::proto::ASYNC_PS==job.protocol()"),
            ("apps/troupe/a.cpp", "job.protocol() == CUSTOM"),
            ("tests/actors/a.cpp", "  case proto::ASYNC_PS:"),
            ("actors/cluster/cluster_spec.cpp", 'if (x == "async_ps")'),
        ):
            with self.subTest(line=line):
                self.assertEqual(len(self.seen(path, line)), 1)

    def test_what_is_allowed(self):
        for path, line in (
            ("actors/protocols/ring/a.cpp", "if (job.protocol() == proto::RING)"),
            ("actors/model/protocol_traits.cpp", "if (job.protocol() != proto::CUSTOM)"),
            ("tests/actors/a.cpp", "job.set_protocol(proto::RING);"),
            ("tests/actors/a.cpp", "// not for x == proto::RING"),
            ("actors/output/a.cpp", "if (x.what == RING_BUFFER)"),
            ("actors/cluster/cluster_spec.cpp", 'if (x == "ring")'),
        ):
            with self.subTest(line=line):
                self.assertEqual(self.seen(path, line), [])


if __name__ == "__main__":
    Sources.root = pathlib.Path(sys.argv.pop())
    unittest.main(verbosity=2)
