#include "actors/cluster/footprint.hpp"

#include "actors/checkpoint/checkpoint_schedule.hpp"
#include "actors/cluster/address.hpp"
#include "actors/model/device_placement.hpp"
#include "actors/model/model_tester.hpp"
#include "actors/model/replica_state.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "actors/replica/replica_store.hpp"
#include "actors/worker/pinned_pool.hpp"
#include "kernels/optimizers/least_squares.hpp"
#include "messages/transfer.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace troupe {

namespace {

std::size_t bytes_of(std::size_t parameters) {
  return parameters * sizeof(float);
}

/// Bytes of memory for a tensor while a link sends it in one direction. A link sends only a limited
/// number of chunks before it waits for an acknowledgement, and only these chunks need memory. Each
/// chunk exists twice: as a message and in the socket's buffer.
std::size_t in_flight(std::size_t parameters) {
  constexpr std::size_t copies = 2;
  const transfer_limits limits;
  return copies * std::min(bytes_of(parameters), limits.window * limits.chunk_bytes);
}

std::size_t bytes_of_data(const job_data& data) {
  std::vector<const dataset*> counted;
  std::size_t result = 0;
  for (const auto& x : {data.train, data.test, data.validation}) {
    if (!x || std::ranges::find(counted, &x->storage()) != counted.end())
      continue;
    counted.push_back(&x->storage());
    result += x->memory_bytes();
  }
  return result;
}

/// Bytes of the labels of one record in a batch.
std::size_t bytes_of_labels(const job_context& context) {
  return bytes_of(context.data.label_elements());
}

/// Bytes of one record in a batch. For sparse records, this is an average.
std::size_t bytes_of_record(const job_context& context, const job_data& data) {
  const auto labels = bytes_of_labels(context);
  if (context.data.features == feature_kind::sparse)
    return labels + (data.train ? data.train->memory_bytes() / data.train->size() : 0);
  return labels + bytes_of(context.data.feature_width());
}

/// Bytes of the tensors that a worker copies into one place, because different shards hold their
/// parts. A tensor that is cut between rows is not copied if the plan can be computed with rows in
/// several places (weight_binding).
std::size_t gathered(const job_context& context, std::span<const range> shards) {
  std::size_t result = 0;
  const auto& entries = context.parameters().entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto tensor = entries[i].elements();
    const bool rows = may_be_cut(*context.training, i);
    const auto unit =
      rows ? tensor.size() / static_cast<std::size_t>(entries[i].shape[0]) : tensor.size();
    const bool split = std::ranges::any_of(shards, [&](auto& x) {
      return tensor.contains(x.begin) && (x.begin - tensor.begin) % unit != 0;
    });
    result += split ? tensor.size() : 0;
  }
  return result;
}

/// True if the task certainly runs on a GPU. False with soft_placement, because the task may then
/// still use the CPU.
bool surely_on_gpu(const job_context& context, const task_name& task) {
  return device_of(context.job, task).gpu && !context.job.soft_placement();
}

} // namespace

bool adds_on_gpus(const job_context& context, const cluster_shape& cluster) {
  for (std::size_t i = 0; i < cluster.workers; ++i)
    if (!surely_on_gpu(context, {job_kind::worker, static_cast<std::uint32_t>(i)}))
      return false;
  return !cluster.separate && adds_on_gpus(context, cluster.workers);
}

