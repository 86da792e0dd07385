// Tests protection against web pages of other origins: DNS rebinding, forms, scripts, and pages that an operator allows.
#include <boost/json/parse.hpp>
#include <optional>
#include <string>
#include <utility>

#include "server/http/host_name.h"
#include "server/http/request_guard.h"
#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

using GuardTest = RunningServer;

constexpr const char* kBody = R"({"prompt": "a"})";

std::string get_of(const std::string& host) {
  return "GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n";
}

TEST(HostName, ReadsNamesAndAddresses) {
  EXPECT_EQ(parse_host_name("LocalHost:8000")->name, "localhost");
  EXPECT_EQ(parse_host_name("LocalHost:8000")->port, 8000);
  EXPECT_EQ(parse_host_name("[::1]:9")->name, "::1");
  EXPECT_EQ(parse_host_name("example.com")->port, 80);
  for (const char* loopback : {"localhost", "127.0.0.1", "127.8.9.10:1", "[::1]", "[::ffff:127.0.0.1]:2"}) {
    const auto host = parse_host_name(loopback);
    EXPECT_TRUE(host && host->is_loopback()) << loopback;
  }
  for (const char* other : {"localhost.example.com", "128.0.0.1", "[::2]", "0.0.0.0"}) {
    const auto host = parse_host_name(other);
    EXPECT_TRUE(host && !host->is_loopback()) << other;
  }
  // Boost.URL 1.81 cannot parse a name that begins with an IPv4 address. Refusing such a name is safe.
  for (const char* wrong : {"127.0.0.1.example.com", "", ":80", "a b", "localhost@example.com", "[::1", "a/b", "a?b", "a:b"})
    EXPECT_FALSE(parse_host_name(wrong)) << wrong;
}

TEST_F(GuardTest, RefusesUnknownHostNames) {
  start();
  for (const char* host :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "user@localhost"}) {
    const ClientResponse refused = HttpClient(port).ask(get_of(host));
    EXPECT_EQ(refused.status, 421U) << host;
    EXPECT_NE(refused.error_message().find("--allowed-host"), std::string::npos);
  }
  for (const char* host : {"localhost", "LOCALHOST:1234", "127.0.0.1", "127.1.2.3:80", "[::1]:8000"})
    EXPECT_EQ(HttpClient(port).ask(get_of(host)).status, 200U) << host;
  EXPECT_EQ(HttpClient(port).ask("GET /health HTTP/1.0\r\n").status, 200U) << "browsers always send Host";
}

// Returns the status of guard_request() for a request that came over the network.
unsigned over_network(const std::string& host, const ServerOptions& options, const std::string& method = "GET",
                      std::optional<std::string> origin = {}) {
  HttpRequest request;
  request.method = method;
  request.host = host;
  request.origin = std::move(origin);
  const auto refused = guard_request(request, options);
  return refused ? refused->status : 200;
}

TEST(GuardRequest, RefusesUnknownHostNamesOverTheNetworkWithoutAKey) {
  for (const char* host :
       {"evil.example", "evil.example:8000", "192.0.2.1.evil.example", "llm", "localhost.evil.example", "a b", "xn--e1aw.example"})
    for (const char* method : {"GET", "POST", "OPTIONS", "DELETE"}) {
      EXPECT_EQ(over_network(host, {}, method), 421U) << host;
      EXPECT_EQ(over_network(host, {}, method, "http://" + std::string(host)), 421U) << "an origin with the same name does not help";
    }
  for (const char* host :
       {"192.0.2.1:8000", "10.0.0.7", "[2001:db8::1]:80", "[fd00::2]", "localhost", "localhost:8000", "127.0.0.1:1", "0.0.0.0:8000", ""})
    EXPECT_EQ(over_network(host, {}), 200U) << host;
  EXPECT_EQ(over_network("192.0.2.1:8000", {}, "POST", "http://192.0.2.1:8000"), 200U) << "the chat page";
  EXPECT_EQ(over_network("192.0.2.1:8000", {}, "POST", "http://evil.example"), 403U);
}

