#include "kernels/formats/libsvm.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::uint32_t max_index = 1U << 31;

class line_reader {
public:
  line_reader(libsvm_rows& rows, bool all_have_labels, std::string_view name)
    : rows_(rows), all_have_labels_(all_have_labels), name_(name) {}

  void read(std::string_view text, std::uint64_t line) {
    line_ = line;
    rest_ = text.substr(0, text.find('#'));
    auto word = next_word();
    if (word.empty())
      return;
    const bool labelled = all_have_labels_ || word.find(':') == std::string_view::npos;
    rows_.labels.push_back(labelled ? number(word, std::numeric_limits<double>::max(), "label")
                                    : 0);
    std::uint32_t last = 0;
    for (word = labelled ? next_word() : word; !word.empty(); word = next_word())
      last = read_entry(word, last);
    rows_.row_starts.push_back(rows_.columns.size());
    rows_.width = std::max(rows_.width, last);
  }

private:
  [[noreturn]] void fail(const std::string& what) const {
    throw input_error(std::string{name_} + ":" + std::to_string(line_) + ": " + what);
  }

  std::string_view next_word() {
    constexpr std::string_view blanks = " \t\r";
    rest_.remove_prefix(std::min(rest_.find_first_not_of(blanks), rest_.size()));
    const auto word = rest_.substr(0, rest_.find_first_of(blanks));
    rest_.remove_prefix(word.size());
    return word;
  }

  double number(std::string_view text, double largest, const char* what) const {
    const auto digits = text.substr(text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()
        || !(std::abs(value) <= largest))
      fail(std::string{what} + " \"" + excerpt(text) + "\": expected a finite number");
    return value;
  }

  std::uint32_t read_entry(std::string_view word, std::uint32_t last) {
    const std::size_t colon = word.find(':');
    if (colon == std::string_view::npos)
      fail("\"" + excerpt(word) + "\": expected index:value");
    const auto text = word.substr(0, colon);
    std::uint32_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc{} || end != text.data() + text.size() || index == 0 || index > max_index)
      fail("index \"" + excerpt(text) + "\": expected a whole number from 1 to "
           + std::to_string(max_index));
    if (index <= last)
      fail("index " + std::to_string(index) + " after index " + std::to_string(last)
           + ": expected ascending indexes, each once");
    const double value = number(word.substr(colon + 1), std::numeric_limits<float>::max(), "value");
    rows_.columns.push_back(index - 1);
    rows_.values.push_back(static_cast<float>(value));
    return index;
  }

  libsvm_rows& rows_;
  bool all_have_labels_;
  std::string_view name_;
  std::string_view rest_;
  std::uint64_t line_ = 0;
};

} // namespace

namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads at most `most` rows, and removes their lines from `text`. Adds the number of lines to
/// `line`.
libsvm_rows read_rows(std::string_view& text, std::uint64_t& line, std::uint64_t most,
                      bool all_have_labels, std::string_view name) {
  libsvm_rows result;
  line_reader reader{result, all_have_labels, name};
  while (!text.empty() && result.rows() < most) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reader.read(text.substr(0, end), ++line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

} // namespace

libsvm_reader::libsvm_reader(std::span<const std::byte> bytes, std::string name)
  : text_(text_of(bytes)), name_(std::move(name)) {}

libsvm_rows libsvm_reader::next(std::uint64_t most) {
  return read_rows(text_, line_, most, false, name_);
}

libsvm_rows parse_libsvm(std::span<const std::byte> bytes, std::string_view name) {
  auto text = text_of(bytes);
  std::uint64_t line = 0;
  auto result = read_rows(text, line, std::numeric_limits<std::uint64_t>::max(), true, name);
  if (result.rows() == 0)
    throw input_error(std::string{name} + ": no rows; expected lines such as \"1 3:0.5 7:1\"");
  return result;
}

} // namespace troupe
