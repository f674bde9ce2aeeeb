"""Includes go one way: apps -> actors -> {messages, kernels}. Checks the sources, and tests the checks themselves."""

import collections
import pathlib
import re
import sys
import tempfile
import unittest

FOLDERS = ("kernels", "messages", "actors", "apps")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')

CAF = r"caf/"
PROTOBUF = r"google/protobuf/|.*\.pb\.h$"
NUMERICS = r"Eigen/|unsupported/Eigen/|cuda|cublas|thrust/|cub/"

# For each folder: what its files must not include.
FORBIDDEN = {
    "kernels": rf"{CAF}|{PROTOBUF}|(messages|actors|apps|tests)/",
    "messages": rf"{NUMERICS}|(kernels|actors|apps|tests)/",
    "actors": rf"{NUMERICS}|(apps|tests)/",
    "apps": rf"{NUMERICS}|tests/",
}

# Files here may include Eigen, because benchmarks compare with it.
PEERS = "apps/troupe/bench/"

# Files that must not include CAF, neither directly nor through other headers: parsers, and policies that are tested
# without an actor system.
WITHOUT_CAF = (
    "actors/model/*",
    "actors/checkpoint/checkpoint.*",
    "actors/checkpoint/checkpoint_assembly.*",
    "actors/checkpoint/checkpoint_manifest.*",
    "actors/checkpoint/checkpoint_schedule.*",
    "actors/checkpoint/resume.*",
    "actors/cluster/address.*",
    "actors/cluster/cluster_spec.*",
    "actors/cluster/cluster_choice.*",
    "actors/cluster/diagnosis.*",
    "actors/cluster/footprint.*",
    "actors/cluster/probe.*",
    "actors/collective/all_reduce_part.*",
    "actors/collective/direct_collective.*",
    "actors/collective/early_pieces.*",
    "actors/coordinator/ledger.*",
    "actors/leases/lease_book.*",
    "actors/link/loan_table.*",
    "actors/link/record_reader.*",
    "actors/coordinator/member_table.*",
    "actors/coordinator/run_book.*",
    "actors/coordinator/stall_judge.*",
    "actors/coordinator/stall_text.*",
    "actors/parameter_server/gradient_journal.*",
    "actors/parameter_server/step_aggregator.*",
    "actors/coordinator/loss_watch.*",
    "actors/parameter_server/live_weights.*",
    "actors/parameter_server/pulled_versions.*",
    "actors/parameter_server/read_gate.*",
    "actors/parameter_server/shard_policy.*",
    "actors/parameter_server/staged_gradients.*",
    "actors/parameter_server/version_pool.*",
    "actors/protocols/async_ps/async_policy.*",
    "actors/protocols/async_ps/pacing.*",
    "actors/protocols/async_ps/worker_moments.*",
    "actors/protocols/hogwild/hogwild_policy.*",
    "actors/protocols/ssp/ssp_policy.*",
    "actors/protocols/ssp/step_clocks.*",
    "actors/protocols/sync_ps/sync_policy.*",
    "actors/protocols/protocol.hpp",
    "actors/replica/replica_account.*",
    "actors/replica/replica_check.*",
    "actors/replica/replica_store.*",
    "actors/ring/ring_collective.*",
    "actors/ring/ring_reductions.*",
    "actors/ring/ring_step.*",
    "actors/schedules/*",
    "actors/status/activity_board.*",
    "actors/store/store_order.*",
    "actors/store/store_request.*",
    "actors/store/store_values.*",
)


def sources(root):
    """All C++ and CUDA files of the four folders, as paths relative to the root."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".cu", ".cuh", ".h"):
                yield path.relative_to(root)


def includes(path):
    """The line number and the included name, for each #include of a file."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1]


def direct_violations(root):
    for path in sources(root):
        forbidden = re.compile(FORBIDDEN[path.parts[0]])
        for number, name in includes(root / path):
            peer = str(path).startswith(PEERS) and name.startswith("Eigen/")
            if forbidden.match(name) and not peer:
                yield f"{path}:{number}: {path.parts[0]}/ must not include {name}"


def way_to_caf(root, path, seen):
    """The chain of includes from a file to the actor framework, or None."""
    seen.add(path)
    for _, name in includes(root / path):
        if re.match(CAF, name):
            return [str(path), name]
        following = pathlib.Path(name)
        if following in seen or not (root / following).is_file():
            continue
        if chain := way_to_caf(root, following, seen):
            return [str(path), *chain]
    return None


def caf_violations(root):
    for pattern in WITHOUT_CAF:
        for path in sorted(root.glob(pattern)):
            if path.suffix not in (".cpp", ".hpp"):
                continue
            if chain := way_to_caf(root, path.relative_to(root), set()):
                yield "must not reach the actor framework: " + " -> ".join(chain)


# Files that list rows. Such a file includes the folder of each row, and these folders include the interface beside the
# list. This is not an error.
LISTS = ("actors/protocols/protocols.cpp",)


def rooms_of(path):
    """The folders of a file below kernels/ or actors/, at most two levels deep: for actors/model/onnx/a.cpp,
    actors/model and actors/model/onnx."""
    folders = path.parts[:-1][:3] if path.parts[0] in ("kernels", "actors") else ()
    return ["/".join(folders[:n]) for n in range(2, len(folders) + 1)]


