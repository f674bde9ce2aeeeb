"""Trains the perceptron of `troupe bench async` with TensorFlow's ParameterServerStrategy, asynchronously.

All in one process. Reads a line of JSON from standard input (workers, seeds, epochs, batch, rate, warmup_epochs,
momentum, layers, train, test), then features (float32) and labels (int32) of the training and of the test records.
Answers with a line of JSON that has the version of TensorFlow, then with one per seed that has the test accuracy.
"""

import ctypes
import json
import os
import signal
import socket
import sys

# Ends with the process that started it (PR_SET_PDEATHSIG).
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# All calls go to servers in this process.
os.environ["GRPC_FAIL_FAST"] = "use_caller"
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(**fields):
    print(json.dumps(fields), file=ANSWERS, flush=True)


try:
    import numpy as np
    import tensorflow as tf
except ImportError as error:
    answer(error=f"{sys.executable} cannot import tensorflow ({error})")
    sys.exit(0)


def read(count, kind):
    data = sys.stdin.buffer.read(4 * count)
    if len(data) != 4 * count:
        sys.exit("the data ended early")
    return np.frombuffer(data, kind)


def free_address():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return f"localhost:{s.getsockname()[1]}"


def start_cluster(workers):
    spec = tf.train.ClusterSpec({"worker": [free_address() for _ in range(workers)], "ps": [free_address()]})
    # If there are fewer processors than servers, operations that wait for others would occupy all threads.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=workers + 1)
    servers = [tf.distribute.Server(spec, job_name=job, task_index=i, protocol="grpc", config=config, start=True)
               for job in spec.jobs for i in range(spec.num_tasks(job))]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    return servers, tf.distribute.ParameterServerStrategy(resolver)


def make_variables(widths, seed):
    """Weights, biases and their momenta, on the parameter server."""
    random = tf.random.Generator.from_seed(seed)
    variables = []
    for i, (before, after) in enumerate(zip(widths, widths[1:])):
        last = i + 2 == len(widths)
        # He-uniform before rectifiers, Glorot-uniform in the last layer.
        bound = (6.0 / (before + after if last else before)) ** 0.5
        variables.append(tf.Variable(random.uniform((before, after), -bound, bound)))
        variables.append(tf.Variable(tf.zeros((after,))))
    return variables, [tf.Variable(tf.zeros(x.shape)) for x in variables]


def logits_of(variables, x):
    for i in range(0, len(variables), 2):
        x = tf.matmul(x, variables[i]) + variables[i + 1]
        if i + 2 < len(variables):
            x = tf.nn.relu(x)
    return x


def rate_at(epoch, given):
    rate = 0.5 * given["rate"] * (1 + np.cos(np.pi * epoch / given["epochs"]))
    if epoch < given["warmup_epochs"]:
        rate *= epoch / given["warmup_epochs"]
    return np.float32(rate)


def train(strategy, coordinator, given, seed, data):
    train_x, train_y, test_x, test_y = data
    with strategy.scope():
        variables, momenta = make_variables([train_x.shape[1], *given["layers"]], seed)

    @tf.function(reduce_retracing=True)
    def step(x, y, rate):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits_of(variables, x)))
        for w, m, g in zip(variables, momenta, tape.gradient(loss, variables)):
            m.assign(given["momentum"] * m + g)
            w.assign_sub(rate * m)

    random = np.random.default_rng(seed)
    count, batch = len(train_x), given["batch"]
    for epoch in range(given["epochs"]):
        order = random.permutation(count)
        for begin in range(0, count, batch):
            rows = order[begin:begin + batch]
            rate = rate_at(epoch + (begin + len(rows) / 2) / count, given)
            coordinator.schedule(step, args=(tf.constant(train_x[rows]), tf.constant(train_y[rows]), tf.constant(rate)))
    coordinator.join()
    guess = tf.argmax(logits_of([tf.constant(x.numpy()) for x in variables], test_x), axis=1).numpy()
    return float(np.mean(guess == test_y))


def main():
    given = json.loads(sys.stdin.buffer.readline())
    data = []
    for count in (given["train"], given["test"]):
        data.append(read(count * given["features"], np.float32).reshape(count, -1))
        data.append(read(count, np.int32))
    servers, strategy = start_cluster(given["workers"])
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    answer(version=tf.__version__)
    for seed in range(1, given["seeds"] + 1):
        answer(accuracy=train(strategy, coordinator, given, seed, data))
    del servers


main()