TEST(GuardRequest, AcceptsAllowedHostsOrAKey) {
  const ServerOptions named{.allowed_hosts = {"llm.lan"}};
  EXPECT_EQ(over_network("LLM.lan:8000", named), 200U);
  EXPECT_EQ(over_network("other.lan", named), 421U);
  EXPECT_EQ(over_network("other.lan", {.allowed_hosts = {"*"}}), 200U);
  // A rebound page does not have the key, and a proxy may forward any name.
  EXPECT_EQ(over_network("any.example", {.api_key = "secret"}), 200U);
  EXPECT_EQ(over_network("any.example", {.tenant_keys = {{"a", "key"}}}), 200U);
}

TEST_F(GuardTest, AnswersUnderAddressesWhenOpenToTheNetwork) {
  start({.host = "0.0.0.0"});
  EXPECT_EQ(HttpClient(port).ask(get_of("0.0.0.0:" + std::to_string(port))).status, 200U);
  EXPECT_EQ(HttpClient(port).ask(get_of("evil.example")).status, 421U);
}

TEST_F(GuardTest, RefusesTheChatPageUnderUnknownNames) {
  start();
  EXPECT_EQ(HttpClient(port).ask("GET / HTTP/1.1\r\nHost: evil.example\r\n").status, 421U);
}

TEST_F(GuardTest, AcceptsNamesThatTheOperatorAllows) {
  start({.allowed_hosts = {"LLM.example.com"}});
  EXPECT_EQ(HttpClient(port).ask(get_of("llm.example.com:443")).status, 200U);
  EXPECT_EQ(HttpClient(port).ask(get_of("other.example.com")).status, 421U);
}

TEST_F(GuardTest, AcceptsAnyNameWithAStar) {
  start({.allowed_hosts = {"*"}});
  EXPECT_EQ(HttpClient(port).ask(get_of("anything.example")).status, 200U);
}

