// Fuzz target: LIBSVM files, which contain sparse rows.

#include "kernels/formats/libsvm.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

TROUPE_FUZZ_TARGET(libsvm, input) {
  const auto x = parse_libsvm(input, "x.txt");
  fuzz::require(x.rows() > 0 && x.row_starts.size() == x.rows() + 1, "there are rows");
  fuzz::require(x.row_starts.back() == x.columns.size() && x.values.size() == x.columns.size(),
                "rows hold all entries");
  for (std::uint64_t row = 0; row < x.rows(); ++row)
    for (auto i = x.row_starts[row]; i < x.row_starts[row + 1]; ++i)
      fuzz::require(x.columns[i] < x.width
                      && (i == x.row_starts[row] || x.columns[i - 1] < x.columns[i]),
                    "columns ascend below the width");
  libsvm_reader parts{input, "x.txt"};
  std::uint64_t rows = 0;
  for (auto part = parts.next(2); part.rows() > 0; part = parts.next(2))
    rows += part.rows();
  fuzz::require(rows == x.rows(), "parts have the rows of the whole");
}
