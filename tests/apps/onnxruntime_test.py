"""ONNX's operators on the largest and smallest numbers and on NaN: troupe's results equal those of onnxruntime.

Writes models of one node, and what onnxruntime makes of them, as ONNX's own tests of operators are written; the program
onnx_test (onnx_nodes_test.cpp) runs them. Skipped if the Python packages `onnx` and `onnxruntime` are missing."""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from program import EXIT_SKIPPED, PROGRAM, SOURCE, run_tests

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error.name} is not installed (tests/python installs it)")
    sys.exit(EXIT_SKIPPED)

ONNX_TEST = os.environ.get("TROUPE_ONNX_TEST", str(SOURCE / "build/release/tests/actors/model/onnx_test"))

INFINITY = float("inf")
NAN = float("nan")
# All magnitudes that a float can represent without being denormal.
MAGNITUDES = [1e-30, 1e-9, 1e-3, 0.3, 1, 2.5, 5.9, 7, 100, 65504, 1e6, 1e18, 1e30, 3e38]
FINITE = [0.0, *MAGNITUDES, *(-x for x in MAGNITUDES)]
ALL = [*FINITE, INFINITY, -INFINITY, NAN]
PAIRS = [numpy.array(x, numpy.float32) for x in zip(*itertools.product(ALL, ALL))]
LIMITS = [-INFINITY, -1e30, -1, 0, 0.5, 6, 1e30, INFINITY]
ROWS = [[1, 2, 3], [1e30, -1e30, 0], [-INFINITY] * 3, [-INFINITY, INFINITY, 0], [-1000, -1001, -999],
        [3e38, 3e38, -3e38], [NAN, -INFINITY, 1], [INFINITY, 3e38, -INFINITY], [0, 0, 0], [1e-30, 1e-30, 1e-9]]

UNARY = ["Abs", "Celu", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Neg", "Reciprocal",
         "Relu", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Tanh"]


class OnnxRuntime(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def add(self, operator, inputs, constants=(), opset=17, **attributes):
        """A model with one node, which has these inputs, followed by these constants; None is an empty input."""
        inputs = [numpy.asarray(x, numpy.float32) for x in inputs]
        constants = [None if x is None else numpy.asarray(x, getattr(x, "dtype", numpy.float32)) for x in constants]
        names = [f"x{i}" for i in range(len(inputs))]
        known = ["" if x is None else f"c{i}" for i, x in enumerate(constants)]
        node = helper.make_node(operator, [*names, *known], ["y"], **attributes)
        if operator == "Where":
            node.input[:] = [*known, *names]
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip(names, inputs)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(x, n) for n, x in zip(known, constants) if x is not None])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        output = session.run(None, dict(zip(names, inputs)))[0]
        test = self.folder / f"{len(list(self.folder.iterdir())):03}_{operator}"
        (test / "test_data_set_0").mkdir(parents=True)
        onnx.save(model, test / "model.onnx")
        for i, x in enumerate(inputs):
            onnx.save_tensor(numpy_helper.from_array(x, names[i]), test / f"test_data_set_0/input_{i}.pb")
        onnx.save_tensor(numpy_helper.from_array(output, "y"), test / "test_data_set_0/output_0.pb")

    def check(self):
        done = subprocess.run([ONNX_TEST, "--run_test=onnx_nodes/all_of_a_folder"], capture_output=True, text=True,
                              check=False, env={**os.environ, "TROUPE_ONNX_TESTS": str(self.folder)})
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        count = len(list(self.folder.iterdir()))
        self.assertIn(f"{count} passed, {count} of them fed; 0 refused, 0 of", done.stdout)

    def test_of_one_number(self):
        for operator in UNARY:
            self.add(operator, [ALL])
        self.check()

    def test_operator_sets(self):
        """The first operator set of each supported operator, as in ONNX."""
        done = subprocess.run([PROGRAM, "operators"], capture_output=True, text=True, check=True)
        rows = re.findall(r"^\| `(\w+)` \| (\d+) to ", done.stdout, re.M)
        self.assertGreater(len(rows), 100)
        versions = {}
        for schema in onnx.defs.get_all_schemas_with_history():
            if schema.domain == "":
                versions[schema.name] = min(schema.since_version, versions.get(schema.name, 99))
        newer = {"Attention", "RMSNormalization", "Swish"} - set(versions)
        self.assertEqual({name: int(since) for name, since in rows if name not in newer},
                         {name: versions[name] for name, _ in rows if name not in newer})

    def test_clip(self):
        for low, high in itertools.product(LIMITS, LIMITS):
            self.add("Clip", [ALL], [low, high])
        # If no limit is given, the standard's limit is the largest float; troupe lets infinity pass.
        for limit in LIMITS[1:-1]:
            self.add("Clip", [FINITE], [None, limit])
            self.add("Clip", [FINITE], [limit])
        self.check()

    def test_of_two_numbers(self):
        for operator in ("Max", "Min", "Add", "Sub", "Mul", "Div"):
            self.add(operator, PAIRS)
        self.check()

    def test_where(self):
        mask = numpy.arange(len(PAIRS[0])) % 3 == 0
        self.add("Where", PAIRS, [mask])
        self.add("Where", [ROWS], [numpy.array([True, False, True]), -INFINITY])
        self.check()

    def test_of_rows(self):
        for operator in ("ReduceMax", "ReduceMin", "ReduceL1", "ReduceLogSumExp"):
            self.add(operator, [ROWS], axes=[1])
        for operator in ("Softmax", "LogSoftmax"):
            self.add(operator, [ROWS], axis=1)
        self.check()


if __name__ == "__main__":
    run_tests()
