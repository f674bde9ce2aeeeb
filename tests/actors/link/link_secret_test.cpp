#include "actors/link/link_secret.hpp"

#include "actors/link/link.hpp"
#include "messages/configure.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(secrets_of_links)

namespace {

std::string hex(std::string_view bytes) {
  std::string result;
  for (const unsigned char x : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    result += digits[x >> 4];
    result += digits[x & 15];
  }
  return result;
}

constexpr auto secret = "a secret of this cluster";
constexpr auto other_secret = "a secret of that cluster";
constexpr auto short_wait = 50ms;
constexpr auto long_wait = 20s;

/// What one end of a link has seen when the attempt to connect is over.
struct outcome {
  bool up = false;
  std::string down;
  std::string notice;
};

/// Two nodes with real links between them, in one actor system. The test plays the actors that own
/// the links.
struct two_nodes {
  codec code;
  caf::scoped_actor worker{code.system()};
  caf::scoped_actor ps{code.system()};
  const task_name worker_name{job_kind::worker, 1};
  const task_name ps_name{job_kind::ps, 0};

  static link_options with(const std::string& secret) {
    link_options result;
    result.secret = secret;
    return result;
  }

  void dial(const std::string& secret) {
    link::dial_to how{caf::actor_cast<caf::strong_actor_ptr>(ps.ptr()), ps_name, worker_name, 7,
                      ""};
    code.system().spawn<troupe::link>(caf::actor_cast<caf::actor>(worker.ptr()),
                                      std::make_shared<directory>(), how, with(secret));
  }

  void accept(const std::string& secret) {
    ps->receive([&](const proto::Hello& x) { accept_hello(ps->current_sender(), x, secret); },
                caf::after(long_wait) >> [] { BOOST_FAIL("no Hello came"); });
  }

  caf::actor accept_hello(const caf::strong_actor_ptr& peer, const proto::Hello& x,
                          const std::string& secret) {
    link::accept_from how{peer, x, ps_name, 8};
    return caf::actor_cast<caf::actor>(code.system().spawn<troupe::link>(
      caf::actor_cast<caf::actor>(ps.ptr()), std::make_shared<directory>(), how, with(secret)));
  }

  outcome heard(caf::scoped_actor& who) {
    outcome result;
    bool more = true;
    while (more)
      who->receive([&](const link_up&) { result.up = true; },
                   [&](const link_down& x) {
                     result.down = x.reason;
                     more = false;
                   },
                   [&](const link_notice& x) { result.notice = x.text; },
                   caf::after(result.up ? short_wait : long_wait) >> [&] { more = false; });
    return result;
  }

  std::pair<outcome, outcome> meet(const std::string& dialling, const std::string& dialled) {
    dial(dialling);
    accept(dialled);
    auto first = heard(worker);
    return {first, heard(ps)};
  }
};

} // namespace

