#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/epilogue.hpp"
#include "kernels/cuda/gemm_call.hpp"
#include "tests/kernels/cuda/simulated_streams.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace troupe::test {

/// The device of the simulator. Its memory is host memory between guard bands. Its streams run work
/// at once or in a random order (simulated_streams.hpp). kernels/cpu/gemm.hpp computes its
/// products. Copies to the host and products fail with a simulation_error if they read memory that
/// was never written. In simulated time, each kernel, copy and product takes a microsecond.
///
/// The device is as strict as CUDA may be. Each object counts as its own GPU: a thread that
/// allocates, releases, makes an event or submits a kernel or product must have opened this object,
/// or must have entered it after all others. Products use the arguments of cuBLAS, and the rules of
/// cuBLAS are checked. Before products are recorded, prepare_products must be called, also for
/// their epilogues.
class simulated_device : public cuda::device {
public:
  /// @param seed chooses the order in which streams run. Without a seed, all work runs when it is
  /// submitted.
  explicit simulated_device(std::optional<std::uint64_t> seed = std::nullopt);

  std::string name() const override { return "simulated"; }
  std::size_t number() const override { return gpu; }
  cuda::stream main_stream() const override { return main_; }
  cuda::stream copy_stream() const override { return copies_; }
  cuda::stream upload_stream() const override { return uploads_; }
  ~simulated_device() override;
  void enter() override { entered() = this; }
  void* allocate(std::size_t bytes) override;
  /// First waits for all streams, like cudaFree.
  void release(void* memory) noexcept override;
  void* allocate_pinned(std::size_t bytes) override;
  void release_pinned(void* memory) noexcept override;
  bool is_pinned(const void* memory, std::size_t bytes) const override;
  void copy_in(cuda::stream where, void* to, const void* from, std::size_t bytes) override;
  void copy_out(cuda::stream where, void* to, const void* from, std::size_t bytes) override;
  void copy_inside(cuda::stream where, void* to, const void* from, std::size_t bytes) override;
  bool reach(std::size_t other) override;
  /// Fails unless reach() has made the other GPU's memory accessible.
  void copy_from(cuda::stream where, void* to, std::size_t other, const void* from,
                 std::size_t bytes) override;
  void synchronize(cuda::stream where) override;
  std::unique_ptr<cuda::event> make_event() override;
  std::unique_ptr<cuda::time_mark> make_time_mark() override;
  /// Allocates no work space, but counts it in allocated_bytes().
  void prepare_products(bool with_epilogues) override;
  void multiply(cuda::stream where, const cuda::product& x) override;
  bool multiplies(dtype type) const override { return type != refused_type; }
  bool fuses(const cuda::product& x) override;
  void begin_recording(cuda::stream where) override;
  std::unique_ptr<cuda::recording> end_recording(cuda::stream where) override;

  /// The number of this GPU. Objects with the same number share a GPU.
  std::size_t gpu = 0;
  /// True if this GPU can access the memory of other GPUs.
  bool has_peers = true;
  /// The type whose products this device cannot compute. By default, there is no such type.
  std::optional<dtype> refused_type;
  /// True if it computes products with epilogues, by the rules of cublasLt.
  bool has_epilogues = true;
  /// True if a copy from memory that is not pinned reads this memory only when the stream gets to
  /// the copy. A GPU may do this. Otherwise, the call itself reads the memory.
  bool reads_late = false;
  /// An allocation of more device memory than this fails.
  std::size_t largest_allocation = ~std::size_t{0};

  /// Allocations of both kinds of memory so far.
  std::size_t allocations() const noexcept { return allocations_; }
  /// The bytes of all allocations of device memory so far, including the work space of products,
  /// and of pinned memory.
  std::size_t allocated_bytes() const noexcept { return allocated_bytes_; }
  std::size_t pinned_bytes() const noexcept { return pinned_bytes_; }
  /// True if this object allocated this pinned memory.
  bool has_pinned(const void* memory, std::size_t bytes) const;
  /// The number of recordings so far, and how often a recording was submitted.
  std::size_t recordings() const noexcept { return recordings_; }
  std::size_t replays() const noexcept { return replays_; }
  /// The number of kernels, products and copies on the device that were submitted one by one so
  /// far.
  std::size_t single_submissions() const noexcept { return streams_.submitted() - replayed_; }
  /// The number of copies of the upload stream so far.
  std::size_t uploads() const noexcept { return uploaded_; }
  /// Products that were submitted with an epilogue so far.
  std::size_t epilogues() const noexcept { return epilogues_; }
  /// How often the host has waited so far. Copies from or to memory that is not pinned count, too,
  /// because they may wait.
  std::size_t waits() const noexcept { return waits_; }
  /// True if prepare_products was called.
  bool has_products() const noexcept { return prepared_; }
  /// True if prepare_products was called for products with epilogues.
  bool needs_epilogues() const noexcept { return prepared_epilogues_; }

private:
  /// The device that this thread entered last.
  static const simulated_device*& entered();
  void check_entered() const;
  void check_host_call() const;

  simulated_streams streams_;
  cuda::stream main_ = streams_.handle(0);
  cuda::stream copies_ = streams_.handle(1);
  cuda::stream uploads_ = streams_.handle(2);
  /// The pinned memory that this object allocated.
  std::map<const std::byte*, std::vector<std::byte>> pinned_;
  /// The numbers of the GPUs whose memory this GPU can access.
  std::set<std::size_t> reached_;
  std::size_t allocations_ = 0;
  std::size_t allocated_bytes_ = 0;
  std::size_t pinned_bytes_ = 0;
  std::size_t recordings_ = 0;
  std::size_t replays_ = 0;
  /// The amount of work in replayed recordings.
  std::size_t replayed_ = 0;
  std::size_t uploaded_ = 0;
  std::size_t waits_ = 0;
  std::size_t epilogues_ = 0;
  bool prepared_ = false;
  bool prepared_epilogues_ = false;
  bool recording_ = false;
};

/// Computes on the CPU what cuBLAS computes with these arguments, including the product's epilogue.
/// Throws simulation_error if cuBLAS would refuse them. If k is 0, the result keeps its contents.
void run_gemm(const cuda::product& types, const cuda::gemm_call& x);

} // namespace troupe::test
