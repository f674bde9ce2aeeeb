#include "actors/worker/input_reader.hpp"

#include "kernels/data/permutation.hpp"
#include "messages/errors.hpp"

#include <exception>

namespace troupe {

input_reader::input_reader(caf::actor_config& cfg, std::shared_ptr<const job_context> context,
                           data_source source, input_listener listener)
  : super(cfg), context_(std::move(context)), source_(std::move(source)),
    listener_(std::move(listener)) {
  records_.reserve(context_->job.data().batch());
}

input_reader::behavior_type input_reader::make_behavior() {
  // A program's own data set that throws ends the run with its own words.
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
    data_ = source_(context_->job).train;
    const auto here = shape_of(*data_);
    const auto& there = context_->data;
    if (here.train_records != there.train_records || here.feature_width != there.feature_width
        || here.labels != there.labels || here.label_width != there.label_width)
      result.problem = "the data here (" + std::to_string(here.train_records) + " records of "
        + std::to_string(here.feature_width) + " features) is not the coordinator's ("
        + std::to_string(there.train_records) + " of " + std::to_string(there.feature_width)
        + "): give all nodes the same files";
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  send(listener_, std::move(result));
}

void input_reader::on_read(const read_batch& x) {
  batch_read result;
  result.ticket = x.ticket;
  result.rows = x.end - x.begin;
  if (result.rows > 0) {
    records_.resize(result.rows);
    permutation{data_->size(), context_->job.seed(), x.epoch}.fill(x.begin, records_);
    result.features = payload::floats(result.rows * data_->feature_width());
    label_batch labels;
    if (data_->labels() == label_kind::classes) {
      result.labels = payload::allocate(result.rows * sizeof(std::int32_t));
      labels.classes = {reinterpret_cast<std::int32_t*>(result.labels.mutable_data()), result.rows};
    } else {
      result.labels = payload::floats(result.rows * data_->label_width());
      labels.targets = result.labels.as_mutable_floats();
    }
    data_->read(records_, result.features.as_mutable_floats(), labels);
  }
  send(listener_, std::move(result));
}

} // namespace troupe