// The expected values are test cases 1 to 4, 6 and 7 of RFC 4231.
BOOST_AUTO_TEST_CASE(hmac_test_vectors) {
  const auto check = [](const std::string& key, const std::string& text,
                        const std::string& expected) {
    BOOST_TEST(hex(hmac_sha256(key, text)) == expected);
  };
  check(std::string(20, '\x0b'), "Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  check("Jefe", "what do ya want for nothing?",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  check(std::string(20, '\xaa'), std::string(50, '\xdd'),
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counted;
  for (char x = 1; x <= 25; ++x)
    counted += x;
  check(counted, std::string(50, '\xcd'),
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  check(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  check(std::string(131, '\xaa'),
        "This is a test using a larger than block-size key and a larger than block-size data. "
        "The key needs to be hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

BOOST_AUTO_TEST_CASE(equal_texts) {
  BOOST_TEST(equal_in_constant_time("", ""));
  BOOST_TEST(equal_in_constant_time("abc", "abc"));
  for (const auto* x : {"", "ab", "abd", "bbc", "abcd", "Abc"})
    BOOST_TEST(!equal_in_constant_time("abc", x));
}

BOOST_AUTO_TEST_CASE(random_texts_differ) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i)
    seen.insert(random_text());
  BOOST_TEST(seen.size() == 100U);
  BOOST_TEST(seen.begin()->size() == 32U);
}

// A node proves with a hash that it knows the secret. The proof is valid for one link, one
// direction, and one secret.
BOOST_AUTO_TEST_CASE(proofs) {
  const link_introduction x{{{job_kind::worker, 1}, 7}, {{job_kind::ps, 0}, 8}, "n", "m"};
  std::set<std::string> seen{proof_of(link_side::dialling, x, secret),
                             proof_of(link_side::dialled, x, secret),
                             proof_of(link_side::dialling, x, other_secret)};
  auto y = x;
  y.dialling.task.index = 2;
  seen.insert(proof_of(link_side::dialling, y, secret));
  y = x;
  y.dialling.incarnation = 9;
  seen.insert(proof_of(link_side::dialling, y, secret));
  y = x;
  y.dialled.incarnation = 9;
  seen.insert(proof_of(link_side::dialling, y, secret));
  y = x;
  std::swap(y.dialling_nonce, y.dialled_nonce);
  seen.insert(proof_of(link_side::dialling, y, secret));
  y = x;
  y.dialling_nonce = "nm";
  y.dialled_nonce = "";
  seen.insert(proof_of(link_side::dialling, y, secret));
  BOOST_TEST(seen.size() == 8U);
  BOOST_TEST(seen.begin()->size() == 32U);
}

BOOST_FIXTURE_TEST_CASE(the_same_secret, two_nodes) {
  for (const std::string x : {"", secret}) {
    const auto [dialling, dialled] = meet(x, x);
    BOOST_TEST(dialling.up);
    BOOST_TEST(dialled.up);
    BOOST_TEST(dialling.notice + dialled.notice == "");
  }
}

// If the secrets differ or one end has none, both ends report this.
BOOST_FIXTURE_TEST_CASE(no_secret_or_another, two_nodes) {
  const auto check = [this](const std::string& a, const std::string& b, const std::string& in_a,
                            const std::string& in_b) {
    const auto [dialling, dialled] = meet(a, b);
    BOOST_TEST(!dialling.up);
    BOOST_TEST(!dialled.up);
    BOOST_TEST(contains(dialling.down, in_a));
    BOOST_TEST(contains(dialled.down, in_b));
    BOOST_TEST(contains(dialled.notice, in_b));
    for (auto& text : {dialling.down, dialled.down})
      BOOST_TEST(contains(text, "secret_file"));
  };
  check(secret, "", "ps/0 has no secret", "worker/1 wants a secret");
  check("", secret, "ps/0 wants a secret", "worker/1 has no secret");
  check(secret, other_secret, "ps/0 has another secret", "worker/1 has another secret");
}

// A program without the secret sends the messages of a node. The link must ignore them until it has
// received a proof.
BOOST_FIXTURE_TEST_CASE(nothing_is_heard_before_the_proof, two_nodes) {
  caf::scoped_actor stranger{code.system()};
  const auto self = caf::actor_cast<caf::strong_actor_ptr>(stranger.ptr());
  proto::Hello hello;
  hello.set_wire_version(wire_version);
  *hello.mutable_task() = to_proto(worker_name);
  hello.set_incarnation(7);
  hello.set_nonce("mine");
  const auto accepted = accept_hello(self, hello, secret);
  proto::Welcome welcome;
  stranger->receive([&](const proto::Welcome& x) { welcome = x; });
  BOOST_TEST(!welcome.has_channel());
  BOOST_TEST(welcome.proof() != "");
  proto::Frame frame;
  frame.set_kind(proto::Frame::ONE_WAY);
  frame.set_chunked_bytes(std::uint64_t{1} << 30);
  stranger->send(accepted, frame, caf::make_message(proto::Segment{}, payload{}));
  stranger->send(accepted, proto::ChannelRefused{});
  stranger->send(accepted, proto::Welcome{});
  // Sending the node's own proof back to it proves nothing.
  proto::Proof proof;
  proof.set_proof(welcome.proof());
  stranger->send(accepted, proof);
  const auto result = heard(ps);
  BOOST_TEST(!result.up);
  BOOST_TEST(contains(result.down, "another secret"));
}

BOOST_FIXTURE_TEST_CASE(an_old_proof, two_nodes) {
  caf::scoped_actor stranger{code.system()};
  const auto self = caf::actor_cast<caf::strong_actor_ptr>(stranger.ptr());
  proto::Hello hello;
  hello.set_wire_version(wire_version);
  *hello.mutable_task() = to_proto(worker_name);
  hello.set_incarnation(7);
  hello.set_nonce("mine");
  proto::Proof seen;
  for (const bool replayed : {false, true}) {
    const auto accepted = accept_hello(self, hello, secret);
    stranger->receive([&](const proto::Welcome& x) {
      if (!replayed)
        seen.set_proof(proof_of(link_side::dialling,
                                {{worker_name, 7}, {ps_name, 8}, "mine", x.nonce()}, secret));
    });
    stranger->send(accepted, seen);
    BOOST_TEST(heard(ps).up == !replayed);
  }
}

BOOST_AUTO_TEST_SUITE_END()
