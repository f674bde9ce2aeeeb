#include "actors/checkpoint/checkpoint_manifest.hpp"

#include "actors/model/data_fingerprint.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/json_text.hpp"
#include "messages/problems.hpp"

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>

namespace troupe {

namespace {

using nlohmann::json;

constexpr std::uint64_t format_version = 1;
constexpr std::size_t step_digits = 8;

/// Reads the fields of a JSON object. Errors name the field.
class field_reader {
public:
  field_reader(const json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object_.is_object())
      fail("", "expected an object");
  }

  template <class Unsigned>
  Unsigned number(const char* key) const {
    const auto& x = value(key);
    if (!x.is_number_unsigned() || x.get<std::uint64_t>() > std::numeric_limits<Unsigned>::max())
      fail(key, "expected a whole number, 0 or more");
    return x.get<Unsigned>();
  }

  /// Reads a whole number that counts something in a run, such as its steps. It must be at most
  /// `most_counted`.
  std::uint64_t count(const char* key) const {
    const auto result = number<std::uint64_t>(key);
    if (result > most_counted)
      fail(key, "expected at most " + std::to_string(most_counted));
    return result;
  }

  bool has(const char* key) const { return object_.contains(key); }

  template <class Message>
  Message message(const char* key) const {
    Message result;
    const auto status = google::protobuf::util::JsonStringToMessage(value(key).dump(), &result);
    if (!status.ok())
      fail(key, status.ToString());
    return result;
  }

  std::string text(const char* key) const {
    const auto& x = value(key);
    if (!x.is_string())
      fail(key, "expected a text");
    return x.get<std::string>();
  }

  const json& list(const char* key) const {
    const auto& x = value(key);
    if (!x.is_array())
      fail(key, "expected a list");
    return x;
  }

  double real(const char* key) const {
    const auto& x = value(key);
    if (!x.is_number())
      fail(key, "expected a number");
    return x.get<double>();
  }

  field_reader object(const char* key) const { return {value(key), place_of(key)}; }

  std::string place_of(const std::string& key) const {
    return place_ + (key.empty() ? "" : ": " + key);
  }

  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    throw input_error{place_of(key) + ": " + what};
  }

private:
  const json& value(const char* key) const {
    const auto i = object_.find(key);
    if (i == object_.end())
      fail(key, "missing");
    return *i;
  }

  const json& object_;
  std::string place_;
};

data_shape parse_data(const field_reader& in) {
  data_shape result;
  result.train_records = in.count("train_records");
  const auto features = in.text("features");
  const std::array kinds{feature_kind::numbers, feature_kind::tokens, feature_kind::sparse};
  const auto kind = std::ranges::find(kinds, features, [](feature_kind x) { return to_string(x); });
  if (kind == kinds.end())
    in.fail("features", "expected \"numbers\", \"tokens\" or \"sparse numbers\"");
  result.features = *kind;
  std::vector<std::int64_t> dims;
  for (auto& x : in.list("dims")) {
    if (!x.is_number_unsigned() || x.get<std::uint64_t>() > most_counted)
      in.fail("dims", "expected numbers from 0 to " + std::to_string(most_counted));
    dims.push_back(x.get<std::int64_t>());
  }
  result.dims = shape{std::move(dims)};
  result.vocabulary = in.count("vocabulary");
  result.label_width = in.count("label_width");
  result.labels_per_record = in.count("labels_per_record");
  const auto labels = in.text("labels");
  if (labels != "classes" && labels != "targets")
    in.fail("labels", "expected \"classes\" or \"targets\"");
  result.labels = labels == "classes" ? label_kind::classes : label_kind::targets;
  if (result.train_records == 0)
    in.fail("train_records", "expected at least 1");
  return result;
}

/// The fingerprint of the data. Checkpoints of earlier versions of troupe have none.
std::optional<proto::DataFingerprint> fingerprint_in(const field_reader& in) {
  if (!in.has("fingerprint"))
    return std::nullopt;
  const auto result = parse_fingerprint(in.text("fingerprint"));
  if (!result)
    in.fail("fingerprint", "expected hashes of training, validation and test data");
  return result;
}

std::vector<range> parse_ranges(const field_reader& in, std::uint64_t records) {
  std::vector<range> result;
  std::uint64_t from = 0;
  for (auto& x : in.list("remaining")) {
    if (!x.is_array() || x.size() != 2 || !x[0].is_number_unsigned() || !x[1].is_number_unsigned())
      in.fail("remaining", "expected pairs [begin, end]");
    const range r{x[0].get<std::uint64_t>(), x[1].get<std::uint64_t>()};
    if (r.begin < from || r.end <= r.begin || r.end > records)
      in.fail("remaining",
              "expected ascending ranges within the " + std::to_string(records) + " records");
    from = r.end;
    result.push_back(r);
  }
  return result;
}

best_evaluation parse_best(const field_reader& in) {
  return {in.real("loss"), in.count("step"), in.number<std::uint32_t>("epoch"),
          in.number<std::uint32_t>("since"), in.count("newest")};
}

loss_scale_state parse_scale(const field_reader& in) {
  const loss_scale_state result{in.number<std::uint64_t>("value"),
                                in.number<std::uint32_t>("batches")};
  if (!result.valid())
    in.fail("value", "expected a power of two, at most 2^60");
  return result;
}

