#include "actors/checkpoint/checkpoint.hpp"

#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/moving_average.hpp"
#include "actors/model/replica_state.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

// Makes xxhash.h define the state of an XXH3 hash, so that the state can be a local variable.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe {

namespace {

constexpr auto manifest_file = "checkpoint.json";
constexpr auto weights_file = "weights.safetensors";
constexpr auto optimizer_file = "optimizer.safetensors";

/// A tensor of the optimizer's state: one slot (such as a moment) of one parameter.
struct state_tensor {
  std::size_t slot;
  const layout_entry* entry;
  expected_tensor what;
};

std::vector<state_tensor> state_tensors(const job_context& context,
                                        const std::vector<std::string>& names) {
  std::vector<state_tensor> result;
  for (std::size_t slot = 0; slot < names.size(); ++slot)
    for (auto& entry : context.parameters().entries())
      result.push_back({slot,
                        &entry,
                        {names[slot] + '/' + entry.name,
                         safetensors_dtype::f32,
                         {entry.shape.extents().begin(), entry.shape.extents().end()}}});
  return result;
}

/// Returns how many workers have their own optimizer state in a checkpoint, or 1 if none has.
/// @param slots number of vectors in the checkpoint: the weights and all optimizer state
std::size_t crew_of(const job_context& context, std::size_t slots) {
  const auto own = slots - 1 - state_names(context, 1).size();
  return own == 0 ? 1 : own / context.rule.slots();
}

named_contents lay_out_state(const job_context& context, const std::vector<payload>& slots) {
  safetensors_file file;
  for (auto& x : state_tensors(context, state_names(context, crew_of(context, slots.size()))))
    file.tensors.push_back(
      {x.what.name, x.what.dtype, x.what.shape,
       std::as_bytes(slots.at(1 + x.slot).as_floats().subspan(x.entry->offset, x.entry->size))});
  auto [head, rest] = lay_out_safetensors(file);
  return {optimizer_file, std::move(head), std::move(rest)};
}

std::string hex(XXH128_hash_t x) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(x.high64),
                static_cast<unsigned long long>(x.low64));
  return text.data();
}

std::string hash_of(std::span<const std::byte> bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

checkpoint_file to_string(const named_contents& file) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, file.head.data(), file.head.size());
  std::uint64_t size = file.head.size();
  for (auto part : file.rest) {
    XXH3_128bits_update(&state, part.data(), part.size());
    size += part.size();
  }
  return {file.name, size, hex(XXH3_128bits_digest(&state))};
}

/// Returns the names of all vectors of optimizer state: first those that the job needs, then the
/// others in the file. A tensor is named "VECTOR/PARAMETER". A vector has a tensor of every
/// parameter; without this condition, "a/head/fc" could be the parameter "fc" of a vector "a/head".
std::vector<std::string> names_in(const safetensors_file& file, const job_context& context) {
  const auto slots = context.rule.slot_names();
  std::vector<std::string> result{slots.begin(), slots.end()};
  const auto& tensors = context.parameters().entries();
  const auto is_vector = [&](const std::string& name) {
    return std::ranges::all_of(tensors,
                               [&](auto& x) { return file.find(name + '/' + x.name) != nullptr; });
  };
  for (auto& x : file.tensors)
    if (!tensors.empty() && x.name.ends_with('/' + tensors.front().name))
      if (auto name = x.name.substr(0, x.name.size() - tensors.front().name.size() - 1);
          std::ranges::find(result, name) == result.end() && is_vector(name))
        result.push_back(std::move(name));
  return result;
}

/// Reads the optimizers' state from a file, and appends it to `slots`. State that the job does not
/// use is checked but not loaded. If the file has no momentum of an outer optimizer, the momentum
/// is 0. If it has no moving average, the average is equal to the weights.
void read_state(const checkpoint_files& files, const job_context& context,
                std::vector<payload>& slots) {
  const auto name = (files.directory / optimizer_file).string();
  const auto file = parse_safetensors(files.optimizer, name);
  const auto there = names_in(file, context);
  std::vector<expected_tensor> expected;
  for (auto& x : state_tensors(context, there))
    expected.push_back(x.what);
  require_tensors(file, expected, name);
  std::size_t crew = 0;
  while (context.rule.slots() > 0
         && std::ranges::find(there, own_state(context, crew, 0)) != there.end())
    ++crew;
  const auto names = state_names(context, crew);
  for (std::size_t i = 0; i < names.size(); ++i) {
    slots.push_back(payload::floats(context.parameters().size()));
    std::ranges::fill(slots.back().as_mutable_floats(), 0.0F);
  }
  for (auto& x : state_tensors(context, names)) {
    const auto* found = file.find(x.what.name);
    const auto source = found == nullptr ? std::span<const std::byte>{} : found->bytes;
    if (!source.empty())
      std::memcpy(slots.at(1 + x.slot).as_mutable_floats().data() + x.entry->offset, source.data(),
                  source.size());
  }
  const auto average = std::ranges::find(names, moving_average_name);
  if (average != names.end() && std::ranges::find(there, *average) == there.end())
    slots[1 + static_cast<std::size_t>(average - names.begin())] = slots[0];
}

