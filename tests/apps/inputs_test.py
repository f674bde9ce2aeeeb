"""Wrong input: exit code 2, no action, and a message with the place and the expected value."""

import json
import socket

from program import PROGRAM, QUICK_JOB, TestCase, free_ports, run_tests


class Inputs(TestCase):
    def refused(self, *arguments, says=(), **more):
        process = self.start(*arguments, **more)
        self.assert_exit(process, 2)
        for text in says:
            self.assertIn(text, process.output)

    def node(self, role, cluster, *more, says):
        self.refused("node", f"--role={role}", f"--cluster={cluster}", *more, says=says)

    def write_cluster(self, jobs):
        return self.file("cluster.json", json.dumps({"cluster": jobs}))

    def test_command_line(self):
        job = self.file("job.textproto", QUICK_JOB)
        self.refused(says=["subcommand"])
        self.refused("trian", says=["trian", "train"])
        self.refused("train", says=["--job"])
        self.refused("train", f"--job={job}", "--worker=2", says=["--worker=2"])
        self.refused("train", f"--job={job}", "--workers=0", says=["--workers=0"])
        self.refused("train", f"--job={job}", "--workers=-1", says=["--workers", "whole number"])
        self.refused("train", f"--job={job}", "--protocol=rings",
                     says=["--protocol=rings", 'did you mean "ring"', "async_ps", "sync_ps"])
        self.refused("train", f"--job={job}", "--ps=0", says=["async_ps", "parameter servers"])
        for seconds in ("0", "-1", "nan", "inf", "1s", "4000001"):
            self.refused("node", f"--join-timeout={seconds}", says=["--join-timeout", "number of seconds above 0"])
        self.refused("node", "--channel-port=70000", says=["--channel-port", "65535"])
        predict = ("predict", f"--job={job}", "--weights=w", "--generate=5")
        self.refused(*predict, "--predictions=p.csv", says=["--generate", "--predictions"])
        self.refused(*predict, "--show=2", says=["--generate", "--show"])
        self.refused(*predict, "--seed=-1", says=["--seed"])
        cluster = self.write_cluster({"coordinator": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]})
        self.refused("node", f"--cluster={cluster}", "--role=worker", "--task=0", "--set=batch=3",
                     says=["--set=batch=3", "--job"])

    def test_help_and_version_are_no_errors(self):
        for arguments in (["--help"], ["train", "--help"], ["node", "--help"], ["--version"]):
            process = self.start(*arguments)
            self.assert_exit(process, 0)
            self.assertIn("troupe", process.output)

    def test_job_file(self):
        missing = self.folder / "missing.textproto"
        self.refused("train", f"--job={missing}", says=[str(missing), "No such file"])
        unknown = self.file("unknown.textproto", QUICK_JOB.replace("batch:", "batsh:"))
        self.refused("train", f"--job={unknown}", says=[f"{unknown}:3:", "batsh", 'did you mean "batch"'])
        syntax = self.file("syntax.textproto", "model { layer {\n")
        self.refused("train", f"--job={syntax}", says=[syntax])
        json_job = self.file("unknown.json", '{"data": {"digits": {}, "batsh": 16}}')
        self.refused("train", f"--job={json_job}", says=[f"{json_job}: data.batsh: ", 'did you mean "batch"'])
        no_data = self.file("no_data.textproto", QUICK_JOB.replace(
            "digits { train: 640 test: 100 }", 'idx { images: "missing.idx" labels: "missing.idx" }'))
        self.refused("train", f"--job={no_data}", says=["missing.idx", "No such file"])

    def test_overrides(self):
        job = self.file("job.textproto", QUICK_JOB)
        self.refused("train", f"--job={job}", "--set", "optimizer.momentun=0.8",
                     says=["momentun", 'did you mean "momentum"'])
        self.refused("train", f"--job={job}", "--set", "epochs=many", says=["epochs=many"])
        self.refused("train", f"--job={job}", "--set", "epochs", says=["epochs"])

    def test_output_directory(self):
        job = self.file("job.textproto", QUICK_JOB)
        blocked = self.file("blocked", "a file")
        self.refused("train", f"--job={job}", f"--out={blocked}/out", says=[f"{blocked}/out", "--out"])
        # A full disk is noticed before training begins.
        self.refused("train", f"--job={job}", f"--out={self.folder}/full", says=[f"{self.folder}/full", "--out"],
                     program=["sh", "-c", f"trap '' XFSZ; ulimit -f 1; exec '{PROGRAM}' \"$@\"", "sh"])
        self.assertEqual(list((self.folder / "full").iterdir()), [])

    def test_devices(self):
        job = self.file("job.textproto", QUICK_JOB)
        # No host has this many GPUs. So the error is the same with and without a driver.
        place = ("--set", "device[0]=/job:worker/task:1/device:GPU:99")
        missing = ["worker/1 cannot compute on GPU:99: ", "soft_placement: true"]
        for more in ([], ["--processes"]):
            self.refused("train", f"--job={job}", "--workers=2", *place, *more, says=missing)
        self.refused("check", f"--job={job}", "--workers=2", *place,
                     says=["worker/0 on CPU:0", "worker/1 on GPU:99", "page-locked", *missing])
        self.refused("train", f"--job={job}", *place, says=["device[0]: there is no worker/1"])
        self.refused("train", f"--job={job}", "--set", "device[0]=/job:gardener/task:0/device:GPU:0",
                     says=["device[0]: ", "expected /job:worker/task:N/device:GPU:N"])
        self.refused("train", f"--job={job}", "--set", "device[0]=/job:chief/task:0/device:GPU:99",
                     says=["coordinator/0 cannot compute on GPU:99: ", "soft_placement: true"])
        for more in ([], ["--processes"]):
            self.refused("train", f"--job={job}", *more, "--set", "device[0]=/job:worker/task:0/device:GPU:2",
                         "--devices=0,0", says=["--devices: GPU 0 is named twice"])
        self.refused("train", f"--job={job}", "--devices=first", says=["--devices", "whole number"])
        chosen = self.start("check", f"--job={job}", "--set", "device[0]=/job:worker/task:0/device:GPU:1",
                            "--devices=98,99")
        self.assertNotEqual(chosen.wait(), 0)
        self.assertIn("worker/0 on GPU:1 (number 99 of this host)", chosen.output)
        # A program without code for GPUs estimates no memory.
        self.assertEqual("of its memory" in chosen.output, "not counted: memory of the driver" in chosen.output)
        soft = self.start("train", f"--job={job}", "--workers=2", *place, "--set", "soft_placement=true")
        self.assert_exit(soft, 0)
        self.assertEqual(soft.output.count("worker/1 cannot compute on GPU:99"), 1)

    def test_devices_of_a_cluster_file(self):
        job = self.file("job.textproto", QUICK_JOB)
        jobs = {"coordinator": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"], "worker": ["127.0.0.1:3"]}
        place = lambda device: self.file("placed.json", json.dumps({"cluster": jobs, "device": [device]}))
        self.node("coordinator", place("/job:coordinator/task:0/device:GPU:99"), f"--job={job}",
                  says=["coordinator/0 cannot compute on GPU:99: "])
        self.node("worker", place("/job:worker/task:1/device:GPU:0"), says=["device[0]: there is no worker/1"])
        check = self.start("check", f"--job={job}", f"--cluster={place('/job:worker/task:0/device:GPU:3')}")
        self.assert_exit(check, 0)
        self.assertIn("worker/0 on GPU:3", check.output)

    def test_role_and_task(self):
        cluster, _ = self.cluster(ps=2, workers=1)
        self.node("wroker", cluster, says=["--role=wroker", 'did you mean "worker"?'])
        self.node("worker", cluster, "--task=1", says=["--role=worker --task=1", "1 such task"])
        self.node("ps", cluster, "--task=2", says=["--role=ps --task=2", "2 such tasks"])
        self.node("coordinator", cluster, says=["--job"])
        self.node("ring", cluster, says=["--role=ring", 'use "worker"'])

    def test_cluster_file(self):
        missing = self.folder / "missing.json"
        self.node("worker", missing, says=[str(missing), "No such file"])
        self.node("worker", self.file("a.json", '{"cluster": '), says=["a.json", "JSON"])
        self.node("worker", self.file("b.json", "{}"), says=["b.json", "cluster"])
        self.node("worker", self.write_cluster({"coordinator": ["127.0.0.1:1"], "wroker": ["127.0.0.1:2"]}),
                  says=["cluster.wroker", 'did you mean "worker"'])
        self.node("worker", self.write_cluster({"coordinator": ["127.0.0.1:1"], "worker": ["127.0.0.1"]}),
                  says=["cluster.worker[0]", "host:port"])
        self.node("worker", self.write_cluster({"coordinator": ["127.0.0.1:1"], "worker": ["127.0.0.1:70000"]}),
                  says=["cluster.worker[0]", "host:port"])
        self.node("worker", self.write_cluster({"coordinator": ["127.0.0.1:1"], "worker": ["127.0.0.1:1"]}),
                  says=["127.0.0.1:1", "two tasks"])
        self.node("worker", self.write_cluster({"coordinator": ["0.0.0.0:1"], "worker": ["127.0.0.1:2"]}),
                  says=["cluster.coordinator[0]", "not an address that other hosts can reach"])
        self.node("worker", self.file("c.json", '{"cluster": {"worker": ["a:1"], "worker": ["a:1"]}}'),
                  says=["cluster.worker", "twice"])
        self.node("coordinator", self.write_cluster({"coordinator": ["127.0.0.1:1"]}), says=["cluster.worker"])

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            cluster = self.write_cluster({"coordinator": ["127.0.0.1:1"], "worker": [address]})
            self.node("worker", cluster, says=["worker/0", address, "in use"])

    def test_which_cluster_and_task(self):
        self.refused("node", says=["--cluster=FILE", "TF_CONFIG"])
        self.refused("node", "--role=ps", says=["--cluster=FILE"])
        cluster, _ = self.cluster(ps=1, workers=1)
        self.refused("node", f"--cluster={cluster}", says=["--role", "TF_CONFIG"])
        self.refused("node", f"--cluster={cluster}", "--task=1", says=["--task=1", "--role"])
        self.node("worker", cluster, "--join-timeout=0", says=["--join-timeout"])

    def test_beyond_loopback_only_if_asked(self):
        port, = free_ports(1)
        cluster = self.write_cluster({"coordinator": [f"10.0.0.7:{port}"], "worker": ["127.0.0.1:0"]})
        job = self.file("job.textproto", "protocol: RING\n" + QUICK_JOB)
        self.node("coordinator", cluster, f"--job={job}", says=[f"10.0.0.7:{port}", "loopback", "--insecure"])


if __name__ == "__main__":
    run_tests()
