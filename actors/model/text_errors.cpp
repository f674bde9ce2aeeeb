#include "actors/model/text_errors.hpp"

#include "kernels/formats/nearest_name.hpp"
#include "messages/proto/job.pb.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace troupe {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::Tokenizer;

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

class no_errors final : public google::protobuf::io::ErrorCollector {
public:
  void AddError(int, int, const std::string&) override {}
};

/// The type of the message that is open at a place of a text. Null if it is unknown.
/// @param type the type of the whole text
const Descriptor* message_at(int line, int column, std::string_view text, const Descriptor& type) {
  struct level {
    const Descriptor* type;
    const FieldDescriptor* field; // the last field of this message that has fields itself
  };
  std::vector<level> open{{&type, nullptr}};
  no_errors ignored;
  google::protobuf::io::ArrayInputStream stream{text.data(), static_cast<int>(text.size())};
  Tokenizer tokens{&stream, &ignored};
  tokens.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  while (tokens.Next()) {
    const auto& token = tokens.current();
    if (token.line > line || (token.line == line && token.column >= column))
      break;
    auto& here = open.back();
    if (token.type == Tokenizer::TYPE_IDENTIFIER && here.type != nullptr) {
      const auto* field = here.type->FindFieldByName(token.text);
      if (field != nullptr && field->message_type() != nullptr)
        here.field = field;
    } else if (token.text == "{" || token.text == "<") {
      open.push_back({here.field != nullptr ? here.field->message_type() : nullptr, nullptr});
    } else if ((token.text == "}" || token.text == ">") && open.size() > 1) {
      open.pop_back();
    }
  }
  return open.back().type;
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

} // namespace

/// Rewrites Protobuf's message. If the message is about a wrong name, the result also has the
/// nearest valid name.
std::string text_errors::in_our_words(int line, int column, const std::string& message) const {
  if (auto words = words_for_number(message); !words.empty())
    return words;
  const auto words = quoted_words(message);
  if (message.starts_with("Message type ") && words.size() == 2)
    if (const auto* type = DescriptorPool::generated_pool()->FindMessageTypeByName(words[0]))
      return "no field \"" + words[1] + "\" in " + type->name() + "; "
        + field_advice(words[1], *type);
  if (message.starts_with("Unknown enumeration value") && words.size() == 2) {
    const auto* type = message_at(line, column, source_, type_);
    const auto* field = type != nullptr ? type->FindFieldByName(words[1]) : nullptr;
    if (field != nullptr && field->enum_type() != nullptr)
      return "no value \"" + words[0] + "\" for field \"" + words[1] + "\"; "
        + suggestion(words[0], value_names(*field->enum_type()));
  }
  return message;
}

void text_errors::AddError(int line, int column, const std::string& message) {
  if (text_.size() > max_text)
    return;
  if (!text_.empty())
    text_ += '\n';
  text_ += name_ + ":";
  if (positions_)
    text_ += std::to_string(line + 1) + ":" + std::to_string(column + 1) + ":";
  text_ += ' ';
  text_ += without_long_numbers(in_our_words(line, column, message));
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

/// Names of other programs for fields of a job.
constexpr std::pair<std::string_view, std::string_view> other_names[] = {
  {"linear", "dense"}, {"fc", "dense"}, {"lr", "learning_rate.base"}, {"batch_size", "data.batch"}};

/// The field of `type`, or of the job, that other programs call `name`: `"dense"`, or
/// `"learning_rate.base" of the job`. Empty if there is none.
std::string usual_field(std::string_view name, const Descriptor& type) {
  for (const auto& [other, path] : other_names) {
    if (name != other)
      continue;
    const std::string last{path.substr(path.rfind('.') + 1)};
    if (type.FindFieldByName(last) != nullptr)
      return '"' + last + '"';
    if (path != last)
      return '"' + std::string{path} + "\" of the job";
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
  if (const auto usual = usual_field(name, type); !usual.empty())
    return "did you mean " + usual + "? " + suggestion("", field_names(type));
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
  for (int i = 0; i < type.field_count(); ++i) {
    const auto* field = type.field(i);
    if (field != proto::Layer::descriptor()->FindFieldByName("line")
        && field != proto::Model::descriptor()->FindFieldByName("onnx_structure"))
      names.push_back(field->name());
  }
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
