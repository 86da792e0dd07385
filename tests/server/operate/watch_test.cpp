// Tests authorization and contents of /v1/watch, and that it asks the engine rarely.
#include "server/operate/watch.h"

#include <boost/json.hpp>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "base/random.h"
#include "server/operate/dashboard_page.h"
#include "server/played_router.h"
#include "server/running_server.h"

namespace quire {
namespace {

using boost::json::object;

std::string bytes_of_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0, num_bits = 0;
  for (const char c : text.substr(0, text.find('='))) {
    bits = (bits << 6U) | static_cast<std::uint32_t>(kDigits.find(c));
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>((bits >> num_bits) & 0xFFU);
  }
  return bytes;
}

// A client's copy of the blocks, updated as docs/dashboard.md describes.
struct ClientBlocks {
  std::vector<WatchedBlock> blocks;
  std::size_t num_told = 0;

  void take(std::string_view bytes, double now_s) {
    const auto number = [&bytes] {
      std::uint64_t value = 0;
      for (unsigned shift = 0; !bytes.empty(); shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes.front());
        bytes.remove_prefix(1);
        value |= std::uint64_t{byte & 0x7FU} << shift;
        if (byte < 0x80) break;
      }
      return value;
    };
    for (std::size_t at = 0; !bytes.empty();) {
      at += number();
      const std::size_t end = at + number();
      WatchedBlock block;
      block.flags = static_cast<std::uint8_t>(number());
      block.num_holders = static_cast<std::uint8_t>(number());
      block.num_hits = static_cast<std::uint16_t>(number());
      const std::uint64_t owner = number(), age = number();
      block.owner = owner == 0 ? WatchedBlock::kNoOwner : static_cast<std::uint32_t>(owner - 1);
      block.last_use = age == 0 ? 0 : static_cast<std::uint32_t>(now_s * 10) - static_cast<std::uint32_t>(age - 1);
      ASSERT_LE(end, blocks.size());
      for (num_told += end - at; at < end; ++at) blocks[at] = block;
    }
  }
};

TEST(Watch, ClientThatMissesFramesConvergesToAllBlocks) {
  Random random(7);
  std::vector<WatchedBlock> blocks(300);
  std::vector<std::uint32_t> changed(blocks.size(), 0);
  ClientBlocks seldom{.blocks = blocks}, always{.blocks = blocks};
  std::uint32_t seldom_since = 0;
  for (std::uint32_t frame = 1; frame < 200; ++frame) {
    const double now_s = 10.0 * frame;
    for (std::uint64_t i = random.below(40); i > 0; --i) {
      const std::size_t at = random.below(blocks.size());
      const std::size_t end = std::min(blocks.size(), at + random.below(20));
      const WatchedBlock block{.owner = random.below(3) == 0 ? WatchedBlock::kNoOwner : static_cast<std::uint32_t>(random.below(1U << 31U)),
                               .last_use = static_cast<std::uint32_t>(random.below(static_cast<std::uint64_t>(now_s * 10) + 1)),
                               .num_hits = static_cast<std::uint16_t>(random.below(65536)),
                               .num_holders = static_cast<std::uint8_t>(random.below(256)),
                               .flags = static_cast<std::uint8_t>(random.below(8))};
      for (std::size_t j = at; j < end; ++j) {
        blocks[j] = block;
        changed[j] = frame;
      }
    }
    always.take(changed_blocks(blocks, changed, frame - 1, now_s), now_s);
    ASSERT_EQ(always.blocks, blocks) << frame;
    if (random.below(5) != 0) continue;
    seldom.take(changed_blocks(blocks, changed, seldom_since, now_s), now_s);
    seldom_since = frame;
    ASSERT_EQ(seldom.blocks, blocks) << frame;
  }
}

class WatchRouteTest : public PlayedRouter {
 protected:
  WatchRouteTest() {
    engine_.watched.now_s = 100.0;
    engine_.watched.blocks.resize(8);
    engine_.watched.blocks[3] = {.owner = 7, .last_use = 990, .num_hits = 2, .num_holders = 1, .flags = WatchedBlock::kCached};
  }

  Reply ask(const std::string& target) {
    HttpRequest request;
    request.method = "GET";
    request.target = target;
    return router_.handle(request, [this] { ++num_wakes_; });
  }
  // Returns the answer after the engine has replied.
  std::string frame_of(const std::string& query = {}) {
    const Reply reply = ask("/v1/watch" + query);
    run_posted();
    return reply.pending == nullptr ? reply.response.body : reply.pending->reply.value().response.body;
  }
  static void wait_for_next_look() { std::this_thread::sleep_for(WatchRoute::kInterval + std::chrono::milliseconds(5)); }
  static std::string since(const object& answer) { return "?since=" + std::to_string(answer.at("frame").to_number<std::uint64_t>()); }
};

