// A program that adds its own protocol: gossip averaging. Each worker trains its own copy of the
// weights. After every step, it mixes its weights with those of its left neighbour.

#include <troupe/actors/cluster/training.hpp>
#include <troupe/actors/model/problem_list.hpp>
#include <troupe/actors/protocols/ring/ring.hpp>
#include <troupe/actors/replica/replica_account.hpp>
#include <troupe/actors/replica/replica_store.hpp>

#include <caf/all.hpp>

#include <cmath>
#include <iostream>
#include <map>

using troupe::payload;
using troupe::rpc;
namespace proto = troupe::proto;

// When a worker mixes its weights with those of its left neighbour: the share of the neighbour's
// weights, from 0 to 1. This is the job's parameter "share".
float share_of_neighbour(const proto::Job& job) {
  const auto text = troupe::custom_parameter(job, "share");
  return text.empty() ? 0.5F : std::strtof(text.c_str(), nullptr);
}

// The messages that the synchronizer handles in addition to those of every protocol. They tell it
// its right neighbour, bring weights of the left neighbour and sums of counters, report an error,
// or are requests of the coordinator.
using gossip_actor = troupe::synchronizer_actor::extend<
  rpc<void, troupe::ring_neighbour>, rpc<void, proto::Segment, payload>,
  rpc<void, troupe::reduction>, rpc<void, troupe::broken>,
  rpc<troupe::reply<proto::Weights, payload>, proto::Pull>,
  rpc<proto::Report, proto::ReportRequest>, rpc<proto::Ack, proto::Restore, payload>>;

class gossip_synchronizer : public gossip_actor::base {
public:
  gossip_synchronizer(caf::actor_config& cfg, const troupe::worker_site& site,
                      troupe::ring_node_actor counters)
    : gossip_actor::base(cfg), context_(site.context), view_(site.view), worker_(site.worker),
      counters_(std::move(counters)), replica_(site.context),
      account_(workers_of(site.view), site.rank()) {}

  std::uint64_t view_number() const noexcept { return view_.number; }

protected:
  behavior_type make_behavior() override {
    return {
      [this](const troupe::acquire&) { on_acquire(); },
      [this](const troupe::contribute& x) { on_contribute(x); },
      [this](const troupe::commit& x) { on_commit(x); },
      [this](const troupe::abandon& x) { on_abandon(x); },
      [this](const troupe::ring_neighbour& x) { right_ = x.right; },
      troupe::in_view(this, &gossip_synchronizer::on_weights),
      [this](const troupe::reduction& x) { on_counted(x); },
      [this](const troupe::broken& x) { send(worker_, x); },
      troupe::in_view(this, &gossip_synchronizer::on_pull),
      troupe::in_view(this, &gossip_synchronizer::on_report),
      troupe::in_view(this, &gossip_synchronizer::on_restore),
    };
  }

  // Handles that refer to each other in a ring would keep all these actors alive, because CAF frees
  // an actor when the last handle to it is gone.
  void on_exit() override {
    right_ = nullptr;
    counters_ = nullptr;
  }

private:
  void on_acquire() {
    troupe::acquired result;
    result.step = {step_};
    for (auto& x : replica_.newest())
      result.ranges.push_back({x.begin, {x.version}, x.data});
    send(worker_, std::move(result));
  }

  // Called during the backward pass, once for each bucket (a range of the gradient).
  void on_contribute(const troupe::contribute& x) {
    const auto gradient = x.gradient.slice_floats(x.begin, x.end - x.begin);
    replica_.stage(*replica_.find({x.begin, x.end}), gradient.as_floats(), x.samples);
  }

  // Called when all buckets have arrived: applies the gradient, and sends the weights to the right
  // neighbour. The learning-rate schedule depends on the samples of all workers together. All
  // workers train the same number of samples, so this worker knows how many the others have
  // trained.
  void on_commit(const troupe::commit& x) {
    const auto peers = view_.of(troupe::job_kind::worker).size() - 1;
    ended_ = {.step = x.step, .outcome = proto::APPLIED, .samples = x.samples};
    ++step_;
    if (x.finite()) {
      account_.applied(x.samples);
      replica_.publish(step_, peers * x.samples);
    } else {
      ended_.outcome = proto::QUARANTINED;
      account_.quarantined(x.samples);
      replica_.discard();
    }
    committed_ = true;
    for (std::size_t i = 0; i < replica_.buckets(); ++i) {
      proto::Segment header;
      header.set_view(view_number());
      header.set_step(step_);
      header.set_bucket(static_cast<std::uint32_t>(i));
      send(right_, std::move(header), replica_.weights(replica_.where(i)));
    }
    mix_if_ready();
  }

