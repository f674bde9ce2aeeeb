#include "actors/cluster/training.hpp"

#include "actors/model/data_fingerprint.hpp"
#include "actors/model/data_metadata.hpp"
#include "actors/model/global_batch.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_source.hpp"
#include "kernels/error.hpp"

#include <system_error>

namespace troupe {

namespace {

coordinator_setup make_setup(const training_options& options) {
  auto job = options.job;
  embed_onnx(job);
  const bool own_data = options.data.train != nullptr;
  const auto own = traits_of(options.protocols);
  validate(job, own_data ? data_from::program : data_from::job, own);
  if (options.workers == 0)
    throw input_error{"no workers; expected at least one"};
  if (const auto& protocol = traits_of(job, own); protocol.uses_shards() && options.ps == 0)
    throw input_error{protocol.name + " needs at least one parameter shard"};
  check_workers(job, options.workers, own);
  divide_batch(job, options.workers);
  coordinator_setup result;
  result.data = own_data ? given_data(job, options.data) : build_training_data(job);
  result.data.fingerprint = fingerprint_if_readable(result.data);
  result.context = make_job_context(job, shape_of(*result.data.train), own,
                                    metadata_of(result.data), result.data.fingerprint);
  result.output = expand_environment(job.output(), "output");
  result.files = std::make_shared<disk_storage>();
  auto tasks = tasks_of(options.workers, options.ps);
  tasks.push_back(coordinator_task);
  check_devices(*result.context, options.workers, options.ps, tasks, options.gpus.get());
  open_output(result, options.resume);
  return result;
}

} // namespace

std::span<const float> trained::tensor(std::string_view name) const {
  const auto* entry = context ? context->parameters().find(name) : nullptr;
  return entry ? weights.as_floats().subspan(entry->offset, entry->size) : std::span<const float>{};
}

training_actor spawn_training(caf::actor_system& sys, training_options options) {
  // This actor reads files and plans the computation. Both take long, so it needs its own thread.
  return sys.spawn<training, caf::detached>(std::move(options));
}

training::training(caf::actor_config& cfg, training_options options)
  : super(cfg), options_(std::move(options)) {}

training::behavior_type training::make_behavior() {
  set_down_handler([this](const caf::down_msg& x) {
    if (node_ && x.source == node_.address())
      on_node_down();
  });
  return {
    [this](begin_training) { return on_begin(); },
    [this](const stop_run& x) { on_stop(x); },
    [this](const run_summary& x) { on_summary(x); },
    [this](const epoch_weights& x) { on_weights(x); },
  };
}

caf::result<trained> training::on_begin() {
  if (begun_)
    return make_error(errc::failed, "this run has already begun; spawn another");
  begun_ = true;
  if (stopped_) {
    quit();
    return make_error(errc::interrupted, *stopped_);
  }
  answer_ = make_response_promise<trained>();
  try {
    start();
  } catch (const input_error& error) {
    finish(make_error(errc::bad_input, error.what()));
  } catch (const device_error& error) {
    finish(make_error(errc::bad_input, error.what()));
  } catch (const std::system_error& error) { // the output directory cannot be written
    finish(make_error(errc::bad_input, error.what()));
  } catch (const std::exception& error) {
    finish(make_error(errc::failed, error.what()));
  }
  return answer_;
}

void training::start() {
  auto setup = make_setup(options_);
  context_ = setup.context;
  setup.weights = caf::actor_cast<weights_listener>(this);
  auto how = local_cluster(std::move(setup), options_.workers, options_.ps);
  how.observer = options_.observer;
  how.protocols = options_.protocols;
  how.gpus = options_.gpus;
  how.on_end = [to = caf::actor_cast<caf::actor>(this)](const run_summary& x) {
    caf::anon_send(to, x);
  };
  options_.data = {};
  node_ = caf::actor_cast<caf::actor>(system().spawn<cluster_node>(std::move(how)));
  monitor(node_);
  anon_send(node_, begin_node{});
}

void training::on_stop(const stop_run& x) {
  if (!begun_)
    stopped_ = x.reason;
  else if (node_)
    anon_send(node_, x);
}

void training::on_weights(const epoch_weights& x) {
  weights_ = x.weights;
  if (options_.weights)
    send(options_.weights, x);
}

void training::on_summary(const run_summary& x) {
  summary_ = x;
}

void training::on_node_down() {
  if (summary_.interrupted)
    finish(make_error(errc::interrupted, summary_.failure));
  else if (!summary_.failure.empty())
    finish(make_error(summary_.not_finite ? errc::not_finite : errc::failed, summary_.failure));
  else
    finish({});
}

void training::finish(const caf::error& error) {
  if (error)
    answer_.deliver(error);
  else
    answer_.deliver(trained{summary_, context_, weights_});
  quit();
}

void training::on_exit() {
  if (answer_.pending())
    answer_.deliver(make_error(errc::interrupted, "the run was stopped from outside"));
  if (node_)
    anon_send(node_, crash_node{});
  node_ = nullptr;
  options_ = {};
}

} // namespace troupe
