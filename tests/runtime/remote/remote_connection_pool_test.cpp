// Tests the commands of a pool against stores that the test plays: their order and number in flight, redirects of a cluster, and what a
// lost connection means for other commands.
#include "runtime/remote/remote_connection_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/remote/scripted_store.h"
#include "runtime/remote/toy_redis.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// Holds the reply to a command. Its kind is `lost` if no reply came.
struct PoolReply {
  RemoteReplyKind kind = RemoteReplyKind::lost;
  std::string text;
};

class PoolRig {
 public:
  explicit PoolRig(std::uint16_t port, std::uint32_t depth = 4, std::uint32_t num_connections = 1, double timeout_s = 60.0)
      : pool(std::make_unique<RemoteConnectionPool>(RemoteConnectionPoolOptions{.address = address_of_port(port),
                                                                                .tls = std::make_shared<NetTls>(),
                                                                                .num_connections = num_connections,
                                                                                .depth = depth,
                                                                                .timeout_s = timeout_s,
                                                                                .max_reply_bytes = 10'000})) {}
  std::future<PoolReply> begin(const std::string& key, std::vector<std::string> command, bool is_wanted = true) {
    const auto over = std::make_shared<std::promise<PoolReply>>();
    std::future<PoolReply> reply = over->get_future();
    pool->submit({.key = key,
                  .write =
                      [this, command = std::move(command), is_wanted](std::vector<std::string>& words) {
                        ++num_written;
                        words = command;
                        return is_wanted;
                      },
                  .over =
                      [over](const RemoteReply& one) {
                        const std::string_view bytes(reinterpret_cast<const char*>(one.bytes.data()), one.bytes.size());
                        over->set_value({one.kind, one.kind == RemoteReplyKind::bytes ? std::string(bytes) : std::string(one.text)});
                      }});
    return reply;
  }
  // Begins these commands so that the pool finds them at the same time.
  std::vector<std::future<PoolReply>> begin_together(const std::vector<std::string>& keys) {
    const auto queued = std::make_shared<std::promise<void>>();
    pool->submit({.key = "",
                  .write =
                      [queued](std::vector<std::string>&) {
                        queued->get_future().wait();
                        return false;
                      },
                  .over = [](const RemoteReply&) {}});
    std::vector<std::future<PoolReply>> replies;
    for (const std::string& key : keys) replies.push_back(begin_get(key));
    queued->set_value();
    return replies;
  }
  std::future<PoolReply> begin_get(const std::string& key) { return begin(key, {"GET", key}); }
  RemoteReplyKind get(const std::string& key) { return reply_of_pool(begin_get(key)).kind; }
  static PoolReply reply_of_pool(std::future<PoolReply> reply) {
    if (reply.wait_for(std::chrono::duration<double>(2 * kMuchTooLong_s)) == std::future_status::ready) return reply.get();
    ADD_FAILURE() << "the command has no end";
    return {};
  }
  static std::string bytes_of_get(const std::string& key) {
    return "*2\r\n$3\r\nGET\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n";
  }

  std::atomic<int> num_written = 0;
  std::unique_ptr<RemoteConnectionPool> pool;
};

TEST(RemotePool, KeepsAtMostItsDepthInFlightAndTheOrder) {
  TestListener listener;
  PoolRig rig(listener.port(), 3);
  std::vector<std::future<PoolReply>> replies;
  for (int i = 0; i < 5; ++i) replies.push_back(rig.begin_get("k" + std::to_string(i)));
  ScriptedStore store(listener);
  store.expect(PoolRig::bytes_of_get("k0") + PoolRig::bytes_of_get("k1") + PoolRig::bytes_of_get("k2"));
  EXPECT_EQ(rig.num_written, 3);
  store.say("$1\r\na\r\n");
  store.expect(PoolRig::bytes_of_get("k3"));
  store.say("$1\r\nb\r\n$1\r\nc\r\n");
  store.expect(PoolRig::bytes_of_get("k4"));
  store.say("$1\r\nd\r\n$1\r\ne\r\n");
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(PoolRig::reply_of_pool(std::move(replies[i])).text, std::string(1, "abcde"[i]));
  EXPECT_EQ(rig.num_written, 5);
  EXPECT_EQ(rig.pool->last_problem(), "");
  EXPECT_FALSE(listener.has_connection());
}

TEST(RemotePool, UsesOneConnectionForAKeyAndSeveralForOthers) {
  ToyRedis redis;
  PoolRig rig(redis.port(), 4, 2);
  std::vector<std::future<PoolReply>> replies;
  for (int i = 0; i < 50; ++i) {
    replies.push_back(rig.begin("same", {"SET", "same", std::to_string(i), "EX", "1"}));
    replies.push_back(rig.begin_get("same"));
  }
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const PoolReply reply = PoolRig::reply_of_pool(std::move(replies[i]));
    EXPECT_EQ(reply.text, i % 2 == 0 ? "OK" : std::to_string(i / 2)) << "commands for one key take effect in order";
  }
  TestListener listener;
  PoolRig several(listener.port(), 64, 2);
  for (int i = 0; i < 30; ++i) several.begin_get("k" + std::to_string(i));
  const ScriptedStore first(listener), second(listener);
  EXPECT_TRUE(comes_true([&] { return several.num_written == 30; }));
  EXPECT_FALSE(listener.has_connection()) << "two connections are enough";
}

TEST(RemotePool, SendsNothingThatIsNotNeededAnyMore) {
  ToyRedis redis;
  PoolRig rig(redis.port());
  EXPECT_EQ(PoolRig::reply_of_pool(rig.begin("k", {"GET", "k"}, false)).kind, RemoteReplyKind::unsent);
  EXPECT_EQ(rig.get("k"), RemoteReplyKind::nil);
  EXPECT_EQ(redis.num_commands, 1U);
  EXPECT_EQ(rig.pool->last_problem(), "");
}

TEST(RemotePool, LosesOnlyTheCommandsInFlightWhenAStoreClosesAConnection) {
  TestListener listener;
  PoolRig rig(listener.port(), 1);
  auto first = rig.begin_get("k0"), second = rig.begin_get("k1"), third = rig.begin_get("k2");
  auto store = std::make_unique<ScriptedStore>(listener);
  store->expect(PoolRig::bytes_of_get("k0"));
  store.reset();
  EXPECT_EQ(PoolRig::reply_of_pool(std::move(first)).kind, RemoteReplyKind::lost);
  EXPECT_EQ(rig.pool->last_problem(), "the connection was closed");
  // The store is there, so the others are sent over a new connection.
  ScriptedStore again(listener);
  again.expect(PoolRig::bytes_of_get("k1"));
  again.say("$1\r\nb\r\n");
  again.expect(PoolRig::bytes_of_get("k2"));
  again.say("$1\r\nc\r\n");
  EXPECT_EQ(PoolRig::reply_of_pool(std::move(second)).text, "b");
  EXPECT_EQ(PoolRig::reply_of_pool(std::move(third)).text, "c");
}

TEST(RemotePool, LosesAllCommandsWhenNoStoreListens) {
  std::uint16_t dead = 0;
  {
    const TestListener gone;
    dead = gone.port();
  }
  PoolRig rig(dead, 1);
  for (auto& reply : rig.begin_together({"k0", "k1", "k2"}))
    EXPECT_EQ(PoolRig::reply_of_pool(std::move(reply)).kind, RemoteReplyKind::lost);
  EXPECT_EQ(rig.num_written, 1) << "nothing is sent to a store that is away";
  EXPECT_EQ(rig.pool->last_problem(), "Connection refused");
}

TEST(RemotePool, LosesQueuedCommandsTooWhenTheStoreDoesNotReply) {
  TestListener listener;
  PoolRig rig(listener.port(), 1, 1, 0.5);
  for (auto& reply : rig.begin_together({"k0", "k1", "k2"}))
    EXPECT_EQ(PoolRig::reply_of_pool(std::move(reply)).kind, RemoteReplyKind::lost);
  EXPECT_EQ(rig.pool->last_problem(), "the store did not reply within the time limit");
  EXPECT_EQ(rig.num_written, 1) << "nothing more is sent to a store that may be away";
}

TEST(RemotePool, LosesOpenCommandsWhenItIsDestroyed) {
  TestListener listener;
  PoolRig rig(listener.port(), 1);
  auto first = rig.begin_get("k0"), second = rig.begin_get("k1");
  ScriptedStore store(listener);
  store.expect(PoolRig::bytes_of_get("k0"));
  rig.pool.reset();
  EXPECT_EQ(PoolRig::reply_of_pool(std::move(first)).kind, RemoteReplyKind::lost);
  EXPECT_EQ(PoolRig::reply_of_pool(std::move(second)).kind, RemoteReplyKind::lost);
  EXPECT_TRUE(store.is_closed());
}

TEST(RemotePool, ClosesAConnectionWithAReplyThatNobodyAwaits) {
  TestListener listener;
  PoolRig rig(listener.port(), 2);
  auto first = rig.begin_get("k0");
  ScriptedStore store(listener);
  store.expect(PoolRig::bytes_of_get("k0"));
  store.say("$1\r\na\r\n$1\r\nb\r\n");
  EXPECT_EQ(PoolRig::reply_of_pool(std::move(first)).text, "a");
  EXPECT_TRUE(store.is_closed());
  EXPECT_EQ(rig.pool->last_problem(), "the store sent a reply without a command");
  auto second = rig.begin_get("k1");
  ScriptedStore again(listener);
  again.expect(PoolRig::bytes_of_get("k1"));
  again.say("$1\r\nc\r\n");
  EXPECT_EQ(PoolRig::reply_of_pool(std::move(second)).text, "c");
}

TEST(RemotePool, ReportsNoProblemWhenAnIdleConnectionEnds) {
  TestListener listener;
  PoolRig rig(listener.port());
  for (int round = 0; round < 2; ++round) {
    auto reply = rig.begin_get("k0");
    ScriptedStore store(listener);
    store.expect(PoolRig::bytes_of_get("k0"));
    store.say("$1\r\na\r\n");
    EXPECT_EQ(PoolRig::reply_of_pool(std::move(reply)).text, "a");
    shutdown(store.descriptor(), SHUT_WR);
    EXPECT_TRUE(store.is_closed()) << "the pool closes its side";
  }
  EXPECT_EQ(rig.pool->last_problem(), "");
}

TEST(RemotePool, RemembersTheLastError) {
  TestListener listener;
  PoolRig rig(listener.port());
  auto reply = rig.begin_get("k0");
  ScriptedStore store(listener);
  store.expect(PoolRig::bytes_of_get("k0"));
  store.say("-ERR first\r\n");
  const PoolReply error = PoolRig::reply_of_pool(std::move(reply));
  EXPECT_EQ(error.kind, RemoteReplyKind::error);
  EXPECT_EQ(error.text, "ERR first");
  EXPECT_EQ(rig.pool->last_problem(), "ERR first");
  reply = rig.begin_get("k0");
  store.expect(PoolRig::bytes_of_get("k0"));
  store.say("$-1\r\n");
  EXPECT_EQ(PoolRig::reply_of_pool(std::move(reply)).kind, RemoteReplyKind::nil);
  EXPECT_EQ(rig.pool->last_problem(), "ERR first") << "the last problem stays";
}

// A cluster whose first server answers all commands with one redirect.
struct ClusterRig {
  explicit ClusterRig(std::function<std::string(std::uint16_t second_port)> error) : answer(std::move(error)) {
    first.redirect = [this](const std::string&, bool) -> std::optional<std::string> {
      ++num_at_first;
      return answer(second.port());
    };
    second.redirect = [this](const std::string&, bool is_asking) -> std::optional<std::string> {
      ++(is_asking ? num_asking : num_plain);
      return std::nullopt;
    };
    second.put("k", "value");
  }
  std::function<std::string(std::uint16_t second_port)> answer;
  std::atomic<int> num_at_first = 0, num_asking = 0, num_plain = 0;
  ToyRedis first, second;
};

TEST(RemotePool, FollowsARedirectForASlotOnceAndRemembersIt) {
  ClusterRig cluster([](std::uint16_t port) { return "MOVED 7629 127.0.0.1:" + std::to_string(port); });
  PoolRig rig(cluster.first.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).text, "value");
  EXPECT_EQ(cluster.num_at_first, 1);
  EXPECT_EQ(cluster.num_plain, 3);
  EXPECT_EQ(cluster.num_asking, 0);
  EXPECT_EQ(rig.pool->last_problem(), "") << "a redirect that is followed is no problem";
  EXPECT_EQ(rig.get("other"), RemoteReplyKind::nil) << "other slots have their own redirects";
  EXPECT_EQ(cluster.num_at_first, 2);
}

TEST(RemotePool, FollowsAnAskRedirectForOneCommandOnly) {
  ClusterRig cluster([](std::uint16_t port) { return "ASK 7629 127.0.0.1:" + std::to_string(port); });
  PoolRig rig(cluster.first.port());
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).text, "value");
    EXPECT_EQ(cluster.num_at_first, i);
    EXPECT_EQ(cluster.num_asking, i) << "ASKING comes before the command";
  }
  EXPECT_EQ(cluster.num_plain, 0);
}

