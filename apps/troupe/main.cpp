#include "actors/model/protocol_traits.hpp"
#include "apps/troupe/command_line.hpp"
#include "apps/troupe/commands.hpp"
#include "apps/troupe/completion.hpp"
#include "apps/troupe/session.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

namespace {

constexpr auto set_help =
  "Changes a field of the job, as in optimizer.momentum=0.8; may be repeated";
constexpr auto log_help =
  "Least level of the lines of the log, which get time stamps; without it: info";

// The names of types are shown by --help; shell completion is made from them.
constexpr auto log_levels = "{trace,debug,info,warn,error,off}";
constexpr auto roles = "{coordinator,ps,worker,ring,chief,master,evaluator}";

/// The names of all protocols, as a type.
std::string protocols() {
  return fmt::format("{{{}}}", fmt::join(troupe::protocol_names(), ","));
}

/// A number from `low` to `high`, which "nan" is not.
CLI::Validator within(double low, double high) {
  return {[low, high](const std::string& text) {
            char* end = nullptr;
            const double x = std::strtod(text.c_str(), &end);
            return x >= low && x <= high && *end == '\0'
              ? std::string{}
              : fmt::format("expected a number from {:g} to {:g}, got {}", low, high, text);
          },
          ""};
}

void add_job(CLI::App& sub, std::string& job, std::vector<std::string>& overrides) {
  sub.add_option("--job", job, "Job file")->required()->type_name("FILE");
  sub.add_option("--set", overrides, set_help)->allow_extra_args(false)->type_name("FIELD=VALUE");
}

void add_task(CLI::App& sub, troupe::task_options& x) {
  sub.add_option("--role", x.role, "Job of the task, as the cluster file calls it")
    ->type_name(roles);
  sub.add_option("--task", x.task, "Index of the task within its job (default: 0)");
  sub.add_option("--cluster", x.cluster, "Cluster file: a ClusterSpec in JSON")->type_name("FILE");
}

constexpr auto task_help =
  "Without --role, --task or --cluster, the \"task\" of the cluster file decides, and then the\n"
  "environment variable TF_CONFIG.\n\n";

void add_resume(CLI::App& sub, std::optional<std::string>& x) {
  sub
    .add_option_function<std::vector<std::string>>(
      "--resume",
      [&x](const std::vector<std::string>& given) {
        x = given.empty() ? std::string{} : given.front();
      },
      "Continue from the newest checkpoint in the output directory, or from DIR")
    ->expected(0, 1)
    ->type_name("[DIR]");
}

void add_transport(CLI::App& sub, std::string& x) {
  sub
    .add_option("--transport", x,
                "How processes exchange messages: through shared memory on one host, else by TCP "
                "(auto); always by TCP; or over the actor framework's own connection, for a "
                "firewall that lets nothing else through")
    ->check(CLI::IsMember{{"auto", "tcp", "basp"}})
    ->envname("TROUPE_TRANSPORT")
    ->type_name("{auto,tcp,basp}")
    ->capture_default_str();
}

CLI::App& add_node(CLI::App& app, troupe::node_command& x) {
  auto* sub = app.add_subcommand("node", "Run one task of a cluster");
  add_task(*sub, x.where);
  sub->add_option("--job", x.job, "Job file. The coordinator's is used; others must agree with it")
    ->type_name("FILE");
  sub->add_option("--out", x.out, "Output directory (coordinator); overrides the job's")
    ->type_name("DIR");
  sub->add_option("--set", x.overrides, set_help)
    ->allow_extra_args(false)
    ->type_name("FIELD=VALUE");
  sub->add_option("--log-level", x.log_level, log_help)->type_name(log_levels);
  sub
    ->add_option("--join-timeout", x.join_timeout,
                 "How long to wait for other tasks at the start (default: the job's, 60)")
    ->check(CLI::Validator{[](const std::string& text) {
                             char* end = nullptr;
                             const double x = std::strtod(text.c_str(), &end);
                             return x > 0 && *end == '\0'
                               ? std::string{}
                               : "expected a number of seconds above 0, got " + text;
                           },
                           ""})
    ->type_name("SECONDS");
  add_resume(*sub, x.resume);
  sub
    ->add_flag("--insecure", x.insecure,
               "Listen on addresses other than loopback, without encryption")
    ->envname("TROUPE_INSECURE");
  add_transport(*sub, x.transport);
  sub
    ->add_option("--channel-port", x.channel_port,
                 "TCP port where messages from other hosts come in (default: a free one)")
    ->type_name("PORT");
  sub->add_option("--ends-with-parent", x.parent)->group("");
  sub->footer(
    std::string{task_help}
    + "Examples:\n"
      "  troupe node --role=coordinator --cluster=cluster.json --job=job.textproto --out=out\n"
      "  troupe node --role=ps --task=1 --cluster=cluster.json\n"
      "  troupe node --role=worker --task=0 --cluster=cluster.json --log-level=debug");
  return *sub;
}

CLI::App& add_train(CLI::App& app, troupe::train_command& x) {
  auto* sub = app.add_subcommand("train", "Run a whole cluster on this host");
  add_job(*sub, x.job, x.overrides);
  sub->add_option("--workers", x.workers, "Number of workers")->capture_default_str();
  sub->add_option("--ps", x.ps,
                  "Number of parameter shards (default: 1; 0 where workers hold the weights)");
  sub->add_option("--protocol", x.protocol, "Overrides the job's")->type_name(protocols());
  sub->add_flag("--processes", x.processes, "One process per task, connected through loopback");
  add_transport(*sub, x.transport);
  sub->add_option("--out", x.out, "Output directory; overrides the job's")->type_name("DIR");
  add_resume(*sub, x.resume);
  sub->add_option("--log-level", x.log_level, log_help)->type_name(log_levels);
  sub->footer(
    "Examples:\n"
    "  troupe train --job=apps/examples/digits_mlp.textproto --workers=2 --ps=2 --out=out/digits\n"
    "  troupe train --job=job.textproto --workers=4 --protocol=ring --processes\n"
    "  troupe train --job=job.textproto --set optimizer.momentum=0.8 --set epochs=3");
  return *sub;
}

CLI::App& add_check(CLI::App& app, troupe::check_command& x) {
  auto* sub = app.add_subcommand("check", "Show what a job would do, and the memory it needs");
  add_job(*sub, x.job, x.overrides);
  auto* cluster = sub->add_option("--cluster", x.cluster, "Cluster file: a ClusterSpec in JSON")
                    ->type_name("FILE");
  sub->add_option("--workers", x.workers, "Number of workers, as in train")
    ->capture_default_str()
    ->excludes(cluster);
  sub
    ->add_option("--ps", x.ps,
                 "Number of parameter shards (default: 1; 0 where workers hold the weights)")
    ->excludes(cluster);
  sub->add_flag("--processes", x.processes, "One process per task, as in train")->excludes(cluster);
  sub->add_option("--protocol", x.protocol, "Overrides the job's")->type_name(protocols());
  sub->add_flag("--plan", x.plan,
                "Print the plan of a worker's step, too: instructions, FLOPs, bytes, memory");
  sub->footer("Examples:\n"
              "  troupe check --job=job.textproto --plan\n"
              "  troupe check --job=job.textproto --workers=4 --ps=2 --processes\n"
              "  troupe check --job=job.textproto --cluster=cluster.json --set data.batch=128");
  return *sub;
}

CLI::App& add_predict(CLI::App& app, troupe::predict_command& x) {
  auto* sub = app.add_subcommand("predict", "Test trained weights, and write what they predict");
  sub->add_option("--weights", x.weights, "Weights file, such as out/weights.safetensors")
    ->required()
    ->type_name("FILE");
  add_job(*sub, x.job, x.overrides);
  sub
    ->add_option("--predictions", x.predictions,
                 "Where to write a line of CSV per test record; - for standard output")
    ->type_name("FILE");
  sub->add_option("--show", x.show, "Draw this many test images with their predictions");
  auto* generate = sub->add_option("--generate", x.generate,
                                   "Models of text: write this many characters instead of testing");
  generate->check(CLI::Range(1, 1000000));
  sub->add_option("--prompt", x.prompt, "Text before the written characters; default: a line break")
    ->needs(generate);
  sub
    ->add_option(
      "--temperature", x.temperature,
      "0: always the likeliest character; 1: drawn with the model's probabilities; default: 1")
    ->check(within(0, 100))
    ->type_name("NUMBER")
    ->needs(generate);
  sub->add_option("--seed", x.text_seed, "Seed of the drawn characters; default: 1")
    ->needs(generate);
  sub->footer(
    "Examples:\n"
    "  troupe predict --weights=out/weights.safetensors --job=job.textproto --show=6\n"
    "  troupe predict --weights=out/weights.safetensors --job=job.textproto "
    "--predictions=predictions.csv\n"
    "  troupe predict --weights=out/weights.safetensors --job=job.textproto --generate=300 "
    "--prompt=\"ROMEO:\"");
  return *sub;
}

CLI::App& add_bench_async(CLI::App& bench, troupe::bench_async_command& x) {
  auto* sub =
    bench.add_subcommand("async", "What staleness costs, and how much each compensation helps");
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
  sub->add_option("--epochs", x.epochs, "Passes over the data (default: the work's own number)");
  sub->add_option("--ps", x.ps, "Parameter shards")->capture_default_str();
  sub->add_option("--rounds", x.rounds, "How often to measure speeds; 0: not at all")
    ->capture_default_str();
  sub->add_option("--jobs", x.jobs,
                  "Runs at a time, except while speeds are measured (default: one per processor)");
  sub->add_option("--peer", x.peer, "Also train the work mlp with this program")->type_name("{tf}");
  sub
    ->add_option("--python", x.python,
                 "Interpreter that has TensorFlow (default: python3, then /usr/bin/python3)")
    ->type_name("PATH");
  sub->add_flag("--json", x.json, "Results as JSON");
  sub->footer("The data is read from $TROUPE_DATA; `--work=digits` needs none.\n\n"
              "Examples:\n"
              "  troupe bench async --work=digits --workers=4,16 --seeds=1\n"
              "  troupe bench async --work=mlp,adam --workers=8,16,32,64 --recipes=AUTO,NONE\n"
              "  troupe bench async --work=straggler --seeds=1\n"
              "  troupe bench async --work=replicas --workers=4\n"
              "  troupe bench async --work=backup --seeds=3");
  return *sub;
}

CLI::App& add_bench_allreduce(CLI::App& bench, troupe::bench_allreduce_command& x) {
  auto* sub = bench.add_subcommand("allreduce", "Sums over threads or processes of this host");
  sub->add_option("--ranks", x.ranks, "How many threads or processes")->capture_default_str();
  sub->add_option("--sizes", x.sizes, "Lengths of the vector: bytes, KiB or MiB")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->capture_default_str()
    ->type_name("BYTES,...");
  sub->add_option("--rounds", x.rounds, "How often to measure each")->capture_default_str();
  sub->add_option("--schedule", x.schedule, "Who sends what to whom")
    ->capture_default_str()
    ->type_name("{auto,direct,ring}");
  sub->add_flag("--processes", x.processes, "A process per rank, instead of a thread");
  sub->add_option("--transport", x.transport, "Between processes; auto: shared memory")
    ->capture_default_str()
    ->type_name("{auto,tcp}");
  sub->add_option("--peer", x.peer, "Another program to measure in turns with this one")
    ->type_name("{gloo}");
  sub
    ->add_option("--python", x.python,
                 "Interpreter that has PyTorch (default: python3, then /usr/bin/python3)")
    ->type_name("PATH");
  sub->add_flag("--json", x.json, "Results as JSON");
  sub->add_option("--rank", x.rank)->group("");
  sub->add_option("--parent", x.parent)->group("");
  sub->add_option("--addresses", x.addresses)->delimiter(',')->allow_extra_args(false)->group("");
  sub->footer("Examples:\n"
              "  troupe bench allreduce --ranks=4\n"
              "  troupe bench allreduce --ranks=4 --sizes=1MiB,64MiB --processes --peer=gloo");
  return *sub;
}

CLI::App& add_bench_ps(CLI::App& bench, troupe::bench_ps_command& x) {
  auto* sub = bench.add_subcommand(
    "ps", "Push, momentum update and pull, with a parameter store of this host");
  sub->add_option("--servers", x.servers, "How many servers")->capture_default_str();
  sub->add_option("--workers", x.workers, "How many clients")->capture_default_str();
  auto* bytes = sub->add_option("--bytes", x.bytes, "Length of a push: bytes, KiB or MiB")
                  ->delimiter(',')
                  ->allow_extra_args(false)
                  ->capture_default_str()
                  ->type_name("BYTES,...");
  auto* keys = sub
                 ->add_option("--keys", x.keys,
                              "Instead of --bytes: so many ranges in each push, with gaps between")
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

CLI::App& add_bench_cluster(CLI::App& bench, troupe::bench_cluster_command& x) {
  auto* sub = bench.add_subcommand("cluster", "Workers of this host that train together");
  sub->add_option("--workers", x.workers, "How many workers")->capture_default_str();
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
  sub->add_option("--rounds", x.rounds, "How often to measure each")->capture_default_str();
  sub->add_option("--set", x.overrides, "Changes a field of the job, as for `train`; repeatable")
    ->allow_extra_args(false)
    ->type_name("FIELD=VALUE");
  sub->add_option("--peer", x.peer, "Another program to measure in turns with this one")
    ->type_name("{ddp}");
  sub
    ->add_option("--python", x.python,
                 "Interpreter that has PyTorch (default: python3, then /usr/bin/python3)")
    ->type_name("PATH");
  sub->add_flag("--json", x.json, "Results as JSON");
  sub->footer("Examples:\n"
              "  troupe bench cluster --peer=ddp\n"
              "  troupe bench cluster --work=mlp-256,cnn --protocols=ring --transports=auto,tcp");
  return *sub;
}

void add_bench(CLI::App& app, troupe::bench_train_command& train,
               troupe::bench_kernels_command& kernels, troupe::bench_async_command& async,
               troupe::bench_allreduce_command& allreduce, troupe::bench_cluster_command& cluster,
               troupe::bench_ps_command& ps, std::function<int()>& action) {
  auto* sub =
    app.add_subcommand("bench", "Measure how fast this machine trains, and what asynchrony costs");
  sub->require_subcommand(1);
  sub->footer("Examples:\n"
              "  troupe bench train --peer=torch\n"
              "  troupe bench async --work=digits --workers=4,16 --seeds=1");
  const auto positive = within(1e-6, 3600);
  auto* models = sub->add_subcommand("train", "Whole steps of some models, also in PyTorch");
  models->add_option("--peer", train.peer, "Another program to measure in turns with this one")
    ->type_name("{torch}");
  models
    ->add_option("--python", train.python,
                 "Interpreter that has PyTorch (default: python3, then /usr/bin/python3)")
    ->type_name("PATH");
  models->add_option("--work", train.works, "Which model; may be repeated (default: all)")
    ->allow_extra_args(false)
    ->type_name("NAME");
  models->add_option("--threads", train.threads, "Threads to compute with")->capture_default_str();
  models->add_option("--rounds", train.rounds, "How often to measure")->capture_default_str();
  models->add_option("--seconds", train.seconds, "Least length of a round")
    ->check(positive)
    ->capture_default_str();
  models->add_flag("--processor-time", train.processor_time,
                   "Measure the processor time of the computing thread: for a busy machine");
  models->add_flag("--profile", train.profile, "Also show where the time of a step goes");
  models->add_flag("--json", train.json, "Results as JSON");
  models->footer("Examples:\n"
                 "  troupe bench train --peer=torch\n"
                 "  troupe bench train --work=mlp-64 --work=cnn --threads=2 --profile");
  models->callback([&] {
    action = [&] {
      troupe::unblock_stop_signals();
      return troupe::run(train);
    };
  });
  auto* parts = sub->add_subcommand("kernels", "Products of matrices, updates, operations");
  parts->add_option("--rounds", kernels.rounds, "How often to measure")->capture_default_str();
  parts->add_option("--seconds", kernels.seconds, "Time for each comparison")
    ->check(positive)
    ->capture_default_str();
  parts->add_option("--elements", kernels.elements, "Length of arrays that fit no cache")
    ->capture_default_str();
  parts->add_flag("--json", kernels.json, "Results as JSON");
  parts->footer("Examples:\n"
                "  troupe bench kernels --rounds=5");
  parts->callback([&] {
    action = [&] {
      troupe::unblock_stop_signals();
      return troupe::run(kernels);
    };
  });
  add_bench_async(*sub, async).callback([&] {
    action = [&] {
      troupe::unblock_stop_signals();
      return troupe::run(async);
    };
  });
  add_bench_allreduce(*sub, allreduce).callback([&] {
    action = [&] {
      troupe::unblock_stop_signals();
      return troupe::run(allreduce);
    };
  });
  add_bench_ps(*sub, ps).callback([&] {
    action = [&] {
      troupe::unblock_stop_signals();
      return troupe::run(ps);
    };
  });
  add_bench_cluster(*sub, cluster).callback([&] {
    action = [&] {
      troupe::unblock_stop_signals();
      return troupe::run(cluster);
    };
  });
}

CLI::App& add_export(CLI::App& app, troupe::export_command& x) {
  auto* sub = app.add_subcommand("export", "Write a trained model as an ONNX file");
  sub
    ->add_option("--weights", x.weights,
                 "Weights file, such as out/weights.safetensors, or the output directory")
    ->required()
    ->type_name("FILE");
  add_job(*sub, x.job, x.overrides);
  sub->add_option("--output", x.output, "The file to write")->required()->type_name("FILE");
  sub->footer("Examples:\n"
              "  troupe export --weights=out --job=job.textproto --output=model.onnx");
  return *sub;
}

CLI::App& add_completion(CLI::App& app, std::string& shell) {
  auto* sub = app.add_subcommand("completion", "Print a script that completes this command line");
  sub->add_option("shell", shell, "The shell that will read it")
    ->required()
    ->type_name("{bash,zsh,fish}");
  sub->footer("Examples:\n"
              "  source <(troupe completion bash)\n"
              "  troupe completion zsh > ~/.zfunc/_troupe\n"
              "  troupe completion fish > ~/.config/fish/completions/troupe.fish");
  return *sub;
}

int complain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string unknown;
  if (error.get_exit_code() != 0)
    unknown = troupe::unknown_word(app, {argv + 1, static_cast<std::size_t>(argc - 1)});
  if (unknown.empty() && dynamic_cast<const CLI::ConversionError*>(&error))
    unknown = fmt::format("{}; expected a whole number, 0 to 4294967295", error.what());
  if (unknown.empty())
    return app.exit(error) == 0 ? troupe::exit_done : troupe::exit_bad_input;
  fmt::print(stderr, "troupe: {}\nRun with --help for more information.\n", unknown);
  return troupe::exit_bad_input;
}

CLI::App& add_doctor(CLI::App& app, troupe::doctor_command& x) {
  auto* sub = app.add_subcommand("doctor", "Show which tasks of a cluster reach each other");
  add_task(*sub, x.where);
  sub->footer(std::string{task_help}
              + "Examples:\n"
                "  troupe doctor --cluster=cluster.json\n"
                "  troupe doctor --cluster=cluster.json --role=worker --task=1");
  return *sub;
}

} // namespace

