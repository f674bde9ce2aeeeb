// Tests rank 0 of a ring of two ranks by sending it one message at a time. The test plays rank 1
// and also the worker of rank 0.

#include "actors/ring/ring_synchronizer.hpp"
#include "messages/configure.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <limits>
#include <optional>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t current_view = 1;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<std::size_t> sizes_of(const job_context& context) {
  std::vector<std::size_t> result;
  for (auto& x : context.buckets())
    result.push_back(x.size());
  return result;
}

struct ring_fixture {
  /// @param compared the number of steps after which the ranks compare their weights; 0: never
  explicit ring_fixture(int compared = 0) {
    configure(config);
    system.emplace(config);
    self.emplace(*system);
    const auto job = example_job(
      "digits_mlp",
      {"data.digits={train: 64 test: 20}", "model.layer[0].dense.units=8", "protocol=RING",
       "runtime.bucket_bytes=4", "ring.verify_every_steps=" + std::to_string(compared)});
    context = make_job_context(job, shape_of(*build_data(job).train));
    ring = system->spawn<ring_node>(current_view, place_of(*context, 0, 2), sizes_of(*context),
                                    std::make_shared<activity_board>());
    ring_synchronizer_options options;
    options.view.number = current_view;
    options.view.members = {{{job_kind::worker, 0}, 11, ""}, {{job_kind::worker, 1}, 12, ""}};
    options.ring = ring;
    options.replica = make_replica(context, place_of(*context, 0, 2), {});
    synchronizer =
      system->spawn<ring_synchronizer>(context, options, caf::actor_cast<worker_actor>(*self));
    (*self)->send(ring,
                  ring_neighbour{{job_kind::worker, 1},
                                 caf::actor_cast<ring_actor>(*self),
                                 {job_kind::worker, 1}});
    right.emplace(place_of(*context, 1, 2), sizes_of(*context));
  }

