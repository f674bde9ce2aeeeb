#include "actors/worker/input_reader.hpp"

#include "actors/model/data_fingerprint.hpp"
#include "kernels/data/permutation.hpp"
#include "kernels/error.hpp"
#include "kernels/random.hpp"
#include "messages/errors.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <limits>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Separates the random numbers of augmentations from those of dropout.
constexpr std::uint64_t augment_stream = 0x6175676d656e74; // "augment"

std::span<const std::int32_t> integers_of(const payload& x) {
  return {reinterpret_cast<const std::int32_t*>(x.data()), x.size() / sizeof(std::int32_t)};
}

std::span<std::int32_t> integers_of(payload& x) {
  return {reinterpret_cast<std::int32_t*>(x.mutable_data()), x.size() / sizeof(std::int32_t)};
}

/// Allocates memory in a batch's payloads for the features of some records.
feature_batch make_features(std::span<const std::uint64_t> records, const dataset& data,
                            sample_batch& out) {
  feature_batch result;
  if (data.record().features == feature_kind::sparse) {
    const auto entries = data.entries(records);
    if (entries > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
      throw input_error("a batch of " + std::to_string(records.size()) + " records has "
                        + std::to_string(entries)
                        + " entries, more than 2^31; make data.batch smaller");
    // The memory pool keeps buffers by size. Sizes are rounded up to powers of two, so that buffers
    // can be used again.
    const auto room = std::bit_ceil(entries);
    out.row_starts = payload::floats(records.size() + 1);
    out.columns = payload::floats(room);
    out.features = payload::floats(room);
    result.sparse = {integers_of(out.row_starts), integers_of(out.columns),
                     out.features.as_mutable_floats()};
    result.sparse.row_starts[0] = 0;
    return result;
  }
  out.features = payload::floats(records.size() * data.record().feature_width());
  if (data.record().features == feature_kind::tokens)
    result.tokens = integers_of(out.features);
  else
    result.numbers = out.features.as_mutable_floats();
  return result;
}

} // namespace

input_reader::input_reader(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                           data_source source, input_listener listener)
  : super(cfg), context_(std::move(context)), source_(std::move(source)),
    listener_(std::move(listener)) {
  records_.reserve(context_->batch());
  const auto& how = context_->job.data().augment();
  augmentation_ = {how.flip(), how.crop_padding()};
}

input_reader::behavior_type input_reader::make_behavior() {
  // If an embedding program's data set throws, the run ends with the text of the exception.
  set_exception_handler([](std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      return make_error(errc::failed, std::string{"the data cannot be read: "} + error.what());
    } catch (...) {
      return make_error(errc::failed, "the data cannot be read");
    }
  });
  load();
  return {[this](const read_batch& x) { on_read(x); }};
}

void input_reader::load() {
  input_ready result;
  try {
    const auto loaded = source_(context_->job);
    data_ = loaded.train;
    const auto here = shape_of(*data_);
    const auto& there = context_->data;
    if (here != there)
      result.problem = "the data here (" + to_string(here) + ") differs from the coordinator's ("
        + to_string(there) + "): give all nodes the same files";
    else
      require_same_data(loaded, context_->fingerprint);
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  send(listener_, std::move(result));
}

// The rows of weights that the batches read: token ids, or the columns of sparse features, are the
// numbers of these rows. A table that is small compared with the batch is sent as a whole.
batch_rows input_reader::touched_by(const batch_read& x) const {
  const auto& plan = *context_->training;
  if (plan.row_sparse_gradients().empty() || x.rows == 0)
    return nullptr;
  std::vector<std::int32_t> rows;
  for (auto& batch : x.batches)
    add_named(batch, rows);
  const auto named = rows.size();
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  auto result = std::make_shared<proto::Selection>();
  for (auto& table : plan.row_sparse_gradients()) {
    const auto& entry = plan.parameters().entries()[table.parameter];
    const auto height = static_cast<std::size_t>(entry.shape[0]);
    const bool known = rows.empty() || (rows.front() >= 0 && std::cmp_less(rows.back(), height));
    if (table.feed != 0 || named >= height || !known)
      continue;
    const auto where = entry.elements();
    auto& tensor = *result->add_tensor();
    tensor.set_begin(where.begin);
    tensor.set_end(where.end);
    tensor.set_width(where.size() / height);
    tensor.mutable_row()->Add(rows.begin(), rows.end());
  }
  return result->tensor().empty() ? nullptr : result;
}

void input_reader::add_named(const sample_batch& x, std::vector<std::int32_t>& rows) const {
  auto named = integers_of(x.features);
  if (context_->data.features == feature_kind::sparse)
    named =
      integers_of(x.columns).first(static_cast<std::size_t>(integers_of(x.row_starts)[x.rows]));
  rows.insert(rows.end(), named.begin(), named.end());
}

void input_reader::on_read(const read_batch& x) {
  const auto most = context_->gradient_samples();
  if (x.end < x.begin || x.end > data_->size() || x.end - x.begin > most)
    throw input_error("the coordinator leased positions " + std::to_string(x.begin) + " to "
                      + std::to_string(x.end) + ", but there are " + std::to_string(data_->size())
                      + " records, in batches of " + std::to_string(most));
  batch_read result;
  result.ticket = x.ticket;
  result.rows = x.end - x.begin;
  auto begin = x.begin;
  do {
    const auto end = std::min<std::uint64_t>(begin + context_->batch(), x.end);
    result.batches.push_back(read(x.epoch, begin, end));
    begin = end;
  } while (begin < x.end);
  result.touched = touched_by(result);
  send(listener_, std::move(result));
}

sample_batch input_reader::read(std::uint32_t epoch, std::uint64_t begin, std::uint64_t end) {
  sample_batch result;
  result.rows = end - begin;
  result.seed = stream_key(context_->job.seed(), {epoch, begin});
  if (result.rows == 0)
    return result;
  records_.resize(result.rows);
  permutation{data_->size(), context_->job.seed(), epoch}.fill(begin, records_);
  const auto& shape = data_->record();
  const auto features = make_features(records_, *data_, result);
  result.labels = payload::floats(result.rows * shape.label_elements());
  label_batch labels;
  if (shape.labels == label_kind::classes)
    labels.classes = integers_of(result.labels);
  else
    labels.targets = result.labels.as_mutable_floats();
  data_->read(records_, features, labels);
  if (!augmentation_.empty())
    for (std::size_t i = 0; i < records_.size(); ++i)
      augment(features.numbers.subspan(i * shape.feature_width(), shape.feature_width()),
              shape.dims, augmentation_,
              stream_key(context_->job.seed(), {augment_stream, epoch, records_[i]}));
  return result;
}

} // namespace troupe
