// Tests the URLs of servers, and the checks before a load.
#include "traffic/target.h"

#include <gtest/gtest.h>

#include "traffic/check_target.h"
#include "traffic/prepared_server.h"

namespace quire {
namespace {

using test::PreparedServer;

TEST(Target, ReadsUrls) {
  const auto url_of = [](const char* text) { return Target::create(text, "").value().url(); };
  EXPECT_EQ(url_of("http://127.0.0.1:8000"), "http://127.0.0.1:8000");
  EXPECT_EQ(url_of("http://localhost:8000/v1"), "http://localhost:8000");
  EXPECT_EQ(url_of("http://gpu-1/models/a/v1/"), "http://gpu-1/models/a");
  EXPECT_EQ(url_of("http://[::1]:80/"), "http://[::1]:80");
  EXPECT_EQ(url_of("https://example.org"), "https://example.org");
}

TEST(Target, RefusesOtherUrls) {
  for (const char* text : {"", "localhost:8000", "127.0.0.1:8000", "ftp://h", "http://", "http://h:0", "http://h:70000", "http://u:p@h",
                           "http://h/?a=b", "http://h/#a", "http://h h", "http://127.0.0.1.example.org"}) {
    const auto target = Target::create(text, "");
    ASSERT_FALSE(target) << text;
    EXPECT_EQ(target.error().field, "--url");
    EXPECT_FALSE(target.error().remedy.empty());
  }
  EXPECT_EQ(Target::create("http://h", "a\nb").error().field, "--api-key");
}

TEST(Target, SendsTheHeadersOfTheUrl) {
  const Target target = Target::create("http://gpu-1:81/a/v1", "k").value();
  const std::string request = target.request("POST", "/v1/completions", "{}");
  EXPECT_TRUE(request.starts_with("POST /a/v1/completions HTTP/1.1\r\nHost: gpu-1:81\r\n")) << request;
  EXPECT_NE(request.find("\r\nAuthorization: Bearer k\r\n"), std::string::npos);
  EXPECT_TRUE(request.ends_with("\r\nContent-Length: 2\r\n\r\n{}")) << request;
  EXPECT_EQ(Target::create("http://h", "").value().request("GET", "/x", "").find("Authorization"), std::string::npos);
}

PreparedServer::Answer always_plain(const std::string& status, const std::string& body) {
  return [=](const std::string& /*request*/, std::size_t /*number*/) { return std::vector{test::plain_answer(status, body)}; };
}

std::string model_error(const std::string& status, const std::string& body) {
  PreparedServer server(always_plain(status, body));
  Target target = Target::create(server.url(), "").value();
  const auto model = find_served_model(target, "", 20.0);
  return model ? "no error" : model.error().to_string();
}

TEST(FindServedModel, ReturnsTheFirstModel) {
  PreparedServer server(always_plain("200 OK", R"({"object": "list", "data": [{"id": "first"}, {"id": "second"}]})"));
  Target target = Target::create(server.url(), "").value();
  EXPECT_EQ(find_served_model(target, "", 20.0).value(), "first");
  EXPECT_EQ(find_served_model(target, "mine", 20.0).value(), "mine");
  EXPECT_TRUE(server.requests().at(0).starts_with("GET /v1/models HTTP/1.1\r\n"));
}

TEST(FindServedModel, NamesTheFlagThatMustChange) {
  EXPECT_TRUE(model_error("401 Unauthorized", "{}").starts_with("--api-key: "));
  EXPECT_TRUE(model_error("404 Not Found", "<html>").starts_with("--url: "));
  EXPECT_TRUE(model_error("200 OK", "<html>").starts_with("--url: "));
  EXPECT_TRUE(model_error("200 OK", R"({"data": {}})").starts_with("--url: "));
  EXPECT_TRUE(model_error("200 OK", R"({"data": []})").starts_with("--served-model: "));
  EXPECT_TRUE(model_error("200 OK", R"({"data": [{"id": 3}]})").starts_with("--served-model: "));
}

TEST(FindServedModel, NamesAServerThatDoesNotAnswer) {
  std::string url;
  {
    PreparedServer gone(always_plain("200 OK", ""));
    url = gone.url();
  }
  Target target = Target::create(url, "").value();
  const auto refused = find_served_model(target, "", 20.0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "--url");
  EXPECT_EQ(refused.error().message, "no server answers at " + url + ": Connection refused");
  PreparedServer silent([](const std::string& /*request*/, std::size_t /*number*/) { return std::vector<std::string>{"HTTP/1.1 "}; });
  Target slow = Target::create(silent.url(), "").value();
  EXPECT_NE(find_served_model(slow, "", 0.1).error().message.find("no answer within 0.1 s"), std::string::npos);
}

TEST(MeasureWords, FindsTokensPerWordAndFixedTokens) {
  PreparedServer server([](const std::string& request, std::size_t /*number*/) {
    std::string stream = test::two_token_stream();
    const std::string tokens = request.ends_with("16") ? "29" : "221";  // 5 + 1.5 per word
    stream.replace(stream.find("\"prompt_tokens\":7"), 17, "\"prompt_tokens\":" + tokens);
    // The chunk with the usage is longer by the additional digits.
    const std::size_t usage = stream.find("data: {\"choices\":[],\"usage\"");
    const std::size_t size = stream.rfind("\r\n", usage - 3) + 2;
    const std::string body = stream.substr(usage, stream.find("\r\n", usage) - usage);
    stream.replace(size, usage - size, fmt::format("{:x}\r\n", body.size()));
    return std::vector{stream};
  });
  Target target = Target::create(server.url(), "").value();
  const auto scale = measure_words(target, "/v1/completions", [](std::uint32_t num_words) { return fmt::format("{}", num_words); }, 20.0);
  ASSERT_TRUE(scale) << scale.error().to_string();
  EXPECT_NEAR(scale->tokens_per_word, 1.5, 1e-9);
  EXPECT_NEAR(scale->fixed_tokens, 5.0, 1e-9);
}

TEST(MeasureWords, ReportsTheServersMessage) {
  PreparedServer server(always_plain("400 Bad Request", R"({"error": {"message": "ignore_eos: unknown field"}})"));
  Target target = Target::create(server.url(), "").value();
  const auto scale = measure_words(target, "/v1/completions", [](std::uint32_t /*num_words*/) { return "{}"; }, 20.0);
  ASSERT_FALSE(scale);
  EXPECT_NE(scale.error().to_string().find("400: ignore_eos: unknown field"), std::string::npos);
  EXPECT_NE(scale.error().remedy.find("--no-ignore-eos"), std::string::npos);
}

}  // namespace
}  // namespace quire
