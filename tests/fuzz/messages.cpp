// Fuzz target: sequences of messages from peers. As in the actors, each message is first checked
// and then handled. The objects that handle them must keep the rules that they promise.
//
// An input is a list of entries: kind (1 byte), size of the payload (1 byte, in floats; 255 means
// the right size), length (2 bytes, little-endian), and a Protobuf message of this length.

#include "actors/checkpoint/checkpoint_assembly.hpp"
#include "actors/collective/all_reduce_part.hpp"
#include "actors/collective/early_pieces.hpp"
#include "actors/coordinator/run_book.hpp"
#include "actors/coordinator/stall_judge.hpp"
#include "actors/coordinator/timeline.hpp"
#include "actors/model/data_shape.hpp"
#include "actors/parameter_server/gradient_journal.hpp"
#include "actors/parameter_server/norm_exchange.hpp"
#include "actors/parameter_server/staged_gradients.hpp"
#include "actors/parameter_server/step_aggregator.hpp"
#include "actors/parameter_server/step_pieces.hpp"
#include "actors/protocols/async_ps/pacing.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"
#include "actors/replica/replica_account.hpp"
#include "actors/ring/ring_reductions.hpp"
#include "actors/store/store_request.hpp"
#include "kernels/error.hpp"
#include "messages/problems.hpp"
#include "messages/proto/pieces.pb.h"
#include "messages/selection.hpp"
#include "messages/transfer.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t workers = 2;
constexpr std::uint64_t incarnation = 1;
constexpr std::uint64_t batch = 4;
constexpr std::uint64_t records = 50;
constexpr std::size_t elements = 6;

payload floats_of(std::size_t count) {
  auto result = payload::floats(count);
  std::ranges::fill(result.as_mutable_floats(), 1.0F);
  return result;
}

/// The state of all tasks of a small cluster, which handles messages from peers.
class cluster {
public:
  cluster() : ring_{{.rank = 1, .ranks = 3, .chunk_elements = 2}, {elements, 0, 4}} {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> names;
    std::vector<task_name> tasks;
    for (std::uint32_t i = 0; i < workers; ++i) {
      names.emplace_back(i, incarnation);
      tasks.push_back({job_kind::worker, i});
    }
    book_.emplace(run_book::options{records, batch, 2, false, true}, names);
    book_->begin(2, std::nullopt, now_);
    stalls_.begin(tasks, {}, now_);
    checkpoint_assembly::options how;
    how.parts = {{0, 4}, {4, elements}};
    how.slots = 2;
    how.every = 5;
    how.small = 1 << 20;
    parts_.emplace(how);
    ring_reductions::effects sent;
    ring_.contribute({{0, 0, 0}, batch, floats_of(elements)}, sent);
  }

  void hear(const proto::Push& x, std::uint8_t size) {
    if (!known(x.id()) || !decided(x.id()))
      return;
    staged_.put(x.id(), floats_of(size));
  }

  void hear(const proto::Commit& x, std::uint8_t) {
    if (!known(x.id()) || !problem_of(x, batch).empty() || !decided(x.id()))
      return;
    if (!staged_.has(x.id()))
      return;
    staged_.take(x.id());
    fuzz::require(!staged_.has(x.id()), "a gradient is taken once");
    proto::Pushed answer;
    answer.set_outcome(x.quarantine() ? proto::QUARANTINED : proto::APPLIED);
    journal_.record(x.id(), answer, x.lease(), x.batch());
    fuzz::require(journal_.find(x.id()).has_value(), "what is decided stays decided");
    add_to_step(x);
  }

  void hear(const proto::StepParts& x, std::uint8_t) {
    if (x.step() > steps_[1].version + 1 || x.step() < steps_[1].version)
      return;
    steps_[1].policy.choose(x.step(), {x.part().begin(), x.part().end()});
    make_steps();
  }

  void hear(const proto::IdleWorkers& x, std::uint8_t) {
    steps_[0].policy.set_idle({x.worker().begin(), x.worker().end()});
    make_steps();
  }

