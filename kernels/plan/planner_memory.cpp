// The last part of the planner: gives each value a position, and determines when buckets are ready.

#include "kernels/plan/planner.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/operation_traits.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Sizes and positions in the arena are multiples of 16 elements, which are 64 bytes of float.
constexpr std::size_t alignment = 16;

/// Largest accepted number of elements of all values of a run: 2^40, which are 4 TiB of float. With
/// this limit, sums and products of sizes do not overflow.
constexpr std::size_t most_elements = std::size_t{1} << 40;

constexpr std::size_t round_up(std::size_t n) {
  return (n + alignment - 1) / alignment * alignment;
}

} // namespace

std::size_t planner::arena_size(std::uint32_t id) const {
  const auto& dims = at(id).shape;
  const auto each = dims.elements(1);
  const auto rows = dims.has_batch() ? plan_.max_rows_ : 1;
  if (each > 0 && rows > most_elements / each)
    throw input_error("plan: \"" + at(id).name + "\" " + to_string(dims) + " for up to "
                      + std::to_string(rows) + " rows has " + std::to_string(each) + " x "
                      + std::to_string(rows) + " elements; at most " + std::to_string(most_elements)
                      + " are accepted");
  const auto n = is_narrow(at(id).type) ? (each * rows + 1) / 2 : each * rows;
  return round_up(std::max<std::size_t>(n, 1));
}

std::size_t planner::allocate(std::size_t elements) {
  auto best = free_.end();
  for (auto i = free_.begin(); i != free_.end(); ++i)
    if (i->second >= elements && (best == free_.end() || i->second < best->second))
      best = i;
  if (best == free_.end()) {
    // No free block is large enough, so the arena is extended. If the last block of the arena is
    // free, it becomes the beginning of the new block.
    auto begin = plan_.arena_elements_;
    if (!free_.empty() && free_.back().first + free_.back().second == begin) {
      begin = free_.back().first;
      free_.pop_back();
    }
    if (elements > most_elements - begin)
      throw input_error("plan: the values of a run take more than " + std::to_string(most_elements)
                        + " elements");
    plan_.arena_elements_ = begin + elements;
    return begin;
  }
  const auto begin = best->first;
  best->first += elements;
  best->second -= elements;
  if (best->second == 0)
    free_.erase(best);
  return begin;
}

void planner::release(std::size_t begin, std::size_t elements) {
  auto next = std::ranges::lower_bound(free_, std::pair{begin, std::size_t{0}});
  next = free_.insert(next, {begin, elements});
  if (auto after = next + 1; after != free_.end() && begin + elements == after->first) {
    next->second += after->second;
    free_.erase(after);
  }
  if (next != free_.begin()) {
    auto before = next - 1;
    if (before->first + before->second == next->first) {
      before->second += next->second;
      free_.erase(next);
    }
  }
}

void planner::place_leaves() {
  places_.resize(needed_.size());
  owns_block_.assign(needed_.size(), false);
  plan_.feed_read_.assign(plan_.graph_.placeholders().size(), false);
  for (std::uint32_t id = 0; id < needed_.size(); ++id) {
    const auto& n = at(id);
    auto& place = places_[id];
    place.shape = n.shape;
    place.type = n.type;
    place.name = n.name;
    if (!needed_[id])
      continue;
    if (n.op == operation::variable) {
      place.where = operand::place::weight;
      place.index = n.index;
    } else if (n.op == operation::placeholder) {
      place.where = operand::place::feed;
      place.index = n.index;
      plan_.feed_read_[n.index] = true;
    } else if (n.op == operation::constant) {
      place.where = operand::place::arena;
      place.index = allocate(arena_size(id));
      plan_.constants_.push_back({place, n.values});
    }
  }
}

bool planner::place_over_input(const step& s, std::size_t position, std::uint32_t id) {
  if (!traits_of(s.op).in_place || id == s.correct
      || (s.op == operation::softmax_cross_entropy && id != s.gradient))
    return false;
  for (auto reshaped : s.inputs) {
    const auto input = root(reshaped);
    if (!owns_block_[input] || last_read_[input] != position || at(reshaped).shape != at(id).shape
        || size_of(at(reshaped).type) != size_of(at(id).type))
      continue;
    places_[id].where = operand::place::arena;
    places_[id].index = places_[input].index;
    owns_block_[input] = false;
    owns_block_[id] = true;
    return true;
  }
  return false;
}

