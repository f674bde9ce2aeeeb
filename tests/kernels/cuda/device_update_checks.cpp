#include "kernels/cuda/updater.hpp"
#include "kernels/cuda/updates.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

// The checks of updates, of packed ranges, and of updates of some elements.

namespace troupe::test {

namespace {

void check_updates(cuda::device& gpu, const optimizer& rule) {
  const auto where = gpu.main_stream();
  struct one {
    std::vector<float> w, g, old, state, updated, statistics;
    std::vector<cuda::buffer<float>> there; // w, g, old, state, updated, statistics, copies
  };
  std::vector<one> all;
  std::vector<cuda::range_step> steps;
  std::vector<cuda::statistics_step> statistics;
  std::vector<cuda::range_copy> copies;
  for (const std::size_t n : {1, 1023, 1024, 1026, 50001}) {
    auto& x = all.emplace_back();
    x.w = random_floats(n, "w");
    x.g = random_floats(n, "g");
    for (std::size_t i = 0; i < n; i += 3) // a lazy rule leaves these elements as they are
      x.g[i] = 0;
    x.old.assign(2 * n, 0.25F);
    x.state.resize(2 * n);
    x.updated.resize(n);
    x.statistics.resize(n);
    for (const auto* values : {&x.w, &x.g, &x.old, &x.state, &x.updated, &x.statistics, &x.w})
      x.there.emplace_back(gpu, values->size());
    for (std::size_t i = 0; i < 3; ++i)
      gpu.copy_in(where, x.there[i].data(),
                  (i == 0     ? x.w
                     : i == 1 ? x.g
                              : x.old)
                    .data(),
                  x.there[i].bytes());
    const auto span = [&](std::size_t i) {
      return std::span{x.there[i].data(), x.there[i].size()};
    };
    update_arguments<float> how{x.w, x.g, x.state, x.updated, 0.1, 0.5, 3};
    how.old_state = x.old;
    update<float>(rule, how);
    update_statistics(x.w, x.g, 0.125, 0.1, x.statistics);
    update_arguments<float> how_there{span(0), span(1), span(3), span(4), 0.1, 0.5, 3};
    how_there.old_state = span(2);
    steps.push_back({rule, how_there});
    statistics.push_back({span(0), span(1), 0.125, 0.1, span(5)});
    copies.push_back({x.there[4].data(), x.there[6].data(), n});
  }
  cuda::update(where, steps);
  cuda::update_statistics(where, statistics);
  cuda::copy_ranges(where, copies);
  for (const auto& x : all) {
    const auto check = [&](std::size_t i, const std::vector<float>& expected) {
      std::vector<float> values(x.there[i].size());
      gpu.copy_out(where, values.data(), x.there[i].data(), x.there[i].bytes());
      gpu.synchronize(where);
      BOOST_TEST(same_bits(values, expected), i << " of " << x.w.size());
    };
    check(3, x.state);
    check(4, x.updated);
    check(5, x.statistics);
    check(6, x.updated);
  }
}

} // namespace

void check_updates(cuda::device& gpu) {
  check_updates(gpu, {.kind = optimizer_kind::adam});
  check_updates(gpu, {.kind = optimizer_kind::adamw, .weight_decay = 0.01F, .lazy = true});
}

void check_packing(cuda::device& gpu) {
  constexpr std::size_t n = 1000;
  constexpr std::size_t vectors = 3;
  const auto where = gpu.main_stream();
  const auto sent = [&]<class T>(const std::vector<T>& x) {
    cuda::buffer<T> result(gpu, x.size());
    gpu.copy_in(where, result.data(), x.data(), result.bytes());
    gpu.synchronize(where); // the copy may read `x` until then
    return result;
  };
  const auto fetched = [&](const cuda::buffer<float>& x) {
    std::vector<float> result(x.size());
    gpu.copy_out(where, result.data(), x.data(), x.bytes());
    gpu.synchronize(where);
    return result;
  };
  const auto from = random_floats(vectors * n, "from");
  const auto there = sent(from);
  for (const range_list& ranges :
       {range_list{{0, n}}, {{5, 6}}, {{0, 1}, {7, 40}, {41, 300}, {999, 1000}}}) {
    std::vector<std::uint32_t> begins;
    std::vector<std::uint32_t> firsts;
    std::size_t k = 0;
    for (const auto& x : ranges) {
      begins.push_back(static_cast<std::uint32_t>(x.begin));
      firsts.push_back(static_cast<std::uint32_t>(k));
      k += x.size();
    }
    std::vector<float> expected;
    std::vector<float> unpacked(vectors * n, 7);
    for (std::size_t v = 0; v < vectors; ++v)
      for (const auto& x : ranges)
        for (auto i = v * n + x.begin; i < v * n + x.end; ++i) {
          expected.push_back(from[i]);
          unpacked[i] = from[i];
        }
    const auto db = sent(begins);
    const auto df = sent(firsts);
    const cuda::packed_ranges which{{db.data(), begins.size()}, {df.data(), firsts.size()}, k};
    const cuda::buffer<float> packed(gpu, vectors * k);
    cuda::pack_ranges(where, which, vectors, n, there.data(), packed.data());
    BOOST_TEST(same_bits(fetched(packed), expected));
    const auto back = sent(std::vector<float>(vectors * n, 7));
    cuda::unpack_ranges(where, which, vectors, n, packed.data(), back.data());
    BOOST_TEST(same_bits(fetched(back), unpacked));
    for (const auto& x : ranges)
      std::fill(unpacked.begin() + static_cast<std::ptrdiff_t>(x.begin),
                unpacked.begin() + static_cast<std::ptrdiff_t>(x.end), 0.0F);
    cuda::clear_ranges(where, which, n, back.data());
    BOOST_TEST(same_bits(fetched(back), unpacked));
  }
}

void check_updates_of_some(const std::shared_ptr<cuda::device>& gpu) {
  constexpr std::size_t n = 5000;
  const range_list lists[] = {{{0, 3}, {9, 12}, {500, 1017}, {n - 1, n}}, {{8, 20}}};
  const optimizer rules[] = {{.kind = optimizer_kind::sgd, .momentum = 0},
                             {.kind = optimizer_kind::adamw, .weight_decay = 0.01F, .lazy = true}};
  for (const auto& rule : rules) {
    const updater_sizes sizes{n, rule.slots(), false, false};
    const auto here = make_cpu_updater(sizes);
    cuda::updater there(gpu, sizes, 2000);
    const std::vector<update_part> parts{{{0, n}, parameter_kind::trainable, rule, 0.1, 0}};
    auto weights = random_floats(n, "w");
    auto weights_there = weights;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const auto* const only = step % 3 == 0 ? nullptr : &lists[step % 2];
      auto g = random_floats(n, "g " + std::to_string(step));
      for (std::size_t i = 0; i < n; ++i)
        if (only != nullptr
            && std::ranges::none_of(*only, [i](const range& x) { return x.contains(i); }))
          g[i] = 0;
      std::vector<float> next(n);
      auto next_there = weights_there; // an update of some elements does not write the others
      range_update x{.weights = weights, .gradient = g, .updated = next, .parts = parts};
      x.scale = 0.2;
      x.step = step;
      here->apply(x);
      x.weights = weights_there;
      x.updated = next_there;
      x.only = only;
      there.apply(x);
      BOOST_TEST(same_bits(next_there, next), "step " << step);
      for (std::size_t slot = 0; slot < rule.slots(); ++slot) {
        const auto a = there.state(slot);
        const auto b = here->state(slot);
        BOOST_TEST(same_bits({a.begin(), a.end()}, {b.begin(), b.end()}), "state " << slot);
      }
      weights.swap(next);
      weights_there.swap(next_there);
    }
  }
}

} // namespace troupe::test