  void hear(const proto::Damping& x, std::uint8_t) {
    if (!problem_of(x).empty())
      return;
    other_pacing_.set_damping(x.factor());
    fuzz::require(other_pacing_.damping() > 0 && other_pacing_.damping() <= 1,
                  "a factor is taken only if it is one");
  }

  void hear(const proto::PacingState& x, std::uint8_t) {
    const auto before = pacing_.state().SerializeAsString();
    if (pacing_.restore(x))
      pace();
    else
      fuzz::require(pacing_.state().SerializeAsString() == before,
                    "a state that is refused changes nothing");
  }

  void hear(const proto::Fence& x, std::uint8_t) {
    for (auto& step : steps_) {
      step.policy.withdraw(x.worker());
      step.policy.settle(x.worker(), x.last().id().sequence());
    }
    make_steps();
    journal_.fence(x.worker(), x.incarnation());
    staged_.drop(x.worker(), x.incarnation());
    proto::GradientId id;
    id.set_worker(x.worker());
    id.set_incarnation(x.incarnation());
    fuzz::require(journal_.fenced(id), "a worker that is fenced off stays fenced off");
  }

  void hear(const proto::PartialNorm& x, std::uint8_t) {
    if (!problem_of(x).empty() || !norms_.add(step_, x.step(), x.shard(), x.squares()))
      return;
    if (!norms_.complete(step_))
      return;
    fuzz::require(std::isfinite(norms_.sum(step_)), "norms are numbers");
    norms_.forget(step_++);
  }

  void hear(const proto::Segment& x, std::uint8_t size) {
    ring_reductions::effects result;
    const auto n = size == 255 ? 2 : size;
    const auto fate =
      ring_.receive({x.step(), x.attempt(), x.bucket()},
                    {x.segment(), x.chunk(), x.hop(), x.samples(), floats_of(n)}, result);
    fuzz::require(!refused(fate) || (result.send.empty() && !result.done),
                  "a piece that is refused has no effect");
    if (!result.done)
      return;
    fuzz::require(result.done->samples >= batch, "a sum holds what this rank added");
    replica_account account{{{0, 1}, {1, 1}, {2, 1}}, 1};
    const auto sum = result.done->sum.as_floats();
    if (account.fits(sum, result.done->samples, 0))
      account.exchanged(sum, result.done->samples, 0);
  }

  void hear(const proto::CheckpointPart& x, std::uint8_t size) {
    const std::size_t right = x.part() == 0 ? 4 : 2;
    const auto data = floats_of(size == 255 ? right : size);
    if (!parts_->problem(x, data.size()).empty())
      return;
    if (data.empty()) {
      parts_->wants(x);
      return;
    }
    parts_->add(x, data, now_ += 1ms);
    fuzz::require(parts_->open() <= 2, "at most two versions are held");
    if (auto whole = parts_->next()) {
      for (auto& slot : whole->slots)
        fuzz::require(slot.size() == 2 && slot[0].size() == 16 && slot[1].size() == 8,
                      "a checkpoint is whole");
      std::vector<lease_mark> marks;
      for (std::uint32_t i = 0; i < workers; ++i) {
        const auto least = whole->least(i, incarnation);
        marks.push_back({least.lease(), least.batch()});
      }
      if (const auto cut = book_->cut(marks, whole->newest_lease()))
        fuzz::require(cut->samples() <= records, "no more remains than there is");
      parts_->done();
    }
    parts_->drop_late(now_, 5ms);
  }

  void hear(const proto::LeaseRequest& x, std::uint8_t) {
    auto* worker = book_->find(x.worker(), x.incarnation());
    if (!worker || x.number() > worker->given + 16)
      return;
    worker->asked = std::max(worker->asked, x.number());
    while (auto next = book_->next_lease({})) {
      auto& lease = next->second;
      fuzz::require(problem_of(lease).empty() && lease.end() <= records, "leases are sound");
    }
  }

  void hear(const proto::LeaseDone& x, std::uint8_t) {
    auto* worker = book_->find(x.worker(), x.incarnation());
    if (!worker || !problem_of(x).empty())
      return;
    book_->settle(*worker, x, {});
    fuzz::require(book_->samples() <= 2 * records, "nothing is trained twice");
    const auto loss = book_->totals(now_, true).train_loss;
    fuzz::require(!std::isinf(loss), "losses are numbers, or there are none");
    if (book_->epoch_done() && !book_->last_epoch())
      book_->open_epoch(1, now_);
  }