void planner::place_output(const step& s, std::size_t position, std::uint32_t id) {
  for (const auto& [gradient, entry] : parameter_gradients_) {
    if (gradient != id)
      continue;
    places_[id].where = operand::place::gradient;
    places_[id].index = plan_.parameters().entries()[entry].offset;
    return;
  }
  if (place_over_input(s, position, id))
    return;
  places_[id].where = operand::place::arena;
  places_[id].index = allocate(arena_size(id));
  owns_block_[id] = true;
}

/// Gives each value its block of the arena, by simulating a run of the plan. The step that computes
/// a value takes the block. The block is freed after the last step that reads the value.
void planner::place_values() {
  constexpr auto never = ~std::size_t{0};
  last_read_.assign(needed_.size(), 0);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].each_written([&](auto id) { last_read_[id] = i; });
    steps_[i].each_read([&](auto id) { last_read_[root(id)] = i; });
  }
  for (std::uint32_t id = 0; id < needed_.size(); ++id)
    if (kept_[id])
      last_read_[id] = never;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const auto& s = steps_[i];
    s.each_written([&](auto id) { place_output(s, i, id); });
    auto free_if_dead = [&](auto reshaped) {
      const auto id = root(reshaped);
      if (owns_block_[id] && last_read_[id] == i) {
        release(places_[id].index, arena_size(id));
        owns_block_[id] = false;
      }
    };
    s.each_read(free_if_dead);
    s.each_written(free_if_dead);
  }
}

operand planner::place(std::uint32_t id) const {
  if (id == none)
    return {};
  auto result = places_[root(id)];
  result.shape = at(id).shape;
  result.name = at(id).name;
  return result;
}

void planner::write_instructions() {
  for (const auto& s : steps_) {
    instruction x;
    x.op = s.op;
    for (auto id : s.inputs)
      x.inputs.push_back(place(id));
    x.output = place(s.output);
    x.bias = place(s.bias);
    x.after = s.after;
    x.program = s.program;
    x.temporaries = s.temporaries;
    x.epilogue_operand = place(s.epilogue_operand);
    x.gradient = place(s.gradient);
    x.correct = place(s.correct);
    for (auto id : s.more)
      x.more.push_back(place(id));
    const auto& n = at(s.source);
    x.transpose_a = n.transpose_a;
    x.transpose_b = n.transpose_b;
    x.factor = n.factor;
    x.labels = n.labels;
    x.key = n.key;
    x.window = n.window;
    x.axes = n.axes;
    x.cell = n.cell;
    x.attention = n.attention;
    plan_.instructions_.push_back(std::move(x));
  }
  plan_.loss_ = place(loss_);
  plan_.correct_ = place(correct_);
  for (auto id : fetches_)
    plan_.fetches_.push_back(place(id));
}

void planner::make_buckets() {
  const auto& entries = plan_.parameters().entries();
  // A tensor is ready when two steps have run: the step that writes its gradient, and the last step
  // that reads the tensor.
  std::vector<std::size_t> ready(entries.size(), 0);
  std::vector<char> written(entries.size(), false);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].each_read([&](auto id) {
      if (places_[root(id)].where == operand::place::weight)
        ready[places_[root(id)].index] = i;
    });
    for (const auto& [id, entry] : parameter_gradients_) {
      steps_[i].each_written([&, id = id, entry = entry](auto output) {
        if (output == id) {
          ready[entry] = std::max(ready[entry], i);
          written[entry] = true;
        }
      });
    }
  }
  for (std::size_t e = 0; e < entries.size(); ++e)
    if (!written[e] && entries[e].size > 0)
      plan_.zero_gradients_.push_back(entries[e].elements());

  const auto least = std::max<std::size_t>(options_.bucket_bytes / sizeof(float), 1);
  auto end = plan_.parameters().size();
  std::size_t after = 0;
  for (auto e = entries.size(); e-- > 0;) {
    after = std::max(after, ready[e]);
    if (end - entries[e].offset >= least || (e == 0 && end > 0)) {
      plan_.buckets_.push_back({{entries[e].offset, end}, after});
      end = entries[e].offset;
    }
  }
}

} // namespace troupe