namespace {

footprint of_shard(std::size_t index, const job_context& context, const cluster_shape& cluster) {
  footprint result;
  if (!context.protocol.uses_shards())
    return result; // The task is idle.
  const auto elements = context.shard(index, cluster.ps).size();
  const std::size_t captures = checkpoint_schedule::most_open_of(context.job);
  result.weights = version_pool::memory_bytes(
    elements, shard_slots(cluster.workers, captures) + cluster.workers * context.job.pull_ahead());
  // Rounded versions: the two newest ones, and those that workers read.
  if (context.job.exchange_precision() == proto::BFLOAT16)
    result.weights += bytes_of((2 + cluster.workers * (1 + context.job.pull_ahead())) * elements);
  if (context.job.has_moving_average())
    result.weights += version_pool::memory_bytes(elements, shard_slots(0, captures));
  // An update in pieces needs a second copy of the optimizer state: the state of the next version,
  // until that version is published.
  const bool pieces = cluster.separate && context.protocol.in_pieces;
  // If the shard is on a GPU, its states are in the GPU's memory. Only the copies for checkpoints
  // are in the host's memory.
  const bool on_gpu = surely_on_gpu(context, {job_kind::ps, static_cast<std::uint32_t>(index)});
  const std::size_t own = on_gpu ? 0 : pieces ? 2 : 1;
  const std::size_t states =
    own + (context.job.has_checkpoint() ? checkpoint_schedule::most_open : 0);
  result.optimizer = states * range_updater::memory_bytes(context, elements);
  if (const auto& more = context.protocol.shard_state)
    result.optimizer += more(context.job, cluster.workers) * bytes_of(elements);
  // Each worker may have one gradient in transit.
  const std::size_t received = cluster.separate ? cluster.workers : 0;
  result.gradients = (received + context.protocol.memory.shard) * bytes_of(elements);
  // Weights are sent to each worker and to the coordinator; gradients arrive from each worker.
  if (cluster.separate)
    result.network = (2 * cluster.workers + 1) * in_flight(elements);
  return result;
}

/// Adds the copies that a worker makes of its part of the replica for checkpoints and evaluations.
void add_captures(footprint& to, const job_context& context, std::size_t workers) {
  const auto& job = context.job;
  const auto all = context.parameters().size();
  const auto part = (all + workers - 1) / workers;
  const std::size_t checkpoints = job.has_checkpoint() ? checkpoint_schedule::most_open : 0;
  const std::size_t evaluations =
    job.evaluate().every_steps() > 0 ? checkpoint_schedule::most_open : 0;
  const std::size_t averages = job.has_moving_average() ? 1 : 0;
  to.weights += bytes_of((evaluations + checkpoints * (1 + averages)) * part);
  const auto own = own_states(context, workers) > 0 ? all : 0;
  to.optimizer += checkpoints * range_updater::memory_bytes(context, part + own);
  if (outer_vectors(job) > 1) // the momentum of the outer optimizer
    to.optimizer += checkpoints * bytes_of(part);
}

footprint of_worker(std::size_t index, const job_context& context, const job_data& data,
                    const cluster_shape& cluster) {
  footprint result;
  const auto parameters = context.parameters().size();
  const bool alone = cluster.workers == 1;
  const task_name task{job_kind::worker, static_cast<std::uint32_t>(index)};
  // If the gradients of several batches are added up, one more vector holds the sum.
  const std::size_t computed = context.job.accumulate() > 1 ? 2 : 1;
  result.gradients =
    (computed + (alone ? 0 : context.protocol.memory.worker)) * bytes_of(parameters);
  if (!context.protocol.uses_shards()) {
    // Worker 0 copies its replica for the coordinator after each epoch.
    result.weights = version_pool::memory_bytes(parameters, replica_slots)
      + (index == 0 ? bytes_of(parameters) : 0);
    if (context.job.has_moving_average())
      result.weights += bytes_of(parameters);
    const auto where = surely_on_gpu(context, task)
      ? residence_of(context, cluster.workers, adds_on_gpus(context, cluster))
      : residence::host;
    const auto ranks = divides_state(context, cluster.workers) ? cluster.workers : 1;
    if (where == residence::host)
      result.optimizer = replica_store::state_bytes(context, (parameters + ranks - 1) / ranks);
    if (where == residence::gradients_on_gpu)
      result.gradients = 0;
    result.optimizer += outer_vectors(context.job) * bytes_of(parameters);
    add_captures(result, context, cluster.workers);
    // Nothing limits how many pieces of a step are in transit. So all pieces may be in transit, in
    // both directions.
    if (cluster.separate && !alone)
      result.network = 2 * bytes_of(parameters);
  } else {
    const auto shards = context.shards(cluster.ps);
    // Pieces of the next version arrive while the current version is in use.
    const std::size_t pieces = context.protocol.in_pieces ? 1 : 0;
    const std::size_t received = cluster.separate ? 1 + context.job.pull_ahead() + pieces : 0;
    result.weights = bytes_of(received * parameters + gathered(context, shards));
    if (cluster.separate)
      for (const auto& where : shards)
        result.network += 2 * in_flight(where.size());
  }
  // If the worker is on a GPU, its activations are in the GPU's memory.
  if (!surely_on_gpu(context, task))
    result.activations =
      executor<float>::memory_bytes(*context.training, context.job.runtime().threads());
  // While the batches of one gradient are trained, the next batches are read. Features in pinned
  // memory count as memory for the GPU (device_memory).
  const bool pinned = surely_on_gpu(context, task) && pinned_batch_bytes(context) > 0;
  result.batches = (1 + context.job.data().prefetch()) * context.gradient_samples()
    * (pinned ? bytes_of_labels(context) : bytes_of_record(context, data));
  // Only the training records count, because a worker releases the test records after loading.
  result.data = cluster.separate && data.train ? data.train->memory_bytes() : 0;
  return result;
}

/// True if two workers need the same memory. This is so for all workers except worker 0, if they
/// have the same device.
bool alike(const job_context& context, std::uint32_t a, std::uint32_t b) {
  const auto of = [&](std::uint32_t index) {
    return device_of(context.job, {job_kind::worker, index});
  };
  return a > 0 && b > 0 && of(a) == of(b);
}

footprint of_coordinator(const job_context& context, const job_data& data,
                         const cluster_shape& cluster) {
  footprint result;
  // Copies of a snapshot of the weights: one for evaluation, one as received from other processes,
  // and one for writing.
  const std::size_t copies = 1 + (cluster.separate ? 1 : 0) + (cluster.output ? 1 : 0);
  result.weights = copies * bytes_of(context.parameters().size());
  result.activations =
    model_tester::memory_bytes(context, !surely_on_gpu(context, coordinator_task));
  result.data = bytes_of_data(data);
  if (context.job.solver() == proto::EXACT) {
    result.gradients =
      least_squares::memory_bytes(context.data.feature_width(), context.data.label_width);
    return result;
  }
  if (cluster.separate)
    for (const auto& where : context.shards(context.protocol.uses_shards() ? cluster.ps : 1))
      result.network += in_flight(where.size());
  return result;
}

constexpr auto loopback = "localhost";

/// The host in an address; empty if the address names no host.
std::string named_host(const std::string& address) {
  std::string host;
  std::uint16_t port = 0;
  if (!split_address(address, host, port) || host == "0.0.0.0" || host == "::")
    return "";
  return host == "::1" || host.starts_with("127.") ? loopback : host;
}

footprint of_evaluator(const job_context& context, const job_data& data) {
  footprint result;
  result.weights = bytes_of(context.parameters().size());
  result.activations =
    model_tester::memory_bytes(context, !surely_on_gpu(context, {job_kind::evaluator, 0}));
  result.network = in_flight(context.parameters().size());
  result.data = bytes_of_data({data.evaluated(), data.test});
  return result;
}

} // namespace

