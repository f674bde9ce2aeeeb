// Tests the weights that HOGWILD workers share. Under ThreadSanitizer (tests/run --tsan), these
// cases also check that every access to the weights is atomic.

#include "actors/parameter_server/live_weights.hpp"

#include "kernels/relaxed_floats.hpp"
#include "tests/actors/model/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(live_weights)

BOOST_AUTO_TEST_CASE(words_are_moved_not_overwritten) {
  std::vector<float> shared{1, 2, 3};
  const std::vector<float> before{1, 2, 2};
  std::vector<float> after{1, 2.1F, 2.5F};
  relaxed_move(shared, before, after);
  BOOST_TEST(after == shared, boost::test_tools::per_element());
  BOOST_TEST(shared[0] == 1.0F);
  BOOST_TEST(shared[1] == 2.1F);
  BOOST_TEST(shared[2] == 3.5F, "another thread has moved it by 1 meanwhile");
}

// A block of weights may be moved at once. The result must equal that of moving each weight alone.
// This is tested for blocks in which all weights change, some, or none, and for blocks in which
// another thread has changed weights.
BOOST_AUTO_TEST_CASE(blocks_are_moved_like_words) {
  constexpr std::size_t size = 131;
  std::vector<float> shared(size);
  std::vector<float> before(size);
  std::vector<float> after(size);
  for (std::size_t i = 0; i < size; ++i) {
    before[i] = static_cast<float>(i) / 7;
    after[i] = i / 8 % 2 == 0 && (i / 16 % 2 == 0 || i % 3 == 0) ? before[i] + 0.1F : before[i];
    shared[i] = i % 13 == 0 || i >= 100 ? before[i] + 0.3F : before[i];
  }
  auto words = shared;
  auto moved = after;
  for (std::size_t i = 0; i < size; ++i)
    relaxed_move(words[i], before[i], moved[i]);
  relaxed_move(shared, before, after);
  BOOST_TEST(shared == words, boost::test_tools::per_element());
  BOOST_TEST(after == moved, boost::test_tools::per_element());
  std::vector<float> copy(size - 1);
  relaxed_copy(std::span{shared}.subspan(1), copy);
  BOOST_TEST(std::ranges::equal(copy, std::span{words}.subspan(1)));
}

BOOST_AUTO_TEST_CASE(each_word_is_read_whole) {
  std::vector<float> shared(64, 1.0F);
  const std::vector<float> ones(64, 1.0F);
  const std::vector<float> others(64, -3.75F);
  std::jthread writer{[&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      auto after = others;
      relaxed_move(shared, ones, after);
      after = ones;
      relaxed_move(shared, others, after);
    }
  }};
  std::vector<float> copy(64);
  bool whole = true;
  for (int i = 0; i < 20'000; ++i) {
    relaxed_copy(shared, copy);
    for (const float x : copy)
      whole = whole && (x == 1.0F || x == -3.75F);
  }
  BOOST_TEST(whole);
}

// Each of four writers changes its own quarter of the weights, so no update is lost. Meanwhile, a
// reader takes copies of all weights, as a shard does for checkpoints.
BOOST_AUTO_TEST_CASE(writers_of_different_words_lose_nothing) {
  constexpr std::size_t writers = 4;
  constexpr std::uint64_t updates = 50;
  auto job = digits_job();
  job.mutable_optimizer()->set_kind(proto::SGD);
  job.mutable_optimizer()->clear_momentum();
  job.mutable_learning_rate()->clear_step();
  const auto context = make_job_context(job, {{.dims = {1, 28, 28}, .label_width = 10}, 100});
  const auto size = context->parameters().size();
  const auto shared = std::make_shared<troupe::live_weights>(*context, range{0, size});
  const auto alone = std::make_shared<troupe::live_weights>(*context, range{0, size});
  std::vector<float> newest(size);
  {
    std::jthread reader{[&](const std::stop_token& stop) {
      while (!stop.stop_requested())
        shared->read(newest);
    }};
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < writers; ++i)
      threads.emplace_back([&, part = part_of(size, writers, i)] {
        live_writer writer{*context, shared};
        std::vector<float> after(size);
        std::vector<float> gradient(size, 0);
        std::fill_n(gradient.begin() + static_cast<std::ptrdiff_t>(part.begin), part.size(), 1.0F);
        for (std::uint64_t k = 0; k < updates; ++k)
          writer.update(gradient, 8, 1, after);
      });
  }
  live_writer writer{*context, alone};
  for (std::uint64_t k = 0; k < updates; ++k)
    writer.update(std::vector<float>(size, 1), 8, 1, newest);
  const auto expected = newest;
  alone->read(newest);
  BOOST_TEST((newest == expected));
  shared->read(newest);
  BOOST_TEST((newest == expected));
  BOOST_TEST(shared->updates() == writers * updates);
}

BOOST_AUTO_TEST_SUITE_END()
