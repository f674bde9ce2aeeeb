#include "apps/troupe/commands.hpp"

#include "actors/cluster/cluster_spec.hpp"
#include "actors/cluster/footprint.hpp"
#include "actors/cluster/local_cluster.hpp"
#include "actors/model/feature_columns.hpp"
#include "actors/model/global_batch.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/weight_decay_text.hpp"
#include "actors/output/text.hpp"
#include "apps/troupe/class_view.hpp"
#include "apps/troupe/gpus.hpp"
#include "apps/troupe/limits.hpp"
#include "apps/troupe/numbers.hpp"
#include "apps/troupe/parameter_view.hpp"
#include "apps/troupe/plan_view.hpp"
#include "apps/troupe/session.hpp"
#include "apps/troupe/setup.hpp"
#include "apps/troupe/text_table.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/idx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

/// How many tensors of a parameter server are listed by name. All further tensors are only counted.
constexpr std::size_t most_tensors = 3;

/// The address of the processes that `troupe train --processes` starts. Port 0 stands for any free
/// port.
constexpr auto free_port = "127.0.0.1:0";

/// A process of the cluster.
struct process {
  std::string name;
  std::string address;
  std::vector<task_name> tasks;
};

std::string count(std::uint64_t n, const std::string& what) {
  return number(n) + ' ' + what + (n == 1 ? "" : "s");
}

