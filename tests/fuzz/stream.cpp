// Fuzz target: the bytes of a connection (records, greetings, messages, loans of shared memory and
// their returns). They are checked as in a stream_channel. The result must not depend on how many
// bytes arrive at once.
//
// An input has three parts: how many bytes arrive at once (1 byte, at least 1), the descriptors
// that arrive with them (1 byte, two bits each: 0 none, 1 a good file, 2 a file that can shrink, 3
// no memory), and the bytes of the connection.

#include "actors/link/loan_table.hpp"
#include "actors/link/record_reader.hpp"
#include "actors/link/stream_records.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace troupe;

namespace {

constexpr std::uint64_t most_body = 1 << 16;
constexpr std::uint64_t most_memory = 20'000;
constexpr std::size_t file_bytes = 8192;
constexpr std::size_t staging = 512;

std::deque<file_descriptor> descriptors_of(std::uint8_t kinds) {
  std::deque<file_descriptor> result;
  for (int i = 0; i < 4; ++i, kinds >>= 2) {
    if ((kinds & 3) == 0)
      continue;
    if ((kinds & 3) == 3) {
      result.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      continue;
    }
    result.emplace_back(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const int file = result.back().get();
    fuzz::require(::ftruncate(file, file_bytes) == 0, "the target has memory");
    if ((kinds & 3) == 1)
      fuzz::require(::fallocate(file, 0, 0, file_bytes) == 0
                      && ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE) == 0,
                    "the target can seal memory");
  }
  return result;
}

/// The receiving end of a connection. It notes everything that happens.
class receiver {
public:
  explicit receiver(std::uint8_t descriptors) : descriptors_(descriptors_of(descriptors)) {}

  void receive(std::span<const std::byte> bytes, std::size_t at_once) {
    while (!bytes.empty() && !mistrusts_) {
      auto some = bytes.first(std::min(at_once, bytes.size()));
      const auto to_body = std::min(some.size(), body_.size() - body_read_);
      std::ranges::copy(some.first(to_body),
                        body_.begin() + static_cast<std::ptrdiff_t>(body_read_));
      body_read_ += to_body;
      some = some.subspan(to_body);
      const auto room = reader_.room();
      const auto n = std::min(room.size(), some.size());
      std::ranges::transform(some.first(n), room.begin(),
                             [](std::byte x) { return static_cast<char>(x); });
      reader_.add(n);
      bytes = bytes.subspan(to_body + n);
      take_records();
      fuzz::require(to_body + n > 0 || mistrusts_, "there is room for the next record");
    }
  }

  /// Everything that has happened, as text.
  const std::string& events() const noexcept { return events_; }

private:
  void take_records() {
    while (!mistrusts_) {
      if (!body_.empty()) {
        if (body_read_ < body_.size())
          return;
        note("body", {reinterpret_cast<const char*>(body_.data()), body_.size()});
        body_.clear();
        body_read_ = 0;
      }
      record_reader::record x;
      const auto found = reader_.next({!greeted_, false, most_body}, x);
      if (found == record_reader::result::none)
        return;
      if (found == record_reader::result::misfit) {
        mistrust("a record");
        return;
      }
      fuzz::require(x.body <= most_body && x.head.size() <= records::max_head_bytes,
                    "a record is within its limits");
      fuzz::require(greeted_ || x.kind == proto::GREETING, "a stranger may only greet");
      body_.resize(x.body);
      on_record(x);
      body_read_ = reader_.take(body_);
    }
  }

  void on_record(const record_reader::record& x) {
    const auto size = static_cast<int>(x.head.size());
    note("record " + std::to_string(x.kind), {x.head.data(), x.head.size()});
    proto::Greeting greeting;
    proto::Return back;
    proto::Acknowledge done;
    if (x.kind == proto::MESSAGE)
      on_message(x.head);
    else if (x.kind == proto::GREETING && greeting.ParseFromArray(x.head.data(), size)
             && !greeting.token().empty())
      greeted_ = true;
    else if (x.kind == proto::RETURN && back.ParseFromArray(x.head.data(), size))
      std::ranges::for_each(back.freed(), [this](auto number) { loans_.forget(number); });
    else if ((x.kind != proto::ACKNOWLEDGE || !done.ParseFromArray(x.head.data(), size))
             && x.kind != proto::PING && x.kind != proto::END)
      mistrust("a kind");
  }

  void on_message(std::span<const char> head) {
    proto::Frame frame;
    const auto content = split_message(head, !body_.empty(), frame);
    if (!content) {
      mistrust("a message");
      return;
    }
    fuzz::require(content->empty()
                    || (content->data() >= head.data()
                        && content->data() + content->size() == head.data() + head.size()),
                  "the content is the rest of the head");
    if (!frame.has_loan())
      return;
    const auto& loan = frame.loan();
    std::string problem;
    const auto memory = loans_.open(loan, descriptors_, most_memory, problem);
    fuzz::require(loans_.bytes() <= most_memory, "open memory is bounded");
    fuzz::require(problem.empty() == (memory != nullptr), "a loan that is refused has a reason");
    if (!memory) {
      mistrust(problem);
      return;
    }
    fuzz::require(loan.bytes() > 0 && loan.offset() <= memory->size()
                    && loan.bytes() <= memory->size() - loan.offset(),
                  "a loan lies in its memory");
    note("loan", {reinterpret_cast<const char*>(memory->data()) + loan.offset(), loan.bytes()});
  }

  void note(const std::string& what, std::string_view bytes) {
    events_ += what + ' ' + std::to_string(std::hash<std::string_view>{}(bytes)) + '\n';
  }

  void mistrust(const std::string& what) {
    mistrusts_ = true;
    body_.clear();
    events_ += "mistrusts " + what + '\n';
  }

  record_reader reader_{staging};
  std::deque<file_descriptor> descriptors_;
  loan_table loans_;
  std::vector<std::byte> body_;
  std::size_t body_read_ = 0;
  bool greeted_ = false;
  bool mistrusts_ = false;
  std::string events_;
};

} // namespace

TROUPE_FUZZ_TARGET(stream, input) {
  if (input.size() < 2)
    return;
  const auto at_once = std::max<std::size_t>(std::to_integer<std::uint8_t>(input[0]), 1);
  const auto descriptors = std::to_integer<std::uint8_t>(input[1]);
  receiver one{descriptors};
  one.receive(input.subspan(2), at_once);
  receiver other{descriptors};
  other.receive(input.subspan(2), input.size());
  fuzz::require(one.events() == other.events(), "it does not matter how many bytes come at once");
}
