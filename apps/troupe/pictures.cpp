#include "apps/troupe/pictures.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

constexpr std::string_view ink = " .:-=+*#%@";
constexpr std::size_t gap = 3;

/// Amount of ink in a character cell. A cell shows two pixels, one above the other.
float ink_at(const picture& x, std::size_t line, std::size_t column) {
  const auto above = x.pixels[2 * line * x.side + column];
  const bool last = 2 * line + 1 == x.side;
  return last ? above / 2 : (above + x.pixels[(2 * line + 1) * x.side + column]) / 2;
}

char character(float amount) {
  const auto scaled = std::clamp(amount, 0.0F, 1.0F) * static_cast<float>(ink.size());
  return ink[std::min(static_cast<std::size_t>(scaled), ink.size() - 1)];
}

/// The part of the pictures that is drawn: lines [top, bottom) and columns [left, right). Outside
/// of this part, all pictures are blank.
struct window {
  std::size_t top, bottom, left, right;
};

window inked(std::span<const picture> pictures) {
  const auto side = pictures.front().side;
  const auto lines = (side + 1) / 2;
  window result{lines, 0, side, 0};
  for (auto& x : pictures)
    for (std::size_t line = 0; line < lines; ++line)
      for (std::size_t column = 0; column < side; ++column)
        if (character(ink_at(x, line, column)) != ' ') {
          result.top = std::min(result.top, line);
          result.bottom = std::max(result.bottom, line + 1);
          result.left = std::min(result.left, column);
          result.right = std::max(result.right, column + 1);
        }
  return result.bottom == 0 ? window{0, 1, 0, side} : result;
}

void append_row(std::string& out, std::span<const picture> row, const window& where,
                std::size_t width) {
  const auto pad = [&](std::string& line, std::size_t i) {
    line.resize((width + gap) * (i + 1), ' ');
  };
  const auto end_line = [&](std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += "  " + line + '\n';
  };
  for (auto y = where.top; y < where.bottom; ++y) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (auto column = where.left; column < where.right; ++column)
        line += character(ink_at(row[i], y, column));
      pad(line, i);
    }
    end_line(std::move(line));
  }
  std::string captions;
  for (std::size_t i = 0; i < row.size(); ++i) {
    captions += row[i].caption;
    pad(captions, i);
  }
  end_line(std::move(captions));
  out += '\n';
}

} // namespace

std::string draw(std::span<const picture> pictures, std::size_t columns) {
  if (pictures.empty())
    return {};
  const auto where = inked(pictures);
  auto width = where.right - where.left;
  for (auto& x : pictures)
    width = std::max(width, x.caption.size());
  const auto per_row = std::max<std::size_t>((columns - 2 + gap) / (width + gap), 1);
  std::string result;
  for (std::size_t i = 0; i < pictures.size(); i += per_row)
    append_row(result, pictures.subspan(i, std::min(per_row, pictures.size() - i)), where, width);
  return result;
}

} // namespace troupe
