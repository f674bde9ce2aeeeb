#include "kernels/formats/json_text.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

namespace {

using nlohmann::json;

constexpr std::size_t deepest = 64;
constexpr std::size_t longest_excerpt = 60;

/// Follows the parser through objects and lists, to know the path of each field and to find
/// repeated keys.
class watcher {
public:
  explicit watcher(std::string_view name) : name_(name) {}

  bool operator()(int, json::parse_event_t event, json& parsed) {
    switch (event) {
    case json::parse_event_t::key:
      on_key(parsed.get<std::string>());
      break;
    case json::parse_event_t::object_start:
    case json::parse_event_t::array_start:
      on_element();
      if (open_.size() == deepest)
        throw input_error{name_ + ": " + path() + ": nested more than " + std::to_string(deepest)
                          + " deep"};
      open_.push_back({event == json::parse_event_t::array_start, 0, {}, {}});
      break;
    case json::parse_event_t::object_end:
    case json::parse_event_t::array_end:
      open_.pop_back();
      break;
    case json::parse_event_t::value:
      on_element();
      break;
    }
    return true;
  }

private:
  struct level {
    bool list;
    /// Number of elements that have begun.
    std::size_t elements;
    std::string key;
    std::set<std::string> keys;
  };

  void on_element() {
    if (!open_.empty() && open_.back().list)
      ++open_.back().elements;
  }

  void on_key(std::string key) {
    auto& top = open_.back();
    top.key = key;
    if (!top.keys.insert(std::move(key)).second)
      throw input_error{name_ + ": " + path() + ": occurs twice"};
  }

  std::string path() const {
    std::string result;
    for (auto& x : open_)
      result = x.list ? json_element(result, x.elements - 1) : json_field(result, x.key);
    return result;
  }

  std::string name_;
  std::vector<level> open_;
};

/// The reason of an error: the last part of the library's text, after a colon. The library's text
/// also has a position, which is left out here, because parse_json writes the position itself.
std::string reason_of(const json::parse_error& error) {
  const std::string text = error.what();
  const auto column = text.find(", column ");
  const auto start = text.find(": ", column == std::string::npos ? 0 : column);
  return start == std::string::npos ? text : text.substr(start + 2);
}

} // namespace

json parse_json(std::string_view text, std::string_view name) {
  try {
    return json::parse(text, watcher{name});
  } catch (const json::parse_error& error) {
    // error.byte is the position of the wrong byte, counted from 1.
    const auto before =
      text.substr(0, std::min(std::max<std::size_t>(error.byte, 1) - 1, text.size()));
    const auto line = 1 + std::ranges::count(before, '\n');
    const auto column = before.size() - (before.rfind('\n') + 1) + 1;
    throw input_error{std::string{name} + ':' + std::to_string(line) + ':' + std::to_string(column)
                      + ": not valid JSON: " + reason_of(error)};
  } catch (const json::exception& error) {
    // The library throws another exception than parse_error if a number is too large.
    throw input_error{std::string{name} + ": not valid JSON: " + error.what()};
  }
}

std::string json_field(const std::string& path, std::string_view key) {
  return path.empty() ? std::string{key} : path + '.' + std::string{key};
}

std::string json_element(const std::string& path, std::size_t index) {
  return path + '[' + std::to_string(index) + ']';
}

const char* json_kind(const json& x) {
  switch (x.type()) {
  case json::value_t::object:
    return "an object";
  case json::value_t::array:
    return "a list";
  case json::value_t::string:
    return "a string";
  case json::value_t::boolean:
    return "true or false";
  case json::value_t::null:
    return "null";
  default:
    return "a number";
  }
}

std::string json_excerpt(const json& x) {
  return excerpt(x.dump(), longest_excerpt);
}

} // namespace troupe
