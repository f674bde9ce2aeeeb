#pragma once

namespace troupe {

/// Use it for messages that follow each other closely. While it exists, messages that this thread
/// sends to other processes wait. When the outermost of these objects ends, they are sent: all
/// messages to one process in one system call, which wakes it once. Messages of other threads do
/// not wait. If an object of kind `all` lives within one of kind `small`, large payloads wait, too.
/// Then all messages are sent when the inner object ends.
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
  /// Sends all messages of this thread that wait. Call it before a computation on this thread, so
  /// that other processes do not wait for its end.
  static void send_now();

  sent_together(const sent_together&) = delete;
  sent_together& operator=(const sent_together&) = delete;

private:
  bool outermost_;
};

} // namespace troupe
