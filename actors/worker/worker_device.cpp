#include "actors/worker/worker_device.hpp"

#include "actors/worker/gpu_plan.hpp"
#include "kernels/error.hpp"

namespace troupe {

std::shared_ptr<const plan> gpu_plan(const job_context& context, const fusion_table& fusion) {
  plan_options options;
  options.max_rows = context.batch();
  options.loss = context.model.training_loss;
  options.gradients = true;
  options.bucket_bytes = context.job.runtime().bucket_bytes();
  options.fusion = &fusion;
  return std::make_shared<plan>(*context.model.graph, options);
}

namespace {

/// The name of the GPU. Throws if it cannot compute the job's model.
std::string open(const job_context& context, std::uint32_t gpu, const gpu_set* gpus) {
  if (gpus == nullptr)
    throw device_error("this program was built without code for GPUs. Build it where CUDA's nvcc "
                       "is installed (TROUPE_CUDA=ON), or use the CPU");
  gpus->check(*gpu_plan(context, gpus->fusion()));
  return gpus->name(gpu);
}

} // namespace

worker_device choose_device(const job_context& context, std::uint32_t worker, const gpu_set* gpus) {
  const auto wanted = device_of_worker(context.job, worker);
  const device_name cpu;
  if (!wanted.gpu)
    return {cpu, to_string(cpu), ""};
  const auto refusal = [&](const std::exception& error) {
    return "worker/" + std::to_string(worker) + " cannot compute on " + to_string(wanted) + ": "
      + error.what();
  };
  const std::string advice = ". With soft_placement: true, the worker computes on the CPU instead";
  std::string why;
  try {
    return {wanted, to_string(wanted) + " (" + open(context, wanted.index, gpus) + ")", ""};
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

std::vector<std::uint32_t> workers_among(const std::vector<task_name>& tasks) {
  std::vector<std::uint32_t> result;
  for (const auto& task : tasks)
    if (task.job == job_kind::worker)
      result.push_back(task.index);
  return result;
}

void check_devices(const job_context& context, std::size_t workers,
                   const std::vector<std::uint32_t>& here, const gpu_set* gpus) {
  for (int i = 0; i < context.job.device_size(); ++i)
    if (const auto entry = parse_device(context.job.device(i));
        entry.worker && *entry.worker >= workers)
      throw input_error("device[" + std::to_string(i) + "]: there is no worker/"
                        + std::to_string(*entry.worker) + "; the cluster has "
                        + std::to_string(workers) + " workers, counted from 0");
  for (const auto worker : here)
    choose_device(context, worker, gpus);
  if (gpus == nullptr || context.job.soft_placement())
    return;
  for (std::uint32_t i = 0; i < workers; ++i)
    if (device_of_worker(context.job, i).gpu) {
      gpus->check(*gpu_plan(context, gpus->fusion()));
      return;
    }
}

std::unique_ptr<device_executor>
make_training_executor(const job_context& context, const device_name& device, const gpu_set* gpus) {
  if (device.gpu)
    return gpus->make_executor(device.index, gpu_plan(context, gpus->fusion()), context.training);
  return make_cpu_executor(context.training, context.job.runtime().threads());
}

} // namespace troupe