def circles(root):
    """Sets of folders that include each other, directly or through other folders."""
    reached = collections.defaultdict(set)
    for path in sources(root):
        if str(path) in LISTS:
            continue
        for _, name in includes(root / path):
            here, there = rooms_of(path), rooms_of(pathlib.Path(name))
            if not here or not there or here[-1] == there[-1]:
                continue
            # The first folder includes the second one, or a folder inside it.
            reached[here[-1]].add(there[-1])
            # The same holds for the folders that contain them, if these differ, because a folder includes what its
            # inner folders include.
            if here[0] != there[0]:
                reached[here[0]].add(there[0])
    changed = True
    while changed:
        changed = False
        for rooms in reached.values():
            more = set().union(*(reached.get(x, set()) for x in rooms)) - rooms
            changed = changed or bool(more)
            rooms |= more
    for here in sorted(reached):
        if here in reached[here]:
            others = sorted(x for x in reached[here] if here in reached.get(x, set()) and x != here)
            yield f"{here}/ includes what includes it: {', '.join(others)}"


def violations(root):
    return [*direct_violations(root), *caf_violations(root), *circles(root)]


class Sources(unittest.TestCase):
    root = None

    def test_hold_the_rules(self):
        self.assertGreater(len(list(sources(self.root))), 50)
        self.assertEqual(violations(self.root), [])

    def test_rules_name_files_that_exist(self):
        for pattern in WITHOUT_CAF:
            self.assertTrue(list(self.root.glob(pattern)), pattern)


class Violations(unittest.TestCase):
    def seen(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return violations(root)

    def test_direct(self):
        for path, name in (
            ("kernels/a.hpp", "<caf/all.hpp>"),
            ("kernels/cpu/a.cpp", "<google/protobuf/message.h>"),
            ("kernels/a.cpp", '"messages/proto/job.pb.h"'),
            ("kernels/a.cu", '"messages/buffer.hpp"'),
            ("kernels/a.cpp", '"actors/view.hpp"'),
            ("messages/a.hpp", '"kernels/graph/shape.hpp"'),
            ("messages/a.cpp", "<Eigen/Core>"),
            ("messages/a.cpp", "<cuda_runtime.h>"),
            ("actors/a.cpp", "<cublas_v2.h>"),
            ("actors/ring/a.hpp", '"apps/troupe/console.hpp"'),
            ("apps/a.cpp", "<Eigen/Dense>"),
            ("apps/troupe/bench/a.cpp", "<cublas_v2.h>"),
        ):
            with self.subTest(path=path, name=name):
                self.assertEqual(len(self.seen({path: f"\n#include {name}\n"})), 1)

    def test_through_other_headers(self):
        found = self.seen({
            "actors/model/a.cpp": '#include "actors/model/a.hpp"\n',
            "actors/model/a.hpp": '#include "messages/b.hpp"\n',
            "messages/b.hpp": "#  include <caf/fwd.hpp>\n",
        })
        self.assertEqual(len(found), 2)
        self.assertIn("actors/model/a.hpp -> messages/b.hpp -> caf/fwd.hpp", found[0])

    def test_circles(self):
        files = {
            "actors/a/x.hpp": '#include "actors/b/x.hpp"\n',
            "actors/b/x.hpp": '#include "actors/c/deep/x.hpp"\n',
            "actors/c/deep/x.hpp": "",
            "actors/d/x.hpp": '#include "actors/a/x.hpp"\n',
        }
        self.assertEqual(self.seen(files), [])
        found = self.seen(files | {"actors/c/y.hpp": '#include "actors/a/y.hpp"\n'})
        self.assertEqual(len(found), 3)
        self.assertIn("actors/a/ includes what includes it: actors/b, actors/c", found)

    def test_circles_of_a_folder_and_one_inside_it(self):
        files = {
            "actors/a/x.hpp": '#include "actors/a/deep/x.hpp"\n',
            "actors/a/deep/x.hpp": '#include "kernels/b/x.hpp"\n',
            "kernels/b/x.hpp": "",
        }
        self.assertEqual(self.seen(files), [])
        found = self.seen(files | {"actors/a/deep/y.hpp": '#include "actors/a/y.hpp"\n'})
        self.assertEqual(found, ["actors/a/ includes what includes it: actors/a/deep",
                                 "actors/a/deep/ includes what includes it: actors/a"])
        # Two inner folders that include each other, and a folder that includes itself through another one.
        found = self.seen({"actors/a/b/x.hpp": '#include "actors/a/c/x.hpp"\n',
                           "actors/a/c/x.hpp": '#include "actors/a/b/x.hpp"\n'})
        self.assertEqual(len(found), 2)
        found = self.seen({"actors/a/b/x.hpp": '#include "actors/d/x.hpp"\n',
                           "actors/d/x.hpp": '#include "actors/a/x.hpp"\n'})
        self.assertEqual(len(found), 2)
        # Allowed: the list of protocols includes the folder of each protocol.
        self.assertEqual(self.seen({"actors/protocols/protocols.cpp": '#include "actors/protocols/ring/x.hpp"\n',
                                    "actors/protocols/ring/x.hpp": '#include "actors/protocols/protocol.hpp"\n'}), [])

    def test_what_is_allowed(self):
        self.assertEqual(self.seen({
            "kernels/cpu/a.cpp":
                '#include <Eigen/Core>\n#include "kernels/graph/shape.hpp"\n// #include "messages/x.hpp"\n',
            "messages/a.hpp": '#include <caf/all.hpp>\n#include "messages/proto/wire.pb.h"\n',
            "actors/a.hpp":
                '#include "kernels/graph/shape.hpp"\n#include "messages/buffer.hpp"\n#include <caf/all.hpp>\n',
            "actors/model/a.hpp": '#include "kernels/graph/shape.hpp"\n#include "messages/proto/job.pb.h"\n',
            "apps/a.cpp": '#include "actors/a.hpp"\n',
            "apps/troupe/bench/a.cpp": "#include <Eigen/Core>\n",
        }), [])


if __name__ == "__main__":
    Sources.root = pathlib.Path(sys.argv.pop())
    unittest.main(verbosity=2)
