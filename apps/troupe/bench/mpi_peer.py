"""The all-reduces of `troupe bench allreduce` with OpenMPI. It takes orders from standard input.

The first order is a line of JSON with the number of ranks. The answer is a line of JSON with the version of OpenMPI.
Each further order is a line for a round: elements of the vector, and number of all-reduces. The answer is a line of
JSON: the seconds of each all-reduce on rank 0, and whether all sums were right. The ranks are processes of a C program,
which is compiled here. Ranks of MPI spin while they wait. Therefore, they are stopped (SIGSTOP) between rounds.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

SOURCE = r"""
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* Ends with mpirun, even while it is stopped. */
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  long own = getpid();
  long* all = malloc(ranks * sizeof *all);
  MPI_Gather(&own, 1, MPI_LONG, all, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    for (int r = 0; r < ranks; ++r)
      printf("%ld ", all[r]);
    printf("\n");
    fflush(stdout);
  }
  for (;;) {
    long order[2] = {0, 0};
    if (rank == 0 && scanf("%ld %ld", &order[0], &order[1]) != 2)
      order[1] = 0;
    MPI_Bcast(order, 2, MPI_LONG, 0, MPI_COMM_WORLD);
    const long elements = order[0], times = order[1];
    if (times == 0)
      break;
    float* x = malloc((elements + 1) * sizeof *x);
    float* sum = malloc((elements + 1) * sizeof *sum);
    int right = 1;
    if (rank == 0)
      printf("{\"seconds\": [");
    for (long k = 0; k < times; ++k) {
      const float factor = (rank + 1) * (k % 2 + 1);
      for (long i = 0; i < elements; ++i) {
        x[i] = factor * (i % 5 + 1);
        sum[i] = 0;
      }
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      MPI_Allreduce(x, sum, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      const double end = MPI_Wtime();
      const float whole = ranks * (ranks + 1) / 2 * (k % 2 + 1);
      for (long i = 0; i < elements; ++i)
        right = right && sum[i] == whole * (i % 5 + 1);
      if (rank == 0)
        printf("%s%.9f", k == 0 ? "" : ", ", end - begin);
    }
    int all_right = 0;
    MPI_Reduce(&right, &all_right, 1, MPI_INT, MPI_LAND, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      printf("], \"right\": %s}\n", all_right ? "true" : "false");
      fflush(stdout);
    }
    free(x);
    free(sum);
  }
  MPI_Finalize();
  return 0;
}
"""


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def answer(**fields):
    print(json.dumps(fields), flush=True)


def give_up(reason):
    answer(error=reason)
    sys.exit(0)


die_with_parent()
for program in ("mpicc", "mpirun"):
    if not shutil.which(program):
        give_up(f"there is no {program}")

ranks = json.loads(sys.stdin.buffer.readline())["ranks"]
with tempfile.TemporaryDirectory() as folder:
    binary = os.path.join(folder, "ranks")
    done = subprocess.run(["mpicc", "-O2", "-x", "c", "-", "-o", binary], input=SOURCE, text=True, capture_output=True,
                          check=False)
    if done.returncode != 0:
        give_up("mpicc: " + done.stderr.strip())
    # By default, mpirun refuses to run as root, and to start more ranks than there are cores.
    mpi = subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), binary],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                           preexec_fn=die_with_parent)
    pids = [int(x) for x in mpi.stdout.readline().split()]
if len(pids) != ranks:
    give_up("mpirun did not start the ranks")


def tell_ranks(what):
    for pid in pids:
        os.kill(pid, what)


tell_ranks(signal.SIGSTOP)
version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout.split()
answer(version=next(x for x in version if x[0].isdigit()))
for line in sys.stdin:
    tell_ranks(signal.SIGCONT)
    mpi.stdin.write(line)
    mpi.stdin.flush()
    print(mpi.stdout.readline(), end="", flush=True)
    tell_ranks(signal.SIGSTOP)
tell_ranks(signal.SIGCONT)
mpi.stdin.close()
try:
    mpi.wait(10)
except subprocess.TimeoutExpired:
    mpi.kill()
