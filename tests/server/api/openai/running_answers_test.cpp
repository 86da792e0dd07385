// Tests errors and limits of forks and inputs of answers in progress.
#include <gtest/gtest.h>

#include <string>

#include "server/running_server.h"

namespace quire {
namespace {

using RunningAnswers = RunningServer;

TEST_F(RunningAnswers, ForksAndInputsNameWhatIsWrong) {
  start();
  HttpClient session(port), beams(port);
  session.send_post("/v1/completions", R"({"prompt":"one","session":true,"stream":true,"max_tokens":9})", "X-Request-Id: s\r\n");
  ASSERT_TRUE(engine.wait_submitted(1));
  const auto fork = [&](const std::string& id, const std::string& body) {
    return post("/v1/requests/" + id + "/fork", body).error_message();
  };
  const auto give = [&](const std::string& id, const std::string& body) {
    return post("/v1/requests/" + id + "/input", body).error_message();
  };
  EXPECT_EQ(fork("cmpl-s", "{}"), "stream: must be true, because the fork of a session is a session; send \"stream\": true as well");
  EXPECT_EQ(fork("cmpl-s", R"({"stream":true,"n":2})"),
            "n: is 2, but the fork of a session has only one choice; send a separate fork request for each session");
  EXPECT_EQ(fork("cmpl-s", R"({"stream":true,"choice":1})"), "choice: is 1, but no such choice exists; use an index below 1");
  EXPECT_EQ(fork("cmpl-x", "{}"), "id: no answer 'cmpl-x' is in progress; use the id from the first event of a stream");
  EXPECT_EQ(give("cmpl-x", R"({"prompt":"a"})"), "id: no answer 'cmpl-x' is in progress; use the id from the first event of a stream");
  EXPECT_EQ(give("cmpl-s", R"({"prompt":""})"), R"(prompt: has no tokens; send some text, or only "end": true)");
  EXPECT_EQ(post("/v1/requests/cmpl-s/input", R"({"prompt":"ab","end":true})").body, R"({"id":"cmpl-s","num_tokens":2,"end":true})");
  ASSERT_TRUE(engine.wait_appended(0, 2));
  beams.send_post("/v1/completions", R"({"prompt":"one","use_beam_search":true,"n":2})", "X-Request-Id: b\r\n");
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(fork("cmpl-b", "{}"), "id: is a beam search, which cannot be forked; fork a request without use_beam_search");
  EXPECT_EQ(give("cmpl-b", R"({"prompt":"a"})"), R"(id: is not a session; start one with "session": true in /v1/completions)");
  EXPECT_EQ(post("/v1/requests/cmpl-s/fork", "{" + std::string(20'000, ' ') + "}").error_message(),
            "the body is too large, with 20002 bytes; send only choice, n, seed, max_tokens and stream");
}

TEST_F(RunningAnswers, ForksCannotExceedTheServersLimit) {
  ServerOptions options;
  options.generation_defaults.max_limit = 5;
  start(options);
  HttpClient parent(port), child(port), other(port);
  parent.send_post("/v1/completions", R"({"prompt":"one","stream":true})", "X-Request-Id: s\r\n");
  ASSERT_TRUE(engine.wait_submitted(1));
  child.send_post("/v1/requests/cmpl-s/fork", R"({"max_tokens":6,"stream":true})");
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(engine.at(1).request.sampling.max_tokens, 5U);
  other.send_post("/v1/requests/cmpl-s/fork", R"({"max_tokens":4,"stream":true})");
  ASSERT_TRUE(engine.wait_submitted(3));
  EXPECT_EQ(engine.at(2).request.sampling.max_tokens, 4U);
}

}  // namespace
}  // namespace quire
