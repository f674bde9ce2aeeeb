#include "actors/model/data_split.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/layer_list.hpp"
#include "actors/model/model_source.hpp"
#include "actors/model/optimizer_builder.hpp"
#include "actors/model/sha256.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

namespace troupe {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// Fields that may differ between nodes. They are not part of the job's hash.
constexpr std::array<std::string_view, 20> not_hashed{"name",
                                                      "output",
                                                      "model.onnx",
                                                      "model.initial_weights",
                                                      "runtime.request_timeout_ms",
                                                      "runtime.join_timeout_ms",
                                                      "runtime.suspect_after_ms",
                                                      "runtime.link_grace_ms",
                                                      "runtime.threads",
                                                      "runtime.check_kernels",
                                                      "checkpoint.every_steps",
                                                      "checkpoint.keep",
                                                      "evaluate.every_steps",
                                                      "data.prefetch",
                                                      "data.read_threads",
                                                      "device",
                                                      "soft_placement",
                                                      "elastic.rejoin_timeout_ms",
                                                      "elastic.min_workers",
                                                      "elastic.max_losses"};

/// Messages that have a meaning even if they are empty. If one of them is set in only one of two
/// jobs, this is a difference. The hash covers only their fields. So it stays the same as in
/// checkpoints of earlier versions.
constexpr std::array<std::string_view, 7> compared_messages{
  "moving_average", "early_stopping", "elastic",     "local_sgd.outer",
  "data.split",     "data.normalize", "data.augment"};

/// What a list of fields is for: the hash of a job, or the comparison of two jobs.
enum class purpose : std::uint8_t { hash, comparison };

/// One value of a job: "optimizer.momentum", "0.9".
struct flat_field {
  std::string path;
  std::string value;
  bool is_default = false;
};

std::string quoted(const std::string& text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x20 && code < 0x7f && c != '"' && c != '\\')
      result += c;
    else
      result += {'\\', 'x', digits[code >> 4], digits[code & 15]};
  }
  return result + "\"";
}

/// A value as text. `index` is used only for a repeated field.
std::string value_text(const Message& message, const FieldDescriptor& field, int index) {
  const auto& r = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    return std::to_string(list ? r.GetRepeatedInt32(message, &field, index)
                               : r.GetInt32(message, &field));
  case FieldDescriptor::CPPTYPE_INT64:
    return std::to_string(list ? r.GetRepeatedInt64(message, &field, index)
                               : r.GetInt64(message, &field));
  case FieldDescriptor::CPPTYPE_UINT32:
    return std::to_string(list ? r.GetRepeatedUInt32(message, &field, index)
                               : r.GetUInt32(message, &field));
  case FieldDescriptor::CPPTYPE_UINT64:
    return std::to_string(list ? r.GetRepeatedUInt64(message, &field, index)
                               : r.GetUInt64(message, &field));
  case FieldDescriptor::CPPTYPE_FLOAT:
    return number_text(list ? r.GetRepeatedFloat(message, &field, index)
                            : r.GetFloat(message, &field));
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return number_text(list ? r.GetRepeatedDouble(message, &field, index)
                            : r.GetDouble(message, &field));
  case FieldDescriptor::CPPTYPE_BOOL:
    return (list ? r.GetRepeatedBool(message, &field, index) : r.GetBool(message, &field))
      ? "true"
      : "false";
  case FieldDescriptor::CPPTYPE_ENUM:
    return (list ? r.GetRepeatedEnum(message, &field, index) : r.GetEnum(message, &field))->name();
  case FieldDescriptor::CPPTYPE_STRING:
    return quoted(list ? r.GetRepeatedString(message, &field, index)
                       : r.GetString(message, &field));
  case FieldDescriptor::CPPTYPE_MESSAGE:
    return "{}";
  }
  return {};
}

void flatten(const Message& message, const std::string& prefix, purpose use,
             std::vector<flat_field>& out);