TEST(RemotePool, UsesTheHostOfTheServerThatRedirectsWithoutOne) {
  for (const char* host : {"", "?", "127.0.0.1"}) {
    ClusterRig cluster([&](std::uint16_t port) { return fmt::format("MOVED 1 {}:{}", host, port); });
    PoolRig rig(cluster.first.port());
    EXPECT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).text, "value") << host;
  }
}

TEST(RemotePool, ReturnsARedirectThatIsInvalidAsAnError) {
  std::atomic<const char*> error = "";
  ClusterRig cluster([&](std::uint16_t port) {
    std::string text = error.load();
    if (const std::size_t at = text.find("PORT"); at != std::string::npos) text.replace(at, 4, std::to_string(port));
    if (const std::size_t at = text.find("WRAP"); at != std::string::npos) text.replace(at, 4, std::to_string(65536 + port));
    return text;
  });
  PoolRig rig(cluster.first.port());
  for (const char* text : {"MOVED", "MOVED ", "MOVED 1", "MOVED 1 127.0.0.1", "MOVED 1 127.0.0.1:", "MOVED 1 127.0.0.1:0",
                           "MOVED 1 127.0.0.1:WRAP", "MOVED 1 127.0.0.1:PORTx", "MOVED 1 127.0.0.1:+PORT", "ASK 1 127.0.0.1:x",
                           "MOVEDX 1 127.0.0.1:PORT", "ERR MOVED 1 127.0.0.1:PORT", "ASKING 1 127.0.0.1:PORT"}) {
    error = text;
    const PoolReply reply = PoolRig::reply_of_pool(rig.begin_get("k"));
    EXPECT_EQ(reply.kind, RemoteReplyKind::error) << text;
    EXPECT_EQ(rig.pool->last_problem(), reply.text) << text;
  }
  const std::string longest_host = "MOVED 1 " + std::string(255, 'h') + ":PORT";
  error = longest_host.c_str();
  EXPECT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).kind, RemoteReplyKind::lost) << "there is no such host";
  const std::string long_host = "MOVED 1 " + std::string(256, 'h') + ":PORT";
  error = long_host.c_str();
  EXPECT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).kind, RemoteReplyKind::error) << "no host name is that long";
  error = "MOVED 1 127.0.0.1:PORT";
  EXPECT_EQ(PoolRig::reply_of_pool(rig.begin("", {"GET", "k"})).kind, RemoteReplyKind::error) << "a command without a key has no slot";
  EXPECT_EQ(cluster.num_plain + cluster.num_asking, 0);
  EXPECT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).text, "value");
}

