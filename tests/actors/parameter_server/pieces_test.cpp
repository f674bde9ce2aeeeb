// Gradients and weights are sent in pieces here, without actors. The results must equal those of
// whole ranges, bit for bit.

#include "actors/parameter_server/piecewise_updater.hpp"
#include "actors/parameter_server/range_pieces.hpp"
#include "actors/parameter_server/step_aggregator.hpp"
#include "actors/parameter_server/step_pieces.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(pieces)

namespace {

/// A range of 5 pieces. Both of its ends are odd numbers.
constexpr range cut_range{37, 37 + 4 * 16384 + 1003};

payload random_gradient(std::size_t n, std::size_t rank) {
  auto result = payload::floats(n);
  std::ranges::copy(random_values(n, "gradient", rank), result.as_mutable_floats().begin());
  return result;
}

proto::GradientId id_of(std::size_t rank, std::uint64_t sequence = 1) {
  proto::GradientId result;
  result.set_worker(static_cast<std::uint32_t>(rank));
  result.set_incarnation(11);
  result.set_sequence(sequence);
  return result;
}

std::span<const float> part_of_gradient(const payload& all, range piece) {
  return all.as_floats().subspan(piece.begin - cut_range.begin, piece.size());
}

} // namespace

BOOST_AUTO_TEST_CASE(pieces_cover_their_range) {
  for (const std::size_t n : {0, 1, 16383, 16384, 16385, 235'146, 5'000'011}) {
    const auto cut = range_pieces::cut({7, 7 + n});
    std::size_t end = 7;
    for (std::size_t i = 0; i < cut.count(); ++i) {
      BOOST_TEST(cut[i].begin == end);
      end = cut[i].end;
      BOOST_TEST(cut.find(cut[i].begin, cut[i].size()).value_or(99) == i);
      BOOST_TEST(!cut.find(cut[i].begin + 1, cut[i].size()).has_value());
      BOOST_TEST(!cut.find(cut[i].begin, cut[i].size() + 1).has_value());
    }
    BOOST_TEST(end == 7 + n);
    BOOST_TEST(cut.count() <= 64U);
    BOOST_TEST((cut.count() > 1) == (n > 16384));
  }
}

// Ranks send the pieces of their gradients in many orders. Some send whole gradients, and some have
// no samples.
BOOST_AUTO_TEST_CASE(sums_have_the_bits_of_whole_gradients) {
  const auto cut = range_pieces::cut(cut_range);
  constexpr std::size_t ranks = 4;
  std::vector<payload> gradients;
  for (std::size_t r = 0; r < ranks; ++r)
    gradients.push_back(random_gradient(cut_range.size(), r));
  std::vector<std::size_t> order(cut.count());
  std::iota(order.begin(), order.end(), 0);
  step_pieces step{cut, ranks};
  for (std::size_t without = 0; without <= ranks; ++without) {
    troupe::step_aggregator whole{ranks, cut_range.size()};
    for (std::size_t r = 0; r < ranks; ++r)
      whole.add(r, r == without ? 0 : 10 + r, r == without ? payload{} : gradients[r]);
    for (int turn = 0; turn < 5; ++turn) {
      std::ranges::rotate(order, order.begin() + 2);
      BOOST_TEST(!step.under_way());
      // Rank 3 sends a whole gradient. One rank may have no samples.
      step.settle(3, id_of(3), without == 3 ? 0 : 13, without == 3 ? payload{} : gradients[3]);
      if (without < 3)
        step.settle(without, id_of(without), 0, {});
      for (std::size_t r = 0; r < 3; ++r)
        for (const auto piece : order) {
          if (r == without)
            continue;
          const bool last = r == (without == 2 ? 1 : 2);
          BOOST_TEST(!step.ready(piece));
          const auto all =
            step.add(r, id_of(r), 10 + r, piece, part_of_gradient(gradients[r], cut[piece]));
          BOOST_TEST(step.add(r, id_of(r), 10 + r, piece, {}).empty(), "a repetition");
          BOOST_TEST(step.ready(piece) == last);
          BOOST_TEST(all.empty() == (piece != order.back()));
          if (!all.empty())
            BOOST_TEST(same_bits(all.as_floats(), gradients[r].as_floats()));
          if (last)
            BOOST_TEST(same_bits(
              step.sum(piece),
              whole.sum().subspan(cut[piece].begin - cut_range.begin, cut[piece].size())));
        }
      BOOST_TEST(step.samples() == whole.samples());
      BOOST_TEST(!step.settled());
      for (std::size_t r = 0; r < 3; ++r)
        if (r != without)
          step.settle(r, id_of(r), 10 + r, gradients[r]);
      BOOST_TEST(step.settled());
      BOOST_TEST(step.under_way());
      BOOST_TEST(step.sends_pieces(3) == false);
      step.clear();
    }
  }
}

// A commit contradicts the pieces that came before. The sums of these pieces must not become part
// of the weights.
BOOST_AUTO_TEST_CASE(a_commit_that_contradicts_the_pieces) {
  const auto cut = range_pieces::cut(cut_range);
  const auto gradient = random_gradient(cut_range.size(), 1);
  const auto arrive = [&](step_pieces& x) {
    for (std::size_t r = 0; r < 2; ++r)
      for (std::size_t i = 0; i < cut.count(); ++i)
        x.add(r, id_of(r), 16, i, part_of_gradient(gradient, cut[i]));
    BOOST_TEST(x.ready(0));
    x.settle(0, id_of(0), 16, gradient);
  };
  const auto quarantined = [](step_pieces& x) { x.settle(1, id_of(1), 0, {}); };
  const auto fewer = [&](step_pieces& x) { x.settle(1, id_of(1), 15, gradient); };
  const auto another = [&](step_pieces& x) { x.settle(1, id_of(1, 2), 16, gradient); };
  const auto piece_of_another = [&](step_pieces& x) {
    x.add(1, id_of(1, 2), 16, 0, part_of_gradient(gradient, cut[0]));
    x.settle(1, id_of(1, 2), 16, gradient);
  };
  const std::function<void(step_pieces&)> all[] = {quarantined, fewer, another, piece_of_another};
  for (const auto& contradict : all) {
    step_pieces x{cut, 2};
    arrive(x);
    contradict(x);
    BOOST_TEST(!x.settled());
    BOOST_TEST(!x.ready(0));
    x.clear();
    arrive(x);
    x.settle(1, id_of(1), 16, gradient);
    BOOST_TEST(x.settled(), "the next step is not affected");
  }
}

// Mixes whole updates, updates in pieces in any order, and updates that are begun and dropped.
BOOST_AUTO_TEST_CASE(updates_in_pieces_have_the_bits_of_whole_updates) {
  for (const auto kind : {proto::SGD, proto::MOMENTUM, proto::NESTEROV, proto::ADAM}) {
    auto job = digits_job();
    job.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(64);
    job.mutable_optimizer()->set_kind(kind);
    job.mutable_optimizer()->set_weight_decay(0.01F);
    job.mutable_learning_rate()->set_warmup_epochs(0.5F);
    const auto context = make_job_context(job, {{.dims = {1, 28, 28}, .label_width = 10}, 100});
    const range where{3, context->parameters().size() - 5};
    for (const auto& cut : {range_pieces{where}, range_pieces::cut(where)}) {
      range_updater whole{*context, where};
      piecewise_updater updater{*context, cut};
      std::vector<float> expected(where.size());
      context->initialize(where, expected);
      auto old = expected;
      std::vector<float> updated(where.size());
      for (std::uint64_t step = 0; step < 12; ++step) {
        const auto x = random_gradient(where.size(), step);
        const auto gradient = x.as_floats();
        const auto samples = 10 + step;
        whole.apply(expected, gradient, samples, expected);
        const auto stage = [&](std::size_t piece) {
          const auto [begin, end] = cut[piece];
          BOOST_TEST(!updater.staged(piece));
          updater.stage(piece, old, gradient.subspan(begin - where.begin, end - begin), samples,
                        updated);
        };
        if (step % 3 == 0) {
          updater.apply(old, gradient, samples, updated, {});
        } else {
          if (step % 3 == 1) {
            // Begins and drops an update with another gradient, of which some or all pieces have
            // arrived.
            const auto other = random_gradient(where.size(), step + 100);
            for (std::size_t i = 0; i < cut.count(); i += 2)
              updater.stage(i, old,
                            other.as_floats().subspan(cut[i].begin - where.begin, cut[i].size()), 7,
                            updated);
            updater.discard();
          }
          for (std::size_t i = cut.count(); i-- > 0;) {
            BOOST_TEST(!updater.all_staged());
            stage(i);
          }
          BOOST_TEST(updater.all_staged());
          updater.publish();
        }
        std::swap(old, updated);
        BOOST_TEST_REQUIRE(same_bits(old, expected), "step " << step);
        BOOST_TEST(updater.samples() == whole.samples());
        for (std::size_t i = 0; i < context->rule.slots(); ++i)
          BOOST_TEST(same_bits(updater.state(i).as_floats(), whole.state(i)));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
