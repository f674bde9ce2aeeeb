"""Trains a perceptron with TensorFlow's ParameterServerStrategy, asynchronously, for `troupe bench`.

Reads a line of JSON from standard input (workers, seeds, epochs, batch, rate, warmup_epochs, momentum, layers, train,
test, processes, processors, steps), then features (float32) and labels (int32) of the training and of the test records.
Answers with a line of JSON with the version of TensorFlow, then with a line of JSON per seed: the test accuracy, and
the seconds of training. With "processes", the parameter server and each worker are processes with one thread per
operation, and each worker runs on its processor in the list "processors". If the list is empty, the system chooses.
Without "processes", they are servers in this process. A worker makes "steps" steps for each order of the coordinator.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time

# Makes this process end when its parent ends (1 is PR_SET_PDEATHSIG).
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["GRPC_FAIL_FAST"] = "use_caller"
# The program of a process that is one server of the cluster. Its arguments are the cluster, the job, the number of the
# task, and its processor, if it has only one. By default, TensorFlow has one thread per processor. With one processor,
# an operation that waits would occupy this thread.
SERVER = """
import ctypes, json, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if len(sys.argv) > 4:
    os.sched_setaffinity(0, {int(sys.argv[4])})
import tensorflow as tf
spec = tf.train.ClusterSpec(json.loads(sys.argv[1]))
config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
tf.distribute.Server(spec, job_name=sys.argv[2], task_index=int(sys.argv[3]), protocol="grpc", config=config).join()
"""
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


def start_cluster(workers, processes, processors):
    spec = tf.train.ClusterSpec({"worker": [free_address() for _ in range(workers)], "ps": [free_address()]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    if processes:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        servers = []
        for job in spec.jobs:
            for i in range(spec.num_tasks(job)):
                own = [str(processors[i])] if job == "worker" and processors else []
                servers.append(subprocess.Popen(
                    [sys.executable, "-c", SERVER, json.dumps(spec.as_dict()), job, str(i), *own]))
        return servers, tf.distribute.ParameterServerStrategy(resolver)
    # By default, TensorFlow has one thread per processor. With few processors, operations that wait would occupy all
    # threads.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=workers + 1)
    servers = [tf.distribute.Server(spec, job_name=job, task_index=i, protocol="grpc", config=config, start=True)
               for job in spec.jobs for i in range(spec.num_tasks(job))]
    return servers, tf.distribute.ParameterServerStrategy(resolver)


def make_variables(widths, seed):
    """Weights, biases and their momenta, on the parameter server."""
    random = tf.random.Generator.from_seed(seed)
    variables = []
    for i, (before, after) in enumerate(zip(widths, widths[1:])):
        last = i + 2 == len(widths)
        # The initial weights are He-uniform before rectifiers, and Glorot-uniform in the last layer.
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
            tf.raw_ops.ResourceApplyMomentum(var=w.handle, accum=m.handle, lr=rate, grad=g,
                                             momentum=tf.constant(given["momentum"], tf.float32), use_locking=True)

    @tf.function(reduce_retracing=True)
    def steps(x, y, rate):
        def one(i):
            step(x[i], y[i], rate[i])
            return (i + 1,)

        # TensorFlow translates a Python loop only if it can read the source file, and this script has no file. So the
        # loop is tf.while_loop.
        tf.while_loop(lambda i: i < tf.shape(rate)[0], one, (tf.constant(0),), parallel_iterations=1)

    random = np.random.default_rng(seed)
    count, batch = len(train_x), given["batch"]

    def orders(epoch):
        """The arguments of all steps of an epoch."""
        order = random.permutation(count)
        for begin in range(0, count, batch):
            rows = order[begin:begin + batch]
            yield train_x[rows], train_y[rows], rate_at(epoch + (begin + len(rows) / 2) / count, given)

    def schedule(epoch):
        waiting = []
        for x, y, rate in orders(epoch):
            if given["steps"] == 1 or len(x) < batch:
                coordinator.schedule(step, args=(tf.constant(x), tf.constant(y), tf.constant(rate)))
                continue
            waiting.append((x, y, rate))
            if len(waiting) == given["steps"]:
                coordinator.schedule(steps, args=tuple(tf.constant(np.stack(z)) for z in zip(*waiting)))
                waiting = []
        if waiting:
            coordinator.schedule(steps, args=tuple(tf.constant(np.stack(z)) for z in zip(*waiting)))

    if given["processes"]:
        # Trains an epoch that is not measured, so that all workers compile their steps before the measurement.
        schedule(0)
        coordinator.join()
        with strategy.scope():
            fresh, _ = make_variables([train_x.shape[1], *given["layers"]], seed)
        for x, y in zip(variables, fresh):
            x.assign(y)
        for x in momenta:
            x.assign(tf.zeros(x.shape))
    begin = time.monotonic()
    for epoch in range(given["epochs"]):
        schedule(epoch)
    coordinator.join()
    seconds = time.monotonic() - begin
    guess = tf.argmax(logits_of([tf.constant(x.numpy()) for x in variables], test_x), axis=1).numpy()
    return {"accuracy": float(np.mean(guess == test_y)), "seconds": seconds}


def main():
    given = json.loads(sys.stdin.buffer.readline())
    data = []
    for count in (given["train"], given["test"]):
        data.append(read(count * given["features"], np.float32).reshape(count, -1))
        data.append(read(count, np.int32))
    servers, strategy = start_cluster(given["workers"], given["processes"], given["processors"])
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    answer(version=tf.__version__)
    for seed in range(1, given["seeds"] + 1):
        result = train(strategy, coordinator, given, seed, data)
        # TensorFlow continues without a lost worker. Then the result is not that of all workers.
        if given["processes"] and any(server.poll() is not None for server in servers):
            sys.exit("a server of TensorFlow has ended during the training")
        answer(**result)
    for server in servers if given["processes"] else []:
        server.kill()
        server.wait()


main()
