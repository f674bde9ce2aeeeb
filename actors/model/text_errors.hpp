#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>

namespace troupe {

/// Collects the errors of Protobuf's text parser, in words for users. Internal to actors/model.
class text_errors final : public google::protobuf::io::ErrorCollector {
public:
  /// @param name is printed before the line
  /// @param text the text to parse, which must stay valid
  /// @param type the type of the message in the text
  /// @param positions true if errors begin with line and column
  text_errors(std::string_view name, std::string_view text,
              const google::protobuf::Descriptor& type, bool positions = true)
    : name_(name), source_(text), type_(type), positions_(positions) {}

  void AddError(int line, int column, const std::string& message) override;

  /// One line per error.
  const std::string& text() const noexcept { return text_; }

private:
  std::string in_our_words(int line, int column, const std::string& message) const;

  std::string name_;
  std::string_view source_;
  const google::protobuf::Descriptor& type_;
  bool positions_;
  std::string text_;
};

/// The names of a message's fields, without those that only the program sets.
std::vector<std::string> field_names(const google::protobuf::Descriptor& type);

/// Advice for an error about a name that is not a field of the message `type`. If fields elsewhere
/// in the job have this name, or a field is called so in other programs, the advice begins with
/// their paths: `did you mean "data.batch" of the job? `. The valid names follow.
std::string field_advice(const std::string& name, const google::protobuf::Descriptor& type);

/// The text with long sequences of digits shortened.
std::string without_long_numbers(const std::string& text);

/// The names of an enum's values, without the value that means "not set".
std::vector<std::string> value_names(const google::protobuf::EnumDescriptor& type);

} // namespace troupe
