#include "actors/model/job_json.hpp"

#include "actors/model/text_errors.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/json_text.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

namespace troupe {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

constexpr std::size_t longest_report = 16'384;

/// Compares a JSON text with the schema, so that errors name the path of the field. Protobuf's own
/// errors do not always name the path.
class checker {
public:
  explicit checker(std::string_view name) : name_(name) {}

  void check_message(const json& x, const Descriptor& type, const std::string& path) {
    if (!x.is_object()) {
      report(path.empty() ? "job" : path, "an object", x);
      return;
    }
    std::set<const FieldDescriptor*> seen;
    std::map<const google::protobuf::OneofDescriptor*, std::string> chosen;
    for (auto& [key, value] : x.items()) {
      const auto here = json_field(path, key);
      const auto* field = find(type, key);
      if (field == nullptr) {
        report(here, "no field \"" + key + "\" in " + type.name() + "; " + field_advice(key, type));
        continue;
      }
      if (!seen.insert(field).second)
        report(here, "occurs twice, under two spellings of its name");
      if (value.is_null())
        continue; // JSON null means that the field is left out.
      if (const auto* oneof = field->containing_oneof()) {
        const auto [other, first] = chosen.emplace(oneof, key);
        if (!first)
          report(here, "excludes \"" + other->second + "\": only one of them may be set");
      }
      check_field(value, *field, here);
    }
  }

  /// Throws all problems that were found.
  void finish() const {
    if (!errors_.empty())
      throw input_error{errors_};
  }

private:
  static const FieldDescriptor* find(const Descriptor& type, const std::string& key) {
    if (const auto* field = type.FindFieldByName(key))
      return field;
    for (int i = 0; i < type.field_count(); ++i)
      if (type.field(i)->json_name() == key)
        return type.field(i);
    return nullptr;
  }

  void check_field(const json& x, const FieldDescriptor& field, const std::string& path) {
    if (!field.is_repeated()) {
      check_value(x, field, path);
      return;
    }
    if (!x.is_array()) {
      report(path, "a list", x);
      return;
    }
    for (std::size_t i = 0; i < x.size(); ++i)
      check_value(x[i], field, json_element(path, i));
  }

  void check_value(const json& x, const FieldDescriptor& field, const std::string& path) {
    switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      check_message(x, *field.message_type(), path);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      check_enum(x, field, path);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      if (!x.is_string())
        report(path, "a string", x);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!x.is_boolean())
        report(path, "true or false", x);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (!is_real(x))
        report(path, "a number", x);
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      check_signed(x, path);
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      check_unsigned(x, std::numeric_limits<std::uint32_t>::max(), path);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      check_unsigned(x, std::numeric_limits<std::uint64_t>::max(), path);
      break;
    default:
      break; // The schema has no other types; Protobuf would report them.
    }
  }

  void check_enum(const json& x, const FieldDescriptor& field, const std::string& path) {
    const auto& type = *field.enum_type();
    if (!x.is_string())
      report(path, "one of the names of " + type.name(), x);
    else if (type.FindValueByName(x.get<std::string>()) == nullptr)
      report(path,
             "no value " + json_excerpt(x) + "; "
               + suggestion(x.get<std::string>(), value_names(type)));
  }

  void check_signed(const json& x, const std::string& path) {
    using limits = std::numeric_limits<std::int32_t>;
    if (!x.is_number_integer() || x < limits::min() || x > limits::max())
      report(path,
             "a whole number from " + std::to_string(limits::min()) + " to "
               + std::to_string(limits::max()),
             x);
  }

  void check_unsigned(const json& x, std::uint64_t largest, const std::string& path) {
    std::uint64_t value = 0;
    bool fits = false;
    if (x.is_number_unsigned()) {
      value = x.get<std::uint64_t>();
      fits = true;
    } else if (x.is_string()) {
      const auto& text = x.get_ref<const std::string&>();
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      fits = !text.empty() && error == std::errc{} && end == text.data() + text.size();
    }
    if (!fits || value > largest)
      report(path, "a whole number from 0 to " + std::to_string(largest), x);
  }

  /// True for a number that fits into a float. Protobuf also accepts a number in a string, but jobs
  /// do not need this.
  static bool is_real(const json& x) {
    return x.is_number() && std::abs(x.get<double>()) <= std::numeric_limits<float>::max();
  }

  void report(const std::string& path, const std::string& expected, const json& got) {
    report(path, "expected " + expected + ", got " + json_excerpt(got));
  }

  void report(const std::string& path, const std::string& what) {
    if (errors_.size() > longest_report)
      return;
    errors_ += (errors_.empty() ? "" : "\n") + name_ + ": " + path + ": " + what;
  }

  std::string name_;
  std::string errors_;
};

} // namespace

proto::Job parse_job_json(std::string_view text, std::string_view name) {
  const auto root = parse_json(text, name);
  checker check{name};
  check.check_message(root, *proto::Job::descriptor(), "");
  check.finish();
  proto::Job job;
  const auto status = google::protobuf::util::JsonStringToMessage(root.dump(), &job);
  if (!status.ok())
    throw input_error{std::string{name} + ": " + status.ToString()};
  return job;
}

bool is_json_job(std::string_view text, std::string_view name) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return name.ends_with(".json") || (first != std::string_view::npos && text[first] == '{');
}

} // namespace troupe
