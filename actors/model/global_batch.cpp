#include "actors/model/global_batch.hpp"

#include "kernels/error.hpp"

namespace troupe {

void divide_batch(proto::Job& job, std::size_t workers) {
  auto& data = *job.mutable_data();
  if (!data.has_global_batch() || workers == 0)
    return;
  const auto all = data.global_batch();
  auto text = std::to_string(workers) + (workers == 1 ? " worker" : " workers");
  if (job.accumulate() > 1)
    text += " with accumulate: " + std::to_string(job.accumulate());
  const auto batches = workers * job.accumulate();
  if (all % batches != 0)
    throw input_error("data.global_batch: " + std::to_string(all) + " samples cannot be divided "
                      + "among " + text + "; expected a multiple of " + std::to_string(batches));
  const auto each = static_cast<std::uint32_t>(all / batches);
  if (data.has_batch() && data.batch() != each)
    throw input_error("data.batch: " + std::to_string(data.batch()) + " per worker, but "
                      + "data.global_batch is " + std::to_string(all) + ", which is "
                      + std::to_string(each) + " for each of " + text
                      + "; leave out one of the two");
  data.set_batch(each);
}

std::string batch_text(const job_context& context, std::size_t workers) {
  return batch_text(context, workers, workers);
}

std::string batch_text(const job_context& context, std::size_t present, std::size_t workers) {
  const auto each = context.gradient_samples();
  const auto batches = context.job.accumulate();
  auto result = std::to_string(each) + " samples per worker";
  if (batches > 1)
    result +=
      " (" + std::to_string(batches) + " batches of " + std::to_string(context.batch()) + ")";
  result += ", " + std::to_string(each * present) + " over ";
  if (present < workers)
    result += std::to_string(present) + " of " + std::to_string(workers) + " workers";
  else
    result += workers == 1 ? "the one worker" : "all " + std::to_string(workers) + " workers";
  if (const auto& data = context.job.data(); present < workers && data.has_global_batch())
    result += ", of data.global_batch: " + std::to_string(data.global_batch());
  return result;
}

} // namespace troupe