footprint& footprint::operator+=(const footprint& x) noexcept {
  weights += x.weights;
  optimizer += x.optimizer;
  gradients += x.gradients;
  activations += x.activations;
  batches += x.batches;
  data += x.data;
  network += x.network;
  pinned += x.pinned;
  return *this;
}

footprint footprint_of(const task_name& task, const job_context& context, const job_data& data,
                       const cluster_shape& cluster) {
  if (context.job.solver() == proto::EXACT && task.job != job_kind::coordinator)
    return {}; // The task is idle.
  switch (task.job) {
  case job_kind::ps:
    return of_shard(task.index, context, cluster);
  case job_kind::worker:
    return of_worker(task.index, context, data, cluster);
  case job_kind::evaluator:
    return of_evaluator(context, data);
  case job_kind::coordinator:
    break;
  }
  return of_coordinator(context, data, cluster);
}

std::vector<task_memory> memory_of(const std::vector<task_name>& tasks, const job_context& context,
                                   const job_data& data, const cluster_shape& cluster) {
  std::vector<task_memory> result;
  for (auto& task : tasks) {
    const bool known = task.job == job_kind::worker && !result.empty()
      && result.back().task.job == job_kind::worker
      && alike(context, result.back().task.index, task.index);
    result.push_back(
      {task, known ? result.back().bytes : footprint_of(task, context, data, cluster).total()});
  }
  return result;
}

std::size_t total_of(const std::vector<task_memory>& x) noexcept {
  return std::accumulate(x.begin(), x.end(), std::size_t{},
                         [](std::size_t sum, auto& each) { return sum + each.bytes; });
}

std::vector<task_name> tasks_beside(const std::map<task_name, std::string>& cluster,
                                    const task_name& task) {
  const auto host_of = [&](const task_name& which) {
    const auto i = cluster.find(which);
    return i == cluster.end() ? "" : named_host(i->second);
  };
  const auto here = host_of(task);
  const bool unknown = here.empty() || (here == loopback && host_of(coordinator_task) != loopback);
  std::vector<task_name> result;
  for (auto& [name, address] : cluster)
    if (name == task || (!unknown && host_of(name) == here))
      result.push_back(name);
  return result;
}

footprint footprint_of_all(const job_context& context, const job_data& data,
                           const cluster_shape& cluster) {
  auto result = of_coordinator(context, data, cluster);
  if (context.job.solver() == proto::EXACT)
    return result;
  for (std::size_t i = 0; i < cluster.ps; ++i)
    result += of_shard(i, context, cluster);
  footprint worker;
  for (std::uint32_t i = 0; i < cluster.workers; ++i) {
    if (i == 0 || !alike(context, i - 1, i))
      worker = of_worker(i, context, data, cluster);
    result += worker;
  }
  return result;
}

} // namespace troupe
