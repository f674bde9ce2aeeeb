#include "tests/kernels/cuda/memory_checks.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::test {

namespace {

constexpr auto mark = std::byte{0xa5};

} // namespace

const char* word::read(const moment& now) {
  if (!written_)
    return "a read of memory that nothing has written";
  if (last_write_.conflicts(now))
    return "a race: a read of what another thread wrote, without a barrier between them";
  // If threads of several blocks of a launch read this word, `block` becomes `several`. If several
  // threads of one block read it in one phase, `thread` becomes `several`. `several` is not the
  // number of any block or thread, so a write by any of these threads then counts as a race.
  auto& seen = last_read_;
  if (seen.launch != now.launch) {
    seen = {now.launch, now.block, now.phase, now.thread};
  } else if (seen.block != now.block) {
    seen.block = several;
  } else if (seen.phase != now.phase) {
    seen.phase = now.phase;
    seen.thread = now.thread;
  } else if (seen.thread != now.thread) {
    seen.thread = several;
  }
  return "";
}

const char* word::write(const moment& now) {
  if (last_write_.conflicts(now))
    return "a race: a write over what another thread wrote, without a barrier between them";
  if (last_read_.conflicts(now))
    return "a race: a write of what another thread read, without a barrier between them";
  last_write_ = {now.launch, now.block, now.phase, now.thread};
  written_ = true;
  return "";
}

void* checked_memory::allocate(std::size_t bytes) {
  // The first byte is aligned to the size of a band, as in device memory.
  auto memory = std::make_unique<std::byte[]>(bytes + 3 * band);
  std::fill_n(memory.get(), bytes + 3 * band, mark);
  const auto misplaced = reinterpret_cast<std::uintptr_t>(memory.get()) % band;
  auto* const first = memory.get() + 2 * band - misplaced;
  const auto key = reinterpret_cast<std::uintptr_t>(first);
  allocations_[key] = {std::move(memory), bytes, std::vector<word>(word::count(bytes))};
  return first;
}

std::string checked_memory::release(void* memory) {
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == allocations_.end())
    return "memory is freed that is not of the device";
  last_ = nullptr;
  const auto& x = found->second;
  const auto is_mark = [](std::byte b) { return b == mark; };
  const auto* const first = static_cast<const std::byte*>(memory);
  const auto* const behind = first + x.bytes;
  const bool intact =
    std::all_of(first - band, first, is_mark) && std::all_of(behind, behind + band, is_mark);
  allocations_.erase(found);
  return intact ? "" : "the guard band of an allocation was written to";
}

word* checked_memory::find(const void* p, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const auto holds = [&](const auto& entry) {
    return entry.first <= address && address + bytes <= entry.first + entry.second.bytes;
  };
  if (last_ == nullptr || !holds(*last_)) {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin() || !holds(*--after))
      return nullptr;
    last_ = &*after;
  }
  return last_->second.words.data() + (address - last_->first) / word::size;
}

} // namespace troupe::test
