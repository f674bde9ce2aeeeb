#include "actors/model/job_file.hpp"
#include "apps/troupe/bench/runner.hpp"
#include "apps/troupe/bench/statistics.hpp"
#include "apps/troupe/bench/tensorflow_peer.hpp"
#include "apps/troupe/bench/torch_peer.hpp"
#include "apps/troupe/children.hpp"
#include "apps/troupe/commands.hpp"
#include "apps/troupe/exit_code.hpp"
#include "apps/troupe/processors.hpp"
#include "apps/troupe/temporary_folder.hpp"
#include "apps/troupe/text_table.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>

namespace troupe {

namespace {

using namespace bench;

/// A model of `bench train` as part of a job: the name of its work, and the model in the format of
/// a job file. The job trains the model with generated digits.
struct cluster_work {
  std::string_view name;
  std::string_view model;
};

constexpr std::string_view perceptron = R"(
  layer { dense { units: 256 activation: RELU } }
  layer { dense { units: 128 activation: RELU } }
  layer { dense { units: 10 } })";
constexpr std::string_view convolutional = R"(
  layer { reshape { dims: [1, 28, 28] } }
  layer { conv2d { filters: 16 kernel: 5 padding: 2 activation: RELU } }
  layer { max_pool { kernel: 2 } }
  layer { conv2d { filters: 32 kernel: 5 padding: 2 activation: RELU } }
  layer { max_pool { kernel: 2 } }
  layer { dense { units: 10 } })";

constexpr std::array cluster_works{cluster_work{"mlp-64", perceptron},
                                   cluster_work{"mlp-256", perceptron},
                                   cluster_work{"cnn", convolutional}};

constexpr std::string_view independent = "independent runs";

/// A peer (another library): its name on the command line, the name of its row in the table, and
/// the heading of the column with troupe's speed relative to this library.
struct cluster_peer {
  std::string_view name;
  std::string_view row;
  std::string_view column;
  /// The fields of the job that may be changed (--set): those that the peer also uses, and those
  /// that do not change the work of a step.
  std::span<const std::string_view> fields;
};

constexpr std::array<std::string_view, 4> ddp_fields{"data.digits", "epochs", "learning_rate",
                                                     "optimizer.momentum"};
constexpr std::array<std::string_view, 6> tensorflow_fields{
  "data.digits",        "data.batch",         "epochs",
  "learning_rate.base", "optimizer.momentum", "learning_rate.warmup_epochs"};

constexpr std::array cluster_peers{
  cluster_peer{"ddp", "PyTorch DDP, gloo", "to DDP", ddp_fields},
  cluster_peer{"tf", "TensorFlow ParameterServerStrategy", "to TF", tensorflow_fields},
};

/// Number of steps that a worker makes for each request of TensorFlow's coordinator. With several
/// steps per request, TensorFlow is faster.
constexpr std::uint32_t tensorflow_steps = 20;

/// A run with a lower accuracy is an error, because such a run must have computed something wrong.
/// The limit is far below the accuracy of a good run: a run with many workers has large batches,
/// and would need more epochs to become as accurate.
constexpr double least_accuracy = 0.5;
constexpr std::chrono::minutes longest_run{10};

/// The losses of PyTorch in this number of steps are compared with those of one troupe process.
/// `tolerance` is the largest accepted difference, relative to the first loss.
constexpr std::size_t checked_steps = 10;
constexpr double tolerance = 1e-3;

/// The results of one way to train. `speeds` has the samples per second of all workers together,
/// one number per round.
struct cluster_row {
  std::string name;
  std::vector<double> speeds;
  /// The share of the workers' time in which they waited for weights or for the end of an update.
  std::vector<double> waits;
  /// The share of the time of communication in which the workers also compute (see hidden_share).
  std::vector<double> hidden;
};

struct cluster_measurement {
  std::string_view work;
  std::size_t batch = 0;
  /// Names and versions of the peers.
  std::vector<std::string> peers;
  std::vector<cluster_row> rows;
};

const cluster_work& work_named(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& x : cluster_works) {
    if (x.name == name)
      return x;
    known.emplace_back(x.name);
  }
  throw input_error{"--work=" + name + ": there is no such work; " + suggestion(name, known)};
}

const work& same_in_bench_train(std::string_view name) {
  return *std::ranges::find(works(), name, &work::name);
}

