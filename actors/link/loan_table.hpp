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

/// The files of shared memory that this process has opened to read a peer's payloads. A *loan* is a
/// payload in such a file: the peer announces it instead of sending the bytes (proto::Loan). This
/// class checks everything that the peer says about its files. It is a plain object, without a
/// thread.
class loan_table {
public:
  using memory = std::shared_ptr<const shared_memory>;

  /// The memory of a loan; all bytes of the loan are inside. The first loan of a file opens the
  /// file and takes the oldest of `descriptors` for it. Null if the loan is impossible. `problem`
  /// then says what the peer sent.
  /// @param max_bytes limit for all open files together
  memory open(const proto::Loan& x, std::deque<file_descriptor>& descriptors,
              std::uint64_t max_bytes, std::string& problem);

  /// Closes a file, because the peer does not lend from it again.
  void forget(std::uint64_t number);

  /// Bytes of all open files.
  std::uint64_t bytes() const noexcept { return bytes_; }

private:
  std::unordered_map<std::uint64_t, memory> opened_;
  std::uint64_t bytes_ = 0;
};

} // namespace troupe
