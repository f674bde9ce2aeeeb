// The bits of a matrix product must depend only on its operands, not on how it is computed. This
// file is compiled like kernels/cpu/gemm.cpp, because it uses the tiles of that file.

#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/gemm_tiles.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(gemm_bits)

namespace {

struct aligned_delete {
  void operator()(float* p) const { ::operator delete (p, std::align_val_t{64}); }
};

using aligned_floats = std::unique_ptr<float, aligned_delete>;

aligned_floats make_aligned(std::size_t n) {
  return aligned_floats(
    static_cast<float*>(::operator new (n * sizeof(float), std::align_val_t{64})));
}

std::vector<float> floats(std::size_t n, const char* name) {
  const auto x = random_values(n, name);
  return {x.begin(), x.end()};
}

/// A product that is computed in several blocks. Its sizes are not multiples of the sizes of blocks
/// or tiles.
struct operands {
  std::size_t m = 61;
  std::size_t n = 77;
  std::size_t k = 1037;
  std::vector<float> a = floats(m * k, "a");
  std::vector<float> b = floats(k * n, "b");
  cpu::matrix<float> left{a.data(), k, 1};
  cpu::matrix<float> right{b.data(), n, 1};
  aligned_floats scratch = make_aligned(cpu::gemm_scratch_elements<float>());

  std::vector<float> product(bool accumulate = false, float begin = 0) const {
    std::vector<float> c(m * n, begin);
    cpu::gemm<float>(m, n, k, left, right, c.data(), n, scratch.get(), accumulate);
    return c;
  }
};

/// The product, added to itself.
std::vector<float> twice(const operands& x) {
  auto c = x.product();
  cpu::gemm<float>(x.m, x.n, x.k, x.left, x.right, c.data(), x.n, x.scratch.get(), true);
  return c;
}

} // namespace

BOOST_AUTO_TEST_CASE(parts_are_those_of_the_whole) {
  for (bool columns : {false, true})
    for (std::size_t step : {2, 5, 16, 33, 60}) {
      const operands x;
      std::vector<float> c(x.m * x.n);
      const auto size = columns ? x.n : x.m;
      for (std::size_t i = 0; i < size; i += step) {
        // Takes at least two rows or columns, because a single row or column may be added up in
        // another order.
        const auto begin = std::min(i, size - 2);
        const auto count = std::max<std::size_t>(std::min(step, size - begin), 2);
        if (columns)
          cpu::gemm<float>(x.m, count, x.k, x.left, {x.b.data() + begin, x.n, 1}, c.data() + begin,
                           x.n, x.scratch.get());
        else
          cpu::gemm<float>(count, x.n, x.k, {x.a.data() + begin * x.k, x.k, 1}, x.right,
                           c.data() + begin * x.n, x.n, x.scratch.get());
      }
      BOOST_TEST((c == x.product()), (columns ? "columns by " : "rows by ") << step);
    }
}

BOOST_AUTO_TEST_CASE(layouts_do_not_matter) {
  const operands x;
  const auto transposed = [](const std::vector<float>& v, std::size_t rows, std::size_t columns) {
    std::vector<float> result(v.size());
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        result[j * rows + i] = v[i * columns + j];
    return result;
  };
  const auto a = transposed(x.a, x.m, x.k);
  const auto b = transposed(x.b, x.k, x.n);
  for (bool of_a : {false, true})
    for (bool of_b : {false, true}) {
      std::vector<float> c(x.m * x.n);
      cpu::gemm<float>(x.m, x.n, x.k, of_a ? cpu::matrix<float>{a.data(), 1, x.m} : x.left,
                       of_b ? cpu::matrix<float>{b.data(), 1, x.k} : x.right, c.data(), x.n,
                       x.scratch.get());
      BOOST_TEST((c == x.product()));
    }
}

// Compares the results with vectors of 32 bytes with those with the widest vectors. On a processor
// without AVX-512, both use the same tiles.
BOOST_AUTO_TEST_CASE(width_of_the_vectors_does_not_matter) {
  const operands x;
  using narrow = cpu::tiles<float, 32>;
  for (bool accumulate : {false, true}) {
    std::vector<float> c(x.m * x.n, 0.5F);
    narrow::product(x.m, x.n, x.k, x.left, x.right, c.data(), x.n, accumulate, x.scratch.get());
    BOOST_TEST((c == x.product(accumulate, 0.5F)));
  }
}

