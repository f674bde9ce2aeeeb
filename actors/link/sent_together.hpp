#pragma once

namespace troupe {

/// Use it for messages that follow each other closely. While it exists, messages that this thread
/// sends to other processes wait. When the outermost of these objects ends, they are sent: all
/// messages to one process in one system call, which wakes it once. Messages of other threads do
/// not wait. A group of kind `all` within one of kind `small` also keeps large payloads waiting;
/// all messages are sent when it ends.
class sent_together {
public:
  enum class kind {
    /// All messages wait.
    all,
    /// A large payload leaves at once, with all messages before it.
    small,
  };

  explicit sent_together(kind what = kind::all) noexcept;
  ~sent_together();
  /// Sends all messages of this thread that wait. For an actor that now computes, or passes on
  /// results to actors that compute on this thread.
  static void send_now();

  sent_together(const sent_together&) = delete;
  sent_together& operator=(const sent_together&) = delete;

private:
  bool outermost_;
};

} // namespace troupe
