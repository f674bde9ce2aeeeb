#pragma once

#include "kernels/file_descriptor.hpp"
#include "messages/proto/wire.pb.h"
#include "messages/shared_memory.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

namespace troupe {

/// The files of shared memory that a peer lends from, and that this process has opened. Plain
/// state. What the peer says about them is checked here.
class loan_table {
public:
  using memory = std::shared_ptr<const shared_memory>;

  /// The memory of a loan, with all bytes of the loan inside. The first loan of a file opens it:
  /// this takes the oldest of `descriptors`. Null if the loan is impossible; `problem` then says
  /// what the peer sent.
  /// @param max_bytes limit for all open files together
  memory open(const proto::Loan& x, std::deque<file_descriptor>& descriptors,
              std::uint64_t max_bytes, std::string& problem);

  /// The peer does not lend from this file again.
  void forget(std::uint64_t number);

  /// Bytes of all open files.
  std::uint64_t bytes() const noexcept { return bytes_; }

private:
  std::unordered_map<std::uint64_t, memory> opened_;
  std::uint64_t bytes_ = 0;
};

} // namespace troupe
