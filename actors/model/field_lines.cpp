#include "actors/model/field_lines.hpp"

#include "messages/proto/job.pb.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <vector>

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

namespace troupe {

namespace {

using google::protobuf::TextFormat;
using places = TextFormat::ParseInfoTree;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const auto end = std::min(text.find(separator, begin), text.size());
    result.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

/// The line (from 1) of the field at `path` in the text. If the text does not contain this field,
/// the line of the nearest field that encloses it. 0 if the text contains none of these fields.
int line_of(const std::string& path, const places& all) {
  const auto* here = &all;
  const auto* type = proto::Job::descriptor();
  int result = 0;
  for (auto& part : split(path, '.')) {
    const auto bracket = part.find('[');
    const auto* field = type->FindFieldByName(part.substr(0, bracket));
    if (field == nullptr)
      break;
    const int index = !field->is_repeated() ? -1
      : bracket == std::string::npos        ? 0
                                            : std::atoi(part.c_str() + bracket + 1);
    const auto line = here->GetLocation(field, index).line;
    if (line < 0)
      break;
    result = line + 1;
    here = field->message_type() != nullptr ? here->GetTreeForNested(field, index) : nullptr;
    if (here == nullptr)
      break;
    type = field->message_type();
  }
  return result;
}

bool is_path(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '[' || c == ']';
  });
}

/// True if the two paths are equal, or if one is the path of a field within the other.
bool overlap(const std::string& a, const std::string& b) {
  const auto n = std::min(a.size(), b.size());
  const auto ends = [n](const std::string& x) {
    return x.size() == n || x[n] == '.' || x[n] == '[';
  };
  return a.compare(0, n, b, 0, n) == 0 && ends(a) && ends(b);
}

} // namespace

std::string with_lines(const std::string& problems, std::string_view text, std::string_view name,
                       std::span<const std::string> overrides) {
  TextFormat::Parser parser;
  places found;
  parser.WriteLocationsTo(&found);
  parser.SetRecursionLimit(32);
  google::protobuf::io::ArrayInputStream stream{text.data(), static_cast<int>(text.size())};
  proto::Job job;
  if (text.empty() || text.front() == '{' || !parser.Parse(&stream, &job))
    return problems;
  std::string result;
  for (auto& problem : split(problems, '\n')) {
    const auto path = problem.substr(0, problem.find(':'));
    const bool changed = std::ranges::any_of(
      overrides, [&](auto& x) { return overlap(path, x.substr(0, x.find('='))); });
    const int line = is_path(path) && !changed ? line_of(path, found) : 0;
    result += (result.empty() ? "" : "\n")
      + (line > 0 ? std::string{name} + ':' + std::to_string(line) + ": " : "") + problem;
  }
  return result;
}

} // namespace troupe