/// The name of a constant in words, such as "softmax cross entropy" for "SOFTMAX_CROSS_ENTROPY".
std::string in_words(std::string name) {
  for (auto& c : name)
    c = c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

constexpr std::size_t name_width = 12;

/// Prints a name and its value in two columns.
void line(const std::string& what, const std::string& text) {
  fmt::print("{:<{}}{}\n", what, name_width, text);
}

// -- the job ------------------------------------------------------------------------------------

/// The shape of a sample, from the job or from the file of images. Used if the data cannot be read
/// as a whole. Absent if neither determines the shape.
std::optional<data_shape> widths_of(const proto::Job& job) {
  const auto& data = job.data();
  data_shape result;
  if (data.has_csv() && !data.csv().has_label() && data.csv().categories_size() == 0
      && !has_wildcards(data.csv())) {
    result.dims = {data.csv().features_size()};
    result.labels = label_kind::targets;
    result.label_width = 1;
    return result;
  }
  if (!data.has_idx())
    return std::nullopt;
  try {
    const auto path = expand_environment(data.idx().images(), "data.idx.images");
    const auto bytes = read_plain_or_gzip(path);
    const auto shape = parse_idx_u8(bytes, 3, path).shape;
    result.dims = {1, static_cast<std::int64_t>(shape[1]), static_cast<std::int64_t>(shape[2])};
    const auto& model = job.model();
    result.label_width =
      model.layer_size() > 0 ? model.layer(model.layer_size() - 1).dense().units() : 1;
    return result;
  } catch (const input_error&) {
    return std::nullopt;
  }
}

void print_job(const proto::Job& job) {
  line("job",
       fmt::format("{}, hash {}", job.name().empty() ? "without a name" : job.name(),
                   job_hash(job).substr(0, 12)));
  if (job.solver() == proto::EXACT) {
    line("training",
         fmt::format("none: the coordinator solves for the weights, in one pass, weight decay {:g}",
                     job.optimizer().weight_decay()));
    return;
  }
  std::string rule = in_words(proto::OptimizerKind_Name(job.optimizer().kind()));
  line("training",
       fmt::format("{}, {}, {}, {}", traits_of(job).name, rule, count(job.epochs(), "epoch"),
                   fmt::format("learning rate {:g}", job.learning_rate().base())));
  if (job.precision() != proto::FLOAT32)
    line("precision",
         fmt::format("{} products, convolutions and the operations between them; "
                     "float32 weights and gradients",
                     in_words(proto::Precision_Name(job.precision()))));
  if (job.exchange_precision() != proto::FLOAT32)
    line("exchange",
         fmt::format("gradients and weights are rounded to {}; half as many bytes between hosts",
                     in_words(proto::Precision_Name(job.exchange_precision()))));
}

/// The sizes of a sample, such as "1 x 28 x 28".
std::string sizes(const shape& x) {
  std::string result;
  for (std::size_t i = 1; i < x.rank(); ++i)
    result += (i > 1 ? " x " : "") + number(static_cast<std::uint64_t>(x[i]));
  return result.empty() ? "1" : result;
}

/// Prints the parameters of a model that has no list of layers (an ONNX file).
void print_tensors(const layout& parameters) {
  text_table table{{"tensor", "shape", "kind", "parameters", "bytes"}};
  for (auto& entry : parameters.entries())
    table.add({entry.name, to_string(entry.shape), std::string{to_string(entry.kind)},
               number(entry.size), readable_bytes(entry.size * sizeof(float))});
  table.print(name_width);
}

void print_layers(const built_model& model) {
  text_table table{{"layer", "kind", "inputs", "outputs", "parameters", "bytes"}};
  for (auto& layer : model.layers) {
    std::string inputs;
    for (auto& input : layer.inputs)
      inputs += (inputs.empty() ? "" : ", ") + sizes(input);
    table.add({layer.name, layer.kind, inputs, sizes(layer.output), number(layer.parameters),
               readable_bytes(layer.parameters * sizeof(float))});
  }
  table.print(name_width);
}

/// Prints several lines. Only the first line begins with the name `what`.
void print_lines(std::string what, const std::vector<std::string>& lines) {
  for (auto& text : lines)
    line(std::exchange(what, ""), text);
}

void print_model(const job_context& context) {
  const auto& model = context.job.model();
  const auto& parameters = context.parameters();
  line("model",
       fmt::format("{}, {}; loss: {}", count(parameters.size(), "parameter"),
                   readable_bytes(parameters.size() * sizeof(float)),
                   in_words(proto::Loss_Name(model.loss()))));
  if (model.has_onnx_structure())
    print_tensors(parameters);
  else
    print_layers(context.model);
  print_lines("frozen", frozen_lines(context));
  print_lines("groups", group_lines(context));
  print_lines("optimizer", unused_settings(context.job.optimizer()));
  if (const auto text = logits_notice(model); !text.empty())
    line("warning", text);
}

std::string source_of(const proto::Data& data) {
  if (data.has_idx())
    return data.idx().images();
  if (data.has_npy())
    return data.npy().features();
  if (data.has_npz())
    return data.npz().path();
  if (data.has_text())
    return data.text().path();
  if (data.has_libsvm())
    return data.libsvm().path();
  if (data.has_image_folder())
    return data.image_folder().path();
  return data.has_csv() ? data.csv().path() : "generated digits";
}

/// Advice for a table whose features are mostly 0, because its columns have many categories. Empty
/// if the job cannot have sparse features.
std::string sparse_advice(const proto::Job& job, const data_shape& shape) {
  constexpr std::size_t many = 50; // features per column
  const auto& csv = job.data().csv();
  const auto columns = static_cast<std::size_t>(csv.features_size());
  const bool possible = csv.categories_size() > 0 && !has_wildcards(csv)
    && shape.features == feature_kind::numbers && job.solver() != proto::EXACT
    && job.model().layer_size() > 0 && job.model().layer(0).has_dense();
  if (!possible || shape.feature_width() < many * columns)
    return {};
  return fmt::format(
    "{} of the {} features of a record are 0; with data.csv.sparse: true, they take "
    "no memory and no time",
    number(shape.feature_width() - columns), number(shape.feature_width()));
}

void print_data(const job_context& context, const job_data& data) {
  const auto& shape = context.data;
  const bool shared = data.test == data.train;
  line("data", source_of(context.job.data()));
  auto records = count(shape.train_records, "record") + " train, ";
  if (data.validation)
    records += count(data.validation->size(), "record") + " validate, ";
  records += shared ? "the same test" : count(data.test->size(), "record") + " test";
  const std::string what = shape.features == feature_kind::tokens
    ? data.characters ? "character" : "token"
    : shape.features == feature_kind::sparse ? "sparse feature"
                                             : "feature";
  auto labels = shape.labels == label_kind::classes ? number(shape.label_width) + " classes"
                                                    : count(shape.label_width, "target");
  if (shape.labels_per_record > 1)
    labels += fmt::format(" at {} positions", number(shape.labels_per_record));
  line("", fmt::format("{}; {}, {}", records, count(shape.feature_width(), what), labels));
  const auto classes = view_classes(data, context.job.data());
  for (auto& text : classes.lines)
    line("", text);
  for (auto& text : classes.warnings)
    line("warning", text);
  for (auto& text : data.notices)
    line("warning", text);
  if (const auto text = sparse_advice(context.job, shape); !text.empty())
    line("advice", text);
  if (const auto text = weight_decay_text(context); !text.empty())
    line("penalty", text);
  if (const auto every = context.job.evaluate().every_steps(); every > 0)
    line("", fmt::format("evaluated every {} and after each epoch", count(every, "step")));
}

// -- the cluster --------------------------------------------------------------------------------

void print_steps(const job_context& context, const cluster_shape& cluster) {
  const std::uint64_t batch = context.gradient_samples();
  line("batch", batch_text(context, cluster.workers));
  const auto gradients = context.protocol.gradients_of_step(context.job, cluster.workers);
  const auto samples = batch * gradients;
  const auto steps = (context.data.train_records + samples - 1) / samples;
  const auto text = fmt::format("{} per epoch, each of {} samples", number(steps), number(samples));
  const auto workers = count(cluster.workers, "worker");
  if (context.protocol.in_step)
    line("steps", fmt::format("{} ({} from each of {})", text, number(batch), workers));
  else if (context.protocol.tells_idle)
    line("steps",
         fmt::format("{} ({} from each of the first {} of {})", text, number(batch), gradients,
                     workers));
  else if (gradients > 1)
    line("steps",
         fmt::format("{} ({} from each of {} gradients of {})", text, number(batch), gradients,
                     workers));
  else
    line("steps", fmt::format("{} from one of {}", text, workers));
}

/// The tensors in a range of the parameters: "dense_1.weight (50,885 of 100,352), dense_1.bias".
std::string tensors_in(const layout& parameters, const range& where) {
  std::string result;
  std::size_t listed = 0;
  std::size_t more = 0;
  for (auto& entry : parameters.entries()) {
    const auto part = intersect(entry.elements(), where).size();
    if (part == 0)
      continue;
    if (listed == most_tensors) {
      ++more;
      continue;
    }
    ++listed;
    result += (result.empty() ? "" : ", ") + entry.name;
    if (part < entry.size)
      result += fmt::format(" ({} of {})", number(part), number(entry.size));
  }
  return result + (more > 0 ? fmt::format(" and {} more", more) : "");
}

void print_shards(const job_context& context, const cluster_shape& cluster) {
  const auto exchange = context.protocol.exchange(context.job);
  if (!context.protocol.uses_shards()) {
    line("weights",
         fmt::format("whole on each of {}, in {}; {}", count(cluster.workers, "worker"),
                     count(context.buckets().size(), "bucket"), exchange));
    return;
  }
  line("shards", exchange);
  const auto shards = context.shards(cluster.ps);
  for (std::size_t i = 0; i < cluster.ps; ++i) {
    const auto where = shards[i];
    if (where.empty()) {
      fmt::print("{:12}ps/{}  {:>9}  no parameters\n", "", i, readable_bytes(0));
      continue;
    }
    fmt::print("{:12}ps/{}  {:>9}  parameters {} to {}: {}\n", "", i,
               readable_bytes(where.size() * sizeof(float)), number(where.begin),
               number(where.end - 1), tensors_in(context.parameters(), where));
  }
}

/// The memory of the program itself, in bytes. Call it before a job is loaded, because it measures
/// this process.
std::size_t program_bytes() {
  std::size_t all = 0;
  std::size_t resident = 0;
  std::ifstream{"/proc/self/statm"} >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::map<task_name, std::string> addresses_of(const std::vector<process>& processes) {
  std::map<task_name, std::string> result;
  for (auto& x : processes)
    for (auto& task : x.tasks)
      result.emplace(task, x.address);
  return result;
}

/// Prints lines about hosts that run several processes, and a warning if a host needs more memory
/// than this host has.
/// @param bytes the memory of each process
void print_hosts(const std::vector<process>& processes, const std::vector<std::size_t>& bytes) {
  const auto cluster = addresses_of(processes);
  std::string largest;
  std::size_t most = 0;
  std::set<task_name> seen;
  for (auto& x : processes) {
    const auto beside = tasks_beside(cluster, x.tasks.front());
    if (!seen.insert(beside.front()).second)
      continue;
    std::size_t all = 0;
    std::size_t n = 0;
    for (std::size_t i = 0; i < processes.size(); ++i)
      if (std::ranges::find(beside, processes[i].tasks.front()) != beside.end()) {
        all += bytes[i];
        ++n;
      }
    const auto whose = fmt::format("{} processes on the host of {}", n, x.name);
    if (n > 1)
      line("", fmt::format("{}: {}", whose, readable_bytes(all)));
    if (all > most)
      largest = n > 1 ? "for " + whose + ", " : "for its largest process, ";
    most = std::max(most, all);
  }
  if (const auto problem = memory_problem(most); !problem.empty())
    line("warning", (processes.size() > 1 ? largest : "") + problem);
}

void print_memory(const job_context& context, const job_data& data, const cluster_shape& cluster,
                  const std::vector<process>& processes, std::size_t program) {
  std::vector<std::size_t> bytes;
  line("memory", "per process, estimated: what it allocates once training is under way");
  const bool on_gpu = context.job.device_size() > 0;
  const auto gpus = gpus_here(); // does not open any GPU
  std::vector<std::string> titles{"process", "weights", "optimizer", "gradients", "activations",
                                  "batches", "data",    "network",   "program",   "total"};
  if (on_gpu)
    titles.insert(titles.end() - 2, "page-locked");
  text_table table{titles};
  for (auto& x : processes) {
    footprint all;
    for (auto& task : x.tasks) {
      all += footprint_of(task, context, data, cluster);
      all.pinned += device_memory(context, task, cluster.workers, cluster.ps, gpus.get(),
                                  adds_on_gpus(context, cluster), data.train.get())
                      .pinned;
    }
    std::vector<std::string> cells{x.name};
    for (const auto part : {all.weights, all.optimizer, all.gradients, all.activations, all.batches,
                            all.data, all.network})
      cells.push_back(readable_bytes(part));
    if (on_gpu)
      cells.push_back(readable_bytes(all.pinned));
    cells.push_back(readable_bytes(program));
    cells.push_back(readable_bytes(all.total() + program));
    table.add(cells);
    bytes.push_back(all.total() + program);
  }
  table.print(name_width);
  print_hosts(processes, bytes);
}

void print_placement(const std::vector<process>& processes) {
  line("placement", "");
  for (auto& x : processes) {
    std::string tasks;
    for (auto& task : x.tasks)
      tasks += (tasks.empty() ? "" : " ") + to_string(task);
    const bool itself = x.tasks.size() == 1;
    fmt::print("{:12}{}{}\n", "", itself ? tasks : x.name + ": " + tasks,
               x.address.empty()          ? ""
                 : x.address == free_port ? " at a free port of 127.0.0.1"
                                          : " at " + x.address);
  }
}

/// If the job names devices: prints the device of each worker, and of each other task that computes
/// on a GPU. Also prints the memory that the tasks need on these devices.
/// @param records the training data, to estimate the memory of sparse features; may be null
/// @param chosen the numbers of the GPUs that tasks on this host may use (--devices)
void print_devices(const job_context& context, const dataset* records,
                   const std::vector<process>& processes, const cluster_shape& shape,
                   const std::vector<std::uint32_t>& chosen) {
  if (context.job.device_size() == 0)
    return;
  const auto name = [&](const device_name& x) {
    return to_string(x)
      + (x.gpu && x.index < chosen.size()
           ? fmt::format(" (number {} of this host)", chosen[x.index])
           : "");
  };
  const auto gpus = gpus_here();
  const auto cluster = addresses_of(processes);
  const bool in_ring = adds_on_gpus(context, shape);
  // For each device of each host: the number of tasks, and the sum of their bytes. A host has the
  // name of its first task.
  std::map<std::pair<task_name, std::string>, std::pair<std::size_t, std::size_t>> shared;
  bool counted = false;
  line("devices", "");
  for (auto& x : processes)
    for (auto& task : x.tasks) {
      const auto device = device_of(context.job, task);
      if (!device.gpu && task.job != job_kind::worker)
        continue;
      const auto [bytes, pinned] =
        device_memory(context, task, shape.workers, shape.ps, gpus.get(), in_ring, records);
      const auto note = bytes > 0 ? ", " + readable_bytes(bytes) + " of its memory, "
          + readable_bytes(pinned) + " page-locked on the host"
                                  : "";
      line("", to_string(task) + " on " + name(device) + note);
      counted = counted || bytes > 0;
      auto& [tasks, sum] =
        shared[{tasks_beside(cluster, x.tasks.front()).front(), to_string(device)}];
      ++tasks;
      sum += bytes;
    }
  if (in_ring)
    line("", "the workers add up their gradients there, if the GPUs access each other's memory");
  for (auto& [where, use] : shared)
    if (const auto [tasks, bytes] = use; tasks > 1 && bytes > 0)
      line("",
           fmt::format("{} tasks on {} of the host of {}: {}", tasks, where.second,
                       to_string(where.first), readable_bytes(bytes)));
  const bool copies =
    context.protocol.uses_shards() && std::ranges::any_of(processes, [&](auto& x) {
      return std::ranges::any_of(x.tasks, [&](auto& task) {
        return task.job == job_kind::worker && device_of(context.job, task).gpu;
      });
    });
  if (copies)
    line("",
         "weights and gradients are copied between GPU and host in each step; with protocol: "
         "RING, they can stay on the GPU");
  if (counted)
    line("", "not counted: memory of the driver, often some hundred MB per process and GPU");
}

/// Throws device_error or input_error if tasks cannot compute on their devices. Prints a line for
/// each task that computes on another device than the job names.
/// @param here true if the tasks run on this host; devices are opened only in this case
void require_devices(const job_context& context, const std::vector<process>& processes,
                     const cluster_shape& cluster, bool here,
                     const std::vector<std::uint32_t>& chosen) {
  const auto gpus = gpus_here(chosen);
  for (auto& x : processes)
    for (auto& task : x.tasks)
      if (here)
        if (const auto found = choose_device(context, task, gpus.get()); !found.notice.empty())
          line("warning", found.notice);
  if (here && adds_on_gpus(context, cluster)) {
    std::vector<device_name> devices;
    for (std::uint32_t i = 0; i < cluster.workers; ++i)
      devices.push_back(device_of(context.job, {job_kind::worker, i}));
    if (const auto found = choose_ring(context, devices, gpus.get()); !found.notice.empty())
      line("warning", found.notice);
  }
  check_devices(context, cluster.workers, cluster.ps, {}, gpus.get());
}

/// The processes of a cluster, as `troupe node` or `troupe train` would start them.
std::vector<process> processes_of(const check_command& x, const cluster_shape& shape) {
  std::vector<process> result;
  if (!x.cluster.empty()) {
    for (auto& each : load_cluster(x.cluster).processes)
      result.push_back({to_string(each.name), each.address, each.tasks});
    return result;
  }
  auto tasks =
    tasks_of(static_cast<std::uint32_t>(shape.workers), static_cast<std::uint32_t>(shape.ps));
  tasks.insert(tasks.begin(), coordinator_task);
  if (!x.processes)
    return {{"one process", "", std::move(tasks)}};
  for (auto& task : tasks)
    result.push_back({to_string(task), free_port, {task}});
  return result;
}

cluster_shape shape_of_cluster(const check_command& x, const proto::Job& job) {
  cluster_shape result;
  result.workers = x.workers;
  result.ps = x.ps.value_or(traits_of(job).default_shards());
  result.separate = x.processes;
  result.output = !job.output().empty();
  if (!x.cluster.empty()) {
    const auto cluster = load_cluster(x.cluster);
    result.workers = cluster.count(job_kind::worker);
    result.ps = cluster.count(job_kind::ps);
    result.separate = true;
  }
  if (result.workers == 0)
    throw input_error{"--workers=0: at least one worker is needed"};
  require_shards(job, result.ps);
  return result;
}

} // namespace

int run(const check_command& x) {
  const auto program = program_bytes();
  auto job = load_job(x.job, x.overrides, x.protocol, "");
  if (!x.cluster.empty())
    add_devices(job, load_cluster(x.cluster), x.cluster);
  const auto cluster = shape_of_cluster(x, job);
  with_job_lines(x.job, x.overrides, [&] {
    check_workers(job, cluster.workers);
    divide_batch(job, cluster.workers);
  });
  const auto processes = processes_of(x, cluster);
  require_one_process(job, processes.size() > 1);
  print_job(job);
  std::optional<job_data> data;
  std::string problem;
  auto shape = std::optional<data_shape>{};
  try {
    data = build_training_data(job);
    shape = shape_of(*data->train);
  } catch (const input_error& error) {
    problem = with_line_numbers(error.what(), x.job, x.overrides);
    shape = widths_of(job);
  }
  if (shape) {
    const auto context =
      with_job_lines(x.job, x.overrides, [&] { return make_job_context(job, *shape); });
    print_model(*context);
    if (data) {
      print_data(*context, *data);
      check_tasks(*context, cluster, x.cluster.empty() ? "--workers" : x.cluster,
                  x.cluster.empty() ? "--ps" : x.cluster);
      if (job.solver() != proto::EXACT)
        print_steps(*context, cluster);
    }
    if (job.solver() != proto::EXACT)
      print_shards(*context, cluster);
    print_placement(processes);
    print_devices(*context, data ? data->train.get() : nullptr, processes, cluster, x.devices);
    if (data)
      print_memory(*context, *data, cluster, processes, program);
    if (x.plan)
      fmt::print("\n{}", plan_text(*context->training, context->rule.slots()));
    if (problem.empty())
      with_job_lines(x.job, x.overrides, [&] {
        require_devices(*context, processes, cluster, x.cluster.empty(), x.devices);
      });
  }
  std::fflush(stdout);
  if (!problem.empty())
    throw input_error{problem};
  return exit_done;
}

} // namespace troupe
