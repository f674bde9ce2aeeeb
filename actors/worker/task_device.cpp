#include "actors/worker/task_device.hpp"

#include "actors/model/replica_state.hpp"
#include "actors/worker/pinned_pool.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace troupe {

namespace {

/// The training plan for a device. `fusion`: the fused operations that the device can compute. The
/// plan's buckets are the same as those of job_context::training.
std::shared_ptr<const plan> training_plan(const job_context& context, const fusion_table& fusion) {
  if (&fusion == &cpu_fusion())
    return context.training;
  return std::make_shared<plan>(*context.model.graph, context.training_options(fusion));
}

/// The plan that a task runs on a GPU: training for a worker, evaluation for other tasks. Null for
/// a parameter server, which runs no plan.
std::shared_ptr<const plan> plan_of(const job_context& context, job_kind job,
                                    const fusion_table& fusion) {
  if (job == job_kind::ps)
    return nullptr;
  return job == job_kind::worker ? training_plan(context, fusion)
                                 : model_tester::plan_of(context, fusion);
}

/// Throws input_error if a GPU cannot compute the task's plan.
void check_plan(const job_context& context, job_kind job, const gpu_set& gpus) {
  if (const auto what = plan_of(context, job, gpus.fusion()))
    gpus.check(*what);
}

/// Returns the name of the GPU. Throws if the GPU cannot compute the task's plan.
std::string open(const job_context& context, job_kind job, std::uint32_t gpu, const gpu_set* gpus) {
  const auto name = require_gpus(gpus).name(gpu);
  if (const auto what = plan_of(context, job, gpus->fusion()))
    gpus->check(gpu, *what);
  return name;
}

/// Makes an executor on the device.
/// @param plan_of called with the context and a device's fusion table, returns the plan to execute
template <class Plan>
std::unique_ptr<device_executor> make_executor(const job_context& context,
                                               const device_name& device, const gpu_set* gpus,
                                               Plan plan_of, bool tf32 = false) {
  const auto on_cpu = plan_of(context, cpu_fusion());
  const auto& runtime = context.job.runtime();
  if (!device.gpu)
    return make_cpu_executor(on_cpu, runtime.threads());
  return require_gpus(gpus).make_executor(device.index, plan_of(context, gpus->fusion()), on_cpu,
                                          {.tf32 = tf32, .check_kernels = runtime.check_kernels()});
}

/// True if the worker's GPU adds up the gradients of several batches.
bool accumulates(const job_context& context, residence where) {
  return where == residence::gradients_on_gpu && context.job.accumulate() > 1;
}

} // namespace

task_device choose_device(const job_context& context, const task_name& task, const gpu_set* gpus) {
  const auto wanted = device_of(context.job, task);
  const device_name cpu;
  const bool idle = task.job == job_kind::ps && !context.protocol.uses_shards();
  if (!wanted.gpu || idle)
    return {cpu, to_string(cpu),
            context.job.tf32() && task.job == job_kind::worker ? to_string(task) + " computes on "
                + to_string(cpu) + ", where tf32 has no effect: its products stay in float32"
                                                               : ""};
  const auto refusal = [&](const std::exception& error) {
    return to_string(task) + " cannot compute on " + to_string(wanted) + ": " + error.what();
  };
  const auto advice = ". With soft_placement: true, the " + std::string{to_string(task.job)}
    + " computes on the " + "CPU instead";
  std::string why;
  try {
    return {wanted, to_string(wanted) + " (" + open(context, task.job, wanted.index, gpus) + ")",
            ""};
  } catch (const device_error& error) {
    why = refusal(error);
    if (!context.job.soft_placement())
      throw device_error(why + advice);
  } catch (const input_error& error) {
    why = refusal(error);
    if (!context.job.soft_placement())
      throw input_error(why + advice);
  }
  return {cpu, to_string(cpu), why + ". It computes on the CPU instead (soft_placement)"};
}

void check_devices(const job_context& context, std::size_t workers, std::size_t ps,
                   const std::vector<task_name>& here, const gpu_set* gpus) {
  std::vector<job_kind> on_gpu;
  for (int i = 0; i < context.job.device_size(); ++i) {
    const auto entry = parse_device(context.job.device(i));
    if (entry.device.gpu)
      on_gpu.push_back(entry.job);
    const bool worker = entry.job == job_kind::worker;
    const auto count = worker ? workers : entry.job == job_kind::ps ? ps : 1;
    if (entry.task && *entry.task >= count)
      throw input_error("device[" + std::to_string(i) + "]: there is no "
                        + to_string(task_name{entry.job, *entry.task}) + "; the cluster has "
                        + std::to_string(count) + (worker ? " workers" : " parameter servers")
                        + ", counted from 0");
  }
  for (const auto& task : here)
    choose_device(context, task, gpus);
  if (gpus == nullptr || context.job.soft_placement())
    return;
  for (const auto job : on_gpu)
    check_plan(context, job, *gpus);
}

