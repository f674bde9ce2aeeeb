"""`troupe train` when numbers become NaN or infinite, and when there is nothing to train."""


from program import IN_ONE_PROCESS, QUICK_JOB, TestCase, protocols, run_tests


class NotFinite(TestCase):
    def test_a_rate_beyond_reason(self):
        job = self.file("job.textproto", QUICK_JOB)
        for protocol in protocols():
            apart = [] if protocol in IN_ONE_PROCESS else [["--processes"]]
            for more in (["--set", "optimizer.clip_norm=1e30"], *apart):
                with self.subTest(protocol=protocol, more=more):
                    out = self.folder / (protocol + more[0])
                    process = self.start("train", f"--job={job}", f"--protocol={protocol}", "--workers=2", "--ps=2",
                                         f"--out={out}", "--set", "learning_rate={base: 3e38}", *more)
                    self.assert_exit(process, 1)
                    self.assertIn("not finite", process.output)
                    self.assertIn("checkpoint.every_steps", process.output)
                    self.assertIn("learning_rate.base", process.output)
                    self.assertIn("not finite", self.metrics(out)[-1]["failure"])
                    self.assertFalse((out / "weights.safetensors").exists())


class Exact(TestCase):
    def setUp(self):
        super().setUp()
        rows = "".join(f"{x},{z},{3 * x - 2 * z + 1}\n" for x in range(5) for z in range(4))
        self.table = self.folder / "table.csv"
        self.table.write_text("x,z,y\n" + rows, encoding="utf-8")
        self.job = self.file("job.textproto", f"""
            model {{ layer {{ dense {{ units: 1 }} }} loss: MEAN_SQUARED_ERROR }}
            data {{ csv {{ path: "{self.table}" features: "x" features: "z" target: "y" }} batch: 1 }}
            solver: EXACT""")
        self.out = self.folder / "out"

    def test_coefficients(self):
        for more in ([], ["--processes", "--ps=2"], ["--protocol=ring"]):
            with self.subTest(more=more):
                out = self.folder / ("out" + "".join(more[:1]))
                process = self.start("train", f"--job={self.job}", f"--out={out}", "--workers=2", *more)
                self.assert_exit(process, 0)
                end = self.metrics(out)[-1]
                self.assertEqual(end["protocol"], "exact")
                for value, expected in zip(end["coefficients"], (1, 3, -2), strict=True):
                    self.assertAlmostEqual(value, expected, places=5)
                self.assertTrue((out / "weights.safetensors").is_file())
                self.assertTrue((out / "report.html").is_file())

    def test_check_says_so(self):
        process = self.start("check", f"--job={self.job}")
        self.assert_exit(process, 0)
        self.assertIn("the coordinator solves for the weights", process.output)
        self.assertNotIn("per epoch", process.output)
        process = self.start("check", f"--job={self.job}", "--set", "solver=ITERATIVE")
        self.assert_exit(process, 0)
        self.assertIn("per epoch", process.output)

    def test_what_cannot_be_solved(self):
        self.table.write_text("x,z,y\n1,2,3\n2,4,1\n3,6,2\n", encoding="utf-8")
        process = self.start("train", f"--job={self.job}", f"--out={self.out}")
        self.assert_exit(process, 1)
        self.assertIn('"z" is constant, or a linear combination of earlier features', process.output)
        process = self.start("train", f"--job={self.file('digits.textproto', QUICK_JOB)}", "--set", "solver=EXACT")
        self.assert_exit(process, 2)
        self.assertIn("solver: EXACT needs a linear model", process.output)
        process = self.start("train", f"--job={self.job}", f"--out={self.out}", "--resume")
        self.assert_exit(process, 2)
        self.assertIn("solver: EXACT makes no steps", process.output)


if __name__ == "__main__":
    run_tests()
