#pragma once

namespace troupe {

/// Collects the messages that this thread sends to other processes while the object exists. When
/// the object is destroyed, all messages to one process leave in one system call, which wakes that
/// process once. Use it for messages that follow each other closely. Objects can be nested: the
/// outermost object sends the messages. Messages of other threads do not wait.
///
/// If an object of kind `all` lives within an object of kind `small`, large payloads wait, too. The
/// inner object then sends all messages when it is destroyed.
class sent_together {
public:
  enum class kind {
    /// All messages wait.
    all,
    /// Messages without a large payload wait. A large payload leaves at once, with all messages
    /// before it.
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
