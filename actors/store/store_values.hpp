#pragma once

#include "actors/store/store_rule.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// The values of one server: a part of all elements, with the state of its update rule. Plain
/// state.
///
/// A pull of one range with more than half of the values makes no copy: the server lends its
/// memory. While a reader holds this memory, an update writes to new memory, and copies the values
/// that it does not change. So no reader sees a partial update, and at most twice as many values
/// are copied as were pulled. All other pulls make a copy, so they do not keep an update from
/// working in place.
class store_values {
public:
  /// All values are 0. `where`: the server's part of all elements.
  store_values(range where, const store_rule& rule);

  const range& where() const noexcept { return where_; }

  /// Updates by the rule. `ranges`: ascending, without overlap, within where(). `values`: the
  /// values of all ranges, one after another. For adam and adamw, every push counts as a step of
  /// all elements.
  void push(std::span<const range> ranges, std::span<const float> values);

  /// Sets values. The state of the update rule does not change.
  void assign(std::span<const range> ranges, std::span<const float> values);

  /// The values of the ranges, one after another.
  payload pull(std::span<const range> ranges) const;

  /// Number of pushes and assignments so far.
  std::uint64_t version() const noexcept { return version_; }

private:
  template <class Change>
  void change(std::span<const range> ranges, std::span<const float> values, Change change);

  range where_;
  store_rule rule_;
  payload values_;
  std::vector<float> state_;
  std::uint64_t version_ = 0;
  std::uint64_t pushes_ = 0;
};

} // namespace troupe