#ifdef __SANITIZE_ADDRESS__
// The framework's broker can be left with messages that came while it ended.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libcaf_io\n";
}
#endif

int main(int argc, char** argv) {
  troupe::block_stop_signals();
  CLI::App app{"troupe trains a model on many machines with actors", "troupe"};
  app.set_version_flag("--version", troupe::version_text());
  app.require_subcommand(1);
  app.footer("Examples:\n"
             "  troupe train --job=apps/examples/digits_mlp.textproto --workers=2 --ps=2\n"
             "  troupe train --help");
  std::function<int()> action;
  troupe::node_command node;
  troupe::train_command train;
  troupe::check_command check;
  troupe::predict_command predict;
  troupe::export_command exporting;
  troupe::doctor_command doctor;
  troupe::bench_train_command bench_train;
  troupe::bench_kernels_command bench_kernels;
  troupe::bench_async_command bench_async;
  troupe::bench_allreduce_command bench_allreduce;
  troupe::bench_ps_command bench_ps;
  troupe::bench_cluster_command bench_cluster;
  std::string shell;
  add_node(app, node).callback([&] { action = [&] { return troupe::run(node); }; });
  add_train(app, train).callback([&] { action = [&] { return troupe::run(train); }; });
  add_check(app, check).callback([&] { action = [&] { return troupe::run(check); }; });
  add_predict(app, predict).callback([&] {
    action = [&] {
      troupe::unblock_stop_signals();
      return troupe::run(predict);
    };
  });
  add_export(app, exporting).callback([&] { action = [&] { return troupe::run(exporting); }; });
  add_doctor(app, doctor).callback([&] { action = [&] { return troupe::run(doctor); }; });
  add_bench(app, bench_train, bench_kernels, bench_async, bench_allreduce, bench_cluster, bench_ps,
            action);
  add_completion(app, shell).callback([&] {
    action = [&] {
      fmt::print("{}", troupe::completion_script(app, shell));
      return troupe::exit_done;
    };
  });
  try {
    app.parse(argc, argv);
    const int code = action();
    // The results of these are files.
    const bool files = app.got_subcommand("train") || app.got_subcommand("node");
    if (!files && code == troupe::exit_done
        && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0))
      throw std::runtime_error{"cannot write to standard output: the text is not complete"};
    return code;
  } catch (const CLI::ParseError& error) {
    return complain(app, error, argc, argv);
  } catch (const troupe::input_error& error) {
    fmt::print(stderr, "troupe: {}\n", troupe::printable(error.what(), true));
    return troupe::exit_bad_input;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "troupe: there is not enough memory for this model, batch or data; make them "
               "smaller, or spread the parameters over more servers\n");
    return troupe::exit_failed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "troupe: {}\n", troupe::printable(error.what(), true));
    return troupe::exit_failed;
  }
}