TEST_F(WatchRouteTest, ReportsBlocksRequestsAndCounters) {
  engine_.set_explained_requests(10);
  engine_.told_stats().num_running = 1;
  engine_.told_stats().explained.missed_tokens[static_cast<std::size_t>(MissCause::evicted)] = 48;
  engine_.told_stats().kv_tiers = {{.name = "disk", .num_places = 9, .num_used_slots = 4, .bytes_loaded = 77}};
  engine_.watched.requests = {{.id = RequestId{7},
                               .state = WatchedState::decode,
                               .arrival_s = 90.0,
                               .num_prompt_tokens = 40,
                               .num_tokens = 44,
                               .num_computed_tokens = 43,
                               .num_cached_tokens = 32,
                               .num_external_tokens = 16,
                               .num_preemptions = 1,
                               .num_blocks = 3,
                               .name_size = 6,
                               .tenant_size = 2},
                              {.id = RequestId{9}, .state = WatchedState::queued, .waits_for = EventCause::no_slot, .name_size = 2}};
  engine_.watched.text = "cmpl-\"usx9";
  engine_.watched.num_left_out = 5;
  const object answer = boost::json::parse(frame_of()).as_object();
  EXPECT_EQ(answer.at("object").as_string(), "watch");
  EXPECT_TRUE(answer.at("since").is_null());
  EXPECT_EQ(answer.at("time_s").to_number<double>(), 100.0);
  EXPECT_EQ(answer.at("engine").at("running").to_number<int>(), 1);
  EXPECT_EQ(answer.at("missed_tokens").at("evicted").to_number<int>(), 48);
  EXPECT_EQ(answer.at("tiers").as_array().at(0).at("loaded_bytes").to_number<int>(), 77);
  EXPECT_EQ(answer.at("requests_left_out").to_number<int>(), 5);
  const auto row = [&](std::size_t i) {
    std::map<std::string, boost::json::value> fields;
    for (std::size_t k = 0; k < answer.at("request_fields").as_array().size(); ++k)
      fields[std::string(answer.at("request_fields").as_array().at(k).as_string())] =
          answer.at("requests").as_array().at(i).as_array().at(k);
    return fields;
  };
  auto first = row(0);
  EXPECT_EQ(first["id"].to_number<int>(), 7);
  EXPECT_EQ(first["name"].as_string(), "cmpl-\"");
  EXPECT_EQ(first["tenant"].as_string(), "us");
  EXPECT_EQ(first["state"].as_string(), "decode");
  EXPECT_TRUE(first["waits_for"].is_null());
  EXPECT_EQ(first["tier_tokens"].to_number<int>(), 16);
  EXPECT_EQ(first["blocks"].to_number<int>(), 3);
  EXPECT_EQ(row(1)["name"].as_string(), "x9");
  EXPECT_EQ(row(1)["waits_for"].as_string(), "no_slot");
  ClientBlocks client{.blocks = std::vector<WatchedBlock>(answer.at("blocks").at("count").to_number<std::size_t>())};
  client.take(bytes_of_base64(answer.at("blocks").at("changes").as_string()), 100.0);
  EXPECT_EQ(client.blocks, engine_.watched.blocks);
  EXPECT_EQ(client.num_told, 1U) << "blocks that were never used are not reported";
}

TEST_F(WatchRouteTest, ReportsChangesSinceTheClientsFrame) {
  const object first = boost::json::parse(frame_of()).as_object();
  for (const std::uint32_t block : {5U, 6U}) {
    wait_for_next_look();
    engine_.watched.blocks[block].num_holders = 1;
    (void)frame_of();
  }
  ClientBlocks client{.blocks = std::vector<WatchedBlock>(8)};
  client.blocks[3] = engine_.watched.blocks[3];
  const object later = boost::json::parse(frame_of(since(first))).as_object();
  client.take(bytes_of_base64(later.at("blocks").at("changes").as_string()), 100.0);
  EXPECT_EQ(client.blocks, engine_.watched.blocks);
  EXPECT_EQ(client.num_told, 2U) << "only the changes of the two missed frames";
}

TEST_F(WatchRouteTest, ShowsTheLastOwnerOfAFreeBlock) {
  (void)frame_of();
  wait_for_next_look();
  engine_.watched.blocks[3].owner = WatchedBlock::kNoOwner;
  engine_.watched.blocks[3].num_holders = 0;
  ClientBlocks client{.blocks = std::vector<WatchedBlock>(8)};
  client.take(bytes_of_base64(boost::json::parse(frame_of()).at("blocks").at("changes").as_string()), 100.0);
  EXPECT_EQ(client.blocks[3].owner, 7U);
  wait_for_next_look();
  engine_.watched.blocks[3].flags = 0;
  client.take(bytes_of_base64(boost::json::parse(frame_of()).at("blocks").at("changes").as_string()), 100.0);
  EXPECT_EQ(client.blocks[3].owner, WatchedBlock::kNoOwner) << "the block is no longer cached";
}