std::vector<checkpoint_mark> parse_marks(const field_reader& in) {
  std::vector<checkpoint_mark> result;
  for (auto& x : in.list("marks")) {
    const field_reader mark{x, in.place_of("marks")};
    result.push_back({mark.number<std::uint32_t>("worker"),
                      mark.number<std::uint64_t>("incarnation"), mark.count("sequence"),
                      mark.count("lease"), mark.count("batch")});
    if (mark.has("updates"))
      result.back().updates = mark.count("updates");
    if (mark.has("loss_scale"))
      result.back().loss_scale = parse_scale(mark.object("loss_scale"));
  }
  return result;
}

std::vector<checkpoint_file> parse_files(const field_reader& in) {
  std::vector<checkpoint_file> result;
  for (auto& x : in.list("files")) {
    const field_reader file{x, in.place_of("files")};
    result.push_back({file.text("name"), file.number<std::uint64_t>("size"), file.text("xxh3")});
  }
  return result;
}

} // namespace

std::optional<loss_scale_state> resumed_scale(std::span<const checkpoint_mark> marks,
                                              std::uint32_t worker) {
  std::optional<loss_scale_state> result;
  for (const auto& x : marks) {
    if (x.worker == worker && x.loss_scale)
      return x.loss_scale;
    if (x.loss_scale && (!result || x.loss_scale->value > result->value))
      result = loss_scale_state{x.loss_scale->value, 0};
  }
  return result;
}

std::string checkpoint_name(std::uint64_t step) {
  auto digits = std::to_string(step);
  digits.insert(0, step_digits - std::min(step_digits, digits.size()), '0');
  return std::string{checkpoint_prefix} + digits;
}

std::uint64_t checkpoint_step(std::string_view name) noexcept {
  if (!name.starts_with(checkpoint_prefix))
    return 0;
  name.remove_prefix(checkpoint_prefix.size());
  std::uint64_t result = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), result);
  return error == std::errc{} && end == name.data() + name.size() ? result : 0;
}

std::string to_json(const checkpoint_manifest& x) {
  using object = nlohmann::ordered_json;
  auto remaining = object::array();
  for (auto& r : x.cut.remaining)
    remaining.push_back({r.begin, r.end});
  auto marks = object::array();
  for (auto& m : x.marks) {
    marks.push_back({{"worker", m.worker},
                     {"incarnation", m.incarnation},
                     {"sequence", m.sequence},
                     {"lease", m.lease},
                     {"batch", m.batch}});
    if (m.updates)
      marks.back()["updates"] = *m.updates;
    if (m.loss_scale)
      marks.back()["loss_scale"] = {{"value", m.loss_scale->value},
                                    {"batches", m.loss_scale->batches}};
  }
  auto files = object::array();
  for (auto& f : x.files)
    files.push_back({{"name", f.name}, {"size", f.size}, {"xxh3", f.xxh3}});
  const object data{{"train_records", x.data.train_records},
                    {"features", to_string(x.data.features)},
                    {"dims", x.data.dims.extents()},
                    {"vocabulary", x.data.vocabulary},
                    {"labels", x.data.labels == label_kind::classes ? "classes" : "targets"},
                    {"label_width", x.data.label_width},
                    {"labels_per_record", x.data.labels_per_record}};
  object result{{"format", format_version}, {"troupe", x.troupe_version},
                {"step", x.step},           {"epoch", x.cut.epoch},
                {"remaining", remaining},   {"samples", x.samples},
                {"view", x.view},           {"data", data},
                {"job_hash", x.job_hash},   {"job", x.job},
                {"marks", marks},           {"files", files}};
  if (x.fingerprint)
    result["fingerprint"] = to_text(*x.fingerprint);
  if (x.pacing) {
    std::string text;
    // The result is ignored, because the conversion of this message to JSON cannot fail.
    (void)google::protobuf::util::MessageToJsonString(*x.pacing, &text);
    result["pacing"] = object::parse(text);
  }
  if (x.best)
    result["best"] = {{"loss", x.best->loss},
                      {"step", x.best->step},
                      {"epoch", x.best->epoch},
                      {"since", x.best->since},
                      {"newest", x.best->newest}};
  return result.dump(1, ' ', false, object::error_handler_t::replace) + '\n';
}

checkpoint_manifest parse_manifest(std::span<const std::byte> bytes, std::string_view name) {
  const auto root = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
  const field_reader in{root, std::string{name}};
  if (const auto format = in.number<std::uint64_t>("format"); format != format_version)
    in.fail("format",
            "version " + std::to_string(format) + ", but this troupe reads version "
              + std::to_string(format_version));
  checkpoint_manifest result;
  result.troupe_version = in.text("troupe");
  result.step = in.count("step");
  if (result.step == 0)
    in.fail("step", "expected at least 1");
  result.data = parse_data(in.object("data"));
  result.fingerprint = fingerprint_in(in);
  result.cut.epoch = in.number<std::uint32_t>("epoch");
  result.cut.remaining = parse_ranges(in, result.data.train_records);
  result.samples = in.count("samples");
  result.view = in.count("view");
  result.job_hash = in.text("job_hash");
  result.job = in.text("job");
  if (in.has("pacing"))
    result.pacing = in.message<proto::PacingState>("pacing");
  if (in.has("best"))
    result.best = parse_best(in.object("best"));
  result.marks = parse_marks(in);
  result.files = parse_files(in);
  return result;
}

} // namespace troupe
