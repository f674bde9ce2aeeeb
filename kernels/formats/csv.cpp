#include "kernels/formats/csv.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace troupe {

namespace {

constexpr std::size_t max_columns =
  1'000'000; // a column name takes more memory than the comma that makes it

std::string place(std::string_view name, std::uint64_t line) {
  return std::string{name} + ":" + std::to_string(line) + ": ";
}

/// Walks over the fields of a text, one after the other, without copying any that has no quotes
/// inside.
class field_reader {
public:
  field_reader(std::span<const std::byte> bytes, std::string_view name)
    : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), name_(name) {
    if (text_.starts_with("\xef\xbb\xbf"))
      text_.remove_prefix(3);
  }

  /// Line of the next field, from 1.
  std::uint64_t line() const noexcept { return line_; }

  bool at_end() const noexcept { return position_ == text_.size(); }

  /// Skips blank lines; true when nothing but these was left.
  bool only_blank_lines_left() {
    const std::size_t next = text_.find_first_not_of("\r\n", position_);
    if (next != std::string_view::npos)
      return false;
    position_ = text_.size();
    return true;
  }

  /// The next field; valid until the next call. Afterwards `line_ended` says whether it was the
  /// last of its line.
  std::string_view next() {
    const std::string_view field = !at_end() && text_[position_] == '"' ? quoted() : plain();
    end_field();
    return field;
  }

  bool line_ended() const noexcept { return line_ended_; }

private:
  std::string_view plain() {
    const std::size_t start = position_;
    position_ = std::min(text_.find_first_of(",\n", position_), text_.size());
    std::size_t end = position_;
    if (end > start && text_[end - 1] == '\r' && (at_end() || text_[position_] == '\n'))
      --end;
    return text_.substr(start, end - start);
  }

  std::string_view quoted() {
    const std::uint64_t opened = line_;
    unquoted_.clear();
    ++position_;
    while (true) {
      const std::size_t quote = text_.find('"', position_);
      if (quote == std::string_view::npos)
        throw input_error(place(name_, opened) + "a quote is opened here and never closed");
      const auto part = text_.substr(position_, quote - position_);
      line_ += static_cast<std::uint64_t>(std::ranges::count(part, '\n'));
      unquoted_ += part;
      position_ = quote + 1;
      if (at_end() || text_[position_] != '"')
        break;
      unquoted_ += '"';
      ++position_;
    }
    if (!at_end() && text_[position_] == '\r')
      ++position_;
    if (!at_end() && text_[position_] != ',' && text_[position_] != '\n')
      throw input_error(place(name_, line_)
                        + "text after a closing quote; expected a comma or the "
                          "end of the line");
    return unquoted_;
  }

  void end_field() {
    line_ended_ = at_end() || text_[position_] == '\n';
    if (at_end())
      return;
    line_ += text_[position_] == '\n' ? 1 : 0;
    ++position_;
  }

  std::string_view text_;
  std::string_view name_;
  std::string unquoted_;
  std::size_t position_ = 0;
  std::uint64_t line_ = 1;
  bool line_ended_ = false;
};

std::vector<std::string> read_header(field_reader& reader, std::string_view name) {
  std::vector<std::string> header;
  if (reader.only_blank_lines_left())
    throw input_error(std::string{name} + ": empty; expected a header line with column names");
  do {
    if (header.size() == max_columns)
      throw input_error(std::string{name} + ": more than " + std::to_string(max_columns)
                        + " columns; is this a CSV file?");
    header.emplace_back(reader.next());
  } while (!reader.line_ended());
  return header;
}

/// For each column of the file: which of the chosen ones it is, if any.
std::vector<std::optional<std::size_t>> find_columns(std::span<const std::string> header,
                                                     std::span<const std::string> columns,
                                                     std::string_view name) {
  std::vector<std::optional<std::size_t>> chosen(header.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto found = std::ranges::find(header, columns[i]);
    if (found == header.end())
      throw input_error(std::string{name} + ": no column \"" + columns[i] + "\"; "
                        + suggestion(columns[i], header));
    if (std::ranges::count(header, columns[i]) > 1)
      throw input_error(std::string{name} + ": the header names column \"" + columns[i]
                        + "\" more than once; make the names differ");
    auto& slot = chosen[static_cast<std::size_t>(found - header.begin())];
    if (slot)
      throw input_error(std::string{name} + ": column \"" + columns[i]
                        + "\" is asked for twice; name each column once");
    slot = i;
  }
  return chosen;
}

double parse_number(std::string_view field, std::string_view column, std::string_view name,
                    std::uint64_t line) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  std::string_view text = field;
  while (!text.empty() && blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && blank(text.back()))
    text.remove_suffix(1);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-')
    text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    throw input_error(place(name, line) + "column \"" + excerpt(column)
                      + "\": expected a finite number, found \"" + excerpt(field) + "\"");
  return value;
}

} // namespace

csv_columns parse_csv(std::span<const std::byte> bytes, std::span<const std::string> columns,
                      std::string_view name) {
  field_reader reader{bytes, name};
  const auto header = read_header(reader, name);
  const auto chosen = find_columns(header, columns, name);
  csv_columns result;
  result.names.assign(columns.begin(), columns.end());
  while (!reader.only_blank_lines_left()) {
    const std::uint64_t line = reader.line();
    const std::size_t row = result.values.size();
    result.values.resize(row + columns.size());
    std::size_t fields = 0;
    do {
      const auto field = reader.next();
      if (fields < header.size() && chosen[fields])
        result.values[row + *chosen[fields]] = parse_number(field, header[fields], name, line);
      ++fields;
    } while (!reader.line_ended());
    if (fields != header.size())
      throw input_error(place(name, line) + "expected " + std::to_string(header.size())
                        + " fields as in the header, found " + std::to_string(fields));
    ++result.rows;
  }
  if (result.rows == 0)
    throw input_error(std::string{name} + ": no records after the header");
  return result;
}

std::vector<std::string> parse_csv_header(std::span<const std::byte> bytes, std::string_view name) {
  field_reader reader{bytes, name};
  return read_header(reader, name);
}

} // namespace troupe
