#include "messages/errors.hpp"

#include <caf/atom.hpp>
#include <caf/exit_reason.hpp>
#include <caf/make_message.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

constexpr auto category = caf::atom("troupe");

constexpr std::array names{
  "none",      "old view",  "fenced",     "join refused", "no such endpoint", "link lost",
  "malformed", "timed out", "not finite", "interrupted",  "failed",           "bad input"};

/// Makes words of the name of an error of CAF: "socket_disconnected" becomes "socket disconnected".
/// Adds the error's text, if it has one.
std::string words_of(std::string name, const caf::message& context) {
  std::ranges::replace(name, '_', ' ');
  if (!context.empty() && context.match_element<std::string>(0))
    name += ": " + context.get_as<std::string>(0);
  return name;
}

} // namespace

const char* to_string(errc x) noexcept {
  const auto i = static_cast<std::size_t>(x);
  return i < names.size() ? names[i] : "unknown error";
}

caf::error make_error(errc code, std::string text) {
  return {static_cast<std::uint8_t>(code), category, caf::make_message(std::move(text))};
}

caf::error make_error(errc code) {
  return {static_cast<std::uint8_t>(code), category};
}

errc code_of(const caf::error& x) noexcept {
  return x && x.category() == category ? static_cast<errc>(x.code()) : errc::none;
}

std::string explain(const caf::error& x) {
  if (!x)
    return "it has ended";
  if (x.category() == category) {
    const auto code = static_cast<errc>(x.code());
    // The first value of the context is the text. Some errors have further values.
    if (x.context().empty() || !x.context().match_element<std::string>(0))
      return to_string(code);
    // The name "failed" says nothing about the cause, so it is left out.
    const auto text = x.context().get_as<std::string>(0);
    return code == errc::failed ? text : to_string(code) + std::string{": "} + text;
  }
  if (x == caf::sec::request_timeout)
    return "no answer before the deadline";
  if (x == caf::sec::request_receiver_down || x == caf::exit_reason::remote_link_unreachable)
    return "the peer is gone";
  if (x == caf::sec::unexpected_message)
    return "the peer could not understand a message (does it have another version?)";
  if (x == caf::sec::cannot_connect_to_node)
    return "connection refused, or there is no route";
  if (x == caf::sec::connection_timeout)
    return "nothing was received over the connection in time";
  if (x == caf::sec::disconnect_during_handshake)
    return "the peer closed the connection at once (is it a troupe node?)";
  if (x.category() == caf::atom("system"))
    return words_of(to_string(static_cast<caf::sec>(x.code())), x.context());
  if (x.category() == caf::atom("exit"))
    return words_of(to_string(static_cast<caf::exit_reason>(x.code())), x.context());
  return to_string(x);
}

} // namespace troupe