TEST_F(WatchRouteTest, AsksTheEngineOnceForManyClients) {
  engine_.answers_looks = false;
  std::vector<Reply> replies;
  for (std::size_t i = 0; i < WatchRoute::kMaxWaitingClients; ++i) replies.push_back(ask("/v1/watch"));
  EXPECT_EQ(engine_.num_looks, 1);
  EXPECT_EQ(ask("/v1/watch").response.status, 429U) << "the number of waiting clients is bounded";
  engine_.looks[0].second(engine_.looks[0].first);
  run_posted();
  EXPECT_EQ(num_wakes_, static_cast<int>(WatchRoute::kMaxWaitingClients));
  for (const Reply& reply : replies) EXPECT_EQ(reply.pending->reply.value().response.status, 200U);
  const object answer = boost::json::parse(replies[0].pending->reply->response.body).as_object();
  for (int i = 0; i < 20; ++i) {
    const object again = boost::json::parse(frame_of(since(answer))).as_object();
    EXPECT_EQ(again.at("frame"), answer.at("frame"));
    EXPECT_FALSE(again.contains("requests")) << "no request has changed";
  }
  EXPECT_EQ(engine_.num_looks, 1) << "the interval must pass first";
}

TEST_F(WatchRouteTest, IgnoresFramesOfAnotherRun) {
  (void)frame_of();
  for (const char* other : {"?since=1", "?since=99999999999999", "?since=0", ""})
    EXPECT_TRUE(boost::json::parse(frame_of(other)).at("since").is_null()) << other;
}

TEST_F(WatchRouteTest, NamesTheInvalidQueryField) {
  for (const char* wrong : {"?since=x", "?since=-1", "?since=", "?since=1x", "?since=99999999999999999999999"}) {
    const Reply reply = ask(std::string("/v1/watch") + wrong);
    EXPECT_EQ(reply.response.status, 400U) << wrong;
    EXPECT_NE(reply.response.body.find("since"), std::string::npos);
  }
  EXPECT_EQ(ask("/v1/watch?sinc=1").response.status, 400U);
  EXPECT_EQ(engine_.num_looks, 0);
}

TEST_F(WatchRouteTest, ReturnsUnavailableToAllClientsWhenTheEngineStops) {
  engine_.answers_looks = false;
  const Reply first = ask("/v1/watch"), second = ask("/v1/watch");
  engine_.looks[0].second(fail(ErrorCode::shutting_down, "", "the engine is shutting down", ""));
  run_posted();
  EXPECT_EQ(first.pending->reply.value().response.status, 503U);
  EXPECT_EQ(second.pending->reply.value().response.status, 503U);
  engine_.answers_looks = true;
  EXPECT_NE(frame_of().find("\"frame\""), std::string::npos) << "the next client asks the engine again";
}

using WatchServerTest = RunningServer;

TEST_F(WatchServerTest, IsForTheOperatorOnly) {
  ServerOptions options;
  options.api_key = "own-key";
  options.tenant_keys = {{"us", "our-key"}};
  start(options);
  const auto ask = [this](const std::string& headers) { return HttpClient(port).get("/v1/watch", headers).status; };
  EXPECT_EQ(ask(""), 401U);
  EXPECT_EQ(ask("Authorization: Bearer wrong\r\n"), 401U);
  EXPECT_EQ(ask("Authorization: Bearer our-key\r\n"), 403U) << "the answer shows all tenants";
  EXPECT_EQ(ask("Authorization: Bearer own-key\r\n"), 200U);
  EXPECT_EQ(ask("Authorization: Bearer own-key\r\nX-Forwarded-For: 10.0.0.1\r\n"), 403U) << "a proxy must be allowed explicitly";
  EXPECT_EQ(HttpClient(port).get("/dashboard").status, 200U) << "the page has no data and asks for the key";
}

TEST_F(WatchServerTest, RefusesOtherOrigins) {
  start();
  EXPECT_EQ(HttpClient(port).get("/v1/watch").status, 200U);
  EXPECT_EQ(HttpClient(port).get("/v1/watch", "Origin: http://elsewhere.example\r\n").status, 403U);
}

TEST_F(WatchServerTest, ClientThatDoesNotReadDoesNotBlockOthers) {
  engine.watched.blocks.resize(100'000);
  for (std::uint32_t i = 0; i < 100'000; ++i) engine.watched.blocks[i] = {.owner = i, .last_use = i, .num_holders = 1};
  start();
  HttpClient slow(port);
  slow.send("GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(HttpClient(port).get("/v1/watch").status, 200U);
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST(DashboardPage, LoadsNothingFromOtherSites) {
  const std::string_view page = dashboard_page_html();
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  for (const char* from_elsewhere : {"http://", "https://", "@import", "src=", "import(", "<link", "url(", "XMLHttpRequest", "WebSocket"})
    EXPECT_EQ(page.find(from_elsewhere), std::string_view::npos) << from_elsewhere;
  EXPECT_EQ(page.find("innerHTML"), std::string_view::npos) << "client text must not be inserted as HTML";
  EXPECT_NE(page.find("/v1/watch"), std::string_view::npos);
  EXPECT_EQ(page.find("QUIRE_PAGE"), std::string_view::npos) << "a placeholder was not replaced";
}

}  // namespace
}  // namespace quire
