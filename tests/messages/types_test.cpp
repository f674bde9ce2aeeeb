#include "messages/types.hpp"

#include "codec.hpp"

#include <boost/test/unit_test.hpp>

#include <google/protobuf/stubs/logging.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

using namespace troupe;
using namespace troupe::test;
using google::protobuf::FieldDescriptor;

namespace {

constexpr auto first_id = caf::id_block::troupe::begin;
constexpr auto end_id = caf::id_block::troupe::end;

/// The bits of numbers that CAF's own encoding of doubles would change.
const std::vector<std::uint64_t> delicate_doubles{
  0x7ff8000000000000, // NaN
  0xfff8000000000000, // NaN with a sign
  0x7ff8000000abcdef, // NaN with a payload
  0x7ff4000000000001, // signaling NaN
  0x7ff0000000000000, // infinity
  0xfff0000000000000, // -infinity
  0x8000000000000000, // -0
  0x0000000000000001, // smallest denormal
  0x800fffffffffffff, // largest negative denormal
  0x7fefffffffffffff, // largest finite number
};

void add(google::protobuf::Message& x, const FieldDescriptor& field, std::uint64_t number) {
  const auto& access = *x.GetReflection();
  switch (field.cpp_type()) {
  case FieldDescriptor::CPPTYPE_UINT64:
    access.AddUInt64(&x, &field, number);
    break;
  case FieldDescriptor::CPPTYPE_UINT32:
    access.AddUInt32(&x, &field, static_cast<std::uint32_t>(number));
    break;
  case FieldDescriptor::CPPTYPE_INT64:
    access.AddInt64(&x, &field, static_cast<std::int64_t>(number));
    break;
  case FieldDescriptor::CPPTYPE_DOUBLE:
    access.AddDouble(&x, &field,
                     std::bit_cast<double>(delicate_doubles[number % delicate_doubles.size()]));
    break;
  case FieldDescriptor::CPPTYPE_ENUM: {
    const auto& type = *field.enum_type();
    access.AddEnumValue(
      &x, &field, type.value(static_cast<int>(number % 2) * (type.value_count() - 1))->number());
    break;
  }
  default:
    BOOST_FAIL(field.full_name() << ": teach add() of it");
  }
}

/// Sets all fields, at all depths, to different values. Their source is `next`, which is counted
/// up. Every third integer is close to the largest value of its type.
void fill(google::protobuf::Message& x, std::uint64_t& next) {
  const auto& type = *x.GetDescriptor();
  const auto& access = *x.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const auto* field = type.field(i);
    const int repeat = field->is_repeated() ? 3 : 1;
    for (int k = 0; k < repeat; ++k) {
      ++next;
      const auto u64 = next % 3 == 0 ? ~next : next;
      const auto u32 = static_cast<std::uint32_t>(u64);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        fill(field->is_repeated() ? *access.AddMessage(&x, field)
                                  : *access.MutableMessage(&x, field),
             next);
        continue;
      }
      if (field->is_repeated()) {
        add(x, *field, u64);
        continue;
      }
      switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        access.SetUInt32(&x, field, u32);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        access.SetUInt64(&x, field, u64);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        access.SetBool(&x, field, true);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        access.SetEnumValue(
          &x, field, field->enum_type()->value(field->enum_type()->value_count() - 1)->number());
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        access.SetDouble(&x, field,
                         std::bit_cast<double>(delicate_doubles[next % delicate_doubles.size()]));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        access.SetString(&x, field,
                         field->type() == FieldDescriptor::TYPE_BYTES
                           ? std::string("\0\xff\n", 3) + std::to_string(next)
                           : "Größe " + std::to_string(next));
        break;
      default:
        BOOST_FAIL(field->full_name() << " has a type that headers do not use yet");
      }
    }
  }
}

template <class T>
T filled() {
  if constexpr (std::same_as<T, payload>) {
    auto result = payload::allocate(13);
    std::memcpy(result.mutable_data(), "thirteen byte", 13);
    return result;
  } else {
    T result;
    std::uint64_t next = 0;
    fill(result, next);
    return result;
  }
}

std::string bytes_of(const payload& x) {
  return {reinterpret_cast<const char*>(x.data()), x.size()};
}

std::string bytes_of(const google::protobuf::MessageLite& x) {
  return x.SerializeAsString();
}

/// Calls `body.operator()<T>()` for each message type of troupe. So a new type is tested
/// automatically.
template <class Body>
void for_each_type(Body&& body) {
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (body.template operator()<typename caf::type_by_id<first_id + Is>::type>(), ...);
  }
  (std::make_index_sequence<end_id - first_id>{});
}

struct fixture : codec {};

} // namespace

BOOST_FIXTURE_TEST_SUITE(types, fixture)

