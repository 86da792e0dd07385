// Tests the operator's endpoints and their authorization over real sockets.
#include "server/operate/admin.h"

#include <boost/json/parse.hpp>
#include <string>
#include <utility>

#include "server/http/local_client.h"
#include "server/http/query.h"
#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

using AdminTest = RunningServer;

HttpRequest request_for(const std::string& target) {
  HttpRequest request;
  request.target = target;
  request.is_local = true;
  return request;
}

TEST(Query, DecodesFieldsAndUsesTheLastDuplicate) {
  QueryReader query("/x?a=1&a=1%202+%41%25&b&c=oN&");
  EXPECT_EQ(query.text("a", ""), "1 2 A%");
  EXPECT_EQ(query.text("b", "absent"), "");
  EXPECT_EQ(query.text("d", "absent"), "absent");
  EXPECT_TRUE(query.boolean("c", false));
  EXPECT_TRUE(query.finish().has_value());
}

TEST(Query, NamesTheInvalidField) {
  QueryReader wrong("/x?flag=maybe");
  EXPECT_FALSE(wrong.boolean("flag", true));
  EXPECT_EQ(wrong.finish().error().field, "flag");
  QueryReader slip("/x?flags=true");
  EXPECT_FALSE(slip.boolean("flag", false));
  EXPECT_EQ(slip.finish().error().field, "flags");
  EXPECT_NE(slip.finish().error().remedy.find("'flag'"), std::string::npos);
  for (const char* broken : {"/x?a=%4", "/x?a=%zz", "/x?a=\xff"}) EXPECT_FALSE(QueryReader(broken).finish().has_value()) << broken;
  EXPECT_TRUE(QueryReader("/x").finish().has_value());
  QueryReader brackets("/x?include[]=a[1]");
  EXPECT_EQ(brackets.text("include[]", ""), "a[1]") << "clients do not encode brackets";
  EXPECT_TRUE(QueryReader("/x?").finish().has_value());
}

TEST(Admin, PauseTakesVllmsParameters) {
  EXPECT_EQ(parse_pause(request_for("/pause"))->mode, PauseMode::abort);
  EXPECT_TRUE(parse_pause(request_for("/pause"))->clear_cache);
  EXPECT_EQ(parse_pause(request_for("/pause?mode=wait"))->mode, PauseMode::wait);
  EXPECT_EQ(parse_pause(request_for("/pause?mode=keep"))->mode, PauseMode::keep);
  EXPECT_EQ(parse_pause(request_for("/pause?wait_for_inflight_requests=true"))->mode, PauseMode::wait);
  EXPECT_FALSE(parse_pause(request_for("/pause?clear_cache=false"))->clear_cache);
  EXPECT_EQ(parse_pause(request_for("/pause?mode=Keep")).error().field, "mode");
  EXPECT_EQ(parse_pause(request_for("/pause?mod=keep")).error().field, "mod") << "a misspelt field must not abort all requests";
  EXPECT_EQ(parse_no_parameters(request_for("/resume?mode=keep")).error().field, "mode");
}

TEST(Admin, RefusesRemoteOperatorsUnlessAllowed) {
  HttpRequest remote = request_for("/pause");
  remote.is_local = false;
  EXPECT_NE(admit_operator(remote, {}).error().remedy.find("--allow-remote-admin"), std::string::npos);
  ServerOptions open;
  open.api_key = "secret";
  EXPECT_FALSE(admit_operator(remote, open).has_value()) << "a key alone does not make a remote client an operator";
  open.allow_remote_admin = true;
  EXPECT_TRUE(admit_operator(remote, open).has_value());
  EXPECT_TRUE(open.validate().has_value());
  open.api_key.clear();
  EXPECT_EQ(open.validate().error().field, "allow_remote_admin");
}

TEST_F(AdminTest, PauseWaitsForTheEngineWhileOthersAreServed) {
  start();
  HttpClient operating(port);
  operating.send_post("/pause?mode=wait&clear_cache=false", "");
  const FakeEngine::Control control = engine.take_control();
  EXPECT_EQ(control.verb, "pause");
  EXPECT_EQ(control.pause.mode, PauseMode::wait);
  EXPECT_FALSE(control.pause.clear_cache);
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
  control.answer(true);
  const ClientResponse paused = operating.receive();
  EXPECT_EQ(paused.status, 200U);
  EXPECT_EQ(paused.json().at("status"), "paused");
  EXPECT_EQ(operating.get("/health").status, 200U) << "the connection stays open";
}

