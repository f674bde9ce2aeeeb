#pragma once

#include "actors/model/job_context.hpp"
#include "actors/model/measures.hpp"
#include "kernels/data/record_buffer.hpp"
#include "kernels/devices/device_executor.hpp"
#include "kernels/function_ref.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// The result of a model on a data set.
struct test_result {
  /// Mean over the records.
  double loss = 0;
  /// Share of the labels that are classified correctly. Ignored labels do not count. Each element
  /// of a target counts as a label if the loss is BINARY_CROSS_ENTROPY and all targets are 0 or 1.
  /// Nothing for other targets.
  std::optional<double> accuracy;
  /// The measures of evaluate.measure.
  measured measures = {};
};

/// Consecutive records that were tested together, and the model's outputs for them. The spans are
/// valid only while the listener runs.
struct tested_records {
  std::uint64_t first = 0;
  std::size_t count = 0;
  std::span<const float> features;       ///< (count, dims...); empty unless the features are
                                         ///< numbers
  std::span<const std::int32_t> tokens;  ///< (count, dims...); empty unless the features are tokens
  std::span<const std::int32_t> classes; ///< (count, labels_per_record); empty for targets
  std::span<const float> targets;        ///< (count, label_width); empty for classes
  std::span<const float> outputs;        ///< (count, units): logits with softmax cross-entropy
};

/// Tests the weights of a job's model on data. The coordinator uses it after each epoch, and
/// `troupe predict` uses it on a file. The same weights and data give the same bits on one kind of
/// device. Only one run at a time may be active.
class model_tester {
public:
  /// Makes a tester on the CPU.
  explicit model_tester(const job_context& context);
  /// Makes a tester on another device.
  /// @param on an executor of plan_of(context, fusion table of the device)
  model_tester(const job_context& context, std::unique_ptr<device_executor> on);

  /// The plan that a tester runs. Its number of rows is the same on all devices.
  static std::shared_ptr<const plan> plan_of(const job_context& context,
                                             const fusion_table& fusion);

  /// Computes loss and accuracy of the weights. A GPU throws device_error if it fails.
  /// @param weights the flat parameter vector
  /// @param set must have the widths that the model was built for
  /// @param listener called on this thread for each group of records, in order; optional
  test_result run(std::span<const float> weights, const dataset& set,
                  function_ref<void(const tested_records&)> listener = {});

  /// Number of records that are tested together: 256, or fewer for large models. The limit is the
  /// memory of a training step, but at least 64 MiB.
  std::size_t rows() const noexcept { return records_.most(); }

  /// Bytes of the host's memory that a tester of this model allocates, not counting sparse records.
  /// Allocates nothing itself.
  /// @param on_cpu if it is false, the tester runs on a GPU, and the GPU's memory holds the
  /// activations
  static std::size_t memory_bytes(const job_context& context, bool on_cpu = true);

private:
  std::unique_ptr<device_executor> executor_;
  std::vector<const float*> pointers_;
  record_shape record_;
  record_buffer records_;
  measurer measurer_;
  /// True if accuracy counts elements of targets.
  bool binary_;
};

} // namespace troupe
