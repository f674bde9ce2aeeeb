#include "kernels/cuda/cublas_lt.hpp"

#include "kernels/cpu/conversions.hpp"
#include "tests/kernels/cuda/fake_cublas_lt.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

// Tests of the class cublas_lt. A fake library, which computes on the host, replaces cublasLt.

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cublas_lt)

namespace {

/// Aligned host memory, which replaces device memory.
struct memory {
  memory(dtype of, const std::vector<double>& values, std::size_t gap = 0)
    : type(of), bytes(values.size() * size_of(of) + gap + 256) {
    auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    offset = (256 - address % 256) % 256 + gap;
    const std::vector<float> narrow_them(values.begin(), values.end());
    if (is_narrow(of))
      cpu::narrow(of, values.size(), narrow_them.data(), data());
    else
      std::copy(narrow_them.begin(), narrow_them.end(), static_cast<float*>(data()));
  }
  void* data() { return bytes.data() + offset; }
  std::vector<float> values(std::size_t n) {
    std::vector<float> result(n);
    if (is_narrow(type))
      cpu::widen(type, n, data(), result.data());
    else
      std::copy_n(static_cast<const float*>(data()), n, result.data());
    return result;
  }

  dtype type;
  std::vector<std::byte> bytes;
  std::size_t offset = 0;
};

/// A library with its work space.
struct library {
  memory workspace{dtype::float32, std::vector<double>(cuda::product_space_bytes / sizeof(float))};
  cuda::cublas_lt lt{workspace.data()};
};

struct operands {
  operands(std::size_t m_, std::size_t n_, std::size_t k_, dtype of, dtype result)
    : m(m_), n(n_), k(k_), a(of, random_values(m * k, "a")), b(of, random_values(k * n, "b")),
      bias(result, random_values(n, "bias")), addend(result, random_values(m * n, "addend")),
      c(result, std::vector<double>(m * n)) {}

  cuda::product with(bool transpose_a, bool transpose_b, bool with_bias, operation after) {
    return {.m = m,
            .n = n,
            .k = k,
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .a = a.data(),
            .b = b.data(),
            .c = c.data(),
            .operands = a.type,
            .result = c.type,
            .bias = with_bias ? bias.data() : nullptr,
            .after = after};
  }
  std::vector<double> expected(const cuda::product& x) {
    const auto as = a.values(m * k);
    const auto bs = b.values(k * n);
    const auto biases = bias.values(n);
    const auto addends = addend.values(m * n);
    std::vector<double> result(m * n);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto row = i / n;
      const auto column = i % n;
      for (std::size_t p = 0; p < k; ++p)
        result[i] += static_cast<double>(as[x.transpose_a ? p * m + row : row * k + p])
          * static_cast<double>(bs[x.transpose_b ? column * k + p : p * n + column]);
      result[i] += x.addend != nullptr ? static_cast<double>(addends[i]) : 0;
      result[i] += x.bias != nullptr ? static_cast<double>(biases[column]) : 0;
      if (x.after == operation::relu)
        result[i] = std::max(result[i], 0.0);
    }
    return result;
  }

  std::size_t m, n, k;
  memory a, b, bias, addend, c;
};

} // namespace

BOOST_AUTO_TEST_CASE(products_with_epilogues) {
  library l;
  for (const auto type : {dtype::float32, dtype::bfloat16, dtype::float16})
    for (const auto result : {type, dtype::float32})
      for (const auto& [m, n, k] : {std::array<std::size_t, 3>{1, 1, 1}, {5, 7, 3}, {4, 16, 9}})
        for (const bool ta : {false, true})
          for (const bool tb : {false, true})
            for (const auto& [biased, after] : {std::pair{true, operation::end},
                                                {true, operation::relu},
                                                {false, operation::relu}}) {
              operands x(m, n, k, type, result);
              const auto what = x.with(ta, tb, biased, after);
              BOOST_REQUIRE(l.lt.fuses(what));
              l.lt.multiply({}, what);
              const auto tolerance = result == dtype::bfloat16 ? 1.0 / 256
                : result == dtype::float16                     ? 1.0 / 2048
                                                               : 1e-6;
              check_close(x.c.values(m * n), x.expected(what), tolerance, 1e-5, "product");
            }
}

// The addend is another matrix, or the memory of the result. Without an addend, what is in this
// memory does not matter.
BOOST_AUTO_TEST_CASE(products_that_are_added_to_a_matrix) {
  library l;
  for (const auto type : {dtype::float32, dtype::bfloat16, dtype::float16})
    for (const auto result : {type, dtype::float32})
      for (const bool biased : {false, true})
        for (const bool in_place : {false, true}) {
          operands x(5, 7, 3, type, result);
          auto what = x.with(false, true, biased, operation::end);
          what.addend = x.addend.data();
          const auto wanted = x.expected(what);
          if (in_place)
            what.c = x.addend.data();
          BOOST_REQUIRE(l.lt.fuses(what));
          l.lt.multiply({}, what);
          const auto tolerance = result == dtype::bfloat16 ? 1.0 / 256
            : result == dtype::float16                     ? 1.0 / 2048
                                                           : 1e-6;
          check_close((in_place ? x.addend : x.c).values(35), wanted, tolerance, 1e-5, "sum");
        }
  operands x(5, 7, 3, dtype::float32, dtype::float32);
  std::fill_n(static_cast<float*>(x.c.data()), 35, std::numeric_limits<float>::quiet_NaN());
  const auto what = x.with(false, true, true, operation::end);
  l.lt.multiply({}, what);
  check_close(x.c.values(35), x.expected(what), 1e-6, 1e-5, "product");
}