TEST_F(AdminTest, EveryVerbReachesTheEngine) {
  engine.set_paused(true);
  start();
  HttpClient client(port);
  client.send_post("/reset_prefix_cache?reset_running_requests=true&reset_external=1", "");
  FakeEngine::Control control = engine.take_control();
  EXPECT_EQ(control.verb, "reset_prefix_cache");
  EXPECT_TRUE(control.reset.preempt_running && control.reset.external);
  control.answer(false);
  ClientResponse response = client.receive();
  EXPECT_EQ(response.status, 200U);
  EXPECT_EQ(response.json().at("reset"), false);
  client.send_post("/resume", "");
  control = engine.take_control();
  EXPECT_EQ(control.verb, "resume");
  control.answer(true);
  EXPECT_EQ(client.receive().json().at("status"), "resumed");
  EXPECT_EQ(client.get("/is_paused").json().at("is_paused"), true);
}

TEST_F(AdminTest, JournalSaveReturnsPathAndContents) {
  engine.saved_journal = SavedJournal{.path = "/a \"b\".qj", .num_bytes = 12345, .num_steps = 678, .covered_s = 9.25};
  start();
  HttpClient client(port);
  ClientResponse response = client.post("/v1/journal/save", "");
  EXPECT_EQ(response.status, 200U);
  EXPECT_EQ(response.json().at("path"), "/a \"b\".qj");
  EXPECT_EQ(response.json().at("bytes"), 12345);
  EXPECT_EQ(response.json().at("steps"), 678);
  EXPECT_EQ(response.json().at("seconds"), 9.25);
  EXPECT_EQ(client.post("/v1/journal/save?to=/etc", "").status, 400U) << "clients cannot choose the path";
  EXPECT_EQ(client.get("/v1/journal/save").status, 405U);
  engine.saved_journal = fail(ErrorCode::unsupported, "journal_save", "no folder is given", "give one");
  response = client.post("/v1/journal/save", "");
  EXPECT_EQ(response.status, 400U);
  EXPECT_EQ(response.json().at("error").at("param"), "journal_save");
}

TEST_F(AdminTest, EncoderCacheResetReturnsTheEnginesResult) {
  start();
  HttpClient client(port);
  for (const bool is_done : {true, false}) {
    client.send_post("/reset_encoder_cache", "");
    FakeEngine::Control control = engine.take_control();
    EXPECT_EQ(control.verb, "reset_encoder_cache");
    control.answer(is_done);
    const ClientResponse answer = client.receive();
    EXPECT_EQ(answer.status, 200U);
    EXPECT_EQ(answer.json().at("reset"), is_done);
    EXPECT_EQ(answer.json().as_object().contains("reason"), !is_done);
  }
}

TEST_F(AdminTest, ResetOfAMissingCacheReportsWhy) {
  start();
  HttpClient client(port);
  const ClientResponse answer = client.post("/reset_mm_cache", "");
  EXPECT_EQ(answer.status, 200U);
  EXPECT_EQ(answer.json().at("reset"), false);
  EXPECT_NE(answer.json().at("reason").as_string().find("not cached"), std::string::npos);
  for (const std::string path : {"/reset_encoder_cache", "/reset_mm_cache"}) {
    EXPECT_EQ(client.post(path + "?reset_external=true", "").status, 400U) << path << " takes no fields";
    EXPECT_EQ(client.get(path).status, 405U) << path;
  }
}

TEST_F(AdminTest, ReturnsTheEnginesError) {
  start();
  HttpClient client(port);
  client.send_post("/pause", "");
  engine.take_control().answer(fail(ErrorCode::shutting_down, "", "the engine is shutting down"));
  EXPECT_EQ(client.receive().status, 503U);
}

