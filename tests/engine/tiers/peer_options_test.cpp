// Tests the options of disaggregated prefill: what is refused, and what a tier without blocks of this server reports.
#include <gtest/gtest.h>

#include <fstream>

#include "engine/tiers/peer_tier.h"
#include "runtime/tier/tier_support.h"
#include "support/small_cache.h"

namespace quire {
namespace {

TEST(PeerOptions, NameTheInvalidField) {
  const test::TempFolder folder;
  std::ofstream(folder.file("short")) << "short";
  const auto field_of = [](const KvPeerOptions& options) {
    const Result<void> checked = check_peer(options);
    return checked ? std::string() : checked.error().field;
  };
  EXPECT_EQ(field_of({.role = KvRole::both}), "");
  EXPECT_EQ(field_of({.role = KvRole::both, .host = "0.0.0.0"}), "kv_host");
  EXPECT_EQ(field_of({.role = KvRole::both, .host = "10.0.0.1"}), "kv_key");
  EXPECT_EQ(field_of({.role = KvRole::both, .key_file = folder.file("none")}), "kv_key");
  EXPECT_EQ(field_of({.role = KvRole::both, .key_file = folder.file("short")}), "kv_key");
  EXPECT_EQ(field_of({.role = KvRole::both, .lease_s = 0.0}), "kv_lease");
  EXPECT_EQ(field_of({.role = KvRole::both, .producers = {"127.0.0.1:5600", "127.0.0.1", "[::1]"}}), "");
  for (const char* bad : {"127.0.0.1:0", "127.0.0.1:", ":5600", "", "a:b:1", "127.0.0.1:70000"})
    EXPECT_EQ(field_of({.role = KvRole::both, .producers = {bad}}), "kv_producers") << bad;
  EXPECT_EQ(field_of({.role = KvRole::consumer, .producers = {"192.0.2.1:5600"}}), "kv_key");
  EXPECT_EQ(field_of({.role = KvRole::producer, .producers = {"127.0.0.1"}}), "kv_producers");
}

TEST(PeerOptions, SayWhatIsWrongAndWhatToDo) {
  const auto refusal = [](const KvPeerOptions& options) {
    const Result<void> checked = check_peer(options);
    return checked ? std::string() : checked.error().to_string();
  };
  for (const char* host : {"", "0.0.0.0", "::", "*"})
    EXPECT_EQ(refusal({.role = KvRole::both, .host = host}),
              "kv_host: '" + std::string(host) +
                  "' is not an address that consumers can connect to; use the address at which consumers reach this machine");
  for (const double lease_s : {0.0, -1.0, 86400.5})
    EXPECT_TRUE(refusal({.role = KvRole::both, .lease_s = lease_s}).ends_with("is out of range; use more than 0 s and at most one day"));
  EXPECT_EQ(refusal({.role = KvRole::both, .lease_s = 86400.0}), "");
  EXPECT_EQ(refusal({.role = KvRole::both, .lease_s = 0.001}), "");
  EXPECT_EQ(refusal({.role = KvRole::both, .producers = std::vector<std::string>(1024, "127.0.0.1")}), "");
  EXPECT_EQ(refusal({.role = KvRole::both, .producers = std::vector<std::string>(1025, "127.0.0.1")}),
            "kv_producers: has 1025 servers; use at most 1024");
  EXPECT_EQ(refusal({.role = KvRole::producer, .producers = {"127.0.0.1"}}),
            "kv_producers: is set, but this server does not load blocks from producers; add --kv-role consumer or --kv-role both, or leave "
            "it out");
  EXPECT_EQ(
      refusal({.role = KvRole::consumer, .producers = {"192.0.2.1:5600", "127.0.0.1"}}),
      "kv_key: is required, because a server of --kv-producers is on another machine; use a file of at least 16 random bytes, the same "
      "on all servers");
  EXPECT_EQ(refusal({.role = KvRole::both, .host = "10.0.0.1"}),
            "kv_key: is required, because 10.0.0.1 can be reached from other machines; use a file of at least 16 random bytes, the same on "
            "all servers, or listen on 127.0.0.1");
  const test::TempFolder folder;
  std::ofstream(folder.file("key")) << "sixteen bytes!!!";
  EXPECT_EQ(refusal({.role = KvRole::both, .host = "10.0.0.1", .key_file = folder.file("key"), .producers = {"192.0.2.1:5600"}}), "");
}

TEST(PeerTier, HoldsNoBlocksForThisServer) {
  for (const KvRole role : {KvRole::producer, KvRole::consumer, KvRole::both}) {
    const auto tier =
        PeerTier::open({.role = role, .host = "127.0.0.1", .port = 0}, test::small_config(), test::small_layout(), test::tier_fingerprint())
            .value();
    EXPECT_EQ(tier->role(), role);
    EXPECT_EQ(tier->policy(), KvTierPolicy::exact);
    EXPECT_FALSE(tier->is_builtin());
    EXPECT_FALSE(tier->holds_blocks());
    EXPECT_FALSE(tier->maintain(1.0));
    const KvTierStats stats = tier->stats();
    EXPECT_EQ(stats.name, "peer");
    EXPECT_EQ(stats.place_bytes, test::kSmallBlockBytes);
    EXPECT_EQ(stats.num_places, 0U);
    EXPECT_EQ(stats.problem, "");
  }
  const auto grouped = PeerTier::open({.role = KvRole::both, .host = "127.0.0.1", .port = 0}, test::small_config(), test::small_layout(2),
                                      test::tier_fingerprint());
  ASSERT_FALSE(grouped);
  EXPECT_EQ(grouped.error().code, ErrorCode::unsupported);
  EXPECT_EQ(
      grouped.error().to_string(),
      "kv_role: the model has sliding windows or layers with states, whose blocks cannot be transferred yet; leave it out, or serve a "
      "model with full attention in all layers");
  KvLayout windowed = test::small_layout();
  SlidingWindowSpec window;
  window.sliding_window = 8;
  windowed.groups[0].spec = window;
  EXPECT_FALSE(PeerTier::open({.role = KvRole::both, .host = "127.0.0.1", .port = 0}, test::small_config(), windowed, {}));
}

}  // namespace
}  // namespace quire
