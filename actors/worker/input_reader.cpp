#include "actors/worker/input_reader.hpp"

#include "actors/model/data_fingerprint.hpp"
#include "kernels/cpu/flush_denormals.hpp"
#include "kernels/data/permutation.hpp"
#include "kernels/devices/device_error.hpp"
#include "kernels/error.hpp"
#include "kernels/random.hpp"
#include "messages/errors.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

/// Gives augmentations other random numbers than dropout.
constexpr std::uint64_t augment_stream = 0x6175676d656e74; // "augment"

std::span<const std::int32_t> integers_of(const payload& x) {
  return {reinterpret_cast<const std::int32_t*>(x.data()), x.size() / sizeof(std::int32_t)};
}

std::span<std::int32_t> integers_of(payload& x) {
  return {reinterpret_cast<std::int32_t*>(x.mutable_data()), x.size() / sizeof(std::int32_t)};
}

/// The rows `where` of the matrix `all`, which has `width` elements per row. Empty if `all` is
/// empty.
template <class T>
std::span<T> rows_of(std::span<T> all, range where, std::size_t width) {
  return all.empty() ? all : all.subspan(where.begin * width, where.size() * width);
}

} // namespace

input_reader::input_reader(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                           data_source source, input_listener listener, pinned_memory_source pinned)
  : super(cfg), context_(std::move(context)), source_(std::move(source)),
    listener_(std::move(listener)), open_pinned_(std::move(pinned)) {
  records_.reserve(context_->batch());
  const auto& how = context_->job.data().augment();
  augmentation_ = {how.flip(), how.crop_padding()};
}

input_reader::behavior_type input_reader::make_behavior() {
  // If the data set of an embedding program throws, the run ends with the text of the exception.
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
    prepare();
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  send(listener_, std::move(result));
}

/// Starts the threads and opens the pinned memory with which batches are gathered.
void input_reader::prepare() {
  if (context_->data.features == feature_kind::sparse)
    return;
  if (const auto threads = context_->job.data().read_threads(); threads > 1) {
    try {
      team_.emplace(threads);
    } catch (const std::system_error& error) {
      throw input_error("data.read_threads: " + std::to_string(threads)
                        + " threads cannot be started: " + error.what());
    }
    failures_.resize(threads);
  }
  const auto bytes = pinned_batch_bytes(*context_);
  if (open_pinned_ == nullptr || bytes == 0)
    return;
  try {
    pinned_ = std::make_shared<pinned_pool>(open_pinned_(), bytes);
  } catch (const device_error&) { // the trainer opens the same GPU, and reports the failure
  }
}

// The rows of large weight tables that the batches read. The token ids, or the columns of sparse
// features, are the numbers of these rows. If a table has few rows compared with the batch, its
// rows are not listed, and the table is exchanged as a whole.
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
  const auto features =
    shape.features == feature_kind::sparse ? make_sparse_features(result) : make_features(result);
  result.labels = payload::floats(result.rows * shape.label_elements());
  label_batch labels;
  if (shape.labels == label_kind::classes)
    labels.classes = integers_of(result.labels);
  else
    labels.targets = result.labels.as_mutable_floats();
  gather(epoch, features, labels);
  return result;
}

/// Allocates memory for the features of records_.
feature_batch input_reader::make_features(sample_batch& out) {
  const auto bytes = records_.size() * data_->record().feature_width() * sizeof(float);
  out.features = pinned_ ? pinned_->take(bytes) : payload::allocate(bytes);
  if (data_->record().features == feature_kind::tokens)
    return integers_of(out.features);
  return out.features.as_mutable_floats();
}

feature_batch input_reader::make_sparse_features(sample_batch& out) {
  const auto entries = data_->entries(records_);
  if (entries > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
    throw input_error("a batch of " + std::to_string(records_.size()) + " records has "
                      + std::to_string(entries)
                      + " entries, more than 2^31; make data.batch smaller");
  // Sizes are rounded up to powers of two. The memory pool keeps free buffers by size, so it can
  // then use buffers of earlier batches again.
  const auto room = std::bit_ceil(entries);
  out.row_starts = payload::floats(records_.size() + 1);
  out.columns = payload::floats(room);
  out.features = payload::floats(room);
  const sparse_batch result{integers_of(out.row_starts), integers_of(out.columns),
                            out.features.as_mutable_floats()};
  result.row_starts[0] = 0;
  return result;
}

/// Reads records_. Each thread reads a part of the rows.
void input_reader::gather(std::uint32_t epoch, const feature_batch& features,
                          const label_batch& labels) {
  if (!team_) {
    gather_rows(epoch, features, labels, {0, records_.size()});
    return;
  }
  team_->run([&](std::size_t i) {
    try {
      gather_rows(epoch, features, labels, part_of(records_.size(), team_->size(), i));
    } catch (...) {
      failures_[i] = std::current_exception();
    }
  });
  for (auto& x : failures_)
    if (x)
      std::rethrow_exception(std::exchange(x, nullptr));
}

void input_reader::gather_rows(std::uint32_t epoch, const feature_batch& features,
                               const label_batch& labels, range rows) {
  if (rows.empty())
    return;
  const cpu::flush_denormals mode; // as on the threads of a thread_team
  const auto& shape = data_->record();
  const auto width = shape.feature_width();
  const auto records = rows_of(std::span<const std::uint64_t>{records_}, rows, 1);
  auto to = features;
  to.numbers = rows_of(features.numbers, rows, width);
  to.tokens = rows_of(features.tokens, rows, width);
  data_->read(records, to,
              {rows_of(labels.classes, rows, shape.label_elements()),
               rows_of(labels.targets, rows, shape.label_elements())});
  if (augmentation_.empty())
    return;
  for (std::size_t i = 0; i < records.size(); ++i)
    augment(to.numbers.subspan(i * width, width), shape.dims, augmentation_,
            stream_key(context_->job.seed(), {augment_stream, epoch, records[i]}));
}

} // namespace troupe
