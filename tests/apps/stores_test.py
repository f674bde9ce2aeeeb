"""A parameter store of processes: the example, and servers that are killed, stopped or started again."""

import os
import re
import signal

from program import SOURCE, TestCase, free_ports, run_tests

EXAMPLE = os.environ.get("TROUPE_STORE", str(SOURCE / "build/release/apps/store"))
PUSHER = os.environ.get("TROUPE_STORE_PUSHER", str(SOURCE / "build/release/tests/apps/store_pusher"))

DEADLINE_MS = 3000

# Limits the freed memory that AddressSanitizer keeps. These tests check that memory does not grow.
LITTLE_KEPT = {
    "ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:" + os.environ.get("ASAN_OPTIONS", "")
}

# In `flood`, the client pushes 4 GB in total. A push has 391 KiB, and the client may keep a few of them.
MOST_GROWTH_KIB = 8 << 10


class Store(TestCase):
    def addresses(self, servers):
        return [f"127.0.0.1:{port}" for port in free_ports(servers)]

    def test_the_example_with_threads_and_processes(self):
        alone = self.start(program=(EXAMPLE,), name="threads")
        self.assert_exit(alone, 0)
        self.assertEqual(alone.output.split(), ["1.000", "2.000", "3.000", "4.000"] * 3)
        addresses = self.addresses(2)
        servers = [self.start("server", str(x), *addresses, program=(EXAMPLE,)) for x in range(2)]
        clients = [self.start("client", str(x), *addresses, program=(EXAMPLE,)) for x in range(3)]
        for client in clients:
            self.assert_exit(client, 0)
        for server in servers:
            self.assertTrue(server.running(), server.output)

    def start_server(self, index, transport, addresses):
        server = self.start(str(index), str(DEADLINE_MS), transport, *addresses, program=(PUSHER,))
        server.wait_for("listens")
        return server

    def start_all(self, transport, role="client"):
        """Starts two servers and a client. Returns when the client has pushed."""
        addresses = self.addresses(2)
        servers = [self.start_server(x, transport, addresses) for x in range(2)]
        client = self.start(role, str(DEADLINE_MS), transport, *addresses, program=(PUSHER,), name="client",
                            environment=LITTLE_KEPT)
        client.wait_for("works")
        return addresses, servers, client

    def test_a_server_that_is_killed_and_started_again(self):
        for transport in ("automatic", "tcp", "basp"):
            with self.subTest(transport=transport):
                addresses, servers, client = self.start_all(transport)
                servers[1].send(signal.SIGKILL)
                self.assertRegex(client.wait_for(", server 1: "), "^(link lost|timed out), server 1: server 1 at ")
                # The server is started again, but its values are lost.
                servers[1].wait()
                self.start_server(1, transport, addresses)
                self.assert_exit(client, 3)
                self.assertIn("the server has restarted", client.output)

    def test_a_server_that_is_stopped(self):
        for transport in ("automatic", "tcp", "basp"):
            with self.subTest(transport=transport):
                _, servers, client = self.start_all(transport)
                servers[0].send(signal.SIGSTOP)
                self.assertRegex(client.wait_for(", server 0: "), "^(link lost|timed out), server 0: server 0 at ")
                servers[0].send(signal.SIGCONT)
                self.assert_exit(client, 0)
                self.assertIn("each once", client.output)

    def test_pushes_against_a_stopped_server_take_no_memory(self):
        for transport in ("automatic", "tcp", "basp"):
            with self.subTest(transport=transport):
                _, servers, client = self.start_all(transport, "flood")
                servers[0].send(signal.SIGSTOP)
                client.wait_for(", server 0: ")
                line = client.wait_for("flood: ")
                print(f"{transport}: {line}", flush=True)
                accepted, refused, growth = map(int, re.findall(r"-?\d+", line))
                self.assertEqual(accepted + refused, 10_000)
                # The client may only have a few unanswered pushes, so it does not accept more.
                self.assertLess(accepted, 100)
                self.assertLess(growth, MOST_GROWTH_KIB)
                servers[0].send(signal.SIGCONT)
                self.assert_exit(client, 0)
                self.assertIn("each once", client.output)


if __name__ == "__main__":
    run_tests()