// The algorithm depends on the alignment of the addend.
BOOST_AUTO_TEST_CASE(an_addend_that_is_not_aligned) {
  library l;
  operands x(4, 8, 3, dtype::float32, dtype::float32);
  auto what = x.with(false, true, true, operation::end);
  what.addend = x.addend.data();
  l.lt.multiply({}, what);
  memory shifted(dtype::float32, random_values(32, "addend"), sizeof(float));
  what.addend = shifted.data();
  l.lt.multiply({}, what);
  check_close(x.c.values(32), x.expected(what), 1e-6, 1e-5, "sum");
}

BOOST_AUTO_TEST_CASE(an_algorithm_is_chosen_once) {
  library l;
  auto& counts = fake_cublas_lt_counts();
  counts.proposals = counts.products = 0;
  operands x(4, 8, 3, dtype::float32, dtype::float32);
  operands other(4, 8, 3, dtype::float32, dtype::float32);
  const auto what = x.with(false, true, true, operation::relu);
  for (int i = 0; i < 3; ++i) {
    BOOST_TEST(l.lt.fuses(what));
    l.lt.multiply({}, what);
  }
  // This product is of the same kind, but its operands are at other addresses.
  l.lt.multiply({}, other.with(false, true, true, operation::relu));
  check_close(other.c.values(32), other.expected(other.with(false, true, true, operation::relu)),
              1e-6, 1e-5, "product");
  BOOST_TEST(counts.proposals == 1U);
  BOOST_TEST(counts.products == 4U);
  BOOST_TEST(l.lt.fuses(x.with(false, true, true, operation::end)));
  BOOST_TEST(l.lt.fuses(x.with(false, false, true, operation::relu)));
  auto unaligned = what;
  unaligned.m = 3;
  unaligned.a = static_cast<const float*>(what.a) + 1;
  BOOST_TEST(l.lt.fuses(unaligned));
  // The operands are not aligned, so the fake library would refuse an algorithm for aligned
  // operands.
  l.lt.multiply({}, unaligned);
  BOOST_TEST(counts.proposals == 4U);
}

// An algorithm that was chosen for float32 is not used for TF32.
BOOST_AUTO_TEST_CASE(tf32_only_if_asked) {
  library l;
  operands x(4, 8, 3, dtype::float32, dtype::float32);
  auto what = x.with(false, false, true, operation::relu);
  l.lt.multiply({}, what);
  check_close(x.c.values(32), x.expected(what), 1e-6, 1e-5, "float32");
  const auto exact = x.c.values(32);
  what.tf32 = true;
  BOOST_TEST(l.lt.fuses(what));
  l.lt.multiply({}, what);
  const auto rounded = x.c.values(32);
  BOOST_TEST((rounded != exact));
  check_close(rounded, x.expected(what), 1.0 / 256, 1.0 / 256, "tf32");
  // Operands of 16 bits are not rounded to TF32.
  operands narrow(4, 8, 3, dtype::bfloat16, dtype::float32);
  what = narrow.with(false, false, true, operation::relu);
  what.tf32 = true;
  l.lt.multiply({}, what);
  check_close(narrow.c.values(32), narrow.expected(what), 1e-6, 1e-5, "bfloat16");
}

BOOST_AUTO_TEST_CASE(products_without_an_algorithm) {
  library l;
  operands refused(4, refused_columns, 3, dtype::float32, dtype::float32);
  const auto what = refused.with(false, false, true, operation::relu);
  BOOST_TEST(!l.lt.fuses(what));
  BOOST_TEST(!l.lt.fuses(what));
  BOOST_CHECK_THROW(l.lt.multiply({}, what), cuda::device_error);
  operands x(4, 8, 3, dtype::float32, dtype::float32);
  BOOST_TEST(!l.lt.fuses(x.with(false, false, true, operation::gelu)));
  BOOST_TEST(!l.lt.fuses(x.with(false, false, false, operation::end)));
}

BOOST_AUTO_TEST_CASE(nothing_stays) {
  const auto before = fake_cublas_lt_counts().alive;
  {
    library l;
    operands x(4, 8, 3, dtype::float32, dtype::float32);
    BOOST_TEST(l.lt.fuses(x.with(false, false, true, operation::relu)));
    BOOST_TEST(fake_cublas_lt_counts().alive > before);
  }
  BOOST_TEST(fake_cublas_lt_counts().alive == before);
}

BOOST_AUTO_TEST_CASE(too_little_memory_to_start) {
  fake_cublas_lt_lacks_memory() = true;
  BOOST_CHECK_EXCEPTION(library{}, cuda::device_error, [](const auto& e) {
    return std::string(e.what()).starts_with(
      "cublasLt: it does not start: out of memory of the GPU");
  });
  fake_cublas_lt_lacks_memory() = false;
}

BOOST_AUTO_TEST_SUITE_END()