  // Keeps the weights of the left neighbour until this worker is at the same step, because the
  // neighbour may be ahead.
  void on_weights(const proto::Segment& x, const payload& weights) {
    from_left_[x.step()][x.bucket()] = weights;
    mix_if_ready();
  }

  void mix_if_ready() {
    const auto left = from_left_.find(step_);
    if (!committed_ || left == from_left_.end() || left->second.size() < replica_.buckets())
      return;
    const auto share = share_of_neighbour(context_->job);
    for (auto& [bucket, weights] : left->second) {
      const auto own = replica_.weights(replica_.where(bucket));
      std::vector<float> mixed(own.as_floats().begin(), own.as_floats().end());
      for (std::size_t i = 0; i < mixed.size(); ++i)
        mixed[i] += share * (weights.as_floats()[i] - mixed[i]);
      replica_.replace(replica_.where(bucket), mixed);
    }
    from_left_.erase(left);
    committed_ = false;
    send(worker_, ended_);
  }

  void on_abandon(const troupe::abandon& x) {
    send(worker_, troupe::committed{.step = x.step, .outcome = proto::REQUEUED});
  }

  // At the end of an epoch, the coordinator sends this request to worker 0.
  caf::result<proto::Weights, payload> on_pull(const proto::Pull&) {
    const auto count = context_->parameters().size();
    proto::Weights header;
    header.set_version(step_);
    header.set_count(count);
    return {std::move(header), replica_.weights({0, count})};
  }

  // At the end of the run, the coordinator asks all workers how many samples they trained. The
  // workers add up their counters in a ring all-reduce.
  caf::result<proto::Report> on_report(const proto::ReportRequest&) {
    answers_.push_back(make_response_promise<proto::Report>());
    if (counted_) {
      answers_.back().deliver(account_.report());
    } else if (answers_.size() == 1) {
      const auto counts = account_.own_counts();
      troupe::ring_contribution own;
      own.samples = account_.own_samples();
      own.values = payload::floats(counts.size());
      std::ranges::copy(counts, own.values.as_mutable_floats().begin());
      send(
        counters_,
        troupe::reduce_bucket{std::move(own), caf::actor_cast<troupe::reduction_listener>(this)});
    }
    return answers_.back();
  }

  void on_counted(const troupe::reduction& x) {
    counted_ = true;
    account_.exchanged(x.sum.as_floats(), x.samples, account_.own_samples());
    for (auto& answer : answers_)
      answer.deliver(account_.report());
  }

  // Takes initial weights from the coordinator, such as those of an ONNX model.
  caf::result<proto::Ack> on_restore(const proto::Restore& x, const payload& values) {
    if (!replica_.restore(x, values))
      return troupe::make_error(troupe::errc::malformed, "these weights do not fit the model");
    return proto::Ack{};
  }

  std::shared_ptr<const troupe::job_context> context_;
  troupe::view view_;
  troupe::worker_actor worker_;
  troupe::ring_node_actor counters_;
  troupe::ring_actor right_;
  troupe::replica_store replica_;
  troupe::replica_account account_;
  std::uint64_t step_ = 0;
  troupe::committed ended_;
  bool committed_ = false;
  std::map<std::uint64_t, std::map<std::size_t, payload>> from_left_;
  bool counted_ = false;
  std::vector<caf::typed_response_promise<proto::Report>> answers_;
};

// Starts the synchronizer of a worker. troupe calls this on the worker's node when the cluster is
// complete.
void start_gossip(const troupe::worker_site& site) {
  const auto workers = site.view.of(troupe::job_kind::worker);
  const auto counters =
    troupe::spawn_ring_node(site, {troupe::replica_account::elements(workers.size())});
  const auto synchronizer = site.spawn_heavy<gossip_synchronizer>(site, counters);
  site.host(proto::RING_NODE, counters, site.left());
  site.host(proto::SYNCHRONIZER, synchronizer);
  site.host(proto::READER, synchronizer);
  const auto right = workers[(site.rank() + 1) % workers.size()].task;
  troupe::join_ring(site, counters, [site, synchronizer, right] {
    site.reach<troupe::ring_actor>(
      {right, proto::SYNCHRONIZER}, [site, synchronizer, right](troupe::ring_actor x) {
        caf::anon_send(synchronizer, troupe::ring_neighbour{right, std::move(x), {}});
        site.give(caf::actor_cast<troupe::synchronizer_actor>(synchronizer));
      });
  });
}