TEST_F(GuardTest, RefusesForeignOriginsBeforeTheirBody) {
  engine.answer_with("yes");
  start();
  for (const char* origin : {"https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "file://", ""}) {
    HttpClient client(port);
    client.send("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\nOrigin: " + origin +
                "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n");
    const ClientResponse refused = client.receive();
    EXPECT_EQ(refused.status, 403U) << origin;
    EXPECT_EQ(refused.error_param(), "Origin");
    EXPECT_EQ(refused.header("Access-Control-Allow-Origin"), "");
  }
  EXPECT_EQ(engine.num_submitted(), 0U);
}

TEST_F(GuardTest, AcceptsRequestsOfItsChatPage) {
  engine.answer_with("yes");
  start();
  const std::string own = "127.0.0.1:" + std::to_string(port);
  for (const char* scheme : {"http://", "https://"})
    EXPECT_EQ(post("/v1/completions", kBody, "Origin: " + (scheme + own) + "\r\n").status, 200U);
}

TEST_F(GuardTest, RefusesContentTypesOfForms) {
  engine.answer_with("yes");
  start();
  for (const char* type :
       {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "application"}) {
    const ClientResponse refused = HttpClient(port).ask(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\nContent-Type: " + std::string(type) + "\r\n");
    EXPECT_EQ(refused.status, 415U) << type;
    EXPECT_NE(refused.error_message().find("application/json"), std::string::npos);
  }
  EXPECT_EQ(HttpClient(port).ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n").status, 415U);
  EXPECT_EQ(HttpClient(port).ask("POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n").status,
            415U);
  EXPECT_EQ(engine.num_submitted(), 0U);
  HttpClient client(port);
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: Application/JSON ; charset=utf-8\r\nContent-Length: 15\r\n\r\n" +
      std::string(kBody));
  EXPECT_EQ(client.receive().status, 200U);
}

TEST_F(GuardTest, AnswersAllowedOriginsWithCorsHeaders) {
  engine.answer_with("yes");
  start({.api_key = "secret", .cors_allow_origins = {"https://chat.example.com"}});
  const std::string origin = "Origin: https://chat.example.com\r\n";
  HttpClient client(port);
  const ClientResponse preflight = client.ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + origin +
                                              "Access-Control-Request-Method: POST\r\n"
                                              "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n");
  EXPECT_EQ(preflight.status, 204U) << "browsers send no key with a pre-flight";
  EXPECT_EQ(preflight.header("Access-Control-Allow-Origin"), "https://chat.example.com");
  EXPECT_EQ(preflight.header("Access-Control-Allow-Methods"), "GET, POST, DELETE");
  EXPECT_EQ(preflight.header("Access-Control-Allow-Headers"), "authorization,content-type,x-stainless-os");
  EXPECT_EQ(preflight.header("Vary"), "Origin");
  const ClientResponse refused = client.get("/v1/models", origin);
  EXPECT_EQ(refused.status, 401U);
  EXPECT_EQ(refused.header("Access-Control-Allow-Origin"), "https://chat.example.com") << "the page should read why";
  const std::string with_key = origin + "Authorization: Bearer secret\r\n";
  EXPECT_EQ(client.get("/v1/models", with_key).header("Access-Control-Allow-Origin"), "https://chat.example.com");
  const ClientResponse stream = client.post("/v1/completions", R"({"prompt": "a", "stream": true})", with_key);
  EXPECT_EQ(stream.status, 200U);
  EXPECT_EQ(stream.header("Access-Control-Allow-Origin"), "https://chat.example.com");
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret\r\n").header("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret\r\nOrigin: https://other.example\r\n").status, 403U);
}

TEST_F(GuardTest, AcceptsAllOriginsOnlyWithAStar) {
  start({.cors_allow_origins = {"*"}});
  HttpClient client(port);
  EXPECT_EQ(client.get("/v1/models", "Origin: null\r\n").header("Access-Control-Allow-Origin"), "null");
  EXPECT_EQ(client.ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n").status, 405U) << "without an origin it is not a pre-flight";
  EXPECT_EQ(client.post("/pause", "", "Origin: http://evil.example\r\n").status, 403U) << "a page without a key may not operate the server";
}

TEST(GuardOptions, NamesTheInvalidOption) {
  const auto field = [](const ServerOptions& options) { return options.validate().error().field; };
  for (const char* host : {"http://example.com", "example.com:80", "a b", ""})
    EXPECT_EQ(field({.allowed_hosts = {host}}), "allowed_host") << host;
  for (const char* origin : {"example.com", "https://example.com/", "https://example.com/chat", ""})
    EXPECT_EQ(field({.cors_allow_origins = {origin}}), "cors_allow_origin") << origin;
  EXPECT_EQ(field({.trusted_proxies = {"proxy.example.com"}}), "trusted_proxy");
  const ServerOptions good{.allowed_hosts = {"a.example", "[::2]", "*"},
                           .cors_allow_origins = {"*", "null", "http://localhost:3000"},
                           .trusted_proxies = {"::1"}};
  EXPECT_TRUE(good.validate().has_value());
}

TEST(Guard, RefusesOrAnswersBeforeTheBody) {
  const ServerOptions open;
  const auto request_with = [](auto change) {
    HttpRequest request;
    request.method = "POST";
    request.target = "/x";
    request.host = "localhost";
    request.over_loopback = true;
    request.content_type = "application/json";
    request.has_body = true;
    change(request);
    return request;
  };
  const auto outcome = [&](const ServerOptions& options, auto change, bool is_form = false) {
    const auto response = guard_request(request_with(change), options, is_form);
    if (!response) return std::string("passes");
    return std::to_string(response->status) + " " +
           (response->body.empty() ? "" : std::string(json::parse(response->body).at("error").at("message").as_string()));
  };
  EXPECT_EQ(outcome(open, [](auto&) {}), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.host = "evil"; }),
            "421 Host: 'evil' is not an allowed name of this server; use localhost, or start the server with --allowed-host NAME");
  EXPECT_EQ(outcome(open, [](auto& one) { one.host = "0.0.0.0"; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.host = "10.0.0.1"; }).substr(0, 3), "421") << "over loopback, a name is checked";
  EXPECT_EQ(outcome(open, [](auto& one) { one.host = "", one.over_loopback = false; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.host = "10.0.0.1", one.over_loopback = false; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.host = "evil", one.over_loopback = false; }).substr(0, 3), "421");
  ServerOptions keyed;
  keyed.api_key = "k";
  EXPECT_EQ(outcome(keyed, [](auto& one) { one.host = "evil", one.over_loopback = false; }), "passes");
  EXPECT_EQ(outcome(keyed, [](auto& one) { one.host = "evil"; }).substr(0, 3), "421");
  ServerOptions tenants;
  tenants.tenant_keys = {{"a", "k"}};
  EXPECT_EQ(outcome(tenants, [](auto& one) { one.host = "evil", one.over_loopback = false; }), "passes");
  ServerOptions named;
  named.allowed_hosts = {"llm.example.org"};
  EXPECT_EQ(outcome(named, [](auto& one) { one.host = "LLM.example.org:8000"; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.origin = "http://evil"; }),
            "403 Origin: 'http://evil' is not an allowed origin; start the server with --cors-allow-origin ORIGIN");
  EXPECT_EQ(outcome(open, [](auto& one) { one.origin = "http://localhost"; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.origin = "HTTPS://LOCALHOST"; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.origin = "http://", one.host = ""; }).substr(0, 3), "403");
  ServerOptions crossed;
  crossed.cors_allow_origins = {"http://Page"};
  EXPECT_EQ(outcome(crossed, [](auto& one) { one.origin = "http://pagE"; }), "passes");
  EXPECT_EQ(outcome(crossed, [](auto& one) { one.origin = "http://page", one.method = "OPTIONS", one.preflight_method = "POST"; }), "204 ");
  EXPECT_EQ(outcome(crossed, [](auto& one) { one.origin = "http://page", one.method = "OPTIONS"; }), "passes");
  EXPECT_EQ(outcome(crossed, [](auto& one) { one.origin = "http://page", one.preflight_method = "POST"; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.content_type = ""; }),
            "415 Content-Type: is missing; send JSON with 'Content-Type: application/json'");
  EXPECT_EQ(outcome(open, [](auto& one) { one.content_type = "text/plain"; }),
            "415 Content-Type: 'text/plain' is not supported by this endpoint; send JSON with 'Content-Type: application/json'");
  EXPECT_EQ(outcome(open, [](auto& one) { one.content_type = "Application/JSON \t; charset=utf-8"; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.content_type = " ;"; }).substr(0, 3), "415");
  EXPECT_EQ(outcome(open, [](auto& one) { one.has_body = false; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.has_body = false, one.content_type = ""; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.has_body = false, one.content_type = "text/plain"; }).substr(0, 3), "415");
  EXPECT_EQ(outcome(open, [](auto& one) { one.has_body = false, one.content_type = "text/plain", one.method = "GET"; }), "passes");
  EXPECT_EQ(outcome(open, [](auto& one) { one.content_type = "multipart/form-data; boundary=x"; }, true), "passes");
  EXPECT_EQ(outcome(
                open, [](auto&) {}, true),
            "415 Content-Type: 'application/json' is not supported by this endpoint; send a form with 'Content-Type: multipart/form-data; "
            "boundary=...'");
  HttpRequest preflight = request_with(
      [](auto& one) { one.origin = "http://page", one.method = "OPTIONS", one.preflight_method = "POST", one.preflight_headers = "x-a"; });
  EXPECT_EQ(guard_request(preflight, crossed, false)->headers, (HttpHeaders{{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                                                                            {"Access-Control-Max-Age", "600"},
                                                                            {"Access-Control-Allow-Headers", "x-a"}}));
  EXPECT_EQ(cors_headers(preflight, crossed),
            (HttpHeaders{{"Access-Control-Allow-Origin", "http://page"}, {"Access-Control-Expose-Headers", "*"}, {"Vary", "Origin"}}));
  EXPECT_TRUE(cors_headers(preflight, open).empty());
  preflight.origin.reset();
  EXPECT_TRUE(cors_headers(preflight, crossed).empty());
}

}  // namespace
}  // namespace quire
