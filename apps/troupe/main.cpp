#include "actors/model/device_placement.hpp"
#include "actors/model/protocol_traits.hpp"
#include "apps/troupe/bench/command_line.hpp"
#include "apps/troupe/command_line.hpp"
#include "apps/troupe/commands.hpp"
#include "apps/troupe/completion.hpp"
#include "apps/troupe/exit_code.hpp"
#include "apps/troupe/stop_signals.hpp"
#include "apps/troupe/within.hpp"
#include "kernels/devices/device_error.hpp"
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
#include <vector>

namespace {

constexpr auto set_help =
  "Change a field of the job, as in optimizer.momentum=0.8; may be repeated";
constexpr auto log_help =
  "Lowest level in the log, with time stamps (default: info, without time stamps)";

// Type names of options, which --help shows. They list the possible values, so that shell
// completion can offer these values.
constexpr auto log_levels = "{trace,debug,info,warn,error,off}";
constexpr auto roles = "{coordinator,ps,worker,ring,chief,master,evaluator}";

/// The names of all protocols, as the type name of an option.
std::string protocols() {
  return fmt::format("{{{}}}", fmt::join(troupe::protocol_names(), ","));
}

void add_job(CLI::App& sub, std::string& job, std::vector<std::string>& overrides) {
  sub.add_option("--job", job, "Job file")->required()->type_name("FILE");
  sub.add_option("--set", overrides, set_help)->allow_extra_args(false)->type_name("FIELD=VALUE");
}

void add_task(CLI::App& sub, troupe::task_options& x) {
  sub.add_option("--role", x.role, "Job of the task, as named in the cluster file")
    ->type_name(roles);
  sub.add_option("--task", x.task, "Index of the task within its job (default: 0)");
  sub.add_option("--cluster", x.cluster, "Cluster file: a ClusterSpec in JSON")->type_name("FILE");
}

constexpr auto task_help =
  "Missing values come from \"task\" in the cluster file, then from the environment variable\n"
  "TF_CONFIG.\n\n";

void add_resume(CLI::App& sub, std::optional<std::string>& x) {
  sub
    .add_option_function<std::vector<std::string>>(
      "--resume",
      [&x](const std::vector<std::string>& given) {
        x = given.empty() ? std::string{} : given.front();
      },
      "Continue from DIR, or from the newest checkpoint in the output directory if there is one")
    ->expected(0, 1)
    ->type_name("[DIR]");
}

void add_devices(CLI::App& sub, std::vector<std::uint32_t>& x) {
  sub
    .add_option("--devices", x,
                "GPUs of this host that tasks may use, as in 2,3: GPU:0 is then number 2. Default: "
                "all")
    ->delimiter(',')
    ->allow_extra_args(false)
    ->type_name("NUMBERS");
}

void add_transport(CLI::App& sub, std::string& x) {
  sub
    .add_option(
      "--transport", x,
      "How processes exchange messages: through shared memory on one host, otherwise by TCP "
      "(auto); always by TCP (tcp); or over the actor framework's own connection, for "
      "firewalls that block all others (basp)")
    ->check(CLI::IsMember{{"auto", "tcp", "basp"}})
    ->envname("TROUPE_TRANSPORT")
    ->type_name("{auto,tcp,basp}")
    ->capture_default_str();
}

CLI::App& add_node(CLI::App& app, troupe::node_command& x) {
  auto* sub = app.add_subcommand("node", "Run one task of a cluster");
  add_task(*sub, x.where);
  sub
    ->add_option("--job", x.job,
                 "Job file; only the coordinator needs it. Other nodes check theirs against it")
    ->type_name("FILE");
  sub->add_option("--out", x.out, "Output directory of the coordinator; overrides the job's")
    ->type_name("DIR");
  sub->add_option("--set", x.overrides, set_help)
    ->allow_extra_args(false)
    ->type_name("FIELD=VALUE");
  sub->add_option("--log-level", x.log_level, log_help)->type_name(log_levels);
  sub
    ->add_option("--join-timeout", x.join_timeout,
                 "How long to wait for other tasks at the start (default: that of the job, 60)")
    ->check(CLI::Validator{[](const std::string& text) {
                             char* end = nullptr;
                             const double x = std::strtod(text.c_str(), &end);
                             return x > 0 && x <= 4e6 && *end == '\0'
                               ? std::string{}
                               : "expected a number of seconds above 0, at most 4000000, got "
                                 + text;
                           },
                           ""})
    ->type_name("SECONDS");
  add_resume(*sub, x.resume);
  sub
    ->add_flag("--insecure", x.insecure,
               "Listen on addresses other than loopback, without encryption")
    ->envname("TROUPE_INSECURE");
  add_transport(*sub, x.transport);
  add_devices(*sub, x.devices);
  sub
    ->add_option("--channel-port", x.channel_port,
                 "TCP port for messages from other hosts (default: a free port)")
    ->check(CLI::Range(0, 65535))
    ->type_name("PORT");
  sub->add_option("--ends-with-parent", x.parent)->group("");
  sub->add_option("--processor", x.processor)->group("");
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
  sub
    ->add_option("--bind", x.bind,
                 "With --processes: auto binds each worker to a processor of its own if there is "
                 "at least one for each worker, but fewer than two; none lets the system choose")
    ->check(CLI::IsMember{{"auto", "none"}})
    ->type_name("{auto,none}")
    ->capture_default_str();
  add_transport(*sub, x.transport);
  add_devices(*sub, x.devices);
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
  auto* sub = app.add_subcommand("check", "Show what a job would do, and how much memory it needs");
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
  add_devices(*sub, x.devices);
  sub->add_flag("--plan", x.plan,
                "Also print the plan of a worker's step: instructions, FLOPs, bytes, memory");
  sub->footer("Examples:\n"
              "  troupe check --job=job.textproto --plan\n"
              "  troupe check --job=job.textproto --workers=4 --ps=2 --processes\n"
              "  troupe check --job=job.textproto --cluster=cluster.json --set data.batch=128");
  return *sub;
}

CLI::App& add_predict(CLI::App& app, troupe::predict_command& x) {
  auto* sub = app.add_subcommand("predict", "Test trained weights, and write their predictions");
  sub
    ->add_option("--weights", x.weights,
                 "Weights file, such as out/weights.safetensors, or the output directory")
    ->required()
    ->type_name("FILE");
  add_job(*sub, x.job, x.overrides);
  auto* predictions =
    sub
      ->add_option("--predictions", x.predictions,
                   "CSV file for the predictions, a line per test record; - for standard output")
      ->type_name("FILE");
  auto* show =
    sub->add_option("--show", x.show, "Draw this many test images with their predictions");
  auto* features =
    sub
      ->add_option("--features", x.features,
                   "Predict these records, which have no labels, instead of the test records: a "
                   "file in the format of the job's data, or a folder of pictures")
      ->type_name("FILE")
      ->needs(predictions)
      ->excludes(show);
  auto* generate = sub->add_option(
    "--generate", x.generate, "For models of text: write this many characters instead of testing");
  generate->check(CLI::Range(1, 1000000))->excludes(features)->excludes(predictions);
  generate->excludes(show);
  sub->add_option("--prompt", x.prompt, "Text to continue; default: a line break")->needs(generate);
  sub
    ->add_option(
      "--temperature", x.temperature,
      "0: always the likeliest character; 1: draw with the model's probabilities; default: 1")
    ->check(troupe::within(0, 100))
    ->type_name("NUMBER")
    ->needs(generate);
  sub->add_option("--seed", x.text_seed, "Seed of the drawn characters; default: 1")
    ->check(CLI::NonNegativeNumber)
    ->needs(generate);
  sub
    ->add_option("--device", x.device,
                 "Where to compute: CPU:0, or a GPU of this host, as in GPU:0")
    ->check(CLI::Validator{[](const std::string& text) {
                             try {
                               troupe::parse_device_name(text);
                               return std::string{};
                             } catch (const troupe::input_error& error) {
                               return std::string{error.what()};
                             }
                           },
                           ""})
    ->capture_default_str()
    ->type_name("DEVICE");
  sub->footer(
    "Examples:\n"
    "  troupe predict --weights=out/weights.safetensors --job=job.textproto --show=6\n"
    "  troupe predict --weights=out/weights.safetensors --job=job.textproto "
    "--predictions=predictions.csv\n"
    "  troupe predict --weights=out/weights.safetensors --job=job.textproto --features=new.npy "
    "--predictions=predictions.csv\n"
    "  troupe predict --weights=out/weights.safetensors --job=job.textproto --generate=300 "
    "--prompt=\"ROMEO:\"\n"
    "  troupe predict --weights=out/weights.safetensors --job=job.textproto --device=GPU:0");
  return *sub;
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

CLI::App& add_operators(CLI::App& app) {
  auto* sub = app.add_subcommand("operators", "List the ONNX operators that can be imported");
  sub->footer("Examples:\n"
              "  troupe operators");
  return *sub;
}

CLI::App& add_completion(CLI::App& app, std::string& shell) {
  auto* sub = app.add_subcommand("completion", "Print a script that completes this command line");
  sub->add_option("shell", shell, "The shell that will run the script")
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
  if (unknown.empty() && dynamic_cast<const CLI::RequiredError*>(&error)) {
    // The error is a text such as "--job is required".
    const std::string missing = error.what();
    const auto words = app.remaining(true);
    if (missing.starts_with("--") && words.size() == 1 && !words.front().starts_with('-'))
      unknown = fmt::format("{}; did you mean {}={}?", missing,
                            missing.substr(0, missing.find(' ')), troupe::printable(words.front()));
  }
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
// LeakSanitizer ignores leaks in libcaf_io: when the I/O actor of the framework ends, it may leak
// messages that arrive at that moment.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libcaf_io\n";
}
#endif

int main(int argc, char** argv) {
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
  troupe::bench_commands bench;
  std::string shell;
  add_node(app, node).callback([&] {
    action = [&] {
      troupe::block_stop_signals();
      return troupe::run(node);
    };
  });
  add_train(app, train).callback([&] {
    action = [&] {
      troupe::block_stop_signals();
      return troupe::run(train);
    };
  });
  add_check(app, check).callback([&] { action = [&] { return troupe::run(check); }; });
  add_predict(app, predict).callback([&] { action = [&] { return troupe::run(predict); }; });
  add_export(app, exporting).callback([&] { action = [&] { return troupe::run(exporting); }; });
  add_operators(app).callback([&] { action = troupe::print_operators; });
  add_doctor(app, doctor).callback([&] { action = [&] { return troupe::run(doctor); }; });
  troupe::add_bench(app, bench, action);
  add_completion(app, shell).callback([&] {
    action = [&] {
      fmt::print("{}", troupe::completion_script(app, shell));
      return troupe::exit_done;
    };
  });
  try {
    app.parse(argc, argv);
    const int code = action();
    // `train` and `node` write their results to files. For all other commands, it is an error if
    // the output cannot be written.
    const bool files = app.got_subcommand("train") || app.got_subcommand("node");
    if (!files && code == troupe::exit_done
        && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0))
      throw std::runtime_error{"cannot write to standard output: the output is incomplete"};
    return code;
  } catch (const CLI::ParseError& error) {
    return complain(app, error, argc, argv);
  } catch (const troupe::input_error& error) {
    fmt::print(stderr, "troupe: {}\n", troupe::printable(error.what(), true));
    return troupe::exit_bad_input;
  } catch (const troupe::device_error& error) {
    fmt::print(stderr, "troupe: {}\n", troupe::printable(error.what(), true));
    return troupe::exit_bad_input;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "troupe: there is not enough memory for this model, batch or data; make them "
               "smaller, or divide the parameters among more servers\n");
    return troupe::exit_failed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "troupe: {}\n", troupe::printable(error.what(), true));
    return troupe::exit_failed;
  }
}
