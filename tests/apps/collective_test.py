"""All-reduce over processes: the example, and ranks that are killed or stopped."""

import os
import re
import signal

from program import SOURCE, TestCase, free_ports, run_tests

EXAMPLE = os.environ.get("TROUPE_ALLREDUCE", str(SOURCE / "build/release/apps/allreduce"))
RANK = os.environ.get("TROUPE_ALLREDUCE_RANK", str(SOURCE / "build/release/tests/apps/allreduce_rank"))

DEADLINE_MS = 4000


class Collective(TestCase):
    def addresses(self, ranks):
        return [f"127.0.0.1:{port}" for port in free_ports(ranks)]

    def start_ranks(self, ranks, schedule, transport):
        """Starts processes that repeat all-reduces. Returns when each has completed some."""
        addresses = self.addresses(ranks)
        result = [self.start(str(rank), str(DEADLINE_MS), schedule, transport, *addresses, program=(RANK,))
                  for rank in range(ranks)]
        for process in result:
            process.wait_for("works")
        return result

    def test_the_example_prints_the_same_from_threads_and_processes(self):
        alone = self.start(program=(EXAMPLE,), name="threads")
        self.assert_exit(alone, 0)
        self.assertRegex(alone.output, r"^[\d.]+ [\d.]+ [\d.]+ [\d.]+\s*$")
        addresses = self.addresses(3)
        processes = [self.start(str(rank), *addresses, program=(EXAMPLE,)) for rank in range(3)]
        for process in processes:
            self.assert_exit(process, 0)
            self.assertEqual(process.output, alone.output)

    def assert_others_blame(self, processes, rank, code):
        """Each process ends with exit code 3. Its error names the rank, its step, and the time without messages."""
        for i, process in enumerate(processes):
            if i == rank:
                continue
            self.assert_exit(process, 3)
            found = re.search(r"^(.*), rank (\d+), step (\d+), after (\d+) ms: (.*)$", process.output, re.M)
            self.assertTrue(found, process.output)
            self.assertIn(found[1], code, process.output)
            self.assertEqual(int(found[2]), rank, process.output)
            if found[1] == "timed out":
                self.assertGreaterEqual(int(found[4]), DEADLINE_MS, process.output)

    def test_a_rank_that_is_killed(self):
        for schedule, transport in (("direct", "auto"), ("ring", "auto"), ("direct", "tcp"), ("ring", "tcp")):
            with self.subTest(schedule=schedule, transport=transport):
                processes = self.start_ranks(3, schedule, transport)
                processes[1].send(signal.SIGKILL)
                self.assert_others_blame(processes, 1, {"link lost", "timed out"})

    def test_a_rank_that_is_stopped(self):
        for schedule, transport in (("direct", "auto"), ("ring", "tcp")):
            with self.subTest(schedule=schedule, transport=transport):
                processes = self.start_ranks(3, schedule, transport)
                processes[1].send(signal.SIGSTOP)
                self.assert_others_blame(processes, 1, {"link lost", "timed out"})
                # The stopped process learns about the failure when it continues.
                processes[1].send(signal.SIGCONT)
                self.assert_exit(processes[1], 3)


if __name__ == "__main__":
    run_tests()
