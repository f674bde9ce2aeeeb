// Loops over elements must give the same bits with the widest vectors of the processor as with the
// vectors of the build. This file is compiled like kernels/cpu/elementwise.cpp, because it uses the
// loops of that file.

#include "kernels/cpu/element_loops.hpp"
#include "kernels/cpu/gemm_avx512.hpp"
#include "kernels/cpu/loops_avx512.hpp"
#include "kernels/cpu/recurrent_cells.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(loops)

namespace {

/// Values on both sides of 0. Every fifth is special (NaN, infinity, ...). So there are special
/// values in whole vectors and among the elements that fill no whole vector.
std::vector<float> values(std::size_t n, const char* name) {
  constexpr float special[] = {0,
                               -0.0F,
                               90,
                               -90,
                               1e-40F,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> result;
  for (auto x : random_values(n, name))
    result.push_back(static_cast<float>(8 * x));
  for (std::size_t i = 0; i < n; i += 5)
    result[i] = special[i / 5 % std::size(special)];
  return result;
}

/// True if the bits are the same, except those of NaNs.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])
        && !(std::isnan(a[i]) && std::isnan(b[i])))
      return false;
  return a.size() == b.size();
}

} // namespace

BOOST_AUTO_TEST_CASE(elements_do_not_depend_on_the_width_of_vectors) {
  std::size_t costly = 0;
  for (std::size_t op = 0; op < operation_count; ++op) {
    const auto& row = cpu::element_rows<float>()[op];
    if (!row.costly)
      continue;
    ++costly;
    for (std::size_t n : {1, 15, 16, 17, 47, 1000}) {
      const auto x = values(n, "x");
      const auto y = values(n, "y");
      std::vector<float> narrow(n);
      std::vector<float> chosen(n);
      row.loop(n, x.data(), y.data(), nullptr, 1, narrow.data());
      cpu::loop_of<float>(static_cast<operation>(op))(n, x.data(), y.data(), nullptr, 1,
                                                      chosen.data());
      BOOST_TEST(same_bits(narrow, chosen), "operation " << op << ", n " << n);
    }
  }
  BOOST_TEST(costly == 11U);
}

BOOST_AUTO_TEST_CASE(cells_do_not_depend_on_the_width_of_vectors) {
  for (auto x : {cell::rnn, cell::lstm, cell::gru}) {
    const auto narrow = cpu::loops_of_cell<float>(x);
    const auto chosen = cpu::has_wide_vectors() ? cpu::wide_loops_of_cell(x) : narrow;
    for (std::size_t n : {1, 16, 21, 256}) {
      const auto z = values(4 * n, "z");
      const auto a = values(4 * n, "a");
      const auto b = values(4 * n, "b");
      const auto before = values(n, "before");
      const auto results = [&](const cpu::cell_loops<float>& loops, bool first) {
        std::vector<float> all(6 * n);
        loops.step(n, z.data(), a.data(), b.data(), first ? nullptr : before.data(), all.data());
        auto direct = values(n, "direct");
        std::vector<float> by_product(4 * n);
        std::vector<float> out(4 * n);
        const auto dh = values(n, "dh");
        const auto states = values(6 * n, "states");
        loops.back(n, dh.data(), states.data(), first ? nullptr : before.data(), direct.data(),
                   by_product.data(), out.data());
        for (const auto& part : {direct, by_product, out})
          all.insert(all.end(), part.begin(), part.end());
        return all;
      };
      for (bool first : {true, false})
        BOOST_TEST(same_bits(results(narrow, first), results(chosen, first)),
                   "cell " << static_cast<int>(x) << ", n " << n);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
