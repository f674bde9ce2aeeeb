#include "actors/model/text_errors.hpp"

#include "kernels/formats/nearest_name.hpp"
#include "messages/proto/job.pb.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace troupe {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;

constexpr std::size_t max_text = 16'384;

/// A number with more digits than this is shortened in errors. No field can hold so many digits.
constexpr std::size_t most_digits = 40;

/// Limits for the advice in an error that a field of this name is elsewhere in the job: the largest
/// number of such fields, and their largest depth in the job.
constexpr std::size_t most_paths = 3;
constexpr std::ptrdiff_t most_depth = 2;

/// The quoted words of a Protobuf message.
std::vector<std::string> quoted_words(std::string_view message) {
  std::vector<std::string> words;
  std::size_t open = message.find('"');
  while (open != std::string_view::npos) {
    const std::size_t close = message.find('"', open + 1);
    if (close == std::string_view::npos)
      break;
    words.emplace_back(message.substr(open + 1, close - open - 1));
    open = message.find('"', close + 1);
  }
  return words;
}

/// The enum type of a field with this name, in any message of the job's schema.
const EnumDescriptor* find_enum(const std::string& field) {
  const auto* file = proto::Job::descriptor()->file();
  for (int i = 0; i < file->message_type_count(); ++i) {
    const auto* found = file->message_type(i)->FindFieldByName(field);
    if (found != nullptr && found->enum_type() != nullptr)
      return found->enum_type();
  }
  return nullptr;
}

/// Rewrites Protobuf's message about a value that is too large or is not a number. Returns an empty
/// text for any other message.
std::string words_for_number(const std::string& message) {
  constexpr std::string_view too_large = "Integer out of range (";
  constexpr std::pair<std::string_view, std::string_view> wrong[] = {
    {"Expected integer, got: ", "a whole number"}, {"Expected double, got: ", "a number"}};
  if (message.starts_with(too_large))
    return "expected a smaller number, got "
      + message.substr(too_large.size(), message.find(')') - too_large.size());
  for (auto& [begin, what] : wrong)
    if (message.starts_with(begin)) {
      const auto found = message.substr(begin.size());
      // The parser reads a sign as a separate word. It refuses a sign only if the type is unsigned.
      return "expected " + std::string{what} + (found == "-" ? ", 0 or more" : ", got " + found);
    }
  return "";
}

/// Rewrites Protobuf's message. If the message is about a wrong name, the result also has the
/// nearest valid name.
std::string in_our_words(const std::string& message) {
  if (auto words = words_for_number(message); !words.empty())
    return words;
  const auto words = quoted_words(message);
  if (message.starts_with("Message type ") && words.size() == 2)
    if (const auto* type = DescriptorPool::generated_pool()->FindMessageTypeByName(words[0]))
      return "no field \"" + words[1] + "\" in " + type->name() + "; "
        + field_advice(words[1], *type);
  if (message.starts_with("Unknown enumeration value") && words.size() == 2)
    if (const auto* type = find_enum(words[1]))
      return "no value \"" + words[0] + "\" for field \"" + words[1] + "\"; "
        + suggestion(words[0], value_names(*type));
  return message;
}

} // namespace

void text_errors::AddError(int line, int column, const std::string& message) {
  if (text_.size() > max_text)
    return;
  if (!text_.empty())
    text_ += '\n';
  text_ += name_ + ":";
  if (positions_)
    text_ += std::to_string(line + 1) + ":" + std::to_string(column + 1) + ":";
  text_ += ' ';
  text_ += without_long_numbers(in_our_words(message));
}

namespace {

/// Finds an enum field of `type` that has a value of this name. For the name "adam", the result is
/// `kind: ADAM`.
std::string find_choice(std::string name, const Descriptor& type) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  for (int i = 0; i < type.field_count(); ++i) {
    const auto* values = type.field(i)->enum_type();
    if (values != nullptr && values->FindValueByName(name) != nullptr)
      return type.field(i)->name() + ": " + name;
  }
  return "";
}

/// Appends the paths of fields with this name in `type` and in messages inside it. Repeated
/// messages are left out.
void find_paths(const std::string& name, const Descriptor& type, const std::string& prefix,
                std::vector<std::string>& result) {
  if (type.FindFieldByName(name) != nullptr)
    result.push_back(prefix + name);
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.message_type() != nullptr && !field.is_repeated()
        && std::ranges::count(prefix, '.') < most_depth)
      find_paths(name, *field.message_type(), prefix + field.name() + '.', result);
  }
}

} // namespace

std::string field_advice(const std::string& name, const Descriptor& type) {
  const auto valid = suggestion(name, field_names(type));
  if (const auto choice = find_choice(name, type); !choice.empty())
    return "did you mean \"" + choice + "\"? " + valid;
  std::vector<std::string> paths;
  find_paths(name, *proto::Job::descriptor(), "", paths);
  if (paths.empty() || paths.size() > most_paths || valid.starts_with("did you mean"))
    return valid;
  std::string result = "did you mean ";
  for (std::size_t i = 0; i < paths.size(); ++i)
    result += (i == 0 ? "\"" : " or \"") + paths[i] + '"';
  return result + " of the job? " + valid;
}

std::string without_long_numbers(const std::string& text) {
  std::string result;
  std::size_t digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits == most_digits)
      result += "...";
    if (digits < most_digits)
      result += c;
  }
  return result;
}

std::vector<std::string> field_names(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i)
    names.push_back(type.field(i)->name());
  return names;
}

std::vector<std::string> value_names(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i)
    if (!type.value(i)->name().ends_with("_UNSET"))
      names.push_back(type.value(i)->name());
  return names;
}

} // namespace troupe