void flatten_list(const Message& message, const FieldDescriptor& field, const std::string& path,
                  purpose use, std::vector<flat_field>& out) {
  const auto& access = *message.GetReflection();
  for (int i = 0; i < access.FieldSize(message, &field); ++i) {
    const std::string element = path + "[" + std::to_string(i) + "]";
    if (field.message_type() != nullptr)
      flatten(access.GetRepeatedMessage(message, &field, i), element + ".", use, out);
    else
      out.push_back({element, value_text(message, field, i), false});
  }
}

void flatten_one(const Message& message, const FieldDescriptor& field, const std::string& path,
                 purpose use, std::vector<flat_field>& out) {
  const auto& access = *message.GetReflection();
  const bool set = access.HasField(message, &field);
  if (field.message_type() != nullptr) {
    // A message in a oneof is listed as soon as it is set, even if it is empty, because setting it
    // is a choice. The same holds for `compared_messages`, but not in the hash. Of any other
    // message, only the fields are listed.
    const bool compared = use == purpose::comparison
      && std::ranges::find(compared_messages, path) != compared_messages.end();
    const bool listed = field.containing_oneof() != nullptr || compared;
    if (listed && !set)
      return;
    if (listed)
      out.push_back({path, "{}", path == "learning_rate.constant"});
    return flatten(access.GetMessage(message, &field), path + ".", use, out);
  }
  if (!set && !field.has_default_value())
    return;
  const std::string value = value_text(message, field, 0);
  const auto& unset =
    *google::protobuf::MessageFactory::generated_factory()->GetPrototype(message.GetDescriptor());
  const bool is_default = field.has_default_value() && value == value_text(unset, field, 0);
  out.push_back({path, value, is_default});
}

/// All values of a message, in the order of their field numbers. Unset fields appear with their
/// defaults.
void flatten(const Message& message, const std::string& prefix, purpose use,
             std::vector<flat_field>& out) {
  const auto& type = *message.GetDescriptor();
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < type.field_count(); ++i)
    fields.push_back(type.field(i));
  std::ranges::sort(fields, {}, [](const FieldDescriptor* field) { return field->number(); });
  for (const auto* field : fields) {
    const std::string path = prefix + field->name();
    const bool says_where = &type == proto::Layer::descriptor() && field->name() == "line";
    if (says_where || std::ranges::find(not_hashed, path) != not_hashed.end())
      continue;
    if (field->is_repeated())
      flatten_list(message, *field, path, use, out);
    else
      flatten_one(message, *field, path, use, out);
  }
}

/// Removes the fields that this kind of optimizer does not use, and sets the fields whose default
/// depends on the kind.
void normalize(proto::Optimizer& x) {
  const auto kind = x.kind();
  const bool adam = kind == proto::ADAM || kind == proto::ADAMW || kind == proto::LAMB;
  if (kind != proto::MOMENTUM && kind != proto::NESTEROV && kind != proto::RMSPROP)
    x.clear_momentum();
  if (!adam) {
    x.clear_beta1();
    x.clear_beta2();
  }
  if (kind != proto::RMSPROP)
    x.clear_smoothing();
  if (!adam && kind != proto::RMSPROP && kind != proto::ADAGRAD)
    x.clear_epsilon();
  if (kind == proto::RMSPROP && !x.has_momentum())
    x.set_momentum(0);
  if (kind == proto::ADAGRAD && !x.has_epsilon())
    x.set_epsilon(build_optimizer(x).epsilon);
}

/// Gives a default name to each layer that has no name.
void name_layers(google::protobuf::RepeatedPtrField<proto::Layer>& layers) {
  for (int i = 0; i < layers.size(); ++i) {
    layers[i].set_name(layer_name(layers[i], i));
    if (layers[i].has_block())
      name_layers(*layers[i].mutable_block()->mutable_layer());
  }
}

