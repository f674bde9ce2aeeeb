#include "actors/model/job_file.hpp"
#include "actors/model/text_errors.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include <google/protobuf/text_format.h>

namespace troupe {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

/// One step of a path: `name` or `name[index]`.
struct path_step {
  std::string name;
  std::optional<int> index;
};

class override_error {
public:
  explicit override_error(std::string_view assignment) : assignment_(assignment) {}
  [[noreturn]] void operator()(const std::string& what) const {
    throw input_error("override \"" + without_long_numbers(assignment_) + "\": " + what);
  }

private:
  std::string assignment_;
};

path_step parse_step(std::string_view text, const override_error& fail) {
  const std::size_t open = text.find('[');
  path_step step{std::string{text.substr(0, open)}, std::nullopt};
  if (open == std::string_view::npos)
    return step;
  const std::string_view index = text.substr(open + 1);
  int value = 0;
  const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), value);
  if (error != std::errc{} || value < 0
      || std::string_view{end, index.data() + index.size()} != "]")
    fail("expected an index in brackets after \"" + step.name + "\", such as " + step.name + "[0]");
  step.index = value;
  return step;
}

/// Finds a field by one step of a path, such as "layer[1]". The field is in `message`. `where` is
/// the path before this step, and `rest` is the assignment after it.
const FieldDescriptor& find_field(const Message& message, const path_step& step,
                                  const std::string& where, std::string_view rest,
                                  const override_error& fail) {
  const auto& type = *message.GetDescriptor();
  const auto* field = type.FindFieldByName(step.name);
  const std::string owner = where.empty() ? "a job" : "\"" + where + "\"";
  if (field == nullptr)
    fail("no field \"" + step.name + "\" in " + owner + "; " + field_advice(step.name, type));
  if (!field->is_repeated() && step.index)
    fail("\"" + step.name + "\" in " + owner + " is not a list; leave out the index");
  if (!field->is_repeated())
    return *field;
  const int size = message.GetReflection()->FieldSize(message, field);
  if (!step.index)
    fail("\"" + step.name + "\" in " + owner + " is a list; name one element, such as "
         + (where.empty() ? "" : where + '.') + step.name + "[0]" + std::string{rest});
  if (*step.index > size)
    fail("index " + std::to_string(*step.index) + " is out of range: \"" + step.name + "\" has "
         + std::to_string(size) + " elements; " + std::to_string(size) + " appends one");
  return *field;
}

/// Follows one step of a path: returns the message in `field` of `message`. An index equal to the
/// size of a list appends a message.
Message& enter(Message& message, const FieldDescriptor& field, const path_step& step,
               const override_error& fail) {
  if (field.message_type() == nullptr)
    fail("\"" + step.name + "\" is a value and has no fields of its own");
  const auto& access = *message.GetReflection();
  if (!field.is_repeated())
    return *access.MutableMessage(&message, &field);
  if (*step.index == access.FieldSize(message, &field))
    return *access.AddMessage(&message, &field);
  return *access.MutableRepeatedMessage(&message, &field, *step.index);
}

/// The value in the syntax of the text parser. Enum names may be in upper or lower case.
std::string scalar_text(const FieldDescriptor& field, std::string_view value,
                        const override_error& fail) {
  if (field.enum_type() == nullptr)
    return std::string{value};
  const auto names = value_names(*field.enum_type());
  const auto same = [&](const std::string& name) {
    return name.size() == value.size() && edit_distance(name, value) == 0;
  };
  const auto found = std::ranges::find_if(names, same);
  if (found == names.end())
    fail("no value \"" + std::string{value} + "\"; " + suggestion(value, names));
  return *found;
}

/// The text without a pair of quotes around it.
std::string_view without_quotes(std::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == text.back()
    && (text.front() == '"' || text.front() == '\'');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

/// Sets a singular field, or appends to a repeated one.
void set_scalar(Message& message, const FieldDescriptor& field, std::string_view value,
                const override_error& fail) {
  const auto& access = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    value = without_quotes(value);
    if (field.is_repeated())
      access.AddString(&message, &field, std::string{value});
    else
      access.SetString(&message, &field, std::string{value});
    return;
  }
  text_errors errors{"value", value, *message.GetDescriptor(), false};
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  if (!parser.ParseFieldValueFromString(scalar_text(field, value, fail), &field, &message))
    fail(errors.text().empty() ? "not a value of type " + std::string{field.type_name()}
                               : errors.text());
}

/// The first field of the message that takes one value, if `value` fits its type. Empty if not.
std::string first_field_for(const Message& message, std::string_view value) {
  const auto& type = *message.GetDescriptor();
  const auto single = [](const FieldDescriptor& x) {
    return !x.is_repeated() && x.message_type() == nullptr;
  };
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (!single(field))
      continue;
    const std::unique_ptr<Message> scratch{message.New()};
    try {
      set_scalar(*scratch, field, value, override_error{""});
      return field.name();
    } catch (const input_error&) {
      break;
    }
  }
  return "";
}

void set_message(Message& target, std::string_view path, std::string_view value,
                 const override_error& fail) {
  const auto& type = *target.GetDescriptor();
  if (value.size() < 2 || value.front() != '{' || value.back() != '}') {
    const auto first = first_field_for(target, value);
    fail("\"" + std::string{path} + "\" has fields; expected one of them"
         + (first.empty()
              ? ""
              : ", such as " + std::string{path} + '.' + first + '=' + std::string{value})
         + ", or fields in braces, such as {}; " + suggestion("", field_names(type)));
  }
  const auto text = value.substr(1, value.size() - 2);
  text_errors errors{"value", text, type, false};
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  if (!parser.ParseFromString(std::string{text}, &target))
    fail(errors.text());
}

/// @param path the path of the field, for errors
void set_field(Message& message, const FieldDescriptor& field, const path_step& step,
               std::string_view path, std::string_view value, const override_error& fail) {
  if (field.message_type() != nullptr)
    return set_message(enter(message, field, step, fail), path, value, fail);
  set_scalar(message, field, value, fail);
  if (!field.is_repeated())
    return;
  // The value was appended to the list. It now takes the place of the element at the index.
  const auto& access = *message.GetReflection();
  const int last = access.FieldSize(message, &field) - 1;
  if (*step.index == last)
    return;
  access.SwapElements(&message, &field, *step.index, last);
  access.RemoveLast(&message, &field);
}

} // namespace

void apply_override(proto::Job& job, std::string_view assignment) {
  const override_error fail{assignment};
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    fail("expected FIELD.PATH=VALUE, such as optimizer.momentum=0.8");
  std::string_view path = assignment.substr(0, equals);
  const std::string_view value = assignment.substr(equals + 1);
  proto::Job changed = job;
  Message* message = &changed;
  std::string where;
  while (true) {
    const std::size_t dot = path.find('.');
    const path_step step = parse_step(path.substr(0, dot), fail);
    const auto rest = assignment.substr(equals - path.size() + std::min(dot, path.size()));
    const auto& field = find_field(*message, step, where, rest, fail);
    if (dot == std::string_view::npos) {
      set_field(*message, field, step, assignment.substr(0, equals), value, fail);
      break;
    }
    message = &enter(*message, field, step, fail);
    if (!where.empty())
      where += '.';
    where += path.substr(0, dot);
    path.remove_prefix(dot + 1);
  }
  job = std::move(changed);
}

} // namespace troupe
