#include "actors/model/constant_guess.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <utility>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(constant_guess)

namespace {

/// Records with one feature, and labels that the test chooses.
class labelled : public dataset {
public:
  labelled(std::vector<std::int32_t> classes, std::size_t count) : classes_(std::move(classes)) {
    shape_.dims = {1};
    shape_.label_width = count;
  }
  labelled(std::vector<float> targets, std::size_t width) : targets_(std::move(targets)) {
    shape_.dims = {1};
    shape_.labels = label_kind::targets;
    shape_.label_width = width;
  }

  std::uint64_t size() const noexcept override {
    return targets_.empty() ? classes_.size() : targets_.size() / shape_.label_width;
  }
  const record_shape& record() const noexcept override { return shape_; }
  void read(std::span<const std::uint64_t> records, feature_batch, label_batch out) const override {
    for (std::size_t i = 0; i < records.size(); ++i)
      if (targets_.empty())
        out.classes[i] = classes_[records[i]];
      else
        for (std::size_t k = 0; k < shape_.label_width; ++k)
          out.targets[i * shape_.label_width + k] = targets_[records[i] * shape_.label_width + k];
  }

private:
  record_shape shape_;
  std::vector<std::int32_t> classes_;
  std::vector<float> targets_;
};

double guess(proto::Loss loss, const dataset& data, double smoothing = 0) {
  proto::Model model;
  model.set_loss(loss);
  model.set_label_smoothing(smoothing);
  return constant_guess_loss(model, data).value_or(-1);
}

} // namespace

BOOST_AUTO_TEST_CASE(classes) {
  const labelled even(std::vector<std::int32_t>{0, 1, 2, 3}, 4);
  BOOST_TEST(std::abs(guess(proto::SOFTMAX_CROSS_ENTROPY, even) - std::log(4.0)) < 1e-12);
  const labelled uneven(std::vector<std::int32_t>{0, 0, 0, 1}, 2);
  const double entropy = -(0.75 * std::log(0.75) + 0.25 * std::log(0.25));
  BOOST_TEST(std::abs(guess(proto::SOFTMAX_CROSS_ENTROPY, uneven) - entropy) < 1e-12);
  BOOST_TEST(std::abs(guess(proto::BINARY_CROSS_ENTROPY, uneven) - entropy) < 1e-12);
  BOOST_TEST(guess(proto::HINGE, uneven) == 0.5);
  const double p = 0.8 * 0.75 + 0.1;
  BOOST_TEST(std::abs(guess(proto::SOFTMAX_CROSS_ENTROPY, uneven, 0.2) + p * std::log(p)
                      + (1 - p) * std::log(1 - p))
             < 1e-12);
  BOOST_TEST(guess(proto::SOFTMAX_CROSS_ENTROPY, labelled(std::vector<std::int32_t>{0, 7}, 4))
               == -1.0,
             "no such class");
}

// The loss of a model is the mean over all labels. An ignored one adds 0.
BOOST_AUTO_TEST_CASE(ignored_labels) {
  proto::Model model;
  model.set_loss(proto::SOFTMAX_CROSS_ENTROPY);
  model.set_ignored_label(-1);
  const labelled half(std::vector<std::int32_t>{0, -1, 1, -1}, 2);
  BOOST_TEST(std::abs(constant_guess_loss(model, half).value() - std::log(2.0) / 2) < 1e-12);
}

BOOST_AUTO_TEST_CASE(targets) {
  const labelled two(std::vector<float>{1, 10, 3, 10, 8, 40}, 2);
  // The best constant guess is the mean (4 and 20) for squared errors, and the median (3 and 10)
  // for absolute errors.
  BOOST_TEST(std::abs(guess(proto::MEAN_SQUARED_ERROR, two) - (9 + 1 + 16 + 100 + 100 + 400) / 6.0)
             < 1e-9);
  BOOST_TEST(std::abs(guess(proto::MEAN_ABSOLUTE_ERROR, two) - (2 + 0 + 5 + 0 + 0 + 30) / 6.0)
             < 1e-9);
  const labelled signs(std::vector<float>{-1, 1, 1, 1}, 1);
  BOOST_TEST(guess(proto::HINGE, signs) == 0.5);
  BOOST_TEST(guess(proto::BINARY_CROSS_ENTROPY, two) == -1.0, "no probabilities");
}

BOOST_AUTO_TEST_CASE(many_records_are_sampled) {
  std::vector<std::int32_t> classes(100'000);
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = static_cast<std::int32_t>(i * 10 / classes.size());
  BOOST_TEST(std::abs(guess(proto::SOFTMAX_CROSS_ENTROPY, labelled(classes, 10)) - std::log(10.0))
             < 0.01);
}

BOOST_AUTO_TEST_SUITE_END()