std::vector<flat_field> flatten(proto::Job job, purpose use) {
  name_layers(*job.mutable_model()->mutable_layer());
  if (const auto structure = onnx_structure_of(job.model()); !structure.empty())
    job.mutable_model()->set_onnx_structure(sha256_hex(as_byte_span(structure)));
  if (job.has_optimizer())
    normalize(*job.mutable_optimizer());
  // `shuffle: false` is not written. Before this field existed, splits were always in order. The
  // canonical text of jobs from that time therefore stays the same.
  if (job.data().has_split()) {
    const bool shuffled = is_shuffled(job.data());
    auto& split = *job.mutable_data()->mutable_split();
    split.clear_shuffle();
    if (shuffled)
      split.set_shuffle(true);
  }
  std::vector<flat_field> fields;
  flatten(job, "", use, fields);
  // The batch is left out, because it follows from the global batch and the number of workers.
  if (job.data().has_global_batch())
    std::erase_if(fields, [](const flat_field& x) { return x.path == "data.batch"; });
  return fields;
}

/// True if `field` is one of `compared_messages`, and one of its own fields is listed as well. A
/// line about the message would then add nothing.
bool says_more(const std::vector<flat_field>& fields, const flat_field& field) {
  return std::ranges::find(compared_messages, field.path) != compared_messages.end()
    && std::ranges::any_of(fields, [&](const flat_field& x) {
           return !x.is_default && x.path.starts_with(field.path + '.');
         });
}

/// The kinds of optimizers that use a field.
std::string users_of(std::string_view field) {
  if (field == "momentum")
    return "MOMENTUM, NESTEROV and RMSPROP use it";
  if (field == "smoothing")
    return "RMSPROP uses it";
  return field == "epsilon" ? "kinds that divide by a square root use it"
                            : "ADAM, ADAMW and LAMB use it";
}

} // namespace

std::vector<std::string> unused_settings(const proto::Optimizer& x) {
  auto used = x;
  normalize(used);
  const auto& access = *x.GetReflection();
  std::vector<const FieldDescriptor*> set;
  access.ListFields(x, &set);
  std::vector<std::string> result;
  for (const auto* field : set)
    if (!field->is_repeated() && !access.HasField(used, field))
      result.push_back(field->name() + " has no effect with kind "
                       + proto::OptimizerKind_Name(x.kind()) + " (" + users_of(field->name())
                       + ")");
  return result;
}

std::string canonical_text(const proto::Job& job) {
  std::string text;
  for (const auto& field : flatten(job, purpose::hash))
    if (!field.is_default)
      text += field.path + ": " + field.value + "\n";
  return text;
}

std::string job_hash(const proto::Job& job) {
  return sha256_hex(as_byte_span(canonical_text(job)));
}

std::vector<std::string> differences(const proto::Job& here, const proto::Job& there) {
  std::vector<std::string> result;
  const auto ours = flatten(here, purpose::comparison);
  const auto theirs = flatten(there, purpose::comparison);
  const auto find = [](const std::vector<flat_field>& fields, const std::string& path) {
    const auto found = std::ranges::find(fields, path, &flat_field::path);
    return found != fields.end() ? &*found : nullptr;
  };
  const auto words = [](const flat_field& field) {
    return field.value == "{}" ? "set" : field.value;
  };
  for (const auto& field : ours) {
    const auto* other = find(theirs, field.path);
    if (other == nullptr && !field.is_default && !says_more(ours, field))
      result.push_back(field.path + ": " + words(field) + " here, absent there");
    if (other != nullptr && other->value != field.value)
      result.push_back(field.path + ": " + field.value + " here, " + other->value + " there");
  }
  for (const auto& field : theirs)
    if (!field.is_default && find(ours, field.path) == nullptr && !says_more(theirs, field))
      result.push_back(field.path + ": absent here, " + words(field) + " there");
  return result;
}

std::string first_difference(const proto::Job& here, const proto::Job& there) {
  const auto all = differences(here, there);
  return all.empty() ? std::string{} : all.front();
}

} // namespace troupe
