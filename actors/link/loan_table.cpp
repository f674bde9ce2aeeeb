#include "actors/link/loan_table.hpp"

namespace troupe {

loan_table::memory loan_table::open(const proto::Loan& x, std::deque<file_descriptor>& descriptors,
                                    std::uint64_t max_bytes, std::string& problem) {
  if (x.first_time()) {
    memory opened;
    const bool allowed = !descriptors.empty() && !opened_.contains(x.memory())
      && bytes_ <= max_bytes && x.memory_bytes() <= max_bytes - bytes_;
    if (allowed) {
      opened = std::make_shared<shared_memory>(
        shared_memory::open(descriptors.front().release(), x.memory_bytes()));
      descriptors.pop_front();
    }
    if (!opened || !*opened) {
      problem = "memory that cannot be used";
      return nullptr;
    }
    bytes_ += x.memory_bytes();
    opened_.emplace(x.memory(), std::move(opened));
  }
  const auto i = opened_.find(x.memory());
  if (i == opened_.end() || x.bytes() == 0 || x.offset() > i->second->size()
      || x.bytes() > i->second->size() - x.offset()) {
    problem = "a range of memory that it does not share";
    return nullptr;
  }
  return i->second;
}

void loan_table::forget(std::uint64_t number) {
  if (auto x = opened_.extract(number))
    bytes_ -= x.mapped()->size();
}

} // namespace troupe
