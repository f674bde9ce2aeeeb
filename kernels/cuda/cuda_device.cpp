#include "kernels/cuda/cublas.hpp"
#include "kernels/cuda/cublas_lt.hpp"
#include "kernels/cuda/cuda_errors.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/epilogue.hpp"
#include "kernels/cuda/gpu_architecture.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>

namespace troupe::cuda {

namespace {

std::string megabytes(std::size_t bytes) {
  return std::to_string(bytes / 1'000'000) + " MB";
}

cudaStream_t handle_of(stream x) {
  return static_cast<cudaStream_t>(x.handle);
}

class cuda_graph final : public recording {
public:
  /// Takes ownership of the graph. Also reserves the memory that the first launch needs, so that
  /// only this function fails if there is too little.
  cuda_graph(cudaGraph_t graph, stream where) {
    auto error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(error, "a CUDA graph");
    error = cudaGraphUpload(executable_, handle_of(where));
    if (error != cudaSuccess)
      cudaGraphExecDestroy(executable_);
    check_cuda(error, "a CUDA graph");
  }
  ~cuda_graph() override { cudaGraphExecDestroy(executable_); }

  void replay(stream where) override {
    check_cuda(cudaGraphLaunch(executable_, handle_of(where)), "a CUDA graph");
  }

private:
  cudaGraphExec_t executable_ = nullptr;
};

class cuda_event final : public event {
public:
  cuda_event() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event of the GPU");
  }
  ~cuda_event() override { cudaEventDestroy(event_); }

  void record(stream where) override {
    check_cuda(cudaEventRecord(event_, handle_of(where)), "an event of the GPU");
  }
  void hold(stream where) override {
    check_cuda(cudaStreamWaitEvent(handle_of(where), event_, 0), "an event of the GPU");
  }
  void wait() override { check_cuda(cudaEventSynchronize(event_), "a kernel or copy on the GPU"); }

private:
  cudaEvent_t event_ = nullptr;
};

class cuda_time_mark final : public time_mark {
public:
  cuda_time_mark() { check_cuda(cudaEventCreate(&event_), "an event of the GPU"); }
  ~cuda_time_mark() override { cudaEventDestroy(event_); }

  void record(stream where) override {
    check_cuda(cudaEventRecord(event_, handle_of(where)), "an event of the GPU");
  }
  double seconds_since(const time_mark& begin) override {
    const auto first = static_cast<const cuda_time_mark&>(begin).event_;
    check_cuda(cudaEventSynchronize(first), "a kernel or copy on the GPU");
    check_cuda(cudaEventSynchronize(event_), "a kernel or copy on the GPU");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, first, event_), "the time between two events");
    return 1e-3 * static_cast<double>(milliseconds);
  }

private:
  cudaEvent_t event_ = nullptr;
};

/// A stream of the current device. The destructor destroys the stream.
class owned_stream {
public:
  owned_stream() {
    check_cuda(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "a stream of the GPU");
  }
  owned_stream(const owned_stream&) = delete;
  owned_stream& operator=(const owned_stream&) = delete;
  ~owned_stream() { cudaStreamDestroy(handle_); }

  stream get() const noexcept { return {handle_}; }

private:
  cudaStream_t handle_ = nullptr;
};

/// A thread holds this mutex shared while it records a CUDA graph. Another thread holds it
/// exclusively while it makes cuBLAS begin or end: cublasDestroy waits for the whole GPU,
/// cublasCreate may do so, and CUDA gives up recordings on a GPU for which a thread waits.
std::shared_mutex& recordings() {
  static std::shared_mutex result;
  return result;
}

/// Makes GPU number `index` the current device of this thread. Returns `index`.
int entered(int index) {
  check_cuda(cudaSetDevice(index), [&] { return "GPU " + std::to_string(index); });
  return index;
}

