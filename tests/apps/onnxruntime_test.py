"""ONNX's operators on the largest and smallest numbers and on NaN: troupe's results equal those of onnxruntime.

Writes models of one node, and what onnxruntime makes of them, as ONNX's own tests of operators are written; the program
onnx_test (onnx_nodes_test.cpp) runs them. Each operator is compared in all operator sets in which its definition
changed. ACCEPTED lists the differences that are intended. The list of operators is that of `troupe operators`: a new
one needs a case, or an entry in ELSEWHERE. Skipped if the Python packages `onnx` and `onnxruntime` are missing."""

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

# The oldest and the newest operator set that both programs support. onnxruntime promises the oldest one, and `troupe
# operators` prints the newest.
OLDEST, NEWEST = 7, 24

INFINITY = float("inf")
NAN = float("nan")
LARGEST, SMALLEST = 3.4028235e38, 1.1754944e-38  # normal (not denormal) floats
MAGNITUDES = [SMALLEST, 1e-30, 1e-9, 1e-3, 0.3, 1, 2.5, 5.9, 7, 100, 65504, 1e6, 1e18, 1e30, 3e38, LARGEST]
FINITE = [0.0, -0.0, *MAGNITUDES, *(-x for x in MAGNITUDES)]
ALL = [*FINITE, INFINITY, -INFINITY, NAN]
DENORMAL = [1e-45, 1e-40, 1.1e-38, -1e-45, -1e-40, -1.1e-38]
PAIRS = [numpy.array(x, numpy.float32) for x in zip(*itertools.product(ALL, ALL))]
LIMITS = [-INFINITY, -1e30, -1, 0, 0.5, 6, 1e30, INFINITY]
ROWS = [[1, 2, 3], [1e30, -1e30, 0], [-INFINITY] * 3, [-INFINITY, INFINITY, 0], [-1000, -1001, -999],
        [3e38, 3e38, -3e38], [NAN, -INFINITY, 1], [INFINITY, 3e38, -INFINITY], [0, 0, 0], [1e-30, 1e-30, 1e-9],
        [65504, -65504, 65503], [-0.0, 0.0, SMALLEST], [1, NAN, 1], [-5, -5, -5], [1e18, -1e18, 1e-18]]


def image(*special):
    """Shape (1, 2, 4, 5): small numbers, and some other numbers in the first channel."""
    x = (numpy.arange(40) % 11 - 4).astype(numpy.float32).reshape(1, 2, 4, 5)
    for i, value in enumerate(special):
        x[0, 0, 1 + i, 3 * i] = value
    return x


IMAGES = [image(), image(INFINITY), image(-INFINITY, 1e30), image(NAN), image(-0.0, SMALLEST), image(LARGEST, -65504),
          image(INFINITY, -INFINITY)]

# Inputs without numbers beyond 1e18: onnxruntime squares elements in float, where larger ones become infinite. troupe
# squares them in double.
MODEST_ROWS = [row for row in ROWS if not any(1e18 < abs(x) < INFINITY for x in row)]
MODEST_IMAGES = [image(), image(INFINITY), image(NAN), image(-0.0, SMALLEST), image(65504, -65504)]


def versions(operator, oldest=OLDEST, newest=NEWEST):
    """The operator sets in which the definition of an operator changed."""
    history = [schema.since_version for schema in onnx.defs.get_all_schemas_with_history()
               if schema.name == operator and schema.domain == ""]
    return sorted({max(x, oldest) for x in history if x <= newest and
                   not any(x < y <= oldest for y in history)})


def whole(*numbers):
    return numpy.array(numbers, numpy.int64)


def truth(*numbers):
    return numpy.array(numbers, bool)


def with_axes(opset, since, axes):
    """The axes of a reduction. They are an attribute, or an input from operator set `since` on."""
    return ({}, [whole(*axes)]) if opset >= since else ({"axes": list(axes)}, [])


# -- cases: a function calls add(inputs, constants, **attributes) for each comparison of an operator in an operator set

