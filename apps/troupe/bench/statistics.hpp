#pragma once

#include <algorithm>
#include <vector>

namespace troupe::bench {

/// Smallest value, median and largest value of one or more measurements.
struct statistics {
  explicit statistics(std::vector<double> x) {
    std::ranges::sort(x);
    least = x.front();
    most = x.back();
    const auto middle = x.size() / 2;
    median = x.size() % 2 == 1 ? x[middle] : (x[middle - 1] + x[middle]) / 2;
  }

  double least;
  double median;
  double most;
};

} // namespace troupe::bench
