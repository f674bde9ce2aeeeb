#include "actors/model/exact_solution.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t records_at_once = 4096;
constexpr std::size_t most_values = std::size_t{1} << 20;

/// Largest number of features that an error names.
constexpr std::size_t most_names = 4;

} // namespace

exact_solution::exact_solution(const job_context& context, const dataset& train,
                               std::vector<std::string> names)
  : context_(context), train_(train), names_(std::move(names)),
    sums_(train.record().feature_width(), train.record().label_width,
          context.parameters().entries().size() > 1) {}

bool exact_solution::read_some() {
  const auto width = train_.record().feature_width() + train_.record().label_width;
  const auto count = std::min<std::uint64_t>(
    std::clamp<std::size_t>(most_values / width, 1, records_at_once), train_.size() - next_);
  if (count == 0)
    return false;
  records_.resize(count);
  std::iota(records_.begin(), records_.end(), next_);
  features_.resize(count * train_.record().feature_width());
  targets_.resize(count * train_.record().label_width);
  if (train_.record().features == feature_kind::sparse)
    read_sparse();
  else
    train_.read(records_, std::span{features_}, {{}, targets_});
  sums_.add(features_, targets_);
  next_ += count;
  return true;
}

// Reads sparse records and makes them dense, because least_squares takes only dense records.
void exact_solution::read_sparse() {
  const auto entries = train_.entries(records_);
  row_starts_.assign(records_.size() + 1, 0);
  columns_.resize(entries);
  values_.resize(entries);
  train_.read(records_, sparse_batch{row_starts_, columns_, values_}, {{}, targets_});
  std::ranges::fill(features_, 0.0F);
  const auto width = train_.record().feature_width();
  for (std::size_t row = 0; row < records_.size(); ++row)
    for (auto i = row_starts_[row]; i < row_starts_[row + 1]; ++i) {
      const auto entry = static_cast<std::size_t>(i);
      features_[row * width + static_cast<std::size_t>(columns_[entry])] += values_[entry];
    }
}

exact_solution::result exact_solution::solve() const {
  const auto features = train_.record().feature_width();
  const auto bad = sums_.first_not_finite();
  if (bad <= features)
    throw input_error("solver: EXACT: the training data have a value that is not finite, or too "
                      "large, in "
                      + (bad < features ? feature_name(bad) : std::string{"a target"}));
  const auto terms = static_cast<double>(sums_.samples() * train_.record().label_width);
  const auto ridge_of = [&](std::size_t tensor) {
    return double{context_.rule_of(tensor).rule.weight_decay} * terms / 2;
  };
  const bool bias = context_.parameters().entries().size() > 1;
  const auto found = sums_.solve(ridge_of(0), bias ? ridge_of(1) : 0);
  if (!found.dependent.empty())
    throw input_error(dependence(found.dependent));
  result x;
  x.weights.assign(found.weights.begin(), found.weights.end());
  // The weight matrix of a sparse layer is transposed: it has a row for each feature.
  if (train_.record().features == feature_kind::sparse)
    for (std::size_t i = 0; i < found.weights.size(); ++i)
      x.weights[i % features * train_.record().label_width + i / features] =
        static_cast<float>(found.weights[i]);
  x.weights.insert(x.weights.end(), found.bias.begin(), found.bias.end());
  x.train_loss = found.squared_error / terms;
  return x;
}

std::string exact_solution::feature_name(std::size_t index) const {
  return index < names_.size() ? "\"" + names_[index] + "\""
                               : "feature " + std::to_string(index + 1);
}

std::string exact_solution::dependence(const std::vector<std::size_t>& features) const {
  std::string names;
  for (std::size_t i = 0; i < std::min(features.size(), most_names); ++i)
    names += (i == 0 ? "" : ", ") + feature_name(features[i]);
  if (features.size() > most_names)
    names += " and " + std::to_string(features.size() - most_names) + " others";
  std::string text = "solver: EXACT: the weights are not unique: ";
  if (sums_.samples() < context_.parameters().size() / train_.record().label_width)
    text += "there are fewer training records (" + std::to_string(sums_.samples())
      + ") than coefficients; ";
  return text + names
    + (features.size() == 1 ? " is constant, or a linear combination"
                            : " are constant, or linear combinations")
    + " of earlier features. Leave " + (features.size() == 1 ? "it" : "them")
    + " out, or set optimizer.weight_decay, which makes the weights unique"
    + (context_.job.data().csv().categories_size() > 0
         ? "; of categories, data.csv.drop_first leaves one out"
         : "");
}

} // namespace troupe