/// The job of a work. Its data have the size of MNIST.
proto::Job job_of(const cluster_work& x, const bench_cluster_command& command) {
  const auto& same = same_in_bench_train(x.name);
  auto result =
    parse_job(fmt::format("name: \"{}\"\nmodel {{{}\n  loss: SOFTMAX_CROSS_ENTROPY }}\n"
                          "data {{ digits {{ train: 60000 test: 10000 }} batch: {} }}\n"
                          "optimizer {{ kind: MOMENTUM }}\n"
                          "learning_rate {{ base: 0.05 warmup_epochs: 1 cosine {{}} }}\n"
                          "epochs: {}\n",
                          x.name, x.model, same.batch, command.epochs),
              x.name);
  for (const auto& change : command.overrides)
    apply_override(result, change);
  validate(result);
  return result;
}

/// Several runs of `troupe train` at the same time. wait() returns the last line of metrics.jsonl
/// of each run.
class runs {
public:
  runs(const std::filesystem::path& job, const std::filesystem::path& folder)
    : job_(job), folder_(folder) {}

  void start(const std::vector<std::string>& options) {
    outputs_.push_back(folder_ / std::to_string(outputs_.size()));
    std::vector<std::string> arguments{"train", "--job=" + job_.string(),
                                       "--out=" + outputs_.back().string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    processes_.start(fmt::format("troupe {}", fmt::join(arguments, " ")), arguments);
  }

  std::vector<nlohmann::json> wait() {
    if (!processes_.wait(longest_run).empty())
      throw std::runtime_error{
        fmt::format("a run has failed: {}", fmt::join(processes_.said(), "\n"))};
    std::vector<nlohmann::json> result;
    for (const auto& folder : outputs_) {
      std::ifstream file{folder / "metrics.jsonl"};
      std::string line;
      std::string last;
      while (std::getline(file, line))
        last = line;
      result.push_back(nlohmann::json::parse(last));
      std::filesystem::remove_all(folder);
    }
    return result;
  }

private:
  std::filesystem::path job_;
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> outputs_;
  children processes_;
};

void check_accuracy(const std::string& name, double accuracy) {
  if (!(accuracy >= least_accuracy))
    throw std::runtime_error{fmt::format("{}: a run has reached an accuracy of only {}; "
                                         "expected at least {}",
                                         name, accuracy, least_accuracy)};
}

/// Adds the results of a round to a row. `ends` has the results of the runs, which ran at the same
/// time.
void add(cluster_row& out, const std::vector<nlohmann::json>& ends) {
  double speed = 0;
  double waiting = 0;
  double all = 0;
  double hidden = 0;
  for (const auto& x : ends) {
    speed += x.at("samples_per_second").get<double>();
    check_accuracy(out.name, x.at("test_accuracy").get<double>());
    for (const auto& task : x.at("tasks")) {
      if (!task.contains("computing"))
        continue;
      for (const auto& [name, seconds] : task.items())
        if (name == "computing" || name.starts_with("waiting_for_"))
          all += seconds.get<double>();
      hidden += task.at("exchanging_while_computing").get<double>();
      waiting += task.at("waiting_for_weights").get<double>();
      waiting += task.at("waiting_for_update").get<double>();
    }
  }
  out.speeds.push_back(speed);
  out.waits.push_back(waiting / all);
  if (hidden + waiting > 0)
    out.hidden.push_back(hidden / (hidden + waiting));
}

/// The processor of each worker of a peer, as in `troupe train --processes`. Empty if the system
/// chooses.
std::vector<unsigned> processors_for(const bench_cluster_command& x) {
  return processors_of(x.workers, allowed_processors());
}

/// Several processes of PyTorch that train with DistributedDataParallel. Before the first round,
/// their losses are checked. A round takes about as much time as a run of troupe.
class ddp {
public:
  ddp(const work& what, const bench_cluster_command& x)
    : what_(what), workers_(x.workers), data_(what),
      peer_(x.python, what, data_,
            torch_options{.ranks = x.workers, .processors = processors_for(x)}) {
    const auto theirs = peer_.run(checked_steps).losses;
    const auto ours = runner(what, data_, 1, passing::time).run(checked_steps).losses;
    for (std::size_t i = 0; i < ours.size(); ++i)
      if (!(std::abs(theirs[i] - ours[i]) <= tolerance * ours[0]))
        throw std::runtime_error{fmt::format("{}: PyTorch's loss of step {} is {}; expected {}",
                                             what.name, i + 1, theirs[i], ours[i])};
  }

  std::string version() const { return "PyTorch " + peer_.version(); }

