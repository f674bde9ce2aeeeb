#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Options that name the cluster and this process's task. Values that the user leaves out come from
/// the cluster file or from the environment variable TF_CONFIG.
struct task_options {
  std::optional<std::string> role;
  std::optional<std::uint32_t> task;
  std::string cluster;
};

/// `troupe node`: one process of a cluster.
struct node_command {
  task_options where;
  std::string job;
  std::string out;
  std::vector<std::string> overrides;
  std::string log_level;
  /// The checkpoint to continue from. An empty text means the newest checkpoint in the output
  /// directory.
  std::optional<std::string> resume;
  bool insecure = false;
  /// See session_options for `transport` and `channel_port`.
  std::string transport = "auto";
  std::uint16_t channel_port = 0;
  /// How long to wait for all tasks to join, in seconds. Overrides the value in the job.
  std::optional<double> join_timeout;
  /// The numbers of the GPUs to use: see gpus_here.
  std::vector<std::uint32_t> devices;
  /// The process ID of the parent, whose end also ends this process. 0 if there is none.
  int parent = 0;
  /// The only processor that this process uses: see bind_to.
  std::optional<unsigned> processor;
};

/// `troupe train`: a whole cluster on this host.
struct train_command {
  std::string job;
  std::uint32_t workers = 1;
  std::optional<std::uint32_t> ps;
  std::string protocol;
  bool processes = false;
  /// Only with `processes`. "auto": each worker runs on the processor that processors_of() chooses.
  /// "none": the system chooses processors.
  std::string bind = "auto";
  /// How messages travel between processes: see session_options.
  std::string transport = "auto";
  std::string out;
  std::string log_level;
  std::vector<std::string> overrides;
  /// The checkpoint to continue from. An empty text means the newest checkpoint in the output
  /// directory.
  std::optional<std::string> resume;
  /// The numbers of the GPUs to use: see gpus_here.
  std::vector<std::uint32_t> devices;
};

/// `troupe check`: shows what a job would do, without running it.
struct check_command {
  std::string job;
  std::string cluster;
  std::uint32_t workers = 1;
  std::optional<std::uint32_t> ps;
  bool processes = false;
  std::string protocol;
  std::vector<std::string> overrides;
  /// The numbers of the GPUs to use: see gpus_here.
  std::vector<std::uint32_t> devices;
  /// Also print the plan of a step.
  bool plan = false;
};

/// `troupe predict`: the predictions of trained weights on the test data, or on other records.
struct predict_command {
  std::string weights;
  std::string job;
  /// The CSV file for the predictions. "-" means standard output. If empty, no predictions are
  /// written.
  std::string predictions;
  /// A file of records without labels. If it is given, these records are predicted instead of the
  /// test data: see open_features.
  std::string features;
  /// Number of test images to draw.
  std::uint32_t show = 0;
  /// For models of text: the number of characters to generate. If not 0, nothing is tested.
  std::uint32_t generate = 0;
  std::string prompt = "\n";
  /// How characters are drawn at random: logits are divided by `temperature`, and `text_seed` is
  /// the seed.
  double temperature = 1;
  std::uint64_t text_seed = 1;
  /// The device that computes the model: see parse_device_name.
  std::string device = "CPU:0";
  std::vector<std::string> overrides;
};

/// `troupe export`: writes trained weights and their model as an ONNX file.
struct export_command {
  std::string weights;
  std::string job;
  /// The ONNX file to write.
  std::string output;
  std::vector<std::string> overrides;
};

/// `troupe doctor`: shows which tasks of a cluster reach each other.
struct doctor_command {
  task_options where;
};

/// `troupe bench train`: the speed of training some models, with troupe and with a peer (another
/// library that trains the same models).
struct bench_train_command {
  /// "torch", or empty if there is no peer.
  std::string peer;
  /// A Python interpreter that has PyTorch. If empty, troupe looks for one.
  std::string python;
  /// Names of works (each is a model with its batch and optimizer). If empty, all works are
  /// measured.
  std::vector<std::string> works;
  std::uint32_t threads = 1;
  std::uint32_t rounds = 15;
  /// Shortest duration of a round in seconds.
  double seconds = 0.2;
  /// If true, the processor time of the computing thread is measured, and not the elapsed time.
  bool processor_time = false;
  bool profile = false;
  bool json = false;
};

/// `troupe bench kernels`: the speed of parts of training, relative to the machine's limits.
struct bench_kernels_command {
  std::uint32_t rounds = 15;
  /// Seconds for each comparison, over all rounds together.
  double seconds = 0.3;
  /// Number of elements in the arrays that are too large for a cache.
  std::uint32_t elements = 1U << 24;
  bool json = false;
};

/// `troupe bench gpu`: the speed of training on a GPU, relative to its limits and to a peer.
struct bench_gpu_command {
  std::uint32_t device = 0;
  /// "torch", or empty if there is no peer.
  std::string peer;
  /// A Python interpreter that has PyTorch. If empty, troupe looks for one.
  std::string python;
  /// Names of the peer's modes, of measures and of works. An empty list stands for all names.
  std::vector<std::string> peer_modes;
  std::vector<std::string> measures;
  std::vector<std::string> works;
  std::uint32_t rounds = 15;
  /// Shortest duration of a round in seconds.
  double seconds = 0.1;
  bool json = false;
};