CASES = {}
# For each operator: differences of at most `relative` times the result, or `absolute`, count as rounding errors.
TOLERANCES = {}


def case(*operators, relative=2e-6, absolute=SMALLEST):
    def register(function):
        for operator in operators:
            CASES[operator] = function
            TOLERANCES[operator] = (relative, absolute)
        return function
    return register


# onnxruntime approximates the sigmoid by a rational function with an error of 2e-5 of the result.
@case("Sigmoid", relative=2e-5, absolute=1e-7)
@case("Mish", relative=2e-5, absolute=1e-6)
@case("Erf", absolute=2 * SMALLEST)  # onnxruntime's quotient has a denormal numerator
@case("Abs", "Ceil", "Exp", "Floor", "HardSwish", "Log", "Neg", "Reciprocal", "Relu", "Round", "Sign", "Softplus",
      "Softsign", "Sqrt", "Tanh")
def of_one_number(add, operator, opset):
    add([ALL])
    add([DENORMAL], denormal=True)


@case("Cos", "Sin", absolute=1e-7)
def of_angles(add, operator, opset):
    add([[x for x in ALL if not 1e15 < abs(x) < INFINITY]])  # larger numbers are farther apart than a period
    add([DENORMAL], denormal=True)


# onnxruntime computes exp(x) - 1 and 1 + erf(x). Near 0, these lose digits.
@case("Celu", "Elu", "Selu", "Gelu", relative=1e-5, absolute=1e-6)
@case("Swish", relative=2e-5, absolute=1e-6)
@case("HardSigmoid", "LeakyRelu", "Shrink", "ThresholdedRelu")
def with_settings(add, operator, opset):
    settings = {"Celu": [{"alpha": 0.5}, {"alpha": 2.5}], "Elu": [{"alpha": 0.5}], "LeakyRelu": [{"alpha": 0.3}],
                "ThresholdedRelu": [{"alpha": 0.5}, {"alpha": -1.0}], "HardSigmoid": [{"alpha": 0.5, "beta": 0.1}],
                "Selu": [{"alpha": 2.0, "gamma": 0.5}], "Gelu": [{"approximate": "tanh"}], "Swish": [{"alpha": 2.0}],
                "Shrink": [{"lambd": 1.0, "bias": 0.25}, {"lambd": 0.0}]}
    for attributes in [{}, *settings[operator]]:
        add([ALL], **attributes)
        add([DENORMAL], denormal=True, **attributes)


@case("Clip")
def clip(add, operator, opset):
    limits = itertools.product(LIMITS, LIMITS) if opset == 13 else [(-1, 6), (0, 1e30)]
    for low, high in limits:
        if opset < 11:
            add([ALL], min=float(low), max=float(high))
        else:
            add([ALL], [low, high])
    # If a limit is missing, ONNX uses the largest float as the limit, but troupe does not clip infinity.
    for limit in LIMITS[1:-1] if opset == 13 else []:
        add([FINITE], [None, limit])
        add([FINITE], [limit])


@case("Max", "Min", "Add", "Sub", "Mul", "Div", "Sum", "Mean")
def of_two_numbers(add, operator, opset):
    add(PAIRS)
    add([numpy.repeat(DENORMAL, 3), [0, 1, -1] * len(DENORMAL)], denormal=True)
    if operator not in ("Max", "Min", "Sum", "Mean") or opset >= 8:
        add([ROWS, ROWS[1]])
        add([numpy.reshape(ALL, (-1, 1)), [[0.5]]])
    if operator in ("Max", "Min", "Sum", "Mean"):
        add([PAIRS[0]])
        add([PAIRS[0], PAIRS[1], PAIRS[0][::-1].copy()], folds=False)  # troupe adds up constants in double


