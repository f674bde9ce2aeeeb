"""A line of a schema must not compile everything again: how many sources reach each generated header, itself or through
other headers. Precompiled headers reach none, because they belong to all sources of a library or program."""

import collections
import pathlib
import re
import sys
import unittest

from used_headers_test import Sources

# For each schema: how many sources (.cpp, including tests) may include its header, directly or indirectly. If a new
# source needs messages, raise the number a little. If the number jumps, a widely used header includes the schema. Then
# only declare the message there (`namespace proto { class Job; }`), or move the needed part to its own schema, like
# names.proto.
MOST = {
    "collective": 20,
    "data": 195,
    "job": 255,
    "names": 225,
    "pieces": 30,
    "store": 20,
    "wire": 260,
}


class Schemas(unittest.TestCase):
    root = None

    def setUp(self):
        self.sources = Sources(self.root)

    def test_sources_that_reach_a_schema(self):
        count = collections.Counter()
        for name in self.sources.text:
            if name.endswith(".cpp"):
                count.update(re.findall(r"messages/proto/(\w+)\.pb\.h", " ".join(self.sources.reached(name))))
        print({name: f"{n} of at most {MOST.get(name)}" for name, n in count.items()})
        self.assertEqual(set(count), {x.stem for x in (self.root / "messages/proto").glob("*.proto")})
        self.assertEqual({name: n for name, n in count.items() if n > MOST[name]}, {})

    def test_precompiled_headers_reach_none(self):
        found = 0
        for path in [*self.root.rglob("CMakeLists.txt"), *self.root.rglob("*.cmake")]:
            if "build" in path.relative_to(self.root).parts:
                continue
            for arguments in re.findall(r"(?:target_precompile_headers|set)\(([^)]*)\)", path.read_text()):
                for header in re.findall(r"((?:kernels|messages|actors|apps|tests)/[\w/]+\.hpp)", arguments):
                    found += 1
                    reached = [x for x in self.sources.reached(header) if x.endswith(".pb.h")]
                    self.assertEqual(reached, [], f"{path}: {header}")
        self.assertGreater(found, 1)


if __name__ == "__main__":
    Schemas.root = pathlib.Path(sys.argv.pop())
    unittest.main(verbosity=2)