  void hear(const proto::Fenced& x, std::uint8_t) {
    auto* worker = book_->find(x.decided().worker());
    if (!worker)
      return;
    const auto rank = worker->rank;
    book_->vanish(*worker);
    book_->settle_vanished(rank, {x.decided(), x.last().has_id() ? x.decided() : proto::Decided{}});
    fuzz::require(book_->samples() <= 2 * records, "nothing is trained twice");
  }

  void hear(const proto::Report& x, std::uint8_t) { book_->balance({x, x}); }

  void hear(const proto::TaskStatus& x, std::uint8_t) {
    task_name task;
    if (!from_proto(x.task(), task) || !problem_of(x).empty())
      return;
    timeline_.hear(task, x, now_ += 1s);
    timeline_.newest();
    stalls_.hear(task, x, now_);
    stalls_.judge({}, now_);
  }

  void hear(const proto::Chunk& x, std::uint8_t size) {
    const auto before = incoming_.received();
    const bool taken = incoming_.accept(x.offset(), floats_of(size));
    fuzz::require(incoming_.received() == before + (taken ? size * sizeof(float) : 0),
                  "bytes arrive once, in order");
    if (incoming_.complete())
      incoming_ = incoming_transfer{256};
  }

  void hear(const proto::Credit& x, std::uint8_t) {
    while (outgoing_.next())
      ;
    outgoing_.credit(x.received());
    if (outgoing_.done())
      outgoing_ = outgoing_transfer{floats_of(64), {16, 4}};
  }

  void hear(const proto::DataShape& x, std::uint8_t) {
    const auto shape = from_proto(x);
    fuzz::require(from_proto(to_proto(shape)) == shape, "a shape comes back");
  }

  void hear(const proto::PushPiece& x, std::uint8_t size) {
    const auto& pieces = gradients_.pieces();
    const auto values = floats_of(size == 255 ? pieces[0].size() : size);
    const auto piece = pieces.find(x.begin(), values.as_floats().size());
    if (!piece || x.samples() == 0 || !known(x.id()) || !decided(x.id()))
      return;
    fuzz::require(*piece < pieces.count(), "a piece that fits is one of them");
    const auto whole =
      gradients_.add(x.id().worker(), x.id(), x.samples(), *piece, values.as_floats());
    fuzz::require(whole.empty() || whole.as_floats().size() == elements, "a gradient is whole");
    for (std::size_t i = 0; i < pieces.count(); ++i)
      fuzz::require(!gradients_.ready(i) || gradients_.sum(i).size() == pieces[i].size(),
                    "a sum has the size of its piece");
  }

  void hear(const proto::NewWeights& x, std::uint8_t size) {
    const auto& pieces = gradients_.pieces();
    const auto values = floats_of(size == 255 ? pieces[0].size() : size);
    const auto piece = pieces.find(x.begin(), values.as_floats().size());
    if (!piece)
      return;
    weights_.add(*piece, values.as_floats());
    fuzz::require(weights_.has(*piece) && weights_.data().as_floats().size() == elements,
                  "a piece is at its place");
    if (weights_.complete())
      weights_ = piece_assembly{pieces};
  }

  void hear(const proto::Selection& x, std::uint8_t) {
    if (!problem_of(x).empty())
      return;
    const std::uint64_t begin = 1;
    std::vector<float> all(elements);
    for (std::size_t i = 0; i < elements; ++i)
      all[i] = static_cast<float>(i + 1);
    const auto count = selected(x, begin, begin + elements);
    fuzz::require(count <= elements, "no more is selected than there is");
    std::vector<float> chosen(count);
    gather(x, begin, all, chosen);
    auto again = all;
    scatter(x, begin, chosen, again);
    fuzz::require(again == all, "what is gathered comes back to its place");
    const auto part = cut(x, begin, begin + elements);
    fuzz::require(problem_of(part).empty() && selected(part, begin, begin + elements) == count,
                  "a part selects the same");
  }

