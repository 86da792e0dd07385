// Tests the parts of the HTTP layer one by one: the limits, errors and values that whole requests rarely reach.
#include <gtest/gtest.h>

#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/context_overflow.h"
#include "quire/base/logger.h"
#include "server/http/body_budget.h"
#include "server/http/connection_table.h"
#include "server/http/error_response.h"
#include "server/http/host_name.h"
#include "server/http/job_order.h"
#include "server/http/local_client.h"
#include "server/http/media_fetcher.h"
#include "server/http/nearest_name.h"
#include "server/http/public_address.h"
#include "server/http/query.h"
#include "server/http/request_guard.h"
#include "server/http/request_head.h"
#include "server/http/request_log.h"
#include "server/http/span_json.h"
#include "server/http/tenants.h"
#include "server/http/trace_context.h"
#include "support/pipe.h"

namespace quire::http_parts_test {
namespace {

namespace json = boost::json;
namespace ip = boost::asio::ip;

// Returns the lines that `write` makes a logger of all levels write.
template <class Write>
std::vector<json::value> logged(std::uint32_t slow_ms, const Write& write) {
  Pipe pipe;
  {
    Logger logger({.level = LogLevel::debug, .format = LogFormat::json, .descriptor = pipe.writer()});
    RequestLog log(logger, slow_ms);
    write(log);
  }
  std::vector<json::value> lines;
  for (const std::string& line : pipe.lines()) lines.push_back(json::parse(line));
  return lines;
}

EndedRequest ended_request(std::string_view method, unsigned status, std::string_view path = {}) {
  EndedRequest request;
  request.method = method;
  request.path = path;
  request.status = status;
  return request;
}

std::string level_of(const json::value& line) {
  return std::string(line.at("level").as_string()) + " " + std::string(line.at("event").as_string());
}

TEST(RequestLogLines, HaveALevelForEachOutcome) {
  struct OutcomeCase {
    std::string method;
    unsigned status;
    int ms;
    std::string line;
  };
  const OutcomeCase cases[] = {
      {"POST", 200, 0, "info request"},         {"GET", 200, 0, "debug request"},  {"GET", 404, 0, "info request"},
      {"POST", 499, 0, "info request"},         {"POST", 500, 0, "info request"},  {"POST", 429, 0, "debug request"},
      {"GET", 503, 0, "debug request"},         {"POST", 200, 19, "info request"}, {"POST", 200, 20, "warning slow_request"},
      {"GET", 200, 21, "warning slow_request"},
  };
  for (const OutcomeCase& one : cases) {
    const auto lines = logged(20, [&](RequestLog& log) {
      EndedRequest request = ended_request(one.method, one.status);
      request.duration = std::chrono::milliseconds(one.ms);
      log.ended(request);
    });
    ASSERT_GE(lines.size(), 1U);
    EXPECT_EQ(level_of(lines[0]), one.line) << one.method << one.status;
    EXPECT_EQ(lines[0].at("ms").to_number<double>(), one.ms);
    EXPECT_EQ(lines.size(), one.status == 429 || one.status == 503 ? 2U : 1U);
  }
  const auto never_slow = logged(0, [](RequestLog& log) {
    EndedRequest request = ended_request("POST", 200);
    request.duration = std::chrono::hours(1);
    log.ended(request);
  });
  EXPECT_EQ(level_of(never_slow.at(0)), "info request");
}

TEST(RequestLogLines, HaveTheValuesOfTheRequest) {
  const auto lines = logged(0, [](RequestLog& log) {
    log.ended({.id = "i",
               .answer_id = "a",
               .peer = "p",
               .method = "POST",
               .path = "/x",
               .status = 400,
               .prompt_tokens = 1,
               .cached_tokens = 2,
               .output_tokens = 3,
               .duration = std::chrono::microseconds(1500)});
    log.ignored("i", "user, store");
  });
  ASSERT_EQ(lines.size(), 2U);
  const json::object wanted = {{"id", "i"},          {"answer_id", "a"},   {"peer", "p"},        {"method", "POST"}, {"path", "/x"},
                               {"prompt_tokens", 1}, {"cached_tokens", 2}, {"output_tokens", 3}, {"status", 400}};
  for (const auto& [name, value] : wanted) EXPECT_EQ(lines[0].at(name), value) << name;
  EXPECT_EQ(lines[0].at("ms").to_number<double>(), 1.5);
  EXPECT_EQ(level_of(lines[1]), "info ignored_fields");
  EXPECT_EQ(lines[1].at("id"), "i");
  EXPECT_EQ(lines[1].at("fields"), "user, store");
}

TEST(RequestLogLines, CountRefusalsUntilTheNextLineAboutThem) {
  const auto lines = logged(0, [](RequestLog& log) {
    log.ended(ended_request("POST", 503, "/x"));
    for (int i = 0; i < 3; ++i) log.ended(ended_request("POST", 429, "/y"));
  });
  std::uint64_t num_lines = 0, num_counted = 0;
  for (const json::value& line : lines) {
    if (line.at("event") != "overload") continue;
    if (num_lines++ == 0) {
      EXPECT_EQ(line.at("level"), "warning");
      EXPECT_EQ(line.at("status"), 503);
      EXPECT_EQ(line.at("path"), "/x");
      EXPECT_EQ(line.at("requests"), 1);
    }
    num_counted += line.at("requests").to_number<std::uint64_t>();
  }
  EXPECT_GE(num_lines, 1U) << "the first refusal is reported at once";
  EXPECT_LE(num_counted, 4U);
}

TEST(RequestLogLines, NameEveryKindOfException) {
  const auto lines = logged(0, [](RequestLog& log) {
    log.failed("i", std::make_exception_ptr(std::runtime_error("out of luck")));
    log.failed("j", std::make_exception_ptr(3));
  });
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(level_of(lines[0]), "error exception");
  EXPECT_EQ(lines[0].at("id"), "i");
  EXPECT_EQ(lines[0].at("what"), "out of luck");
  EXPECT_EQ(lines[1].at("id"), "j");
  EXPECT_EQ(lines[1].at("what"), "an exception of a type other than std::exception");
}

class TableOfConnections : public testing::Test {
 protected:
  Connection* connection(std::size_t number) { return reinterpret_cast<Connection*>(&places_[number]); }
  std::array<char, 64> places_{};
  ConnectionTable table_{{.max_busy = 8, .limits_shares = true}};
};

TEST_F(TableOfConnections, ClientThatIsSetAgainIsNoProgress) {
  for (std::size_t i = 0; i < 2; ++i) table_.add(connection(i), "a");
  table_.set_client(connection(0), "a");
  EXPECT_EQ(table_.choose_connection_to_close(), connection(0)) << "it has made no progress";
  table_.set_state(connection(0), ConnectionState::new_client);
  EXPECT_EQ(table_.choose_connection_to_close(), connection(1)) << "the same state again is progress";
}

TEST_F(TableOfConnections, IgnoresConnectionsThatItDoesNotHold) {
  table_.add(connection(0), "a");
  table_.set_client(connection(1), "a");
  table_.set_state(connection(1), ConnectionState::idle);
  table_.remove(connection(1));
  EXPECT_EQ(table_.size(), 1U);
  EXPECT_FALSE(table_.contains(connection(1)));
  EXPECT_TRUE(table_.has_room(connection(1)));
  table_.remove(connection(0));
  EXPECT_EQ(table_.size(), 0U);
  EXPECT_EQ(table_.choose_connection_to_close(), nullptr);
}

TEST_F(TableOfConnections, ClosesNewClientsBeforeOthersOfEqualNumber) {
  table_.add(connection(0), "a");
  table_.set_state(connection(0), ConnectionState::idle);
  table_.add(connection(1), "a");
  table_.set_state(connection(1), ConnectionState::receiving);
  EXPECT_EQ(table_.choose_connection_to_close(), connection(1)) << "receiving before idle";
  table_.add(connection(2), "a");
  EXPECT_EQ(table_.choose_connection_to_close(), connection(2));
}

TEST_F(TableOfConnections, VisitsEachConnectionAlsoWhileItIsRemoved) {
  for (std::size_t i = 0; i < 5; ++i) table_.add(connection(i), "a");
  std::size_t num_visited = 0;
  table_.for_each([&](Connection* one) {
    table_.remove(one);
    ++num_visited;
  });
  EXPECT_EQ(num_visited, 5U);
  EXPECT_EQ(table_.size(), 0U);
}

TEST_F(TableOfConnections, TenantMayHoldFourTimesTheFreePart) {
  // Of 8 busy connections, a tenant with 3 may have another while one is free (3 < 4), and a tenant with 4 may not.
  const auto hold = [&](std::size_t from, std::size_t to, const char* client) {
    for (std::size_t i = from; i < to; ++i) {
      table_.add(connection(i), client);
      table_.set_state(connection(i), ConnectionState::busy);
    }
  };
  hold(0, 3, "a");
  hold(3, 7, "b");
  table_.add(connection(10), "a");
  table_.add(connection(11), "b");
  EXPECT_TRUE(table_.has_room(connection(10)));
  EXPECT_FALSE(table_.has_room(connection(11)));
  table_.set_state(connection(10), ConnectionState::busy);
  table_.add(connection(12), "c");
  EXPECT_FALSE(table_.has_room(connection(12))) << "all are busy";
}

TEST(NearestNames, AreWithinAThirdOfTheLetters) {
  struct NameCase {
    std::string name;
    std::vector<std::string_view> known;
    std::string found;
  };
  const NameCase cases[] = {
      {"ab", {"ax"}, "ax"},
      {"ab", {"xy"}, ""},
      {"abcde", {"abcdx"}, "abcdx"},
      {"abcde", {"abcxx"}, ""},
      {"abcdef", {"abcdxx"}, "abcdxx"},
      {"abcdef", {"abcxxx"}, ""},
      {"abc", {"abcd"}, "abcd"},
      {"abcd", {"abc"}, "abc"},
      {"abcd", {"bcd"}, "bcd"},
      {"abcdef", {"abcdxx", "abcdex", "abcdey"}, "abcdex"},
      {std::string(40, 'a'), {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"},
      {std::string(41, 'a'), {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}, ""},
  };
  for (const NameCase& one : cases) EXPECT_EQ(nearest_name(one.name, one.known).value_or(""), one.found) << one.name;
}

TEST(PublicAddresses, EndWherePrivateNetworksBegin) {
  // The first and the last address of each private network, between their public neighbours.
  const char* const kNot[] = {"0.0.0.0",
                              "0.255.255.255",
                              "10.0.0.0",
                              "10.255.255.255",
                              "100.64.0.0",
                              "100.127.255.255",
                              "127.0.0.0",
                              "127.255.255.255",
                              "169.254.0.0",
                              "169.254.255.255",
                              "172.16.0.0",
                              "172.31.255.255",
                              "192.0.0.0",
                              "192.0.0.255",
                              "192.0.2.0",
                              "192.0.2.255",
                              "192.88.99.0",
                              "192.88.99.255",
                              "192.168.0.0",
                              "192.168.255.255",
                              "198.18.0.0",
                              "198.19.255.255",
                              "198.51.100.0",
                              "198.51.100.255",
                              "203.0.113.0",
                              "203.0.113.255",
                              "224.0.0.0",
                              "239.255.255.255",
                              "240.0.0.0",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::ffff:10.0.0.1",
                              "64:ff9b::10.0.0.1",
                              "2002:a00:1::1",
                              "1fff::1",
                              "4000::1",
                              "fe80::1",
                              "fc00::1",
                              "ff02::1",
                              "2001::1",
                              "2001:1ff::1",
                              "2001:db8::1",
                              "2001:db8:ffff::1",
                              "3fff::1",
                              "64:ff9b:1::1.1.1.1"};
  const char* const kPublic[] = {
      "1.0.0.0",         "9.255.255.255", "11.0.0.0",       "100.63.255.255",  "100.128.0.0",     "126.255.255.255", "128.0.0.0",
      "169.253.255.255", "169.255.0.0",   "172.15.255.255", "172.32.0.0",      "191.255.255.255", "192.0.1.0",       "192.0.1.255",
      "192.0.3.0",       "192.88.98.255", "192.88.100.0",   "192.167.255.255", "192.169.0.0",     "198.17.255.255",  "198.20.0.0",
      "198.51.99.255",   "198.51.101.0",  "203.0.112.255",  "203.0.114.0",     "223.255.255.255", "::ffff:8.8.8.8",  "64:ff9b::8.8.8.8",
      "2002:808:808::1", "2000::1",       "2001:200::1",    "2001:db7::1",     "2001:db9::1",     "3ffe::1",         "2600::1"};
  for (const char* text : kNot) EXPECT_FALSE(is_public_address(ip::make_address(text))) << text;
  for (const char* text : kPublic) EXPECT_TRUE(is_public_address(ip::make_address(text))) << text;
}

TEST(QueryErrors, NameTheParameterTheProblemAndTheFix) {
  const auto error = [](const std::string& query) {
    QueryReader reader("/x" + query);
    (void)reader.text("mode", "");
    (void)reader.boolean("deep", false);
    (void)reader.integer("size");
    const auto done = reader.finish();
    return done ? "accepted" : done.error().to_string();
  };
  EXPECT_EQ(error(""), "accepted");
  EXPECT_EQ(error("?"), "accepted");
  EXPECT_EQ(error("?&=1"), "accepted") << "a field without a name is skipped";
  EXPECT_EQ(error("?mode=%zz"), "the query string is not correctly percent-encoded; percent-encode it");
  EXPECT_EQ(error("?deep=maybe"), "deep: is 'maybe'; use true or false");
  EXPECT_EQ(error("?size=1x"), "size: is '1x'; send a number such as 8589934592, or leave it out");
  EXPECT_EQ(error("?size="), "size: is ''; send a number such as 8589934592, or leave it out");
  EXPECT_EQ(error("?size=-1"), "size: is '-1'; send a number such as 8589934592, or leave it out");
  EXPECT_EQ(error("?size=18446744073709551616"), "size: is '18446744073709551616'; send a number such as 8589934592, or leave it out");
  EXPECT_EQ(error("?size=1&size=1"), "size: is given more than once; send it once");
  EXPECT_EQ(error("?mod=1"), "mod: is not a parameter of this endpoint; did you mean 'mode'?");
  EXPECT_EQ(error("?zzzzzz=1"), "zzzzzz: is not a parameter of this endpoint; known parameters: mode, deep, size");
}

TEST(QueryValues, AreReadInEverySpelling) {
  const auto flag = [](const std::string& value) { return QueryReader("/x?deep=" + value).boolean("deep", true); };
  for (const char* yes : {"true", "1", "yes", "on", "TRUE", "Yes", "oN"}) EXPECT_TRUE(flag(yes)) << yes;
  for (const char* no : {"false", "0", "no", "off", "FALSE", "oFF", "maybe"}) EXPECT_FALSE(flag(no)) << no;
  EXPECT_TRUE(QueryReader("/x").boolean("deep", true));
  EXPECT_FALSE(QueryReader("/x").boolean("deep", false));
  EXPECT_EQ(QueryReader("/x?size=18446744073709551615").integer("size"), 18446744073709551615U);
  EXPECT_EQ(QueryReader("/x?size=0").integer("size"), 0U);
  EXPECT_FALSE(QueryReader("/x").integer("size"));
  EXPECT_EQ(QueryReader("/x?mode=a&mode=b%20c").text("mode", "d"), "b c");
  EXPECT_EQ(QueryReader("/x").text("mode", "d"), "d");
  EXPECT_EQ(decoded_path("a%2Fb"), "a/b");
  EXPECT_FALSE(decoded_path("a%2"));
}

TEST(FramingErrors, NameTheProblem) {
  const std::string get = "GET / HTTP/1.1\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {get + "Host: a\r\n\r\n", ""},
      {get + "Host: a\r\nContent-Length: 10\r\n\r\n", ""},
      {get + "Host: a\r\nContent-Length:\t 09 \t\r\n\r\n", ""},
      {get + "Transfer-Encoding: \tchunked \r\n\r\n", ""},
      {"GET / HTTP/1.0\r\nContent-Length: 1\r\n\r\n", ""},
      {get + "azAZ09!#$%&'*+-.^_`|~: a\r\n\r\n", ""},
      {"\r\n" + get + "\r\n", "it begins with an empty line"},
      {get + "Host: a\r\n", "its header has no end"},
      {"", "its header has no end"},
      {get + "Host: a\rb\r\n\r\n", "a line contains a bare CR, LF or NUL"},
      {get + "Host: a\nb\r\n\r\n", "a line contains a bare CR, LF or NUL"},
      {get + "Host: a" + std::string(1, '\0') + "\r\n\r\n", "a line contains a bare CR, LF or NUL"},
      {get + " a: b\r\n\r\n", "it has a folded header line"},
      {get + "\ta: b\r\n\r\n", "it has a folded header line"},
      {get + ": b\r\n\r\n", "it has a header line without a valid name"},
      {get + "ab\r\n\r\n", "it has a header line without a valid name"},
      {get + "a b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a@b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a{b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a[b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a;b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a/b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "it has two Transfer-Encoding headers"},
      {get + "Transfer-Encoding: gzip\r\n\r\n", "its Transfer-Encoding is 'gzip', but only chunked is supported"},
      {get + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "it has two Content-Length headers"},
      {get + "Content-Length:\r\n\r\n", "its Content-Length is '', which is not a number"},
      {get + "Content-Length: 1,1\r\n\r\n", "its Content-Length is '1,1', which is not a number"},
      {get + "Content-Length: +1\r\n\r\n", "its Content-Length is '+1', which is not a number"},
      {get + "Content-Length: 1:\r\n\r\n", "its Content-Length is '1:', which is not a number"},
      {get + "Content-Length: 1/\r\n\r\n", "its Content-Length is '1/', which is not a number"},
      {get + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "it has both Transfer-Encoding and Content-Length"},
      {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 does not support Transfer-Encoding"},
  };
  for (const auto& [header, problem] : cases) EXPECT_EQ(framing_problem(header), problem) << header;
  EXPECT_EQ(not_http_response("why").status, 400U);
  EXPECT_EQ(json::parse(not_http_response("why").body).at("error").at("message"),
            "the request is not valid HTTP/1.1: why; send a valid HTTP/1.1 request");
}

TEST(AbsoluteForm, BecomesHostAndPath) {
  const auto taken = [](const std::string& target) {
    HttpRequest request;
    request.host = "before";
    request.target = target;
    return take_absolute_form(request) ? request.host + " " + request.target : "refused";
  };
  EXPECT_EQ(taken("/a"), "before /a");
  EXPECT_EQ(taken("*"), "before *");
  EXPECT_EQ(taken("http://h/a?b"), "h /a?b");
  EXPECT_EQ(taken("https://h:1/a"), "h:1 /a");
  EXPECT_EQ(taken("HTTP://h"), "h /");
  EXPECT_EQ(taken("http://h?q"), "h /?q");
  EXPECT_EQ(taken("http://h#f"), "h /#f");
  EXPECT_EQ(taken("http://"), "refused");
  EXPECT_EQ(taken("https://"), "refused");
  EXPECT_EQ(taken("ftp://h/a"), "refused");
  EXPECT_EQ(taken("h/a"), "refused");
  EXPECT_EQ(taken(""), "refused");
}

TEST(RefusalResponses, HaveStatusTextAndRetryTime) {
  ServerOptions options;
  options.retry_after_s = 7;
  options.max_body_bytes = 100;
  options.max_header_bytes = 2000;
  options.max_header_fields = 3;
  const auto shown_of = [](const HttpResponse& response) {
    std::string retry;
    for (const auto& [name, value] : response.headers) retry += " " + name + "=" + value;
    const json::value error = json::parse(response.body).at("error");
    return std::to_string(response.status) + retry + " " + json::serialize(error.at("code")) + " " +
           std::string(error.at("message").as_string());
  };
  EXPECT_EQ(shown_of(body_too_slow_response()),
            "408 null the body arrived too slowly, and other requests needed its memory; send the request again, faster");
  EXPECT_EQ(shown_of(too_many_answers_response(options)),
            R"(429 Retry-After=7 "overloaded" too many requests are waiting for answers; try again, or start the server with a larger )"
            "--max-connections");
  EXPECT_EQ(shown_of(too_many_bodies_response(options)),
            R"(503 Retry-After=7 "overloaded" the memory for request bodies is full; try again, or start the server with a larger )"
            "--max-body-bytes-in-flight");
  EXPECT_EQ(shown_of(body_too_large_response(options)),
            R"(413 "too_large" the body has more than 100 bytes; send a smaller body, or raise --max-body-bytes)");
  namespace http = boost::beast::http;
  RequestHeader header;
  header.version(11);
  header.insert("Host", "a");
  header.insert("A", "b");
  header.insert("B", "b");
  EXPECT_FALSE(read_error_response({}, header, options)) << "three fields are allowed";
  header.insert("C", "b");
  const std::string too_many =
      R"(431 "headers_too_large" the request has more than 2000 bytes or 3 fields of headers; send fewer or shorter headers)";
  EXPECT_EQ(shown_of(*read_error_response({}, header, options)), too_many);
  EXPECT_EQ(shown_of(*read_error_response(http::error::header_limit, {}, options)), too_many);
  EXPECT_EQ(read_error_response(http::error::body_limit, {}, options)->status, 413U);
  EXPECT_FALSE(read_error_response(http::error::end_of_stream, {}, options));
  EXPECT_FALSE(read_error_response(http::error::partial_message, {}, options));
  EXPECT_FALSE(read_error_response(boost::asio::error::connection_reset, {}, options)) << "it is no error of HTTP";
  EXPECT_EQ(read_error_response(http::error::bad_target, {}, options)->status, 400U);
  RequestHeader old;
  old.version(10);
  EXPECT_FALSE(read_error_response({}, old, options)) << "HTTP/1.0 needs no Host";
  old.version(11);
  const std::string one_host =
      "400 null the request is not valid HTTP/1.1: it must have exactly one Host header; send a valid HTTP/1.1 request";
  EXPECT_EQ(shown_of(*read_error_response({}, old, options)), one_host);
  old.insert("Host", "a");
  EXPECT_FALSE(read_error_response({}, old, options));
  old.insert("Host", "a");
  EXPECT_EQ(shown_of(*read_error_response({}, old, options)), one_host);
}

TEST(ErrorBodies, HaveTypeCodeAndParamForEachStatus) {
  const auto body = [](unsigned status, const Error& error) {
    const json::value shown_error = json::parse(error_body(error, status)).at("error");
    return std::string(shown_error.at("type").as_string()) + " " + json::serialize(shown_error.at("code")) + " " +
           json::serialize(shown_error.at("param"));
  };
  const Error plain{ErrorCode::invalid_argument, "f", "m", "r"};
  EXPECT_EQ(body(400, plain), R"(invalid_request_error null "f")");
  EXPECT_EQ(body(400, {ErrorCode::unsupported, "", "m", "r"}), R"(invalid_request_error "unsupported" null)");
  EXPECT_EQ(body(400, overflow_error("messages", {.prompt_tokens = 9, .answer_tokens = 1, .max_model_len = 8, .is_at_least = false})),
            R"(invalid_request_error "context_length_exceeded" "messages")");
  EXPECT_EQ(body(401, plain), R"(authentication_error "invalid_api_key" "f")");
  EXPECT_EQ(body(403, plain), R"(permission_error "forbidden" "f")");
  EXPECT_EQ(body(404, plain), R"(invalid_request_error "not_found" "f")");
  EXPECT_EQ(body(404, {ErrorCode::not_found, "model", "m", "r"}), R"(invalid_request_error "model_not_found" "model")");
  EXPECT_EQ(body(404, {ErrorCode::not_found, "previous_response_id", "m", "r"}),
            R"(invalid_request_error "previous_response_not_found" "previous_response_id")");
  EXPECT_EQ(body(405, plain), R"(invalid_request_error "method_not_allowed" "f")");
  EXPECT_EQ(body(413, plain), R"(invalid_request_error "too_large" "f")");
  EXPECT_EQ(body(415, plain), R"(invalid_request_error "unsupported_media_type" "f")");
  EXPECT_EQ(body(421, plain), R"(invalid_request_error "unknown_host" "f")");
  EXPECT_EQ(body(429, plain), R"(rate_limit_error "overloaded" "f")");
  EXPECT_EQ(body(431, plain), R"(invalid_request_error "headers_too_large" "f")");
  EXPECT_EQ(body(499, plain), R"(invalid_request_error null "f")");
  EXPECT_EQ(body(500, plain), R"(server_error null "f")");
  EXPECT_EQ(body(503, {ErrorCode::overloaded, "", "m", "r"}), R"(server_error "overloaded" null)");
  EXPECT_EQ(body(503, {ErrorCode::shutting_down, "", "m", "r"}), R"(server_error "shutting_down" null)");
  EXPECT_EQ(json::parse(error_body(plain, 400)).at("error").at("message"), "f: m; r");
  const std::pair<ErrorCode, unsigned> statuses[] = {
      {ErrorCode::invalid_argument, 400}, {ErrorCode::unsupported, 400},   {ErrorCode::not_found, 404}, {ErrorCode::too_large, 413},
      {ErrorCode::overloaded, 429},       {ErrorCode::shutting_down, 503}, {ErrorCode::corrupt, 500},   {ErrorCode::io, 500}};
  for (const auto& [code, status] : statuses) {
    const HttpResponse response = error_response({code, "f", "m", "r"}, 9);
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.content_type, "application/json");
    EXPECT_EQ(response.headers, status == 429 || status == 503 ? HttpHeaders({{"Retry-After", "9"}}) : HttpHeaders());
  }
  EXPECT_EQ(error_response(401, plain).headers, (HttpHeaders{{"WWW-Authenticate", "Bearer"}}));
  EXPECT_EQ(error_response(503, plain).headers, (HttpHeaders{{"Retry-After", "1"}}));
  EXPECT_EQ(shown(std::string(101, 'x')), std::string(100, 'x'));
  EXPECT_EQ(shown("a\xFF"), "a\xEF\xBF\xBD");
}

TEST(HostNames, HaveNamePortAndAddress) {
  const auto parsed = [](const std::string& text) {
    const auto host = parse_host_name(text, 1);
    if (!host) return std::string("invalid");
    return host->name + " " + std::to_string(host->port) + (host->address ? " address" : "") + (host->is_loopback() ? " loopback" : "");
  };
  EXPECT_EQ(parsed("Example.AZ"), "example.az 1");
  EXPECT_EQ(parsed("a:0"), "a 0");
  EXPECT_EQ(parsed("a:"), "a 1");
  EXPECT_EQ(parsed("a:65535"), "a 65535");
  EXPECT_EQ(parsed("localhost:8"), "localhost 8 loopback");
  EXPECT_EQ(parsed("LocalHost"), "localhost 1 loopback");
  EXPECT_EQ(parsed("127.255.255.255"), "127.255.255.255 1 address loopback");
  EXPECT_EQ(parsed("128.0.0.1"), "128.0.0.1 1 address");
  EXPECT_EQ(parsed("[::1]:8"), "::1 8 address loopback");
  EXPECT_EQ(parsed("[::ffff:127.0.0.1]"), "::ffff:127.0.0.1 1 address loopback");
  EXPECT_EQ(parsed("[::2]"), "::2 1 address");
  for (const char* wrong : {"", ":8", "u@a", "[v1.a]", "a b", "[::1"}) EXPECT_EQ(parsed(wrong), "invalid") << wrong;
  EXPECT_EQ(plain_address(ip::make_address("::ffff:1.2.3.4")).to_string(), "1.2.3.4");
  EXPECT_EQ(plain_address(ip::make_address("::1")).to_string(), "::1");
  EXPECT_EQ(to_lower("AZ[@az-\xC3\x84"), "az[@az-\xC3\x84");
}

TEST(LocalClients, AreProvenByEveryHop) {
  struct HopCase {
    std::string peer;
    std::vector<std::string> forwarded, forwarded_for;
    bool is_local;
    std::string address;
  };
  const std::vector<std::string> trusted = {"127.0.0.1", "10.0.0.5"};
  const HopCase cases[] = {
      {"127.0.0.1", {}, {}, false, "127.0.0.1"},
      {"127.0.0.1", {}, {"127.0.0.1"}, true, "127.0.0.1"},
      {"127.0.0.1", {}, {"::1"}, true, "::/64"},
      {"127.0.0.1", {}, {"1.2.3.4"}, false, "1.2.3.4"},
      {"127.0.0.1", {}, {"1.2.3.4, 127.0.0.1"}, false, "1.2.3.4"},
      {"127.0.0.1", {}, {"1.2.3.4", "5.6.7.8"}, false, "5.6.7.8"},
      {"127.0.0.1", {}, {"junk"}, false, "127.0.0.1"},
      {"127.0.0.1", {"for=127.0.0.1"}, {}, true, "127.0.0.1"},
      {"127.0.0.1", {"proto=http; For=\"[::1]:80\""}, {}, true, "::/64"},
      {"127.0.0.1", {"for="}, {}, false, "127.0.0.1"},
      {"127.0.0.1", {"for=1.2.3.4;by=x"}, {}, false, "1.2.3.4"},
      {"127.0.0.1", {"for=1.2.3.4"}, {"127.0.0.1"}, false, "127.0.0.1"},
      {"10.0.0.5", {}, {"127.0.0.1"}, false, "127.0.0.1"},
      {"10.0.0.5", {}, {"1.2.3.4:80"}, false, "1.2.3.4"},
      {"1.2.3.4", {}, {"127.0.0.1"}, false, "1.2.3.4"},
      {"::ffff:127.0.0.1", {}, {"127.0.0.1"}, true, "127.0.0.1"},
      {"2001:db8:1:2:3:4:5:6", {}, {}, false, "2001:db8:1:2::/64"},
  };
  for (const HopCase& one : cases) {
    ClientNetworkInfo info{.peer = ip::make_address(one.peer),
                           .local = {ip::make_address("127.0.0.1"), 8000},
                           .host = "localhost:8000",
                           .forwarded = {},
                           .forwarded_for = {}};
    info.forwarded = one.forwarded;
    info.forwarded_for = one.forwarded_for;
    const std::string hops =
        one.peer + " " + json::serialize(json::value_from(one.forwarded)) + json::serialize(json::value_from(one.forwarded_for));
    EXPECT_EQ(is_local_client(info, trusted), one.is_local) << hops;
    EXPECT_EQ(client_address(info, trusted), one.address) << hops;
  }
}

TEST(LocalClients, AskWithoutAProxyUnderALoopbackNameWithThePort) {
  const ClientNetworkInfo direct{.peer = ip::make_address("127.0.0.1"),
                                 .local = {ip::make_address("127.0.0.1"), 8000},
                                 .host = "localhost:8000",
                                 .forwarded = {},
                                 .forwarded_for = {}};
  const auto is_local = [&](auto change) {
    ClientNetworkInfo info = direct;
    change(info);
    return is_local_client(info, {});
  };
  EXPECT_TRUE(is_local([](auto&) {}));
  EXPECT_TRUE(is_local([](auto& info) { info.host = "[::1]:8000"; }));
  EXPECT_FALSE(is_local([](auto& info) { info.peer = ip::make_address("10.0.0.1"); }));
  EXPECT_FALSE(is_local([](auto& info) { info.host = "localhost:8001"; }));
  EXPECT_FALSE(is_local([](auto& info) { info.host = "localhost"; }));
  EXPECT_TRUE(is_local([](auto& info) {
    info.host = "localhost";
    info.local.port(80);
  }));
  EXPECT_FALSE(is_local([](auto& info) { info.host = "example.org:8000"; }));
  EXPECT_FALSE(is_local([](auto& info) { info.host = ""; }));
  EXPECT_FALSE(is_local([](auto& info) { info.http_version = 10; }));
  EXPECT_FALSE(is_local([](auto& info) { info.has_proxy_header = true; }));
  EXPECT_FALSE(is_local([](auto& info) { info.forwarded = {"for=127.0.0.1"}; }));
  EXPECT_FALSE(is_local([](auto& info) { info.forwarded_for = {"127.0.0.1"}; }));
}

TEST(TenantKeyErrors, NameTheEntryAndTheLimit) {
  const auto error = [](const std::string& entry) {
    const auto key = parse_tenant_key(entry, "f");
    return key ? "accepted" : key.error().to_string();
  };
  const std::string form = "; write NAME=KEY: NAME consists of letters, digits, '-', '_' and '.', KEY of visible ASCII characters";
  EXPECT_EQ(error("a"), "f: has no '='" + form);
  EXPECT_EQ(error("=k"), "f: has no tenant name" + form);
  EXPECT_EQ(error(std::string(64, 'a') + "=k"), "accepted");
  EXPECT_EQ(error(std::string(65, 'a') + "=k"), "f: has a tenant name of 65 bytes, more than 64" + form);
  EXPECT_EQ(error("azAZ09-_.=!~"), "accepted");
  for (const char* name : {"a b", "a/b", "a:b", "a@b", "a[b", "a`b", "a{b"})
    EXPECT_EQ(error(std::string(name) + "=k"), "f: has a tenant name with invalid characters" + form) << name;
  EXPECT_EQ(error("a="), "f: has no key for 'a'" + form);
  EXPECT_EQ(error("a=" + std::string(512, 'k')), "accepted");
  EXPECT_EQ(error("a=" + std::string(513, 'k')), "f: has a key of 513 bytes, more than 512" + form);
  for (const char* key : {"k k", "k\x7F", "k\t", "k\xC3\xA4"})
    EXPECT_EQ(error("a=" + std::string(key)), "f: has a key with invalid characters" + form) << key;
  ServerOptions options;
  options.tenant_keys = {{"a", "k"}, {"b", "l"}};
  const ApiKeys keys(options);
  EXPECT_EQ(keys.tenant_of("Bearer l").value(), "b");
  EXPECT_EQ(keys.tenant_of("bEARER   k").value(), "a");
  EXPECT_EQ(keys.tenant_of("").error().to_string(), "Authorization: is missing; send 'Authorization: Bearer KEY'");
  for (const char* wrong : {"Bearer", "Bearer ", "Bearerk", "Basic k", "Bearer m", "k"})
    EXPECT_EQ(keys.tenant_of(wrong).error().to_string(), "Authorization: does not contain a valid key; send 'Authorization: Bearer KEY'")
        << wrong;
  EXPECT_EQ(ApiKeys(ServerOptions()).tenant_of("").value(), "");
  options.api_key = "own";
  EXPECT_EQ(ApiKeys(options).tenant_of("Bearer own").value(), "");
}

TEST(TraceParents, HaveFieldsAtTheirPlaces) {
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736", parent = "00f067aa0ba902b7";
  EXPECT_TRUE(parse_traceparent("00-" + trace + "-" + parent + "-01"));
  EXPECT_TRUE(parse_traceparent("00-" + std::string(31, '0') + "a-" + std::string(15, '0') + "9-00"));
  for (const char flag : {'1', '3', '5', '7', '9', 'b', 'd', 'f'})
    EXPECT_TRUE(parse_traceparent("00-" + trace + "-" + parent + "-0" + flag)->is_sampled) << flag;
  for (const char flag : {'0', '2', '4', '6', '8', 'a', 'c', 'e'})
    EXPECT_FALSE(parse_traceparent("00-" + trace + "-" + parent + "-0" + flag)->is_sampled) << flag;
  for (const std::string& wrong :
       {"00-" + trace + "_" + parent + "-01", "00-" + trace + "-" + parent + "_01", "0g-" + trace + "-" + parent + "-01",
        "0/-" + trace + "-" + parent + "-01", "0:-" + trace + "-" + parent + "-01", "0`-" + trace + "-" + parent + "-01",
        "00-" + trace + "-" + parent + "-g1", "00-" + trace.substr(1) + "g-" + parent + "-01",
        "00-" + trace + "-" + parent.substr(1) + "g-01", "cc-" + trace + "-" + parent + "-01x"})
    EXPECT_FALSE(parse_traceparent(wrong)) << wrong;
}

TEST(SpanText, HasTheAttributesOfItsRequest) {
  RequestSpan span{.request_id = "i",
                   .answer_id = "a",
                   .method = "POST",
                   .path = "/x",
                   .status = 499,
                   .parent = {},
                   .begin = std::chrono::system_clock::time_point(std::chrono::seconds(5)),
                   .duration = std::chrono::seconds(4),
                   .tokens = {.prompt = 1, .cached = 2, .output = 3},
                   .progress = {}};
  const auto attributes_of = [](const json::value& text) {
    json::object found;
    for (const json::value& one : text.at("attributes").as_array())
      found[one.at("key").as_string()] = one.at("value").as_object().begin()->value();
    return found;
  };
  json::value text = json::parse(span_json(span, {.trace_id = "t", .span_id = "s"}, "m"));
  EXPECT_EQ(text.at("traceId"), "t");
  EXPECT_EQ(text.at("spanId"), "s");
  EXPECT_EQ(text.at("parentSpanId"), "");
  EXPECT_EQ(text.at("name"), "llm_request");
  EXPECT_EQ(text.at("kind"), 2);
  EXPECT_EQ(text.at("startTimeUnixNano"), "5000000000");
  EXPECT_EQ(text.at("endTimeUnixNano"), "9000000000");
  EXPECT_EQ(text.at("status").at("code"), 0);
  EXPECT_EQ(attributes_of(text), json::parse(R"({"gen_ai.request.id":"i","gen_ai.response.id":"a","gen_ai.response.model":"m",
      "gen_ai.usage.prompt_tokens":"1","gen_ai.usage.completion_tokens":"3","gen_ai.usage.cache_read.input_tokens":"2",
      "gen_ai.latency.e2e":4,"http.request.method":"POST","url.path":"/x","http.response.status_code":"499"})"));
  span.status = 500;
  span.parent = TraceContext{.trace_id = "T", .parent_id = "P", .is_sampled = true};
  span.progress = AnswerSource::Progress{.queued = std::chrono::seconds(1), .temperature = 0.5F, .top_p = 0.25F, .max_tokens = 8, .n = 2};
  span.progress->to_first_token = std::chrono::seconds(3);
  text = json::parse(span_json(span, {.trace_id = "t", .span_id = "s"}, "m"));
  EXPECT_EQ(text.at("traceId"), "T");
  EXPECT_EQ(text.at("parentSpanId"), "P");
  EXPECT_EQ(text.at("status").at("code"), 2);
  const json::object found = attributes_of(text);
  const json::object wanted = json::parse(R"({"gen_ai.latency.time_in_queue":1,"gen_ai.latency.time_to_first_token":3,
      "gen_ai.latency.time_in_model_prefill":2,"gen_ai.latency.time_in_model_decode":1,"gen_ai.latency.time_in_model_inference":3,
      "gen_ai.request.temperature":0.5,"gen_ai.request.top_p":0.25,"gen_ai.request.max_tokens":"8","gen_ai.request.n":"2"})")
                                  .as_object();
  for (const auto& [name, value] : wanted) EXPECT_EQ(found.at(name), value) << name;
  span.progress->to_first_token.reset();
  const json::object waiting = attributes_of(json::parse(span_json(span, {.trace_id = "t", .span_id = "s"}, "m")));
  EXPECT_FALSE(waiting.contains("gen_ai.latency.time_to_first_token"));
  EXPECT_EQ(waiting.at("gen_ai.latency.time_in_model_inference"), 3);
  const std::vector<std::string> spans = {R"({"a":1})", R"({"b":2})"};
  const json::value body = json::parse(spans_body(spans, "svc"));
  const json::value& resource = body.at("resourceSpans").as_array().at(0);
  EXPECT_EQ(attributes_of(resource.at("resource")), json::parse(R"({"service.name":"svc"})"));
  EXPECT_EQ(resource.at("scopeSpans").as_array().at(0).at("scope").at("name"), "quire");
  EXPECT_EQ(resource.at("scopeSpans").as_array().at(0).at("spans"), json::parse(R"([{"a":1},{"b":2}])"));
}

TEST(BodyBudgets, GiveExactlyTheirBytes) {
  constexpr std::uint64_t kSmall = BodyBudget::kSmallBodyBytes;
  BodyBudget budget(kSmall * 8);
  {
    BodyBudget::Lease large(budget);
    EXPECT_FALSE(large.grow_to(kSmall * 7 + 1)) << "an eighth is reserved for small bodies";
    EXPECT_TRUE(large.grow_to(kSmall * 7));
    BodyBudget::Lease small(budget), none(budget);
    EXPECT_TRUE(small.grow_to(kSmall));
    EXPECT_FALSE(none.grow_to(1));
    EXPECT_TRUE(none.grow_to(0));
    EXPECT_EQ(budget.used_bytes(), 8 * kSmall);
    small.release();
    EXPECT_EQ(small.bytes(), 0U);
    EXPECT_EQ(budget.used_bytes(), 7 * kSmall);
  }
  EXPECT_EQ(budget.used_bytes(), 0U);
  // A client with another body may hold twice the bytes that remain.
  BodyBudget shared(1000);
  const auto share = shared.share_of("a");
  EXPECT_EQ(shared.share_of("a"), share);
  EXPECT_NE(shared.share_of("b"), share);
  BodyBudget::Lease first(shared, share), second(shared, share);
  EXPECT_TRUE(first.grow_to(400));
  EXPECT_EQ(share->used_bytes, 400U);
  EXPECT_TRUE(second.grow_to(600)) << "600 remain, and the client may hold twice as much";
  BodyBudget tight(1000);
  const auto of_a = tight.share_of("a");
  BodyBudget::Lease one(tight, of_a), two(tight, of_a);
  EXPECT_TRUE(one.grow_to(600));
  EXPECT_TRUE(two.grow_to(200));
  EXPECT_EQ(of_a->used_bytes, 800U);
  BodyBudget::Lease three(tight, of_a);
  EXPECT_FALSE(three.grow_to(1)) << "200 remain, and the client would hold more than 400";
  EXPECT_EQ(tight.used_bytes(), 800U);
}

TEST(BodyPaces, RunDownWithTimeAndFillWithBytes) {
  using namespace std::chrono_literals;
  const BodyPace::Clock::time_point start{};
  BodyPace pace(1000, 10'000ms, start);
  EXPECT_EQ(pace.ends(), start + 10s);
  EXPECT_FALSE(pace.is_slow(start + 2s)) << "a fifth of the grace period";
  EXPECT_TRUE(pace.is_slow(start + 2s + 1ms));
  pace.add(1000, start + 4s);
  EXPECT_EQ(pace.ends(), start + 11s) << "1000 bytes are one second";
  pace.add(1'000'000, start + 5s);
  EXPECT_EQ(pace.ends(), start + 15s) << "never more than the grace period";
  pace.add(500, start + 20s);
  EXPECT_EQ(pace.ends(), start + 20s + 500ms) << "time that is over does not count against later bytes";
  BodyPace none(0, 10'000ms, start);
  none.add(1, start);
  EXPECT_EQ(none.ends(), BodyPace::Clock::time_point::max());
}

TEST(BodyCuts, TakeTheLargestSlowBodyOfAClientThatHoldsAsMuch) {
  using namespace std::chrono_literals;
  const BodyPace::Clock::time_point start{}, late = start + 9s;
  BodyBudget budget(100);
  BodyReaders readers;
  std::vector<std::string> cuts;
  const auto of_a = budget.share_of("a"), of_b = budget.share_of("b"), of_c = budget.share_of("c");
  BodyBudget::Lease a(budget, of_a), b(budget, of_b), c(budget, of_c);
  BodyPace slow(1, 10'000ms, start), fast(1, 10'000ms, late);
  ASSERT_TRUE(a.grow_to(30));
  ASSERT_TRUE(b.grow_to(50));
  const BodyReaders::Entry first(readers, {a, slow, [&] { cuts.emplace_back("a"); }});
  const BodyReaders::Entry second(readers, {b, slow, [&] { cuts.emplace_back("b"); }});
  const BodyReaders::Entry third(readers, {c, slow, [&] { cuts.emplace_back("c"); }});
  ASSERT_TRUE(readers.grow(c, 20, late));
  EXPECT_TRUE(cuts.empty()) << "there was room";
  ASSERT_TRUE(readers.grow(c, 30, late));
  EXPECT_EQ(cuts, std::vector<std::string>{"b"}) << "the largest";
  EXPECT_EQ(b.bytes(), 0U);
  EXPECT_EQ(budget.used_bytes(), 60U);
  ASSERT_TRUE(readers.grow(c, 80, late));
  EXPECT_EQ(cuts, (std::vector<std::string>{"b", "a"})) << "a client that holds as much";
  EXPECT_FALSE(readers.grow(c, 101, late)) << "the body itself is not cut";
  EXPECT_EQ(c.bytes(), 80U);
  BodyReaders others;
  BodyBudget::Lease d(budget, budget.share_of("d"));
  const BodyReaders::Entry quick(others, {c, fast, [&] { cuts.emplace_back("quick"); }});
  EXPECT_FALSE(others.grow(d, 30, late)) << "the other body is fast enough";
  EXPECT_EQ(cuts.size(), 2U);
}

TEST(JobOrders, ChargeAndForgetTheirJobs) {
  JobOrder order({.max_jobs = 4, .max_started = 2, .max_started_bytes = 8 << 20});
  EXPECT_FALSE(order.turn());
  EXPECT_FALSE(order.next());
  const auto a = order.add("a", 1), b = order.add("b", 1), a2 = order.add("a", 1);
  ASSERT_TRUE(a && b && a2);
  EXPECT_FALSE(order.add("a", 1)) << "one slot is free, and the client has two jobs";
  EXPECT_EQ(order.size(), 3U);
  EXPECT_EQ(order.next(), a);
  EXPECT_EQ(order.next(), b) << "the other client goes first";
  EXPECT_FALSE(order.next()) << "two threads";
  EXPECT_EQ(order.num_started(), 2U);
  EXPECT_EQ(order.turn(), a);
  order.charge(*a, std::chrono::milliseconds(5));
  EXPECT_EQ(order.turn(), b);
  order.charge(*b, std::chrono::milliseconds(6));
  EXPECT_EQ(order.turn(), a);
  order.charge(*a, std::chrono::milliseconds(3));
  EXPECT_EQ(order.turn(), a) << "a smaller total changes nothing";
  order.end(*a);
  EXPECT_EQ(order.num_started(), 1U);
  EXPECT_EQ(order.next(), a2);
  order.end(*b);
  order.end(*a2);
  EXPECT_EQ(order.size(), 0U);
  EXPECT_EQ(order.num_started(), 0U);
}

TEST(JobOrders, LargeJobsShareTheirBytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  JobOrder order({.max_jobs = 64, .max_started = 16, .max_started_bytes = 16 * kMiB});
  const auto first = order.add("a", 4 * kMiB), second = order.add("a", 2 * kMiB + 1), third = order.add("a", 2 * kMiB);
  ASSERT_TRUE(first && second && third);
  EXPECT_EQ(order.next(), third) << "the smallest of a client goes first";
  EXPECT_EQ(order.next(), second) << "4 MiB and one byte are less than half of the free 14 MiB";
  EXPECT_FALSE(order.next()) << "8 MiB and one byte are more than half of the free 12 MiB";
  const auto exact = order.add("b", 12 * kMiB);
  EXPECT_FALSE(order.next()) << "one byte too few is free";
  order.end(*second);
  EXPECT_EQ(order.next(), exact) << "14 MiB are free, and this client has no other job";
  EXPECT_FALSE(order.next()) << "2 MiB are free";
  order.end(*third);
  EXPECT_EQ(order.next(), first) << "exactly 4 MiB are free";
  const auto small = order.add("c", kMiB);
  EXPECT_EQ(order.next(), small) << "a job of 1 MiB does not count";
}

TEST(MediaDomainErrors, NameTheDomain) {
  const auto error = [](const std::string& domain) {
    const auto hosts = parse_media_domains({domain});
    return hosts ? "accepted" : hosts.error().to_string();
  };
  for (const char* good : {"images.example.org", "IMAGES.example.org", "127.0.0.1", "[::1]", "localhost"})
    EXPECT_EQ(error(good), "accepted") << good;
  for (const char* wrong : {"", "http://a", "a:80", "a/b", "*.a", "a*", "[::1]:80", "u@a"})
    EXPECT_EQ(error(wrong), "allowed_media_domains: '" + std::string(wrong) +
                                "' is not a host name; use full host names without scheme and port, such as images.example.org");
  EXPECT_TRUE(is_web_address("http://a"));
  EXPECT_TRUE(is_web_address("https://a"));
  EXPECT_FALSE(is_web_address("ftp://a"));
  EXPECT_FALSE(is_web_address("http:/a"));
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
}  // namespace quire::http_parts_test
