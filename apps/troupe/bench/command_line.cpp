#include "apps/troupe/bench/command_line.hpp"

#include "apps/troupe/session.hpp"
#include "apps/troupe/within.hpp"

#include <CLI/CLI.hpp>

#include <string>

namespace troupe {

namespace {

void add_python(CLI::App& sub, std::string& x, const std::string& library) {
  sub
    .add_option("--python", x,
                "Interpreter that has " + library + " (default: python3, then /usr/bin/python3)")
    ->type_name("PATH");
}

/// After parsing, `action` runs the command `x` if the user chose this subcommand.
template <class Command>
void on_call(CLI::App& sub, Command& x, std::function<int()>& action) {
  sub.callback([&x, &action] { action = [&x] { return run(x); }; });
}

CLI::App& add_bench_async(CLI::App& bench, bench_async_command& x) {
  auto* sub = bench.add_subcommand(
    "async", "Measure the cost of staleness, and the effect of each compensation");
  sub
    ->add_option("--work", x.works,
                 "Works, separated by commas: mlp, nesterov, sgd, adam, rate4, standardized, "
                 "digits, a9a, slow, slow_in_turns, lenet, lstm, straggler, replicas, backup")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->capture_default_str()
    ->type_name("NAME,...");
  sub->add_option("--workers", x.workers, "Numbers of workers")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->capture_default_str()
    ->type_name("N,...");
  sub
    ->add_option("--recipes", x.recipes,
                 "Kinds of async_ps.compensation, BUFFERED, PULL_AHEAD, SSP (ssp.staleness: 4), "
                 "HOGWILD or SYNC_PS (default: all)")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->type_name("NAME,...");
  sub->add_option("--seeds", x.seeds, "Runs of each kind")->capture_default_str();
  sub->add_option("--epochs", x.epochs, "Passes over the data (default: as in the example)");
  sub->add_option("--ps", x.ps, "Parameter shards")->capture_default_str();
  sub->add_option("--rounds", x.rounds, "Number of measurements of speed; 0: none")
    ->capture_default_str();
  sub->add_option("--jobs", x.jobs,
                  "Parallel runs, except while speeds are measured (default: one per processor)");
  sub->add_option("--peer", x.peer, "Also train the work mlp with this program")->type_name("{tf}");
  add_python(*sub, x.python, "TensorFlow");
  sub->add_flag("--json", x.json, "Results as JSON");
  sub->footer("The data is read from $TROUPE_DATA; `--work=digits` needs no data.\n\n"
              "Examples:\n"
              "  troupe bench async --work=digits --workers=4,16 --seeds=1\n"
              "  troupe bench async --work=mlp,adam --workers=8,16,32,64 --recipes=AUTO,NONE\n"
              "  troupe bench async --work=straggler --seeds=1\n"
              "  troupe bench async --work=replicas --workers=4\n"
              "  troupe bench async --work=backup --seeds=3");
  return *sub;
}

CLI::App& add_bench_allreduce(CLI::App& bench, bench_allreduce_command& x) {
  auto* sub =
    bench.add_subcommand("allreduce", "Measure all-reduces over threads or processes of this host");
  sub->add_option("--ranks", x.ranks, "Number of threads or processes")->capture_default_str();
  sub->add_option("--sizes", x.sizes, "Lengths of the vector: bytes, KiB or MiB")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->capture_default_str()
    ->type_name("BYTES,...");
  sub->add_option("--rounds", x.rounds, "Number of measurements of each")->capture_default_str();
  sub->add_option("--schedule", x.schedule, "Schedule of the messages")
    ->capture_default_str()
    ->type_name("{auto,direct,ring,one_shot}");
  sub->add_flag("--processes", x.processes, "Run each rank in a process instead of a thread");
  sub->add_option("--transport", x.transport, "Transport between processes; auto: shared memory")
    ->capture_default_str()
    ->type_name("{auto,tcp}");
  sub
    ->add_option("--peer", x.peer,
                 "Another program to compare with; the two are measured alternately")
    ->type_name("{gloo,mpi}");
  add_python(*sub, x.python, "PyTorch");
  sub->add_flag("--json", x.json, "Results as JSON");
  sub->add_option("--rank", x.rank)->group("");
  sub->add_option("--parent", x.parent)->group("");
  sub->add_option("--addresses", x.addresses)->delimiter(',')->allow_extra_args(false)->group("");
  sub->footer("Examples:\n"
              "  troupe bench allreduce --ranks=4\n"
              "  troupe bench allreduce --ranks=4 --sizes=1MiB,64MiB --processes --peer=gloo");
  return *sub;
}

CLI::App& add_bench_ps(CLI::App& bench, bench_ps_command& x) {
  auto* sub = bench.add_subcommand(
    "ps", "Push, momentum update and pull, with a parameter store of this host");
  sub->add_option("--servers", x.servers, "How many servers")->capture_default_str();
  sub->add_option("--workers", x.workers, "How many clients")->capture_default_str();
  auto* bytes = sub->add_option("--bytes", x.bytes, "Length of a push: bytes, KiB or MiB")
                  ->delimiter(',')
                  ->allow_extra_args(false)
                  ->capture_default_str()
                  ->type_name("BYTES,...");
  auto* keys =
    sub
      ->add_option("--keys", x.keys,
                   "Number of ranges in each push, with gaps between them (instead of --bytes)")
      ->excludes(bytes);
  sub->add_option("--bytes-per-key", x.bytes_per_key, "Length of each range")
    ->capture_default_str()
    ->needs(keys);
  sub->add_option("--rounds", x.rounds, "Round trips per size")->capture_default_str();
  sub->add_flag("--processes", x.processes, "A process per server and worker, instead of threads");
  sub->add_option("--transport", x.transport, "Between processes; auto: shared memory")
    ->capture_default_str()
    ->type_name("{auto,tcp,basp}");
  sub->add_flag("--json", x.json, "Results as JSON");
  sub->add_option("--server", x.server)->group("");
  sub->add_option("--worker", x.worker)->group("");
  sub->add_option("--parent", x.parent)->group("");
  sub->add_option("--stores", x.stores)->delimiter(',')->allow_extra_args(false)->group("");
  sub->add_option("--meeting", x.meeting)->delimiter(',')->allow_extra_args(false)->group("");
  sub->footer("Examples:\n"
              "  troupe bench ps --workers=8 --bytes=4KiB\n"
              "  troupe bench ps --servers=2 --workers=2 --bytes=16MiB --processes\n"
              "  troupe bench ps --keys=1024 --bytes-per-key=256 --processes --transport=tcp");
  return *sub;
}

CLI::App& add_bench_cluster(CLI::App& bench, bench_cluster_command& x) {
  auto* sub = bench.add_subcommand("cluster", "Measure workers that train together on this host");
  sub->add_option("--workers", x.workers, "Number of workers")->capture_default_str();
  sub->add_option("--work", x.works, "Models: mlp-64, mlp-256, cnn")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->capture_default_str()
    ->type_name("NAME,...");
  sub->add_option("--protocols", x.protocols, "Protocols")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->capture_default_str()
    ->type_name("NAME,...");
  sub
    ->add_option("--transports", x.transports,
                 "threads: one process; auto, tcp, basp: a process per task")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->capture_default_str()
    ->type_name("NAME,...");
  sub->add_option("--epochs", x.epochs, "Passes over the data")->capture_default_str();
  sub->add_option("--rounds", x.rounds, "Number of measurements of each")->capture_default_str();
  sub
    ->add_option("--set", x.overrides,
                 "Change a field of the job, as with `train`; may be repeated")
    ->allow_extra_args(false)
    ->type_name("FIELD=VALUE");
  sub
    ->add_option("--peer", x.peers,
                 "Other programs to compare with; all are measured in turns: ddp (PyTorch), tf "
                 "(TensorFlow, only models with dense layers)")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->type_name("{ddp,tf}");
  add_python(*sub, x.python, "PyTorch or TensorFlow");
  sub->add_flag("--json", x.json, "Results as JSON");
  sub->footer("Examples:\n"
              "  troupe bench cluster --peer=ddp,tf\n"
              "  troupe bench cluster --work=mlp-256,cnn --protocols=ring --transports=auto,tcp");
  return *sub;
}

CLI::App& add_bench_gpu(CLI::App& bench, bench_gpu_command& x) {
  auto* sub = bench.add_subcommand(
    "gpu", "Measure updates, operations, products and training steps on a GPU");
  sub->add_option("--device", x.device, "Number of the GPU")->capture_default_str();
  auto* const peer =
    sub->add_option("--peer", x.peer, "Another program that trains the same models on this GPU")
      ->type_name("{torch}");
  add_python(*sub, x.python, "PyTorch");
  sub
    ->add_option("--peer-mode", x.peer_modes,
                 "How the peer runs; may be repeated (default: all): eager, graph, compile")
    ->allow_extra_args(false)
    ->check(CLI::IsMember({"eager", "graph", "compile"}))
    ->needs(peer)
    ->type_name("MODE");
  sub
    ->add_option("--measure", x.measures,
                 "Part to measure; may be repeated (default: all): memory, products, training, "
                 "workers")
    ->allow_extra_args(false)
    ->type_name("NAME");
  sub->add_option("--work", x.works, "Model to train; may be repeated (default: all)")
    ->allow_extra_args(false)
    ->type_name("NAME");
  sub->add_option("--rounds", x.rounds, "Number of measurements")->capture_default_str();
  sub->add_option("--seconds", x.seconds, "Shortest duration of a round")
    ->check(within(1e-6, 3600))
    ->capture_default_str();
  sub->add_flag("--json", x.json, "Results as JSON");
  sub->footer("Examples:\n"
              "  troupe bench gpu --peer=torch\n"
              "  troupe bench gpu --device=1 --measure=memory --measure=products\n"
              "  troupe bench gpu --measure=training --work=mlp-64 --work=gpt --json");
  return *sub;
}

} // namespace

void add_bench(CLI::App& app, bench_commands& x, std::function<int()>& action) {
  auto* sub = app.add_subcommand(
    "bench", "Measure the speed of training on this machine, and the cost of asynchrony");
  sub->require_subcommand(1);
  sub->footer("Examples:\n"
              "  troupe bench train --peer=torch\n"
              "  troupe bench async --work=digits --workers=4,16 --seeds=1");
  const auto positive = within(1e-6, 3600);
  auto* models =
    sub->add_subcommand("train", "Measure training steps of some models, also with PyTorch");
  models
    ->add_option("--peer", x.train.peer,
                 "Another program to compare with; the two are measured alternately")
    ->type_name("{torch}");
  add_python(*models, x.train.python, "PyTorch");
  models->add_option("--work", x.train.works, "Model to measure; may be repeated (default: all)")
    ->allow_extra_args(false)
    ->type_name("NAME");
  models->add_option("--threads", x.train.threads, "Number of threads")->capture_default_str();
  models->add_option("--rounds", x.train.rounds, "Number of measurements")->capture_default_str();
  models->add_option("--seconds", x.train.seconds, "Shortest duration of a round")
    ->check(positive)
    ->capture_default_str();
  models->add_flag("--processor-time", x.train.processor_time,
                   "Measure the processor time of the computing thread, for busy machines");
  models->add_flag("--profile", x.train.profile, "Also show where the time of a step goes");
  models->add_flag("--json", x.train.json, "Results as JSON");
  models->footer("Examples:\n"
                 "  troupe bench train --peer=torch\n"
                 "  troupe bench train --work=mlp-64 --work=cnn --threads=2 --profile");
  on_call(*models, x.train, action);
  auto* parts = sub->add_subcommand("kernels", "Measure matrix products, updates and operations");
  parts->add_option("--rounds", x.kernels.rounds, "Number of measurements")->capture_default_str();
  parts->add_option("--seconds", x.kernels.seconds, "Time for each comparison")
    ->check(positive)
    ->capture_default_str();
  parts
    ->add_option("--elements", x.kernels.elements,
                 "Length of arrays that are too large for the cache")
    ->capture_default_str();
  parts->add_flag("--json", x.kernels.json, "Results as JSON");
  parts->footer("Examples:\n"
                "  troupe bench kernels --rounds=5");
  on_call(*parts, x.kernels, action);
  on_call(add_bench_gpu(*sub, x.gpu), x.gpu, action);
  on_call(add_bench_async(*sub, x.async), x.async, action);
  on_call(add_bench_allreduce(*sub, x.allreduce), x.allreduce, action);
  on_call(add_bench_ps(*sub, x.ps), x.ps, action);
  on_call(add_bench_cluster(*sub, x.cluster), x.cluster, action);
}

} // namespace troupe