TEST(RemotePool, EndsARedirectLoop) {
  ToyRedis only;
  std::atomic<int> num_sent = 0;
  only.redirect = [&](const std::string&, bool) -> std::optional<std::string> {
    ++num_sent;
    return fmt::format("MOVED 1 127.0.0.1:{}", only.port());
  };
  PoolRig rig(only.port());
  EXPECT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).kind, RemoteReplyKind::error);
  EXPECT_EQ(num_sent, 5) << "the command and four redirects";
}

TEST(RemotePool, KnowsAServerByItsAddress) {
  ClusterRig cluster([](std::uint16_t port) { return "ASK 1 127.0.0.1:" + std::to_string(port); });
  PoolRig rig(cluster.first.port());
  // More redirects to one server than there may be servers.
  for (int i = 0; i < 140; ++i) ASSERT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).text, "value") << i;
}

TEST(RemotePool, KnowsALimitedNumberOfServers) {
  std::atomic<int> next = 2;
  ClusterRig cluster([&](std::uint16_t) { return fmt::format("ASK 1 127.0.0.{}:1", next.load()); });
  PoolRig rig(cluster.first.port());
  // Nothing listens at port 1 of these addresses. The first server is one of the 128.
  for (; next < 2 + 127; ++next) ASSERT_EQ(rig.get("k"), RemoteReplyKind::lost) << next;
  EXPECT_EQ(rig.get("k"), RemoteReplyKind::error);
  next = 2;
  EXPECT_EQ(rig.get("k"), RemoteReplyKind::lost) << "a known server needs no room";
}

