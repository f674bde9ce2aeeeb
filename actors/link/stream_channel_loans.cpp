// A part of stream_channel: lends memory to the peer, and borrows memory of the peer.

#include "actors/link/stream_channel.hpp"
#include "actors/link/stream_records.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// If at least this many loans are released and not yet returned to the peer, they are returned
/// soon, because the peer may be short of memory. If there are fewer, their return waits for a
/// message that can carry it.
constexpr std::size_t many_returns = 4;

} // namespace

/// A buffer in memory that the peer has lent. When the last reference to the buffer is gone, the
/// peer is told that it may use this memory again.
class stream_channel::borrowed final : public buffer {
public:
  borrowed(std::shared_ptr<stream_channel> from, std::shared_ptr<const shared_memory> memory,
           std::uint64_t loan)
    : buffer(memory->data(), memory->size(), false), from_(std::move(from)),
      memory_(std::move(memory)), loan_(loan) {}

protected:
  void retire() noexcept override {
    const std::unique_ptr<borrowed> self{this};
    from_->give_back(loan_);
  }

private:
  std::shared_ptr<stream_channel> from_;
  std::shared_ptr<const shared_memory> memory_;
  std::uint64_t loan_;
};

void stream_channel::lend(proto::Frame& frame, const payload& x, outgoing& out) {
  const auto file = x.storage()->shared();
  auto& loan = *frame.mutable_loan();
  loan.set_number(next_loan_++);
  loan.set_memory(file.number);
  loan.set_memory_bytes(x.storage()->capacity());
  loan.set_offset(x.offset());
  loan.set_bytes(x.size());
  if (std::ranges::find(known_, file.number) == known_.end()) {
    // Before the peer opens a new file, it must close files that this process has freed in the
    // meantime.
    const auto gone = buffer_pool::process().freed(known_);
    if (!gone.empty()) {
      proto::Return freed;
      for (const auto number : gone) {
        freed.add_freed(number);
        std::erase(known_, number);
      }
      push({records::make(proto::RETURN, freed), {}});
    }
    loan.set_first_time(true);
    out.descriptor = file.descriptor;
    known_.push_back(file.number);
  }
  lent_.emplace(loan.number(), x);
  waiting_ += x.size();
  out.lent = x;
  out.loan = loan.number();
}

// Adds a loan of the peer to the list of loans to return. Called on any thread, when the last
// reference to the loan is gone. If only a few loans are in the list, no thread is woken at once,
// because a message usually follows soon and can carry the return.
void stream_channel::give_back(std::uint64_t loan) noexcept {
  bool few = false;
  {
    const std::lock_guard guard{returns_mutex_};
    --borrowed_;
    returns_.push_back(loan);
    few = returns_.size() < many_returns;
  }
  if (few && options_.wake_later)
    options_.wake_later();
  else
    options_.wake();
}

void stream_channel::keep_loans() {
  static std::mutex mutex;
  static std::vector<payload> kept;
  const std::scoped_lock guard{mutex_, mutex};
  for (auto& x : lent_)
    kept.push_back(std::move(x.second));
  lent_.clear();
}

payload stream_channel::borrow(const proto::Loan& x) {
  std::string problem;
  auto memory = opened_.open(x, descriptors_, options_.limits.max_bytes, problem);
  if (!memory) {
    mistrust(problem);
    return {};
  }
  {
    const std::lock_guard guard{returns_mutex_};
    ++borrowed_;
  }
  return payload::adopt(new borrowed{shared_from_this(), std::move(memory), x.number()}, x.offset(),
                        x.bytes());
}

void stream_channel::on_return(const proto::Return& x) {
  std::vector<payload> free;
  {
    const std::lock_guard guard{mutex_};
    for (const auto loan : x.loan())
      if (auto y = lent_.extract(loan)) {
        waiting_ -= y.mapped().size();
        free.push_back(std::move(y.mapped()));
      }
    // After an overflow, the socket stays open only while the peer can read loans of this process.
    if (overflow_ended_ && lent_.empty())
      broken_ = true;
  }
  for (const auto number : x.freed())
    opened_.forget(number);
}

} // namespace troupe
