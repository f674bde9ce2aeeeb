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

/// The files of shared memory of a peer that this process has opened to read the peer's payloads. A
/// *loan* is a payload in such a file: the peer sends the place of the payload in the file instead
/// of its bytes (proto::Loan). This class checks everything that the peer says about its files. It
/// is a plain object, without a thread.
class loan_table {
public:
  using memory = std::shared_ptr<const shared_memory>;

  /// Returns the file that contains the loan; all bytes of the loan are inside the file. If the
  /// loan is the first one in its file, this function opens the file from the oldest of
  /// `descriptors`. Returns null if the loan is invalid; `problem` then says what the peer has
  /// sent.
  /// @param max_bytes limit for all open files together
  memory open(const proto::Loan& x, std::deque<file_descriptor>& descriptors,
              std::uint64_t max_bytes, std::string& problem);

  /// Closes a file, because the peer will not lend parts of it again.
  void forget(std::uint64_t number);

  /// Total size of all open files.
  std::uint64_t bytes() const noexcept { return bytes_; }

private:
  std::unordered_map<std::uint64_t, memory> opened_;
  std::uint64_t bytes_ = 0;
};

} // namespace troupe
