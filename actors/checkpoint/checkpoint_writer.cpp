#include "actors/checkpoint/checkpoint_writer.hpp"

#include "kernels/optimizers/gradient_norm.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>

namespace troupe {

namespace {

payload joined(const std::vector<payload>& parts) {
  if (parts.size() == 1)
    return parts.front();
  std::size_t size = 0;
  for (auto& x : parts)
    size += x.size();
  auto result = payload::allocate(size);
  auto* out = result.mutable_data();
  for (auto& x : parts)
    out = std::ranges::copy(x.bytes(), out).out;
  return result;
}

} // namespace

checkpoint_writer::checkpoint_writer(caf::actor_config& cfg,
                                     std::shared_ptr<const job_context> context,
                                     std::shared_ptr<storage> where, std::filesystem::path folder,
                                     checkpoint_listener listener)
  : super(cfg), context_(std::move(context)), storage_(std::move(where)),
    folder_(std::move(folder)), listener_(std::move(listener)) {}

checkpoint_writer::behavior_type checkpoint_writer::make_behavior() {
  return {[this](const write_checkpoint& x) { on_write(x); }};
}

void checkpoint_writer::on_exit() {
  listener_ = nullptr;
}

void checkpoint_writer::on_write(const write_checkpoint& x) {
  checkpoint_written result{x.manifest.step, {}, {}};
  try {
    checkpoint whole;
    whole.manifest = x.manifest;
    for (auto& parts : x.slots)
      whole.slots.push_back(joined(parts));
    const auto flat = whole.slots.front().as_floats();
    if (const auto first = first_not_finite(context_->parameters(), {0, flat.size()}, flat);
        !first.empty())
      throw std::runtime_error{"its weights are not finite, first " + first};
    const auto files = encode_checkpoint(*context_, whole);
    storage_->write_directory(folder_ / checkpoint_name(x.manifest.step), files);
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  try {
    keep_checkpoints(*storage_, folder_, x.manifest.step, context_->job.checkpoint().keep());
  } catch (const std::exception& error) {
    result.kept_too_many = error.what();
  }
  send(listener_, std::move(result));
}

} // namespace troupe