  ~ring_fixture() {
    caf::anon_send_exit(ring, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(synchronizer, caf::exit_reason::user_shutdown);
  }

  static ring_place place_of(const job_context& context, std::size_t rank, std::size_t ranks) {
    auto result = troupe::place_of(context, rank, ranks);
    result.chunk_elements = 1000;
    return result;
  }

  payload gradient(float value) const {
    auto result = payload::floats(context->parameters().size());
    std::ranges::fill(result.as_mutable_floats(), value);
    return result;
  }

  /// Waits for one message of this type.
  template <class T>
  T wait_for() {
    std::optional<T> result;
    (*self)->receive([&](const T& x) { result = x; }, caf::after(20s) >> [] {});
    BOOST_REQUIRE(result.has_value());
    return *result;
  }

  step_number begin() {
    (*self)->send(synchronizer, acquire{});
    return wait_for<acquired>().step;
  }

  void contribute_all(step_number step, const payload& values) {
    for (auto& x : context->buckets())
      (*self)->send(synchronizer, contribute{step, x.begin, x.end, 4, values});
  }

  /// Rank 1 contributes its gradient to a sum over all ranks. `attempt` is 0. It is 1 if a gradient
  /// was not finite and the sum is computed a second time.
  void contribute_right(std::uint32_t attempt, const payload& values, std::uint64_t samples) {
    const auto buckets = context->buckets();
    for (std::uint32_t i = 0; i < buckets.size(); ++i)
      right_contributes(
        {{0, attempt, i}, samples, values.slice_floats(buckets[i].begin, buckets[i].size())});
  }

  void right_contributes(ring_contribution x) {
    ring_reductions::effects result;
    right->contribute(std::move(x), result);
    send_on(std::move(result));
  }

  /// Sends the pieces of rank 1 to rank 0, each of them `copies` times.
  void send_on(ring_reductions::effects result) {
    sums += result.done ? 1 : 0;
    for (auto& [id, piece] : result.send) {
      proto::Segment header;
      header.set_view(current_view);
      header.set_step(id.step);
      header.set_attempt(id.attempt);
      header.set_bucket(id.bucket);
      header.set_segment(piece.segment);
      header.set_chunk(piece.chunk);
      header.set_hop(piece.hop);
      header.set_samples(piece.samples);
      ++pieces;
      for (int i = 0; i < copies; ++i)
        (*self)->send(ring, header, piece.data);
    }
  }

  /// Delivers the messages of rank 0 to rank 1 until rank 1 has received this number of sums.
  void pass_on(std::size_t until) {
    while (sums < until) {
      bool came = false;
      (*self)->receive(
        [&](const proto::Segment& x, const payload& data) {
          came = true;
          ring_reductions::effects result;
          const auto fate =
            right->receive({x.step(), x.attempt(), x.bucket()},
                           {x.segment(), x.chunk(), x.hop(), x.samples(), data}, result);
          BOOST_TEST((fate == piece_fate::taken));
          send_on(std::move(result));
        },
        caf::after(20s) >> [] {});
      BOOST_REQUIRE(came);
    }
  }

  /// Pulls the weights from rank 0. Returns their version and values.
  std::pair<std::uint64_t, payload> pull() {
    std::pair<std::uint64_t, payload> result;
    proto::Pull question;
    question.set_view(current_view);
    (*self)
      ->request(synchronizer, 20s, question)
      .receive(
        [&](const proto::Weights& header, const payload& data) {
          result = {header.version(), data};
        },
        [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    return result;
  }

  proto::Report report() {
    proto::Report result;
    proto::ReportRequest question;
    question.set_view(current_view);
    (*self)
      ->request(synchronizer, 20s, question)
      .receive([&](const proto::Report& x) { result = x; },
               [](const caf::error& error) { BOOST_ERROR(explain(error)); });
    return result;
  }

  /// Rank 0 contributes `left`, and rank 1 contributes `values`. One of these gradients is not
  /// finite. So the sum is computed a second time without this gradient.
  committed second_attempt(float left, float values) {
    const auto buckets = context->buckets().size();
    const auto step = begin();
    contribute_all(step, gradient(left));
    contribute_right(0, gradient(values), 6);
    (*self)->send(synchronizer, finished(step, left));
    pass_on(buckets);
    const bool bad = !std::isfinite(values);
    contribute_right(1, gradient(bad ? 0 : values), bad ? 0 : 6);
    auto out = payload::floats(2);
    out.as_mutable_floats()[0] = 0;
    out.as_mutable_floats()[1] = bad ? 1 : 0;
    right_contributes({{0, 1, static_cast<std::uint32_t>(buckets)}, bad ? 6U : 0U, out});
    pass_on(2 * buckets + 1);
    return wait_for<committed>();
  }

  static commit finished(step_number step, float value) {
    return commit{step, 4, 1, static_cast<double>(value) * static_cast<double>(value)};
  }

  caf::actor_system_config config;
  std::optional<caf::actor_system> system;
  std::optional<caf::scoped_actor> self;
  std::shared_ptr<const job_context> context;
  ring_node_actor ring;
  ring_synchronizer_actor synchronizer;
  /// The state of rank 1, the number of sums that it has received, and the number of pieces that it
  /// has sent.
  std::optional<ring_reductions> right;
  std::size_t sums = 0;
  std::size_t pieces = 0;
  int copies = 1;
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(ring_messages, ring_fixture)

BOOST_AUTO_TEST_CASE(repeated_pieces_are_counted) {
  copies = 3;
  const auto step = begin();
  contribute_all(step, gradient(1));
  contribute_right(0, gradient(2), 6);
  (*self)->send(synchronizer, finished(step, 1));
  pass_on(context->buckets().size());
  const auto result = wait_for<committed>();
  BOOST_TEST((result.outcome == proto::APPLIED));
  BOOST_TEST(result.samples == 10u);
  const auto counts = report();
  BOOST_TEST(pieces > 0u);
  BOOST_TEST(counts.duplicates() == 2 * pieces);
  BOOST_TEST(counts.samples() == 10u);
  BOOST_TEST(counts.version() == 1u);

  replica_store expected{context};
  const auto sum = gradient(3);
  for (std::size_t b = 0; b < expected.buckets(); ++b)
    expected.stage(b, sum.as_floats().subspan(expected.where(b).begin, expected.where(b).size()),
                   10);
  expected.publish(1);
  BOOST_TEST(same_bits(pull().second.as_floats(),
                       expected.weights({0, context->parameters().size()}).as_floats()));
}

BOOST_AUTO_TEST_CASE(nothing_is_published_before_the_commit) {
  const auto before = pull();
  const auto step = begin();
  contribute_all(step, gradient(1));
  contribute_right(0, gradient(2), 6);
  pass_on(context->buckets().size());
  report(); // rank 0 answers in order, so it has handled the last sum
  const auto reduced = pull();
  BOOST_TEST(reduced.first == 0u);
  BOOST_TEST(same_bits(reduced.second.as_floats(), before.second.as_floats()));
  (*self)->send(synchronizer, finished(step, 1));
  wait_for<committed>();
  const auto after = pull();
  BOOST_TEST(after.first == 1u);
  BOOST_TEST(!same_bits(after.second.as_floats(), before.second.as_floats()));
}

void check_decided(const proto::Report& x, int worker, std::uint64_t applied,
                   std::uint64_t quarantined) {
  BOOST_TEST_REQUIRE(x.decided_size() == 2);
  BOOST_TEST(x.decided(worker).worker() == static_cast<std::uint32_t>(worker));
  BOOST_TEST(x.decided(worker).applied() == applied);
  BOOST_TEST(x.decided(worker).quarantined() == quarantined);
  BOOST_TEST((x.decided(worker).fingerprint() == 0) == (applied == 0));
}

BOOST_AUTO_TEST_CASE(its_own_gradient_is_not_finite) {
  const auto before = pull().second;
  const auto result = second_attempt(not_a_number, 2);
  BOOST_TEST((result.outcome == proto::QUARANTINED));
  BOOST_TEST(result.samples == 6u);
  BOOST_TEST(!same_bits(pull().second.as_floats(), before.as_floats()));
  const auto counts = report();
  check_decided(counts, 0, 0, 1);
  check_decided(counts, 1, 1, 0);
  BOOST_TEST(counts.samples() == 6u);
  BOOST_TEST(counts.quarantined_samples() == 4u);
}

BOOST_AUTO_TEST_CASE(the_gradient_of_another_is_not_finite) {
  const auto result = second_attempt(1, not_a_number);
  BOOST_TEST((result.outcome == proto::APPLIED));
  BOOST_TEST(result.samples == 4u);
  const auto counts = report();
  check_decided(counts, 0, 1, 0);
  check_decided(counts, 1, 0, 1);
  BOOST_TEST(counts.samples() == 4u);
  BOOST_TEST(counts.quarantined_samples() == 6u);
}

BOOST_AUTO_TEST_CASE(both_gradients_are_not_finite) {
  const auto before = pull();
  const auto result = second_attempt(not_a_number, not_a_number);
  BOOST_TEST((result.outcome == proto::QUARANTINED));
  const auto after = pull();
  BOOST_TEST(after.first == 1u);
  BOOST_TEST(same_bits(after.second.as_floats(), before.second.as_floats()));
  BOOST_TEST(report().quarantined_samples() == 10u);
}

BOOST_AUTO_TEST_CASE(a_piece_that_does_not_fit) {
  const auto step = begin();
  contribute_all(step, gradient(1));
  proto::Segment header;
  header.set_view(current_view);
  header.set_segment(1);
  header.set_hop(1);
  header.set_bucket(1000);
  (*self)->send(ring, header, payload::floats(3));
  const auto text = wait_for<broken>().reason;
  BOOST_TEST(text.find("rank 0 of the ring got a piece that does not fit") == 0u, text);
  BOOST_TEST(text.find("bucket 1000") != std::string::npos, text);
  BOOST_TEST(text.find("there is no such bucket") != std::string::npos, text);
}

// The left neighbor of rank 0 dies. Rank 0 sends no messages to this neighbor, but needs messages
// from it to continue.
BOOST_AUTO_TEST_CASE(the_left_neighbour_dies) {
  const task_name third{job_kind::worker, 2};
  auto left = std::make_unique<caf::scoped_actor>(*system);
  (*self)->send(ring, left_neighbour{third, caf::actor_cast<caf::actor>(*left)});
  contribute_all(begin(), gradient(1));
  left.reset();
  const auto error = wait_for<broken>();
  BOOST_TEST(error.reason.find("rank 0 of the ring lost its left neighbour worker/2: ") == 0u,
             error.reason);
  BOOST_TEST_REQUIRE(error.lost.has_value());
  BOOST_TEST((*error.lost == third));
  // The next sum gets the same error at once.
  (*self)->send(
    ring,
    sum_over_batches{5, 0, 1, payload::floats(2), caf::actor_cast<reduction_listener>(*self)});
  BOOST_TEST(wait_for<broken>().reason == error.reason);
}

BOOST_AUTO_TEST_CASE(a_piece_of_another_view_is_left_alone) {
  const auto step = begin();
  contribute_all(step, gradient(1));
  proto::Segment header;
  header.set_view(current_view + 1);
  header.set_bucket(1000);
  (*self)->send(ring, header, payload::floats(3));
  contribute_right(0, gradient(2), 6);
  (*self)->send(synchronizer, finished(step, 1));
  pass_on(context->buckets().size());
  BOOST_TEST((wait_for<committed>().outcome == proto::APPLIED));
}

struct comparing_fixture : ring_fixture {
  comparing_fixture() : ring_fixture(1) {}
};

// The ranks compare hashes of their weights, and rank 1 reports other hashes. The worker gets an
// error, and the step does not end.
BOOST_FIXTURE_TEST_CASE(replicas_that_differ, comparing_fixture) {
  const auto buckets = context->buckets().size();
  const auto step = begin();
  auto hashes = payload::floats(check_elements(2, buckets));
  std::ranges::fill(hashes.as_mutable_floats(), 0.0F);
  right_contributes({{0, 0, static_cast<std::uint32_t>(buckets + 1)}, 0, hashes});
  pass_on(1);
  const auto text = wait_for<broken>().reason;
  for (const auto* part : {"step 0", "worker/0, worker/1", "verify_every_steps"})
    BOOST_TEST(text.find(part) != std::string::npos, text);
  contribute_all(step, gradient(1));
  contribute_right(0, gradient(1), 6);
  (*self)->send(synchronizer, finished(step, 1));
  pass_on(1 + buckets);
  BOOST_TEST(pull().first == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