  double speed(std::size_t samples) {
    const auto steps = std::max<std::size_t>(samples / (what_.batch * workers_), 1);
    return static_cast<double>(steps * what_.batch * workers_) / peer_.run(steps).seconds;
  }

private:
  const work& what_;
  std::size_t workers_;
  material data_;
  torch_peer peer_;
};

/// TensorFlow with a parameter server and workers, each in its own process. A round trains the same
/// job as troupe's runs.
class tensorflow {
public:
  tensorflow(const proto::Job& job, const bench_cluster_command& x)
    : job_(job), data_(build_data(job)), how_{.python = x.python,
                                              .workers = x.workers,
                                              .processes = true,
                                              .processors = processors_for(x),
                                              .steps = tensorflow_steps} {
    const auto is_dense = [](const proto::Layer& y) { return y.has_dense(); };
    if (!std::ranges::all_of(job.model().layer(), is_dense))
      throw input_error{fmt::format(
        "--peer=tf trains only models of dense layers (mlp-64, mlp-256), not {}", job.name())};
    auto brief = job;
    brief.set_epochs(1);
    version_ = "TensorFlow " + run_tensorflow(how_, brief, data_).version;
  }

  const std::string& version() const noexcept { return version_; }

  double speed() {
    const auto result = run_tensorflow(how_, job_, data_);
    check_accuracy("TensorFlow", result.accuracies.at(0));
    return static_cast<double>(data_.train->size() * job_.epochs()) / result.seconds.at(0);
  }

private:
  proto::Job job_;
  job_data data_;
  tensorflow_options how_;
  std::string version_;
};

/// The peers of a measurement, in the order of cluster_peers.
class peers {
public:
  peers(const cluster_work& what, const proto::Job& job, const bench_cluster_command& x)
    : samples_(job.epochs() * job.data().digits().train()) {
    if (has(x, "ddp"))
      ddp_.emplace(same_in_bench_train(what.name), x);
    if (has(x, "tf"))
      tensorflow_.emplace(job, x);
  }

  void add_rows(cluster_measurement& to) const {
    const auto add = [&to](const cluster_peer& x, const std::string& version) {
      to.peers.push_back(version);
      to.rows.push_back({std::string{x.row}, {}, {}, {}});
    };
    if (ddp_)
      add(cluster_peers[0], ddp_->version());
    if (tensorflow_)
      add(cluster_peers[1], tensorflow_->version());
  }

  /// Measures a round of each peer. Adds the results to the last rows, which are those of the
  /// peers.
  void measure(cluster_measurement& to) {
    auto row = to.rows.end() - static_cast<std::ptrdiff_t>(to.peers.size());
    if (ddp_)
      (row++)->speeds.push_back(ddp_->speed(samples_));
    if (tensorflow_)
      row->speeds.push_back(tensorflow_->speed());
  }

private:
  static bool has(const bench_cluster_command& x, std::string_view name) {
    return std::ranges::find(x.peers, name) != x.peers.end();
  }

  std::size_t samples_;
  std::optional<ddp> ddp_;
  std::optional<tensorflow> tensorflow_;
};

cluster_measurement measure(const cluster_work& what, const bench_cluster_command& x,
                            const std::filesystem::path& folder) {
  const auto job = job_of(what, x);
  const auto file = folder / "job.textproto";
  std::ofstream{file} << job_text(job);
  cluster_measurement result{what.name, job.data().batch(), {}, {}};
  std::vector<std::vector<std::string>> options;
  for (const auto& protocol : x.protocols)
    for (const auto& transport : x.transports) {
      result.rows.push_back({fmt::format("{}, {}", protocol, transport), {}, {}, {}});
      options.push_back({fmt::format("--workers={}", x.workers), "--protocol=" + protocol});
      if (transport != "threads")
        options.back().insert(options.back().end(), {"--processes", "--transport=" + transport});
    }
  result.rows.push_back({std::string{independent}, {}, {}, {}});
  peers others{what, job, x};
  others.add_rows(result);
  for (std::uint32_t round = 0; round < x.rounds; ++round) {
    for (std::size_t i = 0; i < options.size(); ++i) {
      runs cluster{file, folder};
      cluster.start(options[i]);
      add(result.rows[i], cluster.wait());
    }
    runs alone{file, folder};
    for (std::uint32_t i = 0; i < x.workers; ++i)
      alone.start({"--workers=1"});
    add(result.rows[options.size()], alone.wait());
    result.rows[options.size()].hidden.clear(); // These runs exchange nothing with each other.
    others.measure(result);
  }
  return result;
}

// -- output -------------------------------------------------------------------------------------

const cluster_row* row_named(const cluster_measurement& r, std::string_view name) {
  const auto found = std::ranges::find(r.rows, name, &cluster_row::name);
  return found == r.rows.end() ? nullptr : &*found;
}

/// The speed of `a` relative to `b`: computed for each round, then the median over all rounds.
double ratio(const cluster_row& a, const cluster_row& b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < a.speeds.size(); ++i)
    result.push_back(a.speeds[i] / b.speeds[i]);
  return statistics{result}.median;
}

