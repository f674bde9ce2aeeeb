#include "actors/model/data_fingerprint.hpp"

#include "actors/model/dataset_labels.hpp"
#include "actors/model/text_errors.hpp"
#include "kernels/data/record_buffer.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <tuple>
#include <vector>

#include <google/protobuf/text_format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe {

namespace {

constexpr std::uint64_t most_labels = std::uint64_t{1} << 22;
constexpr std::uint64_t most_features = std::uint64_t{1} << 21;
constexpr std::uint64_t hashed_records = 256;
constexpr std::uint64_t least_records = 8;
constexpr std::uint64_t hashed_at_once = 8;

/// Hashes all values that are added, in order.
class hash64 {
public:
  hash64() { XXH3_64bits_reset(&state_); }

  template <class T>
  void add(std::span<T> x) {
    XXH3_64bits_update(&state_, x.data(), x.size_bytes());
  }

  /// Never 0, because 0 means that there is no hash.
  std::uint64_t value() const { return std::max<std::uint64_t>(XXH3_64bits_digest(&state_), 1); }

private:
  XXH3_state_t state_;
};

/// Evenly spaced record numbers, including the first and the last record.
std::vector<std::uint64_t> sample_of(const dataset& set) {
  const auto width = std::max<std::uint64_t>(set.record().feature_width(), 1);
  // The time to hash a sparse record depends on its entries, not on its width.
  const auto room = set.record().features == feature_kind::sparse
    ? hashed_records
    : std::clamp(most_features / width, least_records, hashed_records);
  const auto n = std::min(set.size(), room);
  std::vector<std::uint64_t> result;
  for (std::uint64_t i = 0; i < n; ++i)
    result.push_back(
      n == 1 ? 0
             : static_cast<std::uint64_t>(static_cast<double>(i) / static_cast<double>(n - 1)
                                          * static_cast<double>(set.size() - 1)));
  return result;
}

proto::DataFingerprint::Part fingerprint_of(const dataset& set) {
  hash64 features;
  hash64 labels;
  record_buffer buffer{set.record(), hashed_at_once};
  const auto sample = sample_of(set);
  for (std::size_t i = 0; i < sample.size(); i += hashed_at_once) {
    buffer.read(set, std::span{sample}.subspan(i, std::min(hashed_at_once, sample.size() - i)));
    const auto& x = buffer.features();
    features.add(x.numbers);
    features.add(x.tokens);
    features.add(x.sparse.row_starts);
    features.add(x.sparse.columns);
    features.add(x.sparse.values);
    labels.add(buffer.labels().classes);
    labels.add(buffer.labels().targets);
  }
  proto::DataFingerprint::Part result;
  result.set_records(set.size());
  result.set_sampled_features(features.value());
  result.set_sampled_labels(labels.value());
  if (!set.read_labels({}, {}))
    return result;
  const auto each = std::max<std::uint64_t>(set.record().label_elements(), 1);
  const auto all = read_labels(set, std::max<std::uint64_t>(most_labels / each, 1));
  hash64 whole;
  whole.add(std::span{all.classes});
  whole.add(std::span{all.targets});
  result.set_labels(whole.value());
  return result;
}

} // namespace

proto::DataFingerprint fingerprint_of(const job_data& data) {
  proto::DataFingerprint result;
  if (data.train)
    *result.mutable_train() = fingerprint_of(*data.train);
  if (data.validation)
    *result.mutable_validation() = fingerprint_of(*data.validation);
  if (data.test)
    *result.mutable_test() = data.test == data.train ? result.train() : fingerprint_of(*data.test);
  return result;
}

std::string difference(const proto::DataFingerprint& here, const proto::DataFingerprint& expected,
                       const std::string& there) {
  const auto differ = [](std::uint64_t a, std::uint64_t b) { return a != b && a != 0 && b != 0; };
  using part = proto::DataFingerprint::Part;
  const std::array<std::tuple<const char*, const part*, const part*>, 3> parts{
    {{"training", here.has_train() ? &here.train() : nullptr,
      expected.has_train() ? &expected.train() : nullptr},
     {"validation", here.has_validation() ? &here.validation() : nullptr,
      expected.has_validation() ? &expected.validation() : nullptr},
     {"test", here.has_test() ? &here.test() : nullptr,
      expected.has_test() ? &expected.test() : nullptr}}};
  for (auto& [name, a, b] : parts) {
    if (!a || !b)
      continue;
    const char* what = a->records() != b->records()          ? "another number of records"
      : differ(a->labels(), b->labels())                     ? "other labels"
      : differ(a->sampled_labels(), b->sampled_labels())     ? "other labels"
      : differ(a->sampled_features(), b->sampled_features()) ? "other features"
                                                             : nullptr;
    if (what)
      return "the " + std::string{name} + " data differ from " + there + ": " + what + " ("
        + std::to_string(a->records()) + " records here, " + std::to_string(b->records())
        + " there)";
  }
  return "";
}

std::optional<proto::DataFingerprint> fingerprint_if_readable(const job_data& data) {
  try {
    return fingerprint_of(data);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void require_same_data(const job_data& here,
                       const std::optional<proto::DataFingerprint>& coordinators) {
  if (!coordinators)
    return;
  const auto own = here.fingerprint ? *here.fingerprint : fingerprint_of(here);
  const auto problem = difference(own, *coordinators, "those of coordinator/0");
  if (!problem.empty())
    throw input_error{problem + "; give all tasks the same files"};
}

std::string to_text(const proto::DataFingerprint& x) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string result;
  printer.PrintToString(x, &result);
  return result;
}

std::optional<proto::DataFingerprint> parse_fingerprint(const std::string& text) {
  text_errors errors{"fingerprint", text, *proto::DataFingerprint::descriptor()};
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  proto::DataFingerprint result;
  return parser.ParseFromString(text, &result) ? std::optional{result} : std::nullopt;
}

} // namespace troupe