std::vector<std::byte> read_whole(storage& from, const std::filesystem::path& file) {
  try {
    return from.read(file);
  } catch (const std::system_error& error) {
    throw input_error{error.what()};
  } catch (const std::bad_alloc&) {
    throw input_error{file.string() + ": too large to be read"};
  }
}

/// Reads a file that the manifest lists, and checks its size and hash.
std::vector<std::byte> read_listed(storage& from, const checkpoint_manifest& manifest,
                                   const std::filesystem::path& directory, const char* name) {
  const auto path = directory / name;
  const auto listed = std::ranges::find(manifest.files, name, &checkpoint_file::name);
  if (listed == manifest.files.end())
    throw input_error{(directory / manifest_file).string() + ": files: " + name + " is missing"};
  auto result = read_whole(from, path);
  if (result.size() != listed->size)
    throw input_error{path.string() + ": damaged: " + std::to_string(result.size())
                      + " bytes long, expected " + std::to_string(listed->size)};
  if (hash_of(result) != listed->xxh3)
    throw input_error{path.string() + ": damaged: its hash is not the one in " + manifest_file};
  return result;
}

/// Checks that the job can continue from this checkpoint. Does not check the tensors.
void require_fit(const checkpoint_files& files, const job_context& context) {
  const auto& x = files.manifest;
  const auto name = (files.directory / manifest_file).string();
  const auto job = parse_job(x.job, name + ": job");
  const auto refuse = [&](const std::string& what) { throw input_error{name + ": " + what}; };
  if (x.data != context.data)
    refuse("written for other data: " + to_string(x.data) + "; the job has "
           + to_string(context.data));
  if (job.seed() != context.job.seed())
    refuse("written with seed " + std::to_string(job.seed()) + ", but the job has "
           + std::to_string(context.job.seed()) + ": the order of samples would differ");
  if (job.optimizer().kind() != context.job.optimizer().kind())
    refuse("written with optimizer.kind " + proto::OptimizerKind_Name(job.optimizer().kind())
           + ", but the job has " + proto::OptimizerKind_Name(context.job.optimizer().kind()));
  if (x.cut.epoch >= context.job.epochs())
    refuse("is in epoch " + std::to_string(x.cut.epoch + 1) + ", but the job has "
           + std::to_string(context.job.epochs()) + ": raise epochs");
}

} // namespace

std::vector<named_contents> encode_checkpoint(const job_context& context, const checkpoint& x) {
  for (auto& slot : x.slots)
    if (slot.size() != x.slots[0].size())
      throw input_error{"checkpoint: a slot of the optimizer is not as long as the weights"};
  auto [head, rest] = lay_out_model(context.parameters(), x.slots.at(0).as_floats(),
                                    {x.manifest.step, context.hash, context.metadata});
  std::vector<named_contents> result;
  result.push_back({weights_file, std::move(head), std::move(rest)});
  result.push_back(lay_out_state(context, x.slots));
  auto manifest = x.manifest;
  manifest.files.clear();
  for (auto& file : result)
    manifest.files.push_back(to_string(file));
  const auto text = to_json(manifest);
  const auto bytes = as_byte_span(text);
  result.push_back({manifest_file, {bytes.begin(), bytes.end()}, {}});
  return result;
}

checkpoint_files read_checkpoint(storage& from, const std::filesystem::path& directory) {
  const auto path = directory / manifest_file;
  checkpoint_files result;
  result.directory = directory;
  result.manifest = parse_manifest(read_whole(from, path), path.string());
  const auto named = checkpoint_step(directory.filename().string());
  if (named > 0 && named != result.manifest.step)
    throw input_error{path.string() + ": step " + std::to_string(result.manifest.step)
                      + " does not belong in a directory of that name"};
  result.weights = read_listed(from, result.manifest, directory, weights_file);
  result.optimizer = read_listed(from, result.manifest, directory, optimizer_file);
  return result;
}

checkpoint fit_checkpoint(const checkpoint_files& files, const job_context& context) {
  checkpoint result;
  result.manifest = files.manifest;
  result.directory = files.directory;
  const auto weights =
    read_model(files.weights, context.parameters(), (files.directory / weights_file).string())
      .weights;
  require_fit(files, context);
  result.slots.push_back(payload::floats(weights.size()));
  std::ranges::copy(weights, result.slots[0].as_mutable_floats().begin());
  read_state(files, context, result.slots);
  return result;
}

void keep_checkpoints(storage& where, const std::filesystem::path& folder, std::uint64_t step,
                      std::size_t keep) {
  std::vector<std::pair<std::uint64_t, std::string>> found;
  for (auto& name : where.directories(folder))
    if (const auto of = checkpoint_step(name); of > 0 && of <= step)
      found.emplace_back(of, name);
  std::ranges::sort(found, std::greater{});
  for (std::size_t i = keep; i < found.size(); ++i)
    where.remove_directory(folder / found[i].second);
}

} // namespace troupe
