#include "messages/caf_shim.hpp"

#include "messages/errors.hpp"

namespace troupe {

namespace {

// The bytes of an encoded header. Each thread keeps this buffer and reuses it, so that a training
// step allocates no memory. Headers are small, so the buffer stays small, too.
std::string& scratch() {
  thread_local std::string result;
  return result;
}

} // namespace

namespace detail {

caf::error save_header(caf::serializer& sink, const google::protobuf::MessageLite& x) {
  auto& bytes = scratch();
  if (!x.SerializeToString(&bytes))
    return make_error(errc::malformed,
                      "a header of type " + x.GetTypeName() + " cannot be encoded");
  return sink(bytes);
}

caf::error load_header(caf::deserializer& source, google::protobuf::MessageLite& x) {
  auto& bytes = scratch();
  if (auto err = source(bytes))
    return err;
  if (!x.ParseFromString(bytes))
    return make_error(errc::malformed,
                      "a header of type " + x.GetTypeName() + " cannot be decoded");
  return caf::none;
}

} // namespace detail

caf::error inspect(caf::serializer& sink, payload& x) {
  std::uint64_t size = x.size();
  if (size > max_inline_bytes)
    return make_error(errc::malformed,
                      "a payload of " + std::to_string(size)
                        + " bytes must travel in chunks, over a link");
  if (auto err = sink(size))
    return err;
  return size > 0 ? sink.apply_raw(size, const_cast<std::byte*>(x.data())) : caf::none;
}

caf::error inspect(caf::deserializer& source, payload& x) {
  std::uint64_t size = 0;
  if (auto err = source(size))
    return err;
  if (size > max_inline_bytes)
    return make_error(errc::malformed,
                      "a peer announces a payload of " + std::to_string(size) + " bytes");
  x = payload::allocate(size);
  return size > 0 ? source.apply_raw(size, x.mutable_data()) : caf::none;
}

std::string to_string(const payload& x) {
  return "payload(" + std::to_string(x.size()) + " bytes)";
}

} // namespace troupe