BOOST_AUTO_TEST_CASE(accumulating) {
  const operands x;
  // Computes the product over the first part of k, and adds the product over the rest.
  std::vector<float> c(x.m * x.n, 7);
  const std::size_t half = 500;
  cpu::gemm<float>(x.m, x.n, half, x.left, x.right, c.data(), x.n, x.scratch.get());
  cpu::gemm<float>(x.m, x.n, x.k - half, {x.a.data() + half, x.k, 1},
                   {x.b.data() + half * x.n, x.n, 1}, c.data(), x.n, x.scratch.get(), true);
  BOOST_TEST((c == x.product()));
  cpu::gemm<float>(x.m, x.n, 0, x.left, x.right, c.data(), x.n, x.scratch.get(), true);
  BOOST_TEST((c == x.product()));
}

BOOST_AUTO_TEST_CASE(packed_operands) {
  const operands x;
  const auto panels = make_aligned(cpu::packed_elements<float>(x.k, x.n));
  cpu::pack<float>(x.k, x.n, x.right, panels.get());
  std::vector<float> c(x.m * x.n);
  cpu::gemm_packed<float>(x.m, x.n, x.k, x.left, panels.get(), c.data(), x.n);
  BOOST_TEST((c == x.product()));
  cpu::gemm_packed<float>(x.m, x.n, x.k, x.left, panels.get(), c.data(), x.n, true);
  BOOST_TEST((c == twice(x)));
  // Computes only the first n columns. The others stay as they are.
  const auto n = 2 * cpu::gemm_columns;
  std::vector<float> part(x.m * x.n, 7);
  cpu::gemm_packed<float>(x.m, n, x.k, x.left, panels.get(), part.data(), x.n);
  const auto whole = x.product();
  for (std::size_t i = 0; i < part.size(); ++i)
    BOOST_TEST(part[i] == (i % x.n < n ? whole[i] : 7));
}

// The rows of an operand may overlap in an image, as in a convolution. The result must equal that
// of explicit matrices.
BOOST_AUTO_TEST_CASE(matrices_in_an_image) {
  const std::size_t line = 19;
  const std::size_t height = 7;
  const std::size_t width = 15;
  const auto image = floats(40 * line, "image");
  for (std::size_t m : {1, 5, 14, 29})
    for (std::size_t n : {2, 16, 17, 40}) { // a single column is added up in another order
      std::vector<std::size_t> offsets;
      for (std::size_t i = 0; i < std::max(m, std::size_t{11}); ++i)
        offsets.push_back(i / 5 * line + i % 5);
      const auto scratch = make_aligned(cpu::gemm_scratch_elements<float>());
      {
        const std::size_t k = 11;
        const std::size_t columns = 2 * cpu::gemm_columns;
        const auto a = floats(m * k, "a");
        std::vector<float> b;
        for (std::size_t p = 0; p < k; ++p)
          b.insert(b.end(), image.begin() + static_cast<long>(offsets[p]),
                   image.begin() + static_cast<long>(offsets[p] + columns));
        guarded<float> c(m * columns, 1);
        cpu::gemm_at<float>(m, columns, k, a.data(), image.data(), offsets.data(), c.data(),
                            columns);
        BOOST_TEST(c.intact());
        std::vector<float> expected(m * columns);
        cpu::gemm<float>(m, columns, k, {a.data(), k, 1}, {b.data(), columns, 1}, expected.data(),
                         columns, scratch.get());
        BOOST_TEST(std::ranges::equal(c.get(), expected), "at: " << m);
      }
      const auto k = height * width;
      const auto b = floats(k * n, "b");
      const auto stride = (n + cpu::gemm_columns - 1) / cpu::gemm_columns * cpu::gemm_columns;
      const auto panels = make_aligned(cpu::packed_elements<float>(k, n));
      cpu::pack<float>(k, n, {b.data(), n, 1}, panels.get());
      std::vector<float> a;
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t y = 0; y < height; ++y)
          for (std::size_t z = 0; z < width; ++z)
            a.push_back(image[offsets[i] + y * line + z]);
      guarded<float> c(m * stride, 1);
      std::ranges::fill(c.get(), 1.0F);
      cpu::gemm_lines<float>(m, n, height, width, image.data(), offsets.data(), line, panels.get(),
                             c.data(), stride);
      BOOST_TEST(c.intact());
      std::vector<float> expected(m * n, 1);
      cpu::gemm<float>(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, expected.data(), n,
                       scratch.get(), true);
      bool same = true;
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j)
          same = same && c.get()[i * stride + j] == expected[i * n + j];
      BOOST_TEST(same, "lines: " << m << " by " << n);
    }
}

BOOST_AUTO_TEST_SUITE_END()
