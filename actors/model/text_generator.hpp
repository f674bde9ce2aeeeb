#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/devices/device_executor.hpp"
#include "kernels/plan/plan.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// Continues texts. The model predicts the next token at each position of a window of tokens, and
/// must not look ahead (recurrent layers, causal attention). When the window is full, the oldest
/// tokens are dropped. On one kind of device, the same weights, prompt and seed give the same text.
/// Not thread-safe: only one run at a time may be active.
class text_generator {
public:
  struct options {
    /// Number of tokens to add.
    std::size_t count = 200;
    /// Logits are divided by this before a token is drawn. A value below 1 favors likely tokens.
    /// With 0, the likeliest token is always taken.
    double temperature = 1;
    std::uint64_t seed = 1;
  };

  /// Makes a generator on the CPU. Throws input_error like plan_of.
  explicit text_generator(const job_context& context);
  /// Makes a generator on another device.
  /// @param on an executor of plan_of(context, fusion table of the device)
  text_generator(const job_context& context, std::unique_ptr<device_executor> on);

  /// The plan that a generator runs.
  /// @throws input_error if the data of the job is not tokens with a label at each position, or the
  /// loss is not SOFTMAX_CROSS_ENTROPY.
  static std::shared_ptr<const plan> plan_of(const job_context& context,
                                             const fusion_table& fusion);

  /// Returns the tokens that follow the prompt. A GPU throws device_error if it fails.
  /// @param weights the flat parameter vector
  /// @param prompt at least one token, each below the vocabulary
  /// @throws input_error if the model looks ahead: its logits for the prompt depend on later tokens
  std::vector<std::int32_t> run(std::span<const float> weights,
                                std::span<const std::int32_t> prompt, const options& how);

private:
  void refuse_to_look_ahead(std::span<const std::int32_t> prompt);
  /// The logits for the token that follows `text`. Positions after the text hold the token `later`.
  std::span<const float> logits_after(std::span<const std::int32_t> text, std::int32_t later = 0);

  record_shape record_;
  std::unique_ptr<device_executor> executor_;
  std::vector<const float*> pointers_;
  /// True until the executor has the weights of this run.
  bool new_weights_ = true;
};

/// Draws a token with the probabilities that these logits give.
/// @param temperature see text_generator::options
/// @param uniform a random number from [0, 1), which selects the token
std::int32_t draw_token(std::span<const float> logits, double temperature, double uniform);

} // namespace troupe