TEST(RemotePool, ForgetsRedirectsWhenAServerIsAway) {
  std::atomic<bool> moves = true;
  ClusterRig cluster([&](std::uint16_t port) { return moves ? "MOVED 7629 127.0.0.1:" + std::to_string(port) : "ERR here"; });
  PoolRig rig(cluster.first.port());
  EXPECT_EQ(PoolRig::reply_of_pool(rig.begin_get("k")).text, "value");
  cluster.second.close();
  EXPECT_EQ(rig.get("k"), RemoteReplyKind::lost);
  EXPECT_EQ(rig.get("k"), RemoteReplyKind::lost);
  // Now the first server is asked again, and has the slot itself.
  moves = false;
  const PoolReply reply = PoolRig::reply_of_pool(rig.begin_get("k"));
  EXPECT_EQ(reply.text, "ERR here");
}

// The values are from `CLUSTER KEYSLOT` of Redis.
TEST(ClusterSlots, MatchRedis) {
  const std::vector<std::pair<std::string_view, int>> slots = {
      {"", 0}, {"foo", 12182}, {"bar", 5061}, {"hello", 866}, {"somekey", 11058}, {"foo{hash_tag}", 2515}, {"123456789", 12739}};
  for (const auto& [key, slot] : slots) EXPECT_EQ(cluster_slot_of(key), slot) << key;
  // Only the text between the first brace and the next closing one counts, if there is any.
  EXPECT_EQ(cluster_slot_of("{foo}"), 12182);
  EXPECT_EQ(cluster_slot_of("x{foo}y{bar}"), 12182);
  EXPECT_EQ(cluster_slot_of("}{foo}"), 12182);
  EXPECT_EQ(cluster_slot_of("x{f}"), cluster_slot_of("f"));
  for (const std::string_view key : {"{}foo", "{foo", "foo}", "}foo{"}) EXPECT_NE(cluster_slot_of(key), 12182) << key;
  EXPECT_NE(cluster_slot_of("{}x"), cluster_slot_of(""));
}

}  // namespace
}  // namespace quire::test