void check(const proto::Job& job, troupe::problem_list& problems) {
  const auto share = share_of_neighbour(job);
  problems.require(share > 0 && share < 1, "custom_protocol.parameter",
                   "share: expected a number between 0 and 1");
  problems.require(!job.has_checkpoint() && !job.has_evaluate(), "custom_protocol",
                   "gossip makes no checkpoints, and evaluates only after each epoch; leave out "
                   "checkpoint and evaluate");
}

troupe::protocol gossip() {
  troupe::protocol row;
  row.traits.id = proto::CUSTOM;
  row.traits.name = "gossip";
  row.traits.weights = troupe::weights_at::workers;
  row.traits.in_step = true;
  row.traits.decided_by = "worker's replica";
  row.traits.exchange = [](const proto::Job&) {
    return "each worker mixes in its left neighbour's";
  };
  row.traits.validate = check;
  row.traits.memory = {.worker = 2};
  row.start_worker = start_gossip;
  return row;
}

// Points in a square. Class 1 is inside a circle, class 0 is outside.
class points : public troupe::dataset {
public:
  points(std::uint64_t first, std::uint64_t count) : first_(first), count_(count) {}

  std::uint64_t size() const noexcept override { return count_; }
  const troupe::record_shape& record() const noexcept override { return record_; }

  void read(std::span<const std::uint64_t> records, troupe::feature_batch features,
            troupe::label_batch labels) const override {
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto n = static_cast<double>(first_ + records[i] + 1);
      const double x = 2 * std::fmod(n * 0.7548776662, 1.0) - 1;
      const double y = 2 * std::fmod(n * 0.5698402910, 1.0) - 1;
      features.numbers[2 * i] = static_cast<float>(x);
      features.numbers[2 * i + 1] = static_cast<float>(y);
      labels.classes[i] = x * x + y * y < 0.5 ? 1 : 0;
    }
  }

private:
  // A record has two numbers, and its label is one of two classes.
  troupe::record_shape record_{.dims = {2}, .label_width = 2};
  std::uint64_t first_;
  std::uint64_t count_;
};

proto::Job make_job() {
  proto::Job job;
  auto& hidden = *job.mutable_model()->add_layer()->mutable_dense();
  hidden.set_units(16);
  hidden.set_activation(proto::TANH);
  job.mutable_model()->add_layer()->mutable_dense()->set_units(2);
  job.mutable_model()->set_loss(proto::SOFTMAX_CROSS_ENTROPY);
  job.mutable_data()->set_batch(20);
  job.mutable_optimizer()->set_kind(proto::MOMENTUM);
  job.mutable_learning_rate()->set_base(0.05F);
  job.set_epochs(15);
  job.set_protocol(proto::CUSTOM);
  job.mutable_custom_protocol()->set_name("gossip");
  auto& share = *job.mutable_custom_protocol()->add_parameter();
  share.set_name("share");
  share.set_value("0.5");
  return job;
}

int main() {
  caf::actor_system_config cfg;
  troupe::configure(cfg);
  caf::actor_system sys{cfg};
  caf::scoped_actor self{sys};

  troupe::training_options run;
  run.job = make_job();
  run.data = {std::make_shared<points>(0, 4000), std::make_shared<points>(4000, 1000)};
  run.workers = 4;
  run.ps = 0;
  run.protocols = {gossip()};

  int result = 1;
  self->request(troupe::spawn_training(sys, run), caf::infinite, troupe::begin_training{})
    .receive(
      [&](const troupe::trained& x) {
        const auto accuracy = x.summary.test_accuracy.value_or(0);
        std::cout << x.summary.protocol << ", " << x.summary.workers << " workers: accuracy "
                  << accuracy << '\n';
        result = accuracy > 0.9 ? 0 : 1;
      },
      [](const caf::error& error) { std::cerr << troupe::explain(error) << '\n'; });
  return result;
}