  void hear(const proto::StoreRequest& x, std::uint8_t size) {
    std::string problem;
    const range server{10, 10 + elements};
    const auto values = floats_of(size == 255 ? elements : size);
    const auto ranges = ranges_of(x, values, server, problem);
    fuzz::require(ranges.empty() || problem.empty(), "a request is either served or refused");
    std::uint64_t last = server.begin;
    for (const auto& where : ranges) {
      fuzz::require(where.begin >= last && where.begin <= where.end && where.end <= server.end,
                    "ranges ascend within the server's part");
      last = where.end;
    }
    if (problem.empty() && (x.push() || x.assign()))
      fuzz::require(elements_of(ranges) * sizeof(float) == values.size(), "each value has a place");
  }

  void hear(const proto::CollectivePiece& x, std::uint8_t size) {
    const auto values = floats_of(size == 255 ? 2 : size);
    const auto refused_early = early_.keep(x, values);
    if (refused_early.empty() && ++kept_ > 64) {
      const auto taken = early_.take();
      fuzz::require(taken.size() <= 64, "a piece is kept once");
      kept_ = 0;
    }
    std::vector<addressed_piece> send;
    if (!sum_of_all_ || sum_of_all_->complete())
      sum_of_all_.emplace(all_reduce_schedule::direct, ring_place{1, 3, 2}, floats_of(elements),
                          send);
    send.clear();
    const auto fate =
      sum_of_all_->receive(x.from(), {x.segment(), x.chunk(), x.step(), 0, values}, send);
    fuzz::require(!refused(fate) || send.empty(), "a piece that is refused has no effect");
    if (sum_of_all_->complete())
      fuzz::require(sum_of_all_->sum().as_floats().size() == elements, "a sum is whole");
  }

  void hear(const proto::Advanced& x, std::uint8_t) {
    fuzz::require(!problem_of(x).empty() || std::isfinite(x.gradient_norm()), "norms are numbers");
  }

  void hear(const proto::Restore& x, std::uint8_t size) {
    fuzz::require(!describe(x, size).empty(), "a restore that does not fit is described");
    if (problem_of(x).empty())
      fuzz::require(x.version() <= most_counted && x.samples() <= most_counted, "counts fit");
  }

  void hear(const proto::OpenView& x, std::uint8_t) { problem_of(x, incarnation); }
  void hear(const proto::Evaluated& x, std::uint8_t) { problem_of(x, 3); }
  void hear(const proto::Heartbeat& x, std::uint8_t) { problem_of(x); }

private:
  static bool known(const proto::GradientId& id) {
    return id.worker() < workers && id.incarnation() == incarnation && problem_of(id).empty();
  }

  /// True if a decision about a gradient is still missing. False if there is one, or if the
  /// gradient's worker is fenced off (given up, so its gradients are refused).
  bool decided(const proto::GradientId& id) {
    if (auto answer = journal_.find(id)) {
      fuzz::require(answer->duplicate(), "a repeated gradient is answered as a duplicate");
      return false;
    }
    return !journal_.fenced(id);
  }

  /// Synchronous shards, with one backup worker. Shard 0 chooses the gradients of a step, and
  /// another shard receives these choices.
  struct shard_of_steps {
    sync_policy policy;
    std::uint64_t version = 0;
  };

  static sync_policy steps_of(std::size_t shard) {
    proto::SyncPs how;
    how.set_backup_workers(1);
    return {range{0, elements}, shard, {0, 1}, how};
  }

  void make_steps() {
    for (auto& [policy, version] : steps_)
      // Makes at most three steps, because StepParts messages name only so many steps in advance.
      for (int i = 0; i < 3 && policy.ready(); ++i) {
        const auto update = policy.plan({}, version++);
        fuzz::require(update.samples <= workers * batch && update.gradient.size() == elements,
                      "a step has a gradient of each worker at most");
        policy.made({}, {}, {});
      }
  }