@case("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def comparison(add, operator, opset):
    if operator == "Equal" and opset < 11:
        return  # before operator set 11, the operator takes only floats
    add(PAIRS)
    add([ALL], [0.5])
    add([ALL], [NAN])
    add([numpy.repeat(DENORMAL, 3), [0, 1, -1] * len(DENORMAL)], denormal=True)


@case("And", "Or", "Xor")
def of_two_truths(add, operator, opset):
    add([truth(0, 0, 1, 1), truth(0, 1, 0, 1)])
    add([numpy.reshape(truth(0, 1), (2, 1)), truth(0, 1, 0)])


@case("Not")
def negation(add, operator, opset):
    add([truth(0, 1)])


@case("IsNaN")
def test_for_nan(add, operator, opset):
    add([ALL])
    add([DENORMAL], denormal=True)


@case("Where")
def where(add, operator, opset):
    mask = numpy.arange(len(PAIRS[0])) % 3 == 0
    add([mask, *PAIRS])
    add([numpy.reshape(mask[:3], (3, 1)), [[NAN, 1, INFINITY]], ROWS[:3]])
    add([ROWS], [truth(1, 0, 1), -INFINITY], order=(1, 0, 2))


@case("Cast")
def cast(add, operator, opset):
    add([ALL], to=int(TensorProto.BOOL))


@case("PRelu")
def prelu(add, operator, opset):
    add(PAIRS)
    add([ROWS, [0.25]])
    add([image(NAN, INFINITY), numpy.reshape([0.25, INFINITY], (2, 1, 1))])


@case("Pow", relative=1e-5)
def power(add, operator, opset):
    for exponent in (0, 1, 2, 3, 7, 16, -1, -2, -3, -16, 0.5, -0.5, 0.25, 1.5, 15.75, -0.3, -2.5):
        add([ALL], [exponent])
        add([DENORMAL], [exponent], denormal=True)


@case("ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd",
      "ReduceSum", "ReduceSumSquare")
def reduction(add, operator, opset):
    since = 13 if operator == "ReduceSum" else 18
    for axes, keep in (((1,), 1), ((-1,), 0), ((0, 1), 1)):
        attributes, constants = with_axes(opset, since, axes)
        if axes != (0, 1):
            add([ROWS], constants, keepdims=keep, **attributes)
        for x in IMAGES if axes == (-1,) else []:
            add([x], constants, keepdims=keep, **attributes)
    # Reduces all axes. Here, the rows have no batch dimension.
    add([ROWS[0]], keepdims=0)
    if opset >= since:
        add([ROWS[0]], [whole()], noop_with_empty_axes=0)


@case("CumSum", relative=1e-5)
def cumulative_sum(add, operator, opset):
    for exclusive, reverse in itertools.product((0, 1), (0, 1)):
        # Not the row in which 1e18 cancels out: the order of the sums differs.
        rows = [row for row in MODEST_ROWS if 1e18 not in row]
        add([rows], [numpy.array(1)], exclusive=exclusive, reverse=reverse)
        for x in MODEST_IMAGES:
            add([x], [numpy.array(-2)], exclusive=exclusive, reverse=reverse)


@case("Softmax", absolute=1e-30)
@case("LogSoftmax", absolute=2e-7)  # the logarithm of a sum near 1
def softmax(add, operator, opset):
    add([ROWS], axis=1)
    if opset >= 13:
        add([ROWS], axis=-1)
    for x in IMAGES:
        add([x], axis=1)
        add([x], axis=3)


@case("LayerNormalization", "RMSNormalization", relative=1e-5, absolute=1e-6)
def layer_normalization(add, operator, opset):
    biases = [[0.5, 0, -1]] if operator == "LayerNormalization" else []
    add([MODEST_ROWS], [[1, 2, -0.5], *biases], epsilon=1e-3)
    add([MODEST_ROWS], [[1, 2, NAN], *biases])
    for x in MODEST_IMAGES:
        add([x], [numpy.ones((4, 5)), *(numpy.zeros((4, 5)) for _ in biases)], axis=2)


@case("InstanceNormalization", "GroupNormalization", relative=1e-5, absolute=2e-6)
def group_normalization(add, operator, opset):
    groups = {"num_groups": 2} if operator == "GroupNormalization" else {}
    for x in MODEST_IMAGES:
        add([x], [[1, 2], [0.5, -1]], epsilon=1e-3, **groups)


@case("BatchNormalization", relative=1e-5, absolute=1e-6)
def batch_normalization(add, operator, opset):
    for x in IMAGES:
        add([x], [[1, -2], [0.5, -1], [2, -3], [4, 1e-3]], epsilon=1e-3)
    add([image()], [[1, NAN], [INFINITY, 1], [2, -3], [4, 1]])
    add([image()], [[1e30, 1e-30], [1, 1], [2, -3], [4, 1]])
    add([[[1e6 + 0.5, 100], [1e6 - 2, 101]]], [[0.3, 1], [0.25, 0], [1e6, 100], [0.25, 1]], epsilon=1e-9)


@case("AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool")
def pooling(add, operator, opset):
    for x in IMAGES:
        if operator.startswith("Global"):
            add([x])
            add([x[:, :, 0]])
            continue
        add([x], kernel_shape=[2, 2])
        add([x], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 0, 1])
        add([x], kernel_shape=[2, 3], auto_pad="SAME_UPPER")
        add([x[:, :, 0]], kernel_shape=[3], pads=[1, 1])
        if opset >= 10:
            add([x], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
        if operator == "AveragePool":
            add([x], kernel_shape=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1)


@case("Conv", "ConvTranspose", "Gemm", "MatMul", relative=1e-5, absolute=1e-6)
def product(add, operator, opset):
    if operator.startswith("Conv"):
        weights = (numpy.arange(24) % 7 - 3).reshape((3, 2, 2, 2) if operator == "Conv" else (2, 3, 2, 2)) + 0.25
        for x in IMAGES:
            add([x], [weights, [1, 0, -1]], pads=[1, 1, 1, 1])
    else:
        add([ROWS], [[[1, 2], [3, 4], [-5, 6]], *([[0.5, -1]] if operator == "Gemm" else [])])


@case("Pad")
def pad(add, operator, opset):
    for x in IMAGES:
        for mode in ("constant", "reflect", "edge"):
            for value in (0.0, 1e30, INFINITY, NAN) if mode == "constant" else (0.0,):
                pads = [0, 0, 1, 2, 0, 0, 2, 1]
                if opset < 11:
                    add([x], pads=pads, mode=mode, value=value)
                else:
                    add([x], [whole(*pads), *([value] if mode == "constant" else [])], mode=mode)


# onnxruntime interpolates with float32 weights. In double, sums that should be 0 are closer to 0.
@case("Resize", "Upsample", relative=1e-4, absolute=1e-5)
def resize(add, operator, opset):
    # In operator set 11, both inputs are required, but they may be empty.
    roi, scales = (numpy.zeros(0), numpy.zeros(0)) if opset == 11 else (None, None)
    for x in (image(), image(-0.0, 1e-3), image(65504)):
        for mode in ("nearest", "linear"):
            if operator == "Upsample" and opset < 9:
                add([x], mode=mode, scales=[1.0, 1.0, 2.0, 3.0])
            elif opset < 11:
                add([x], [[1, 1, 2, 3]], mode=mode)
            else:
                add([x], [roi, [1, 1, 2, 2.5]], mode=mode)
                add([x], [roi, [1, 1, 0.5, 0.6]], mode=mode)
                add([x], [roi, scales, whole(1, 2, 7, 9)], mode=mode, coordinate_transformation_mode="align_corners")
        if opset >= 11:
            add([x], [roi, [1, 1, 2, 2.5]], mode="cubic")
    # An infinite or NaN pixel changes only the output pixels that are computed from it.
    for value in (INFINITY, -INFINITY, NAN):
        x = image(value)
        if opset >= 11:
            add([x], [roi, [1, 1, 1, 2]], mode="linear")
            add([x], [roi, [1, 1, 3, 1.5]], mode="linear")
            add([x], [roi, [1, 1, 2, 1.5]], mode="nearest")


def moves(*operators):
    return {operator: "moves elements: onnx_nodes" for operator in operators}


# Operators that are not compared here, and the tests that test them.
ELSEWHERE = {
    "Einsum": "products and sums, which are compared here: onnx_einsum",
    "Erfc": "onnxruntime does not have it: onnx_extremes and kernels_test",
    "Attention": "products and softmax, which are compared here: onnx_nodes",
    **{operator: "products and activations, which are compared here: onnx_nodes, apps.keras, apps.pytorch"
       for operator in ("GRU", "LSTM", "RNN")},
    **moves("DepthToSpace", "Expand", "Flatten", "Reshape", "SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze",
            "Concat", "Gather", "GatherND", "ReverseSequence", "SequenceAt", "Slice", "Split", "SplitToSequence",
            "Tile", "Identity", "CastLike", "Dropout"),
    **{operator: "constants only: onnx_nodes"
       for operator in ("Constant", "ConstantOfShape", "Range", "Shape", "Size", "Mod", "ScatterND", "Trilu")},
    **{operator: "a part of the model: onnx_loops" for operator in ("If", "Loop")},
}


class Accepted:
    """A difference that is intended: where it is, and troupe's result there. Both are functions of the inputs, the
    attributes and run(x), which is onnxruntime's result for another first input."""

    def __init__(self, operators, why, where, value):
        self.operators, self.why, self.where, self.value = operators, why, where, value
        self.seen = False

    def apply(self, operator, inputs, attributes, run, output):
        if operator not in self.operators:
            return output
        with numpy.errstate(all="ignore"):
            mask = numpy.broadcast_to(self.where(inputs, attributes, run), output.shape)
            own = numpy.broadcast_to(self.value(inputs, attributes, run), output.shape)
        differs = mask & ~numpy.isclose(own, output, rtol=1e-6, atol=0, equal_nan=True)
        self.seen = self.seen or bool(differs.any())
        return numpy.where(mask, own, output).astype(output.dtype)


def normalized(inputs, attributes, run):
    """The formula of BatchNormalization, in double."""
    x, gain, bias, mean, variance = (numpy.asarray(z, numpy.float64) for z in inputs)
    gain, bias, mean, variance = (z.reshape((-1,) + (1,) * (x.ndim - 2)) for z in (gain, bias, mean, variance))
    return (x - mean) / numpy.sqrt(variance + attributes.get("epsilon", 1e-5)) * gain + bias


def put(x, mask, value):
    return numpy.where(mask, numpy.float32(value), x)


def reads_nan(inputs, attributes, run):
    """True where the result depends on an element that is NaN."""
    x = inputs[0]
    low, high = (run(put(x, numpy.isnan(x), value)) for value in (-INFINITY, INFINITY))
    return low != high


def finite(inputs, attributes, run):
    return run(put(inputs[0], ~numpy.isfinite(inputs[0]), 0))


def reads_only_finite(inputs, attributes, run):
    """True where the result does not depend on elements that are infinite or NaN."""
    other = run(put(inputs[0], ~numpy.isfinite(inputs[0]), 1000))
    return finite(inputs, attributes, run) == other


ACCEPTED = [
    Accepted(("Pow",), "a power of -infinity is NaN if the exponent is not a whole number",
             lambda inputs, *_: (inputs[1] % 1 != 0) & (inputs[0] == -INFINITY), lambda *_: NAN),
    Accepted(("BatchNormalization",), "onnxruntime loses digits: it subtracts mean * factor from x * factor",
             lambda inputs, *_: inputs[3][0] > 1e5 or inputs[1][0] > 1e20, normalized),
    Accepted(("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"), "onnxruntime ignores some NaN",
             reads_nan, lambda *_: NAN),
    Accepted(("Resize", "Upsample"), "onnxruntime multiplies infinity and NaN by weights of 0", reads_only_finite,
             finite),
]


class OnnxRuntime(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def add(self, operator, opset, inputs, constants=(), order=None, denormal=False, folds=True,
            **attributes):
        """A model with one node. The node has these inputs, followed by these constants; None is an empty input.
        `order` is their order on the node. troupe replaces denormal numbers by 0."""
        def tensor(x):
            kind = getattr(x, "dtype", numpy.dtype(numpy.float32))
            return numpy.asarray(x, kind if kind in (bool, numpy.int64) else numpy.float32)
        inputs = [tensor(x) for x in inputs]
        constants = [None if x is None else tensor(x) for x in constants]
        names = [f"x{i}" for i in range(len(inputs))]
        known = ["" if x is None else f"c{i}" for i, x in enumerate(constants)]
        all_names = [*names, *known]
        if order:
            all_names = [all_names[i] for i in order]
        node = helper.make_node(operator, all_names, ["y"], **attributes)

        def model(kind):
            return helper.make_model(helper.make_graph(
                [node], "g", [helper.make_tensor_value_info(
                    n, TensorProto.BOOL if x.dtype == bool else TensorProto.FLOAT, x.shape)
                    for n, x in zip(names, inputs)],
                [helper.make_tensor_value_info("y", kind, None)],
                [numpy_helper.from_array(x, n) for n, x in zip(known, constants) if x is not None]),
                ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
        is_truth = operator in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not",
                                "Cast", "IsNaN")
        proto = model(TensorProto.BOOL if is_truth else TensorProto.FLOAT)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        given = inputs
        if denormal:
            given = [numpy.where(abs(x) < SMALLEST, numpy.copysign(numpy.float32(0), x), x) for x in inputs]

        def run(first):
            return session.run(None, dict(zip(names, [first, *given[1:]])))[0]
        output = run(given[0])
        for accepted in ACCEPTED:
            output = accepted.apply(operator, [*given, *constants], attributes, run, output)
        test = self.folder / f"{len(list(self.folder.iterdir())):04}_{operator}_{opset}"
        (test / "test_data_set_0").mkdir(parents=True)
        relative, absolute = TOLERANCES[operator]
        (test / "settings").write_text(f"{relative} {absolute} {int(folds and not denormal)}\n")
        onnx.save(proto, test / "model.onnx")
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

    def test_every_operator(self):
        for operator, function in CASES.items():
            with self.subTest(operator=operator):
                for opset in versions(operator, newest=9 if operator == "Upsample" else NEWEST):  # deprecated since 10
                    function(lambda *a, _op=operator, _set=opset, **k: self.add(_op, _set, *a, **k), operator, opset)
        self.check()
        # An entry in ACCEPTED whose difference does not occur any more is out of date.
        self.assertEqual([x.why for x in ACCEPTED if not x.seen], [])

    def test_list_of_operators(self):
        """Each supported operator is compared here, or has an entry in ELSEWHERE. Its first operator set is right."""
        done = subprocess.run([PROGRAM, "operators"], capture_output=True, text=True, check=True)
        names = re.findall(r"^\| `(\w+)` \|", done.stdout, re.M)
        self.assertGreater(len(names), 100)
        self.assertEqual(sorted(names), sorted([*CASES, *ELSEWHERE]))
        rows = re.findall(r"^\| `(\w+)` \| (\d+) to (\d+) ", done.stdout, re.M)
        self.assertEqual({int(newest) for _, _, newest in rows}, {NEWEST})
        first = {}
        for schema in onnx.defs.get_all_schemas_with_history():
            if schema.domain == "":
                first[schema.name] = min(schema.since_version, first.get(schema.name, 99))
        newer = {"Attention", "RMSNormalization", "Swish"} - set(first)
        self.assertEqual({name: int(since) for name, since, _ in rows if name not in newer},
                         {name: first[name] for name, _, _ in rows if name not in newer})


if __name__ == "__main__":
    run_tests()