TEST_F(AdminTest, DisconnectOfAnOperatorFreesItsConnection) {
  start();
  HttpClient client(port);
  client.send_post("/pause?mode=wait", "");
  const FakeEngine::Control control = engine.take_control();
  client.close();
  while (HttpClient(port).get("/metrics").body.find("quire:connections{engine=\"0\",model_name=\"bytes\"} 1\n") == std::string::npos) {
  }
  control.answer(true);
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(AdminTest, LimitsTheNumberOfWaitingOperators) {
  start();
  std::vector<FakeEngine::Control> waiting;
  for (int i = 0; i < 64; ++i) {
    HttpClient client(port);
    client.send_post("/pause?mode=wait", "");
    waiting.push_back(engine.take_control());
  }
  EXPECT_EQ(HttpClient(port).post("/pause?mode=wait", "").status, 429U) << "disconnected clients count while the engine holds their call";
  EXPECT_EQ(HttpClient(port).post("/reset_prefix_cache", "").status, 429U);
  HttpClient client(port);
  client.send_post("/resume", "");
  EXPECT_EQ(engine.take_control().verb, "resume") << "resume ends the wait and is never refused";
}

TEST_F(AdminTest, RefusesForwardedAndCrossOriginRequests) {
  start();
  HttpClient client(port);
  for (const char* header : {"X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "Forwarded: for=192.0.2.1\r\n",
                             "X-Real-IP: 127.0.0.1\r\n", "Via: 1.1 proxy\r\n", "Origin: http://example.com\r\n"}) {
    for (const char* path : {"/pause", "/resume", "/reset_prefix_cache", "/reset_encoder_cache", "/reset_mm_cache"}) {
      const ClientResponse refused = client.post(path, "", header);
      EXPECT_EQ(refused.status, 403U) << path << " " << header;
      EXPECT_EQ(refused.json().at("error").at("type"), "permission_error");
    }
    EXPECT_EQ(client.get("/is_paused", header).status, 403U);
  }
  EXPECT_EQ(client.get("/pause").status, 405U);
}

TEST_F(AdminTest, ProxyWithoutHeadersDoesNotMakeClientsLocal) {
  start({.allowed_hosts = {"llm.example.com"}});
  const std::string ours = "127.0.0.1:" + std::to_string(port);
  for (const std::string& host :
       {std::string("127.0.0.1:1"), std::string("localhost"), std::string("llm.example.com"), "llm.example.com:" + std::to_string(port)})
    EXPECT_EQ(HttpClient(port).ask("GET /is_paused HTTP/1.1\r\nHost: " + host + "\r\n").status, 403U) << host;
  EXPECT_EQ(HttpClient(port).ask("GET /is_paused HTTP/1.0\r\nHost: " + ours + "\r\n").status, 403U) << "nginx sends this by default";
  EXPECT_EQ(HttpClient(port).ask("GET /is_paused HTTP/1.1\r\nHost: " + ours + "\r\n").status, 200U);
  EXPECT_EQ(HttpClient(port).ask("GET /is_paused HTTP/1.1\r\nHost: LOCALHOST:" + std::to_string(port) + "\r\n").status, 200U);
}

TEST_F(AdminTest, TrustedProxyDeterminesWhichClientsAreLocal) {
  start({.trusted_proxies = {"127.0.0.1"}});
  HttpClient client(port);
  EXPECT_EQ(client.get("/is_paused").status, 403U) << "the proxy does not name the client";
  for (const char* local : {"X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-For: ::1\r\n", "Forwarded: proto=http;for=\"[::1]:4711\"\r\n",
                            "Forwarded: For=127.0.0.1\r\nX-Forwarded-For: 127.0.0.1\r\n"})
    EXPECT_EQ(client.get("/is_paused", local).status, 200U) << local;
  for (const char* stranger :
       {"X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 127.0.0.1, 192.0.2.1\r\n",
        "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: 192.0.2.1\r\n", "Forwarded: for=127.0.0.1\r\nX-Forwarded-For: 192.0.2.1\r\n",
        "Forwarded: for=unknown\r\n", "Forwarded: for=\"127.0.0.1\r\n", "X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n", "X-Forwarded-For:\r\n",
        "X-Forwarded-For: 127.0.0.1, ::1, 127.0.0.1\r\n"})
    EXPECT_EQ(client.get("/is_paused", stranger).status, 403U) << stranger;
}

TEST(Admin, LoopbackOfARemoteProxyIsNotLocal) {
  const auto address = [](const char* text) { return boost::asio::ip::make_address(text); };
  ClientNetworkInfo trace{.peer = address("10.0.0.5"),
                          .local = {address("10.0.0.1"), 8000},
                          .host = "localhost:8000",
                          .forwarded = {},
                          .forwarded_for = {"127.0.0.1"}};
  EXPECT_FALSE(is_local_client(trace, {"10.0.0.5"}));
  trace.peer = address("::ffff:127.0.0.1");
  EXPECT_FALSE(is_local_client(trace, {}));
  EXPECT_TRUE(is_local_client(trace, {"127.0.0.1"}));
  trace.forwarded_for = {};
  EXPECT_TRUE(is_local_client(trace, {}));
}

TEST_F(AdminTest, RequiresTheKeyAndAcceptsAllowedOrigins) {
  start({.api_key = "secret", .cors_allow_origins = {"http://example.com"}});
  HttpClient client(port);
  EXPECT_EQ(client.post("/pause", "").status, 401U);
  EXPECT_EQ(client.get("/is_paused").status, 401U);
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(client.get("/is_paused", key + "Origin: http://other.example\r\n").status, 403U);
  EXPECT_EQ(client.get("/is_paused", key + "Origin: http://example.com\r\n").status, 200U);
}

template <class Value>
std::string problem_of(const Result<Value>& parsed) {
  return parsed ? "accepted" : parsed.error().to_string();
}

TEST(OperatorCalls, AreParsedWithTheirDefaults) {
  const auto pause = [](const std::string& query) {
    const auto parsed = parse_pause(request_for("/pause" + query));
    if (!parsed) return parsed.error().to_string();
    const char* const modes[] = {"abort", "wait", "keep"};
    std::string mode = "?";
    for (const auto& [value, name] : {std::pair(PauseMode::abort, modes[0]), {PauseMode::wait, modes[1]}, {PauseMode::keep, modes[2]}})
      if (parsed->mode == value) mode = name;
    return mode + (parsed->clear_cache ? " clear" : " leave");
  };
  EXPECT_EQ(pause(""), "abort clear");
  EXPECT_EQ(pause("?mode=abort&clear_cache=false"), "abort leave");
  EXPECT_EQ(pause("?mode=keep"), "keep clear");
  EXPECT_EQ(pause("?mode=keep&wait_for_inflight_requests=1"), "wait clear");
  EXPECT_EQ(pause("?mode=keep&wait_for_inflight_requests=0"), "keep clear");
  EXPECT_EQ(pause("?mode=stop"), "mode: is 'stop'; use abort, wait or keep");
  EXPECT_EQ(pause("?mode=" + std::string(200, 'x')), "mode: is '" + std::string(100, 'x') + "'; use abort, wait or keep");
  EXPECT_EQ(pause("?mod=keep"), "mod: is not a parameter of this endpoint; did you mean 'mode'?");
  const auto reset = [](const std::string& query) {
    const auto parsed = parse_cache_reset(request_for("/reset_prefix_cache" + query));
    if (!parsed) return parsed.error().to_string();
    return std::string(parsed->preempt_running ? "running " : "") + (parsed->external ? "external" : "");
  };
  EXPECT_EQ(reset(""), "");
  EXPECT_EQ(reset("?reset_running_requests=true"), "running ");
  EXPECT_EQ(reset("?reset_external=true"), "external");
  EXPECT_EQ(reset("?reset_external=x"), "reset_external: is 'x'; use true or false");
  EXPECT_EQ(problem_of(parse_no_parameters(request_for("/x"))), "accepted");
  EXPECT_EQ(problem_of(parse_no_parameters(request_for("/x?a=1"))), "a: is not a parameter of this endpoint; known parameters: ");
}

TEST(OperatorCalls, AreForThisMachine) {
  const auto admitted = [](bool is_local, bool has_origin, const ServerOptions& options) {
    HttpRequest request = request_for("/pause");
    request.is_local = is_local;
    if (has_origin) request.origin = "http://localhost";
    return problem_of(admit_operator(request, options));
  };
  const std::string remote =
      "this endpoint accepts only direct requests from the server's own machine; send the request from that machine without a proxy, or "
      "start the server with --api-key and --allow-remote-admin";
  const std::string page = "Origin: this endpoint does not accept requests from web pages; use curl, or start the server with --api-key";
  EXPECT_EQ(admitted(true, false, {}), "accepted");
  EXPECT_EQ(admitted(false, false, {}), remote);
  EXPECT_EQ(admitted(false, false, {.api_key = "k"}), remote);
  EXPECT_EQ(admitted(false, false, {.api_key = "k", .allow_remote_admin = true}), "accepted");
  EXPECT_EQ(admitted(true, true, {}), page);
  EXPECT_EQ(admitted(true, true, {.api_key = "k"}), "accepted");
}

TEST(OperatorCalls, AnswerWithVllmsBodies) {
  EXPECT_EQ(cache_reset_body(true), R"({"reset":true})");
  EXPECT_EQ(cache_reset_body(false),
            R"({"reset":false,"reason":"requests hold blocks; wait for them, or send reset_running_requests=true"})");
  EXPECT_EQ(encoder_reset_body(true), R"({"reset":true})");
  EXPECT_EQ(encoder_reset_body(false), R"({"reset":false,"reason":"the model does not support images, so no encoder output is cached"})");
  EXPECT_EQ(pause_body(true), R"({"status":"paused"})");
  EXPECT_EQ(pause_body(false), R"({"status":"resumed"})");
  SavedJournal saved;
  saved.path = "/a";
  saved.num_bytes = 7;
  saved.num_steps = 8;
  saved.covered_s = 1.5;
  EXPECT_EQ(json::parse(saved_journal_body(saved)), json::parse(R"({"path":"/a","bytes":7,"steps":8,"seconds":1.5})"));
}

}  // namespace
}  // namespace quire