  void add_to_steps(const proto::Commit& x) {
    for (auto& [policy, version] : steps_)
      if (!policy.refusal(x, version) && !policy.late(x, version))
        policy.take({x, x.quarantine() || x.samples() == 0 ? payload{} : floats_of(elements)});
    make_steps();
  }

  void pace() {
    pacing_.applied(1, 2, 0.5);
    const auto now = pacing_.now();
    fuzz::require(now.damping() >= 0 && now.damping() <= 1, "the rate is damped, not raised");
    fuzz::require(std::isfinite(now.norm()) && now.staleness() > 0, "running means are numbers");
  }

  void add_to_step(const proto::Commit& x) {
    add_to_steps(x);
    sum_.add(x.id().worker(), x.quarantine() ? 0 : x.samples(),
             x.quarantine() || x.samples() == 0 ? payload{} : floats_of(elements));
    if (!sum_.complete())
      return;
    fuzz::require(sum_.samples() <= workers * batch && sum_.sum().size() == elements,
                  "a step has a gradient of each worker");
    sum_.clear();
  }

  std::chrono::steady_clock::time_point now_{std::chrono::hours{1}};
  gradient_journal journal_;
  staged_gradients staged_;
  step_aggregator sum_{workers, elements};
  norm_exchange norms_{2};
  std::array<shard_of_steps, 2> steps_{{{steps_of(0)}, {steps_of(1)}}};
  async_pacing pacing_{workers, true};
  async_pacing other_pacing_{workers, true};
  std::uint64_t step_ = 0;
  ring_reductions ring_;
  std::optional<checkpoint_assembly> parts_;
  std::optional<run_book> book_;
  stall_judge stalls_;
  timeline timeline_{1};
  step_pieces gradients_{range_pieces::cut({0, elements}), workers};
  piece_assembly weights_{range_pieces::cut({0, elements})};
  early_pieces early_{member_options{.rank = 1, .ranks = 3, .chunk_bytes = 8, .max_bytes = 64}};
  std::size_t kept_ = 0;
  std::optional<all_reduce_part> sum_of_all_;
  incoming_transfer incoming_{256};
  outgoing_transfer outgoing_{floats_of(64), {16, 4}};
};

template <class Message>
void decode(cluster& to, std::string_view bytes, std::uint8_t size) {
  Message x;
  if (!x.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return;
  try {
    to.hear(x, size);
  } catch (const input_error& error) {
    fuzz::require(*error.what() != '\0', "an error says what is wrong");
  }
}

using decoder = void (*)(cluster&, std::string_view, std::uint8_t);

/// A decoder for each kind. Stored inputs have the index (modulo the number of kinds), so add new
/// kinds only at the end.
constexpr decoder decoders[] = {
  decode<proto::Push>,         decode<proto::Commit>,          decode<proto::Fence>,
  decode<proto::PartialNorm>,  decode<proto::Segment>,         decode<proto::CheckpointPart>,
  decode<proto::LeaseRequest>, decode<proto::LeaseDone>,       decode<proto::Fenced>,
  decode<proto::Report>,       decode<proto::TaskStatus>,      decode<proto::Chunk>,
  decode<proto::Credit>,       decode<proto::DataShape>,       decode<proto::OpenView>,
  decode<proto::Evaluated>,    decode<proto::Heartbeat>,       decode<proto::StepParts>,
  decode<proto::IdleWorkers>,  decode<proto::Damping>,         decode<proto::PacingState>,
  decode<proto::PushPiece>,    decode<proto::NewWeights>,      decode<proto::Selection>,
  decode<proto::StoreRequest>, decode<proto::CollectivePiece>, decode<proto::Advanced>,
  decode<proto::Restore>};

} // namespace

TROUPE_FUZZ_TARGET(messages, input) {
  cluster all;
  auto rest = fuzz::as_text(input);
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(rest[i]); };
  while (rest.size() >= 4) {
    const auto kind = byte(0) % std::size(decoders);
    const auto size = byte(1);
    const auto length = std::min<std::size_t>(byte(2) + 256U * byte(3), rest.size() - 4);
    decoders[kind](all, rest.substr(4, length), size);
    rest.remove_prefix(4 + length);
  }
}