BOOST_AUTO_TEST_CASE(the_block_holds_what_crosses_between_nodes) {
  static_assert(first_id >= caf::first_custom_type_id + 1000, "room for the embedding program");
  std::set<std::string> names;
  for_each_type([&]<class T>() {
    static_assert(message_type<T>);
    static_assert(!is_local_message<T>::value);
    names.insert(caf::type_name<T>::value);
  });
  BOOST_TEST(names.size() == end_id - first_id);
  BOOST_TEST(names.count("troupe::payload") == 1u);
  BOOST_TEST(names.count("troupe::proto::Segment") == 1u);
}

BOOST_AUTO_TEST_CASE(every_type_survives_the_wire) {
  std::size_t tested = 0;
  for_each_type([&]<class T>() {
    BOOST_TEST_CONTEXT(caf::type_name<T>::value) {
      for (const auto& x : {T{}, filled<T>()}) {
        const auto wire = encode(caf::make_message(x));
        BOOST_REQUIRE(!error_of_encode);
        caf::message back;
        const auto error = decode(wire, back);
        BOOST_REQUIRE_MESSAGE(!error, system().render(error));
        BOOST_TEST(left == 0u);
        BOOST_REQUIRE(back.match_elements<T>());
        BOOST_TEST(bytes_of(back.get_as<T>(0)) == bytes_of(x));
      }
      ++tested;
    }
  });
  BOOST_TEST(tested == end_id - first_id);
}

BOOST_AUTO_TEST_CASE(header_and_payload_together) {
  const auto push = filled<proto::Push>();
  const auto wire = encode(caf::make_message(push, filled<payload>()));
  caf::message back;
  BOOST_REQUIRE(!decode(wire, back));
  BOOST_REQUIRE((back.match_elements<proto::Push, payload>()));
  BOOST_TEST(bytes_of(back.get_as<proto::Push>(0)) == bytes_of(push));
  BOOST_TEST(bytes_of(back.get_as<payload>(1)) == "thirteen byte");
}

BOOST_AUTO_TEST_CASE(doubles_keep_their_bits) {
  for (const auto bits : delicate_doubles) {
    proto::LeaseDone done;
    done.set_loss_sum(std::bit_cast<double>(bits));
    proto::Heartbeat beat;
    beat.set_loss_sum(std::bit_cast<double>(bits));
    caf::message back;
    BOOST_REQUIRE(!decode(encode(caf::make_message(done, beat)), back));
    BOOST_TEST(std::bit_cast<std::uint64_t>(back.get_as<proto::LeaseDone>(0).loss_sum()) == bits);
    BOOST_TEST(std::bit_cast<std::uint64_t>(back.get_as<proto::Heartbeat>(1).loss_sum()) == bits);
  }
}

BOOST_AUTO_TEST_CASE(a_cut_message_is_an_error) {
  for_each_type([&]<class T>() {
    const auto wire = encode(caf::make_message(filled<T>()));
    for (std::size_t size = 0; size < wire.size(); ++size) {
      // Copies the bytes to a heap block of exactly their size, so that a sanitizer detects reads
      // beyond it.
      const std::vector<char> cut(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(size));
      caf::message back;
      const auto error = decode(cut, back);
      BOOST_REQUIRE_MESSAGE(
        error, caf::type_name<T>::value << " cut to " << size << " of " << wire.size() << " bytes");
    }
  });
}

BOOST_AUTO_TEST_CASE(changed_bytes_do_no_harm) {
  const google::protobuf::LogSilencer silence;
  std::size_t refused = 0;
  for_each_type([&]<class T>() {
    const auto wire = encode(caf::make_message(filled<T>()));
    for (std::size_t i = 0; i < wire.size(); ++i)
      for (const int flip : {0x01, 0x10, 0x80, 0xff}) {
        auto changed = wire;
        changed[i] = static_cast<char>(changed[i] ^ flip);
        caf::message back;
        refused += decode(changed, back) ? 1 : 0;
      }
  });
  BOOST_TEST(refused > 0u);
}

BOOST_AUTO_TEST_CASE(texts_that_are_not_utf8_reach_the_peer) {
  // The reason of an error may quote file names or fields of a CSV file, which may not be valid
  // UTF-8.
  const std::string latin1 = "cannot read /data/Gr\xf6\xdf"
                             "en.csv";
  proto::Failure failure;
  failure.set_reason(latin1);
  proto::Leave leave;
  leave.set_reason(latin1);
  proto::Shutdown shutdown;
  shutdown.set_reason(latin1);
  caf::message back;
  const auto error = decode(encode(caf::make_message(failure, leave, shutdown)), back);
  BOOST_REQUIRE_MESSAGE(!error, system().render(error));
  BOOST_TEST(back.get_as<proto::Failure>(0).reason() == latin1);
  BOOST_TEST(back.get_as<proto::Leave>(1).reason() == latin1);
  BOOST_TEST(back.get_as<proto::Shutdown>(2).reason() == latin1);
}

BOOST_AUTO_TEST_SUITE_END()