/// The median as text. Empty if there are no values.
std::string percent_text(const std::vector<double>& shares) {
  return shares.empty() ? "" : fmt::format("{:.0f} %", 100 * statistics{shares}.median);
}

void print(const cluster_measurement& r, const bench_cluster_command& x) {
  fmt::print("\n{}, batch {}: samples per second of {} workers on this host, median of {} rounds\n",
             r.work, r.batch, x.workers, x.rounds);
  if (!r.peers.empty())
    fmt::print("Peers: {}\n", fmt::join(r.peers, ", "));
  std::vector<std::string> header{"",        "median", "least",         "most",
                                  "waiting", "hidden", "to independent"};
  for (const auto& peer : cluster_peers)
    if (row_named(r, peer.row) != nullptr)
      header.emplace_back(peer.column);
  text_table table(header);
  for (const auto& a : r.rows) {
    const statistics speed{a.speeds};
    std::vector<std::string> cells{a.name,
                                   fmt::format("{:.0f}", speed.median),
                                   fmt::format("{:.0f}", speed.least),
                                   fmt::format("{:.0f}", speed.most),
                                   percent_text(a.waits),
                                   percent_text(a.hidden),
                                   fmt::format("{:.2f}x", ratio(a, *row_named(r, independent)))};
    for (const auto& peer : cluster_peers)
      if (const auto* b = row_named(r, peer.row))
        cells.push_back(fmt::format("{:.2f}x", ratio(a, *b)));
    table.add(std::move(cells));
  }
  table.print();
}

nlohmann::json json_of(const cluster_measurement& r, const bench_cluster_command& x) {
  nlohmann::json result{
    {"work", r.work}, {"batch", r.batch}, {"workers", x.workers}, {"rounds", x.rounds}};
  if (!r.peers.empty())
    result["peers"] = r.peers;
  for (const auto& a : r.rows) {
    const statistics speed{a.speeds};
    nlohmann::json line{{"name", a.name},
                        {"samples_per_second",
                         {{"least", speed.least}, {"median", speed.median}, {"most", speed.most}}},
                        {"to_independent", ratio(a, *row_named(r, independent))}};
    if (!a.waits.empty())
      line["waiting"] = statistics{a.waits}.median;
    if (!a.hidden.empty())
      line["hidden"] = statistics{a.hidden}.median;
    for (const auto& peer : cluster_peers)
      if (const auto* b = row_named(r, peer.row))
        line["to_" + std::string{peer.name}] = ratio(a, *b);
    result["rows"].push_back(std::move(line));
  }
  return result;
}

/// True if a change to the job leaves the comparison with this peer fair.
bool follows(const cluster_peer& peer, std::string_view change) {
  const auto path = change.substr(0, change.find('='));
  return std::ranges::any_of(peer.fields, [&](std::string_view field) {
    return path == field || (path.starts_with(field) && path[field.size()] == '.');
  });
}

void check(const bench_cluster_command& x) {
  if (x.workers == 0 || x.workers > 64)
    throw input_error{"--workers must be from 1 to 64"};
  if (x.rounds == 0 || x.epochs == 0)
    throw input_error{"--rounds and --epochs must be at least 1"};
  for (const auto& name : x.peers) {
    const auto peer = std::ranges::find(cluster_peers, name, &cluster_peer::name);
    if (peer == cluster_peers.end())
      throw input_error{fmt::format("--peer={}: expected ddp or tf", name)};
    for (const auto& change : x.overrides)
      if (!follows(*peer, change))
        throw input_error{fmt::format(
          "--set={}: --peer={} cannot make this change; leave out --peer or --set", change, name)};
  }
  for (const auto& name : x.transports)
    if (name != "threads" && name != "auto" && name != "tcp" && name != "basp")
      throw input_error{fmt::format("--transports={}: expected threads, auto, tcp or basp", name)};
  for (const auto& name : x.works)
    for (const auto& protocol : x.protocols) {
      auto job = job_of(work_named(name), x);
      auto value = protocol;
      std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::toupper(c); });
      apply_override(job, "protocol=" + value);
      validate(job);
    }
}

} // namespace

int run(const bench_cluster_command& x) {
  check(x);
  const temporary_folder folder;
  auto all = nlohmann::json::array();
  for (const auto& name : x.works) {
    const auto result = measure(work_named(name), x, folder.path());
    if (x.json)
      all.push_back(json_of(result, x));
    else
      print(result, x);
  }
  if (x.json)
    fmt::print("{}\n", all.dump(2));
  return exit_done;
}

} // namespace troupe
