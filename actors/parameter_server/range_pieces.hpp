#pragma once

#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Cuts a shard's range of the parameter vector into pieces that are sent separately. Shards and
/// workers cut the range in the same way.
class range_pieces {
public:
  /// The whole range as a single piece.
  explicit range_pieces(range where = {}) : where_(where) {}

  /// Cuts a range into pieces of about 64 KiB, but into at most 64 pieces. Small pieces can be sent
  /// early, but each piece costs time.
  static range_pieces cut(range where);

  range where() const noexcept { return where_; }
  std::size_t count() const noexcept { return count_; }

  /// The range of piece `index` in the parameter vector.
  range operator[](std::size_t index) const noexcept {
    const auto part = part_of(where_.size(), count_, index);
    return {where_.begin + part.begin, where_.begin + part.end};
  }

  /// The index of the piece with exactly these elements; nothing if there is no such piece.
  std::optional<std::size_t> find(std::uint64_t begin, std::size_t elements) const noexcept {
    for (std::size_t i = 0; i < count_; ++i)
      if (const auto x = (*this)[i]; x.begin == begin && x.size() == elements)
        return i;
    return std::nullopt;
  }

private:
  range where_;
  std::size_t count_ = 1;
};

/// Joins the pieces of a range in one vector.
class piece_assembly {
public:
  explicit piece_assembly(const range_pieces& pieces = range_pieces{})
    : pieces_(pieces), here_(pieces.count()), missing_(pieces.count()) {}

  bool has(std::size_t piece) const { return here_[piece]; }
  bool complete() const noexcept { return missing_ == 0; }

  /// Copies a piece into the vector. Does nothing if this piece is already present.
  void add(std::size_t piece, std::span<const float> values) {
    if (here_[piece])
      return;
    if (data_.empty())
      data_ = payload::floats(pieces_.where().size());
    const auto at = pieces_[piece].begin - pieces_.where().begin;
    std::ranges::copy(values, data_.as_mutable_floats().subspan(at).begin());
    here_[piece] = true;
    --missing_;
  }

  /// Sets all pieces at once.
  void set(payload all) {
    data_ = std::move(all);
    here_.assign(here_.size(), true);
    missing_ = 0;
  }

  /// The vector of the whole range, float32. The contents of missing pieces are unspecified.
  const payload& data() const noexcept { return data_; }

private:
  range_pieces pieces_;
  std::vector<bool> here_;
  std::size_t missing_;
  payload data_;
};

} // namespace troupe
