#include "apps/troupe/bench/gloo_peer.hpp"

#include "kernels/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string_view>

namespace troupe::bench {

/// The text of gloo_peer.py.
extern const std::string_view gloo_peer_script;

gloo_peer::gloo_peer(const std::string& python, std::size_t ranks, std::uint16_t port) {
  std::string reasons;
  for (const auto& x : pythons(python)) {
    try {
      start(x, ranks, port);
      return;
    } catch (const input_error& error) {
      processes_.clear();
      reasons += (reasons.empty() ? "" : "; ") + std::string{error.what()};
    }
  }
  throw input_error{"--peer=gloo needs a Python that has PyTorch (on Debian: apt-get install "
                    "python3-torch), given by --python=PATH: "
                    + reasons};
}

void gloo_peer::start(const std::string& python, std::size_t ranks, std::uint16_t port) {
  for (std::size_t r = 0; r < ranks; ++r) {
    processes_.push_back(std::make_unique<python_process>(python, gloo_peer_script, 1));
    try {
      processes_.back()->tell(nlohmann::json{{"rank", r}, {"ranks", ranks}, {"port", port}}.dump()
                              + '\n');
    } catch (const std::runtime_error&) {
      // The reason is reported below.
    }
  }
  for (auto& x : processes_) {
    const auto hello = nlohmann::json::parse(x->answer(), nullptr, false);
    if (!hello.is_object())
      throw input_error{python + " ended without an answer"};
    if (hello.contains("error"))
      throw input_error{hello["error"].get<std::string>()};
    version_ = hello.at("version");
  }
  for (auto& x : processes_)
    x->pause();
}

std::vector<double> gloo_peer::run(std::size_t elements, std::size_t times) {
  for (auto& x : processes_)
    x->go_on();
  for (auto& x : processes_)
    x->tell(fmt::format("{} {}\n", elements, times));
  std::vector<double> result;
  for (auto& x : processes_) {
    const auto reply = nlohmann::json::parse(x->answer(), nullptr, false);
    if (!reply.is_object())
      throw std::runtime_error{"a PyTorch process has ended; see its messages above"};
    if (!reply.at("right").get<bool>())
      throw std::runtime_error{"gloo's sum is wrong"};
    if (result.empty())
      result = reply.at("seconds").get<std::vector<double>>();
  }
  for (auto& x : processes_)
    x->pause();
  return result;
}

} // namespace troupe::bench