/// `troupe bench async`: what staleness costs in accuracy, and how much each method of compensation
/// (a "recipe") helps.
struct bench_async_command {
  /// Names of works (jobs from apps/examples, with changes).
  std::vector<std::string> works{"mlp"};
  std::vector<std::uint32_t> workers{2, 4, 8, 16};
  /// Number of runs of each configuration. Their seeds are 1, 2, ...
  std::uint32_t seeds = 3;
  /// Names of recipes. If empty, all recipes are measured.
  std::vector<std::string> recipes;
  /// Number of epochs. 0 means the number in the example's job.
  std::uint32_t epochs = 0;
  std::uint32_t ps = 1;
  /// Number of rounds in which speeds are measured; 0 means that speeds are not measured.
  std::uint32_t rounds = 5;
  /// Number of parallel runs while accuracy is measured; 0 means one per processor.
  std::uint32_t jobs = 0;
  /// "tf", or empty if there is no peer.
  std::string peer;
  /// A Python interpreter that has TensorFlow. If empty, troupe looks for one.
  std::string python;
  bool json = false;
};

/// `troupe bench cluster`: measures the speed of several workers that train together on this host.
struct bench_cluster_command {
  std::uint32_t workers = 2;
  /// Names of works; see cluster.cpp.
  std::vector<std::string> works{"mlp-64"};
  std::vector<std::string> protocols{"async_ps", "sync_ps", "ring"};
  /// "threads" runs all tasks in one process. Any other name starts a process per task, and is the
  /// name of the transport between them.
  std::vector<std::string> transports{"threads", "auto"};
  std::uint32_t epochs = 2;
  std::uint32_t rounds = 5;
  /// Names of peers: "ddp", "tf".
  std::vector<std::string> peers;
  /// A Python interpreter that has the libraries of the peers. If empty, troupe looks for one.
  std::string python;
  /// Changes to the job, in the format of `troupe train --set`.
  std::vector<std::string> overrides;
  bool json = false;
};

/// `troupe bench allreduce`: the speed of all-reduces over threads or processes of this host.
struct bench_allreduce_command {
  std::uint32_t ranks = 4;
  std::vector<std::string> sizes{"4KiB", "64KiB", "1MiB", "16MiB", "64MiB"};
  /// Number of measurements for each size.
  std::uint32_t rounds = 20;
  std::string schedule = "auto";
  bool processes = false;
  /// For messages between processes: "auto" or "tcp".
  std::string transport = "auto";
  /// "gloo" or "mpi", or empty if there is no peer.
  std::string peer;
  /// A Python interpreter that has PyTorch. If empty, troupe looks for one.
  std::string python;
  bool json = false;
  /// Only for a process that this command has started: its rank, the addresses of all ranks, and
  /// the process ID of the parent, whose end also ends this process.
  std::uint32_t rank = 0;
  std::vector<std::string> addresses;
  int parent = 0;
};

/// `troupe bench ps`: the speed of a parameter store (see store_client) over threads or processes
/// of this host.
struct bench_ps_command {
  std::uint32_t servers = 1;
  std::uint32_t workers = 1;
  std::vector<std::string> bytes{"4KiB", "64KiB", "1MiB", "16MiB", "64MiB"};
  /// If not 0, `bytes` is ignored, and each push has this number of separate ranges, with
  /// `bytes_per_key` bytes each.
  std::uint32_t keys = 0;
  std::uint32_t bytes_per_key = 256;
  /// Round trips per size.
  std::uint32_t rounds = 20;
  bool processes = false;
  /// For messages between processes: "auto", "tcp" or "basp".
  std::string transport = "auto";
  bool json = false;
  /// Only for a process that this command has started. `server` is its number if it is a server;
  /// otherwise `worker` is its number. `stores` has the addresses of all servers (each size has its
  /// own servers), and `meeting` the addresses of all workers. The end of the process `parent` also
  /// ends this process.
  std::optional<std::uint32_t> server;
  std::uint32_t worker = 0;
  std::vector<std::string> stores;
  std::vector<std::string> meeting;
  int parent = 0;
};

/// These functions execute a command. They return an exit code and may throw input_error.
int run(const node_command& x);
int run(const doctor_command& x);
int run(const train_command& x);
int run(const check_command& x);
int run(const predict_command& x);
int run(const bench_train_command& x);
int run(const bench_kernels_command& x);
int run(const bench_gpu_command& x);
int run(const bench_async_command& x);
int run(const bench_allreduce_command& x);
int run(const bench_ps_command& x);
int run(const bench_cluster_command& x);
int run(const export_command& x);
/// `troupe operators`: prints the ONNX operators that can be imported, as Markdown.
int print_operators();

} // namespace troupe
