// Tests on which thread requests are processed, with a job pool that the test drives by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <utility>

#include "server/played_router.h"

namespace quire {
namespace {

using RouterTest = PlayedRouter;

TEST_F(RouterTest, LargeRequestDoesNotDelaySmallRequests) {
  const Reply large = post("/v1/chat/completions", chat_of(100'000));
  ASSERT_NE(large.pending, nullptr);
  const Reply small = post("/v1/chat/completions", chat_of(100));
  EXPECT_NE(small.answer, nullptr) << "the small request is answered while the large one is still queued";
  EXPECT_EQ(engine_.num_submitted(), 1U);
  EXPECT_EQ(post("/tokenize", R"({"prompt": "a"})").response.status, 200U);
  ASSERT_EQ(jobs_.size(), 1U);
  EXPECT_FALSE(large.pending->reply.has_value());
  jobs_.front().run();
  ASSERT_TRUE(large.pending->reply.has_value());
  EXPECT_NE(large.pending->reply->answer, nullptr);
  EXPECT_EQ(num_wakes_, 1);
}

TEST_F(RouterTest, ChoosesTheLaneBySize) {
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"}) {
    jobs_.clear();
    post(path, std::string(4096, ' '));
    EXPECT_EQ(jobs_.size(), 0U) << path;
    post(path, std::string(4097, ' '));
    post(path, std::string(65'537, ' '));
    ASSERT_EQ(jobs_.size(), 2U) << path;
    EXPECT_EQ(jobs_[0].lane, JobPool::Lane::small);
    EXPECT_EQ(jobs_[1].lane, JobPool::Lane::large);
  }
}

// A body that continues a stored conversation costs as much as the conversation and the body.
TEST_F(RouterTest, ChoosesTheLaneByTheConversationThatABodyContinues) {
  engine_.answer_with("yes");
  const auto respond = [&](const std::string& more) {
    return post("/v1/responses", R"({"input":")" + std::string(400, 'a') + R"(","user":")" + std::string(3000, 'u') + '"' + more + "}");
  };
  const Reply first = respond("");
  ASSERT_NE(first.answer, nullptr) << first.response.body;
  run_posted();
  const std::string id(boost::json::parse(first.answer->take_response().body).at("id").as_string());
  EXPECT_NE(respond("").answer, nullptr);
  EXPECT_TRUE(jobs_.empty()) << "these bodies continue nothing";
  EXPECT_NE(respond(R"(,"previous_response_id":")" + id + '"').pending, nullptr);
  ASSERT_EQ(jobs_.size(), 1U);
  EXPECT_EQ(jobs_.front().lane, JobPool::Lane::small);
  EXPECT_NE(respond(R"(,"note":"item_reference")").pending, nullptr) << "an item of a stored conversation may be as large";
}

TEST_F(RouterTest, NamesTheKnownRoutesForAnUnknownRoute) {
  const auto answer_of = [this](std::string path) {
    HttpRequest request;
    request.method = "POST";
    request.content_type = "application/json";
    request.host = "localhost";
    request.target = std::move(path);
    const auto response = router_.answer_early(request);
    EXPECT_TRUE(response.has_value());
    EXPECT_EQ(response->status, 404U) << response->body;
    return router_.format_for_path(request.path(), *response).body;
  };
  EXPECT_TRUE(answer_of("/chat/completions?x=1").contains("use /v1/chat/completions;")) << answer_of("/chat/completions");
  EXPECT_TRUE(answer_of("/v1/v1/messages").contains("use /v1/messages"));
  const std::string list = answer_of("/v1/images/generations");
  for (const char* route : {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/docs"})
    EXPECT_TRUE(list.contains(route)) << list;
  EXPECT_TRUE(answer_of("/api/pull").contains("use one of /api/chat, /api/generate"));
  for (const char* route : {"/v1/chat/completions", "/tokenize", "/api/chat", "/docs"})
    EXPECT_TRUE(answer_of("/images").contains(route)) << "no route begins like this one";
  EXPECT_TRUE(list.contains(R"("code":"not_found")"));
  EXPECT_TRUE(answer_of("/v1/messages/batches").starts_with(R"({"type":"error","error":{"type":"not_found_error")"));
}

// Without this rule the path matches "/v1/responses/*" for other methods.
TEST_F(RouterTest, FixedPathAllowsOnlyItsMethods) {
  HttpRequest request;
  request.method = "DELETE";
  request.content_type = "application/json";
  request.host = "localhost";
  request.target = "/v1/responses/input_tokens";
  const auto response = router_.answer_early(request);
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->status, 405U);
  EXPECT_EQ(response->headers.front(), (std::pair<std::string, std::string>("Allow", "POST")));
}

TEST_F(RouterTest, ReturnsOneModelByItsName) {
  const auto get = [this](const std::string& path) {
    HttpRequest request;
    request.id = "id";
    request.method = "GET";
    request.target = path;
    return router_.handle(request, [] {}).response;
  };
  const HttpResponse list = get("/v1/models");
  const boost::json::value all = boost::json::parse(list.body);
  const boost::json::value& card = all.at("data").as_array().front();
  const std::string id(card.at("id").as_string());
  EXPECT_EQ(boost::json::parse(get("/v1/models/" + id).body), card);
  EXPECT_EQ(boost::json::parse(get(fmt::format("/v1/models/%{:02X}{}", id.front(), id.substr(1))).body), card);
  for (const char* other : {"nobody/nothing", "nobody%2Fnothing", "%00"}) {
    const HttpResponse refused = get(std::string("/v1/models/") + other);
    EXPECT_EQ(refused.status, 404U) << other;
    EXPECT_TRUE(refused.body.contains(R"("code":"model_not_found")")) << refused.body;
  }
  EXPECT_EQ(get("/v1/models/%zz").status, 400U);
}

TEST_F(RouterTest, RefusesWithRetryAfterWhenTheQueueIsFull) {
  has_room_ = false;
  const Reply refused = post("/tokenize", chat_of(100'000));
  EXPECT_EQ(refused.response.status, 503U);
  EXPECT_NE(refused.response.body.find("overloaded"), std::string::npos);
  EXPECT_EQ(refused.response.headers.front().second, "7");
  EXPECT_NE(post("/v1/chat/completions", chat_of(10)).answer, nullptr);
}

TEST_F(RouterTest, DoesNotStartACancelledRequest) {
  const Reply gone = post("/v1/chat/completions", chat_of(100'000));
  gone.pending->cancelled = true;
  jobs_.front().run();
  EXPECT_FALSE(gone.pending->reply.has_value());
  EXPECT_EQ(engine_.num_submitted(), 0U);
  EXPECT_EQ(num_wakes_, 0);
}

// Returns a body with `count` messages, empty or of `num_bytes` each.
std::string many_messages(int count, std::size_t num_bytes = 0) {
  std::string messages;
  for (int i = 0; i < count; ++i)
    messages += std::string(i > 0 ? "," : "") + R"({"role": "user", "content": ")" + std::string(num_bytes, 'x') + "\"}";
  return R"({"messages": [)" + messages + "]}";
}

TEST_F(RouterTest, ReadingALargeRequestReachesCancellationPoints) {
  struct Case {
    const char* what;
    const char* path;
    std::string body;
    int least;
  };
  for (const auto& [what, path, body, least] :
       {Case{"megabytes of JSON", "/v1/completions", R"({"prompt": [)" + std::string(1 << 20, ' ') + "1]}", 4},
        Case{"messages", "/v1/chat/completions", many_messages(20'000), 20},
        Case{"messages of /v1/messages", "/v1/messages/count_tokens",
             R"({"model": "bytes", "max_tokens": 1, )" + many_messages(20'000, 1).substr(1), 20},
        Case{"tokenize", "/tokenize", many_messages(20'000), 2}}) {
    jobs_.clear();
    post(path, body);
    ASSERT_EQ(jobs_.size(), 1U) << what;
    int num_passed = 0;
    jobs_.front().run([&] { ++num_passed; });
    EXPECT_GE(num_passed, least) << what;
  }
}

TEST_F(RouterTest, RefusesARequestThatTakesTooLongToRead) {
  const Reply reply = post("/v1/chat/completions", many_messages(5000));
  jobs_.front().run([] { throw JobStopped{JobStopped::Reason::out_of_time}; });
  ASSERT_TRUE(reply.pending->reply.has_value());
  EXPECT_EQ(reply.pending->reply->response.status, 413U);
  EXPECT_NE(reply.pending->reply->response.body.find("--max-parse-ms"), std::string::npos);
  EXPECT_EQ(engine_.num_submitted(), 0U);
}

TEST_F(RouterTest, StopsReadingWhenTheClientDisconnects) {
  const Reply gone = post("/v1/chat/completions", many_messages(5000));
  int num_passed = 0;
  jobs_.front().run([&] {
    ++num_passed;
    gone.pending->cancelled = true;
    throw JobStopped{JobStopped::Reason::client_gone};
  });
  EXPECT_EQ(num_passed, 1);
  EXPECT_FALSE(gone.pending->reply.has_value());
  EXPECT_EQ(engine_.num_submitted(), 0U);
}

TEST_F(RouterTest, DoesNotSubmitWhenTheClientDisconnectsWhileReading) {
  const Reply gone = post("/v1/chat/completions", chat_of(100'000));
  jobs_.front().work({});
  gone.pending->cancelled = true;
  jobs_.front().done();
  EXPECT_EQ(engine_.num_submitted(), 0U);
}

TEST_F(RouterTest, ReturnsTheErrorOfALargeRequest) {
  const Reply wrong = post("/v1/chat/completions", R"({"banana": 1, "user": ")" + std::string(10'000, 'u') + "\"}");
  jobs_.front().run();
  EXPECT_EQ(wrong.pending->reply->response.status, 400U);
}

class RoutedRequests : public PlayedRouter {
 protected:
  std::string early(const std::string& method, const std::string& target) {
    HttpRequest request;
    request.method = method;
    request.target = target;
    request.host = "localhost";
    request.over_loopback = request.is_local = true;
    const auto response = router_.answer_early(request);
    return response ? std::to_string(response->status) + " " + response->body : "passes";
  }
};

TEST_F(RoutedRequests, NameTheRoutesThatExist) {
  EXPECT_EQ(early("POST", "/v1/completions"), "passes");
  EXPECT_EQ(early("GET", "/health"), "passes");
  EXPECT_EQ(early("HEAD", "/health"), "passes");
  EXPECT_TRUE(early("GET", "/v1/completions").contains("'/v1/completions' does not support GET; use POST"))
      << early("GET", "/v1/completions");
  EXPECT_TRUE(early("PUT", "/v1/responses/x").contains("'/v1/responses/x' does not support PUT; use GET, DELETE"));
  EXPECT_TRUE(early("POST", "/completions")
                  .contains("there is no route '/completions' on this server; use /v1/completions; the base URL "
                            "ends with /v1"));
  EXPECT_TRUE(early("POST", "/v1/v1/completions").contains("use /v1/completions\""));
  EXPECT_TRUE(early("POST", "/v1/v1/x").contains("use one of /v1/completions, /v1/chat/completions"));
  EXPECT_TRUE(early("POST", "/" + std::string(300, 'x')).contains("'/" + std::string(199, 'x') + "'"));
  EXPECT_TRUE(early("POST", "/v1/messages/x").starts_with("404 {\"error\""));
  HttpResponse wrong{404, "application/json", R"({"error":{"message":"m"}})", {}};
  EXPECT_TRUE(router_.format_for_path("/v1/messages/x", wrong).body.starts_with(R"({"type":"error")"));
  EXPECT_EQ(router_.format_for_path("/v1/completions", wrong).body, wrong.body);
  HttpResponse fine{200, "application/json", R"({"error":{"message":"m"}})", {}};
  EXPECT_EQ(router_.format_for_path("/v1/messages", fine).body, fine.body);
}

TEST_F(RoutedRequests, OperatorsAreNotTheModelsClients) {
  const auto is_operator = [&](const std::string& method, const std::string& target) {
    HttpRequest request;
    request.method = method;
    request.target = target;
    return router_.is_operator_request(request);
  };
  EXPECT_TRUE(is_operator("GET", "/health"));
  EXPECT_TRUE(is_operator("GET", "/metrics"));
  EXPECT_TRUE(is_operator("POST", "/pause"));
  EXPECT_FALSE(is_operator("POST", "/v1/completions"));
  EXPECT_FALSE(is_operator("POST", "/none"));
  HttpRequest request;
  request.address = "1.2.3.4";
  EXPECT_EQ(router_.client_of(request), "1.2.3.4");
  const std::string one = router_.next_request_id(), two = router_.next_request_id();
  EXPECT_EQ(one.size(), 24U);
  EXPECT_NE(one, two);
  EXPECT_EQ(one.substr(0, 16), two.substr(0, 16));
}

}  // namespace
}  // namespace quire