class cuda_device final : public device {
public:
  explicit cuda_device(std::size_t index) : index_(entered(static_cast<int>(index))) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, index_), "properties of a GPU");
    name_ = properties.name;
    if (const auto refusal = refusal_of(properties.major, properties.minor); !refusal.empty())
      throw device_error("the GPU " + name_ + " " + refusal);
  }
  ~cuda_device() override {
    cudaSetDevice(index_);
    recording_ = {}; // normally empty
    const auto alone = without_recordings();
    lt_.reset();
    cublas_.reset();
  }

  std::string name() const override { return name_; }
  std::size_t number() const override { return static_cast<std::size_t>(index_); }
  stream main_stream() const override { return stream_.get(); }
  stream copy_stream() const override { return copies_.get(); }
  stream upload_stream() const override { return uploads_.get(); }
  void enter() override { entered(index_); }

  void* allocate(std::size_t bytes) override {
    void* result = nullptr;
    const auto error = cudaMalloc(&result, bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError(); // clears the error, which is reported here
      throw device_error(explain_out_of_memory(name_, bytes));
    }
    check_cuda(error, [&] { return "memory of the GPU " + name_; });
    return result;
  }
  void release(void* memory) noexcept override { cudaFree(memory); }

  void* allocate_pinned(std::size_t bytes) override {
    void* result = nullptr;
    if (const auto error = cudaHostAlloc(&result, bytes, cudaHostAllocDefault);
        error != cudaSuccess) {
      cudaGetLastError(); // clears the error, which is reported here
      throw device_error(megabytes(bytes) + " of pinned memory of the host, for copies to the GPU "
                         + name_ + ": " + cudaGetErrorString(error)
                         + ". Use a smaller batch or model, or end other programs");
    }
    return result;
  }
  void release_pinned(void* memory) noexcept override { cudaFreeHost(memory); }
  bool is_pinned(const void* memory, std::size_t bytes) const override {
    const auto* const first = static_cast<const std::byte*>(memory);
    const auto pinned = [](const void* x) {
      cudaPointerAttributes found{};
      if (cudaPointerGetAttributes(&found, x) == cudaSuccess)
        return found.type == cudaMemoryTypeHost;
      cudaGetLastError(); // clears the error
      return false;
    };
    return pinned(first) && pinned(first + bytes - 1);
  }

  void copy_in(stream where, void* to, const void* from, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, handle_of(where)),
               "a copy to the GPU");
  }
  void copy_out(stream where, void* to, const void* from, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, handle_of(where)),
               "a copy from the GPU");
  }
  void copy_inside(stream where, void* to, const void* from, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle_of(where)),
               "a copy on the GPU");
  }
  bool reach(std::size_t other) override {
    if (other == number())
      return true;
    const auto peer = static_cast<int>(other);
    int possible = 0;
    check_cuda(cudaDeviceCanAccessPeer(&possible, index_, peer), "access to another GPU");
    if (possible == 0)
      return false;
    enter();
    const auto error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaSuccess)
      return true;
    cudaGetLastError(); // clears the error
    return error == cudaErrorPeerAccessAlreadyEnabled;
  }
  void copy_from(stream where, void* to, std::size_t other, const void* from,
                 std::size_t bytes) override {
    if (other == number()) {
      copy_inside(where, to, from, bytes);
      return;
    }
    check_cuda(
      cudaMemcpyPeerAsync(to, index_, from, static_cast<int>(other), bytes, handle_of(where)),
      "a copy from another GPU");
  }
  void synchronize(stream where) override {
    check_cuda(cudaStreamSynchronize(handle_of(where)),
               [&] { return "a kernel or copy on the GPU " + name_; });
  }
  std::unique_ptr<event> make_event() override { return std::make_unique<cuda_event>(); }
  std::unique_ptr<time_mark> make_time_mark() override {
    return std::make_unique<cuda_time_mark>();
  }
  void prepare_products(bool with_epilogues) override {
    products();
    if (with_epilogues)
      epilogues();
  }
  void multiply(stream where, const product& x) override {
    if (x.ends())
      epilogues().multiply(where, x);
    else
      products().multiply(x);
  }
  /// Operands of all types are supported, even by the oldest GPU that `refusal_of` accepts.
  bool multiplies(dtype) const override { return true; }
  bool fuses(const product& x) override { return has_epilogue(x) && epilogues().fuses(x); }

  void begin_recording(stream where) override {
    std::shared_lock lock{recordings()};
    check_cuda(cudaStreamBeginCapture(handle_of(where), cudaStreamCaptureModeThreadLocal),
               "recording a CUDA graph");
    recording_ = std::move(lock);
  }
  std::unique_ptr<recording> end_recording(stream where) override {
    const auto ends_here = std::move(recording_);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(handle_of(where), &graph), "recording a CUDA graph");
    return std::make_unique<cuda_graph>(graph, where);
  }

private:
  /// Waits until no other device records, and lets none begin. If this device records itself, it
  /// already holds the mutex, and locking it again would wait for ever.
  std::unique_lock<std::shared_mutex> without_recordings() const {
    if (recording_.owns_lock())
      return {};
    return std::unique_lock{recordings()};
  }
  /// cuBLAS and cublasLt are loaded when a product first needs them.
  cublas& products() {
    if (!cublas_) {
      const auto alone = without_recordings();
      cublas_space_ = {*this, product_space_bytes};
      cublas_.emplace(stream_.get(), cublas_space_.data());
    }
    return *cublas_;
  }
  cublas_lt& epilogues() {
    if (!lt_) {
      const auto alone = without_recordings();
      lt_space_ = {*this, product_space_bytes};
      lt_.emplace(lt_space_.data());
    }
    return *lt_;
  }

  int index_;
  std::string name_;
  owned_stream stream_;
  owned_stream copies_;
  owned_stream uploads_;
  /// Empty until a product needs it. Parameter servers compute no products.
  buffer<std::byte> cublas_space_;
  std::optional<cublas> cublas_;
  buffer<std::byte> lt_space_;
  std::optional<cublas_lt> lt_;
  /// Held while this device records.
  std::shared_lock<std::shared_mutex> recording_;
};

} // namespace

void check_launch(const char* name, std::size_t blocks, std::size_t shared_bytes) {
  check_cuda(cudaGetLastError(), [&] {
    return std::string("kernel ") + name + " with " + std::to_string(blocks) + " blocks and "
      + std::to_string(shared_bytes) + " bytes of shared memory";
  });
}

std::unique_ptr<device> open_device(std::size_t index) {
  int count = 0;
  const auto error = cudaGetDeviceCount(&count);
  cudaGetLastError(); // clears the error, which is reported here
  if (error == cudaErrorInsufficientDriver) {
    int version = 0;
    cudaDriverGetVersion(&version);
    const auto needed =
      std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
    if (version == 0)
      throw device_error("no driver for NVIDIA GPUs was found (libcuda.so.1). Install a driver for "
                         "CUDA "
                         + needed + " or newer, or use the CPU");
    throw device_error("the driver for NVIDIA GPUs is too old: it is for CUDA "
                       + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10)
                       + ", and " + needed + " is needed. Install a newer one");
  }
  if (error != cudaSuccess && error != cudaErrorNoDevice)
    check_cuda(error, "the GPUs of this machine cannot be listed");
  if (index >= static_cast<std::size_t>(count))
    throw device_error("there is no GPU " + std::to_string(index) + ": this machine has "
                       + std::to_string(count) + ", counted from 0");
  return std::make_unique<cuda_device>(index);
}

} // namespace troupe::cuda
