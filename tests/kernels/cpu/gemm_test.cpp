#include "kernels/cpu/gemm.hpp"

#include "tests/kernels/numeric.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <memory>
#include <new>

using namespace troupe;
using namespace troupe::test;

namespace {

template <class T>
struct product {
  std::size_t m, n, k;
  std::vector<T> a, b;
  cpu::matrix<T> left, right;

  product(std::size_t m, std::size_t n, std::size_t k, bool ta, bool tb) : m(m), n(n), k(k) {
    const auto x = random_values(m * k, "a");
    const auto y = random_values(k * n, "b");
    a.assign(x.begin(), x.end());
    b.assign(y.begin(), y.end());
    left = ta ? cpu::matrix<T>{a.data(), 1, m} : cpu::matrix<T>{a.data(), k, 1};
    right = tb ? cpu::matrix<T>{b.data(), 1, k} : cpu::matrix<T>{b.data(), n, 1};
  }

  std::vector<double> expected() const {
    std::vector<double> c(m * n);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t p = 0; p < k; ++p)
          c[i * n + j] +=
            static_cast<double>(left.data[i * left.row_stride + p * left.column_stride])
            * static_cast<double>(right.data[p * right.row_stride + j * right.column_stride]);
    return c;
  }

  void run(T* out) const {
    struct aligned_delete {
      void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
    };
    const auto bytes = cpu::gemm_scratch_elements<T>() * sizeof(T);
    const std::unique_ptr<T, aligned_delete> scratch(
      static_cast<T*>(::operator new (bytes, std::align_val_t{64})));
    cpu::gemm<T>(m, n, k, left, right, out, n, scratch.get());
  }
};

template <class T>
void check_product(std::size_t m, std::size_t n, std::size_t k, double tolerance) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      const product<T> p(m, n, k, ta, tb);
      guarded<T> c(m * n, 1);
      p.run(c.data());
      BOOST_TEST(c.intact());
      // Bound: k partial sums are rounded. In the worst case, which is rare, errors grow like k.
      // For doubles, the expected values have rounding errors of the same size.
      const auto bound = tolerance * (static_cast<double>(k) + 10);
      check_close(c.get(), p.expected(), tolerance, bound,
                  std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k));
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(gemm)

// The sizes of tiles are 6 rows by 16 floats or 8 doubles. With AVX-512, they are 14 rows by 32
// floats. At the edge of a matrix, a tile may have half the columns.
BOOST_AUTO_TEST_CASE(sizes_around_the_tile) {
  for (std::size_t m : {0, 1, 5, 6, 7, 13, 14, 15})
    for (std::size_t n : {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33})
      for (std::size_t k : {0, 1, 2, 16, 31}) {
        check_product<float>(m, n, k, 4e-7);
        check_product<double>(m, n, k, 6e-16);
      }
}

// A block has a depth (part of k) of at most 512 floats or 256 doubles, and each operand has at
// most 512 KiB. A larger depth is divided evenly: 577 gives two blocks, and 1025 gives three.
BOOST_AUTO_TEST_CASE(sizes_around_the_blocks) {
  for (std::size_t k : {511, 512, 513, 577})
    check_product<float>(9, 30, k, 4e-7);
  for (std::size_t k : {255, 256, 257, 289})
    check_product<double>(9, 30, k, 6e-16);
  for (std::size_t m : {255, 256, 257, 457})
    check_product<float>(m, 25, 512, 4e-7);
  for (std::size_t n : {255, 256, 257, 500})
    check_product<float>(25, n, 512, 4e-7);
  if (under_sanitizer)
    check_product<float>(450, 450, 300, 4e-7);
  else
    check_product<float>(1000, 900, 300, 4e-7);
  check_product<float>(65, 37, 1023, 4e-7);
  check_product<float>(7, 19, 1024, 4e-7);
  check_product<float>(70, 33, 1025, 4e-7);
  check_product<float>(64, 784, 2051, 4e-7);
  check_product<float>(300, 300, 1025, 4e-7);
  check_product<double>(64, 600, 1030, 6e-16);
}

// Tolerance: a result is a sum of 1100 products of normal numbers, typically about 33. Measured
// over 20 seeds, two results differ by at most 5.2e-5.
BOOST_AUTO_TEST_CASE(a_row_hardly_depends_on_the_number_of_rows) {
  const std::size_t n = 50;
  const std::size_t k = 1100;
  const product<float> many(97, n, k, false, true);
  std::vector<float> all(97 * n);
  many.run(all.data());
  for (std::size_t m : {1, 3, 6, 40}) {
    auto few = many;
    few.left.data = many.a.data();
    few.right.data = many.b.data();
    few.m = m;
    std::vector<float> some(m * n);
    few.run(some.data());
    const std::vector<double> expected(all.begin(), all.begin() + static_cast<long>(m * n));
    check_close(some, expected, 0, 2e-4, std::to_string(m) + " of 97 rows");
  }
}

BOOST_AUTO_TEST_CASE(alignment_does_not_change_the_bits) {
  const std::size_t n = 50;
  const std::size_t k = 301;
  for (std::size_t m : {1, 2, 37}) {
    const product<float> p(m, n, k, false, true);
    std::vector<float> expected(m * n);
    p.run(expected.data());
    for (std::size_t shift : {1, 3, 8}) {
      auto shifted = p;
      shifted.a.insert(shifted.a.begin(), shift, 0.0F);
      shifted.b.insert(shifted.b.begin(), 2 * shift, 0.0F);
      shifted.left.data = shifted.a.data() + shift;
      shifted.right.data = shifted.b.data() + 2 * shift;
      guarded<float> c(m * n, 3 * shift);
      shifted.run(c.data());
      BOOST_TEST(same_bits(c.get(), expected));
    }
  }
}

BOOST_AUTO_TEST_CASE(nan_and_infinity_propagate_to_their_row_alone) {
  product<float> p(9, 20, 11, false, false);
  p.a[3 * 11 + 4] = std::numeric_limits<float>::quiet_NaN();
  p.a[5 * 11 + 4] = std::numeric_limits<float>::infinity();
  std::vector<float> c(9 * 20);
  p.run(c.data());
  check_close(c, p.expected(), 1e-5, 1e-5, "with NaN and infinity");
  BOOST_TEST(std::isnan(c[3 * 20]));
  BOOST_TEST(std::isinf(c[5 * 20]));
}

BOOST_AUTO_TEST_SUITE_END()