ring_choice choose_ring(const job_context& context, const std::vector<device_name>& devices,
                        const gpu_set* gpus) {
  if (!std::ranges::all_of(devices, &device_name::gpu) || !adds_on_gpus(context, devices.size()))
    return {};
  std::vector<std::size_t> numbers;
  for (const auto& x : devices)
    numbers.push_back(x.index);
  try {
    return {require_gpus(gpus).open_ring(numbers), ""};
  } catch (const device_error& error) {
    return {nullptr,
            std::string{"the workers add up their gradients in the host's memory: "}
              + error.what()};
  }
}

replica_home open_replica(const job_context& context, const task_name& worker,
                          const device_name& device, std::size_t workers, const gpu_set* gpus,
                          device_ring* ring, std::size_t rank) {
  replica_home result;
  if (!device.gpu && ring != nullptr)
    throw device_error(to_string(worker) + " computes on the CPU, but is in a ring of GPUs");
  if (!device.gpu)
    return result;
  result.in_ring = ring != nullptr;
  result.where = residence_of(context, workers, result.in_ring);
  if (result.where == residence::host)
    return result;
  result.gpu = ring != nullptr ? ring->open(rank) : gpus->open_replica(device.index);
  result.device = to_string(worker) + " on " + to_string(device);
  return result;
}

std::unique_ptr<device_executor> make_training_executor(const job_context& context,
                                                        const device_name& device,
                                                        const gpu_set* gpus,
                                                        const replica_home& home) {
  if (home.gpu == nullptr)
    return make_executor(context, device, gpus, training_plan, context.job.tf32());
  const gpu_options how{.tf32 = context.job.tf32(),
                        .check_kernels = context.job.runtime().check_kernels(),
                        .accumulates = accumulates(context, home.where)};
  return home.gpu->make_executor(training_plan(context, gpus->fusion()), context.training, how);
}

std::unique_ptr<model_tester> make_tester(const job_context& context, const device_name& device,
                                          const gpu_set* gpus) {
  return std::make_unique<model_tester>(
    context, make_executor(context, device, gpus, model_tester::plan_of));
}

text_generator make_generator(const job_context& context, const device_name& device,
                              const gpu_set* gpus) {
  return {context, make_executor(context, device, gpus, text_generator::plan_of)};
}

namespace {

/// The number of entries of a batch of `rows` records with an average number of entries. 0 if the
/// features are not sparse.
std::size_t entries_of_batch(const job_context& context, const dataset& records, std::size_t rows) {
  if (context.data.features != feature_kind::sparse || records.size() == 0)
    return 0;
  constexpr std::size_t at_once = 4096;
  std::vector<std::uint64_t> numbers;
  double all = 0;
  for (std::uint64_t i = 0; i < records.size(); ++i) {
    numbers.push_back(i);
    if (numbers.size() < at_once && i + 1 < records.size())
      continue;
    all += static_cast<double>(records.entries(numbers));
    numbers.clear();
  }
  return static_cast<std::size_t>(
    std::ceil(all / static_cast<double>(records.size()) * static_cast<double>(rows)));
}

} // namespace

gpu_memory device_memory(const job_context& context, const task_name& task, std::size_t workers,
                         std::size_t ps, const gpu_set* gpus, bool in_ring,
                         const dataset* records) {
  if (gpus == nullptr || !device_of(context.job, task).gpu)
    return {};
  if (const auto what = plan_of(context, task.job, gpus->fusion())) {
    const auto where =
      task.job == job_kind::worker ? residence_of(context, workers, in_ring) : residence::host;
    const auto entries =
      records != nullptr ? entries_of_batch(context, *records, what->max_rows()) : 0;
    auto result = gpus->memory_of(*what, entries, {.accumulates = accumulates(context, where)});
    const auto add = [&](const gpu_memory& more) {
      result.device += more.device;
      result.pinned += more.pinned;
    };
    if (task.job == job_kind::worker)
      result.pinned += pinned_batches(context) * pinned_batch_bytes(context);
    if (task.job == job_kind::worker && context.protocol.weights == weights_at::shards)
      add(gpus->memory_of_rows(*what, entries, context.job.accumulate()));
    if (where != residence::host) {
      auto sizes = range_updater::sizes_of(context, context.parameters().size(), false);
      sizes.gradient_there = where == residence::gradients_on_gpu;
      sizes.in_ring = in_ring;
      add(gpus->memory_of(sizes, true));
    }
    return result;
  }
  if (!context.protocol.uses_shards())
    return {};
  const auto elements = context.shard(task.index, ps).size();
  return gpus->memory_of(range_updater::sizes_of(context, elements, false),
                         context.protocol.in_pieces);
}

} // namespace troupe
