// Tests what clients get when the memory for the output of their request is missing, and that their requests end in the engine.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/answers/completion.h"
#include "server/answers/pooling_call.h"
#include "server/api/openai/openai_shape.h"
#include "server/fake_engine.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"

namespace quire {
namespace {

class OutOfMemory : public ::testing::Test {
 protected:
  std::shared_ptr<Completion> complete(const std::string& fields) {
    const RequestContext context{.model = *model_, .options = options_, .tenant = ""};
    auto request = parse_completion_request(Api::completion, R"({"prompt":"abc")" + fields + "}", limits_of(context)).value();
    request.shape = std::make_shared<const OpenAiShape>(Api::completion);
    auto prepared = prepare_completion(std::move(request), context).value();
    return Completion::start(client_, *model_, {std::move(prepared), "cmpl-1", 5, [this] { ++num_wakes_; }}).value();
  }

  FakeEngine engine_;
  ServerOptions options_;
  std::vector<EngineClient::Task> posted_;
  EngineClient client_{engine_, [this](EngineClient::Task task) { posted_.push_back(std::move(task)); }};
  std::unique_ptr<ServedModel> model_ = ServedModel::create(engine_, options_).value();
  int num_wakes_ = 0;
};

TEST_F(OutOfMemory, WholeAnswerIsAnError) {
  const auto completion = complete(R"(,"n":2)");
  EXPECT_FALSE(completion->finished());
  completion->on_failure();
  EXPECT_TRUE(completion->finished());
  const HttpResponse response = completion->take_response();
  EXPECT_EQ(response.status, 500U);
  EXPECT_NE(response.body.find("out of memory; try again"), std::string::npos) << response.body;
  EXPECT_EQ(engine_.at(0).finished, FinishReason::abort);
  EXPECT_EQ(engine_.at(1).finished, FinishReason::abort);
}

TEST_F(OutOfMemory, StreamEndsWithTheErrorAndWithoutAnIncompleteEvent) {
  const auto completion = complete(R"(,"stream":true)");
  engine_.emit(RequestId{0}, "text");
  for (const EngineClient::Task& task : std::exchange(posted_, {})) task();
  EXPECT_GT(completion->num_pending_bytes(), 0U);
  completion->on_failure();
  EXPECT_TRUE(completion->finished());
  const std::string events = completion->take_events();
  EXPECT_EQ(completion->num_pending_bytes(), 0U);
  EXPECT_EQ(events.find("text\""), std::string::npos) << events;
  EXPECT_TRUE(events.starts_with(R"(data: {"error":{"message":"out of memory)")) << events;
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n")) << events;
  EXPECT_EQ(engine_.at(0).finished, FinishReason::abort);
}

TEST_F(OutOfMemory, VectorsOfOneCallFailTogether) {
  std::vector<EngineRequest> requests(2);
  for (EngineRequest& request : requests) request = {.prompt = {1}, .sampling = {}, .pooling = true};
  std::string result;
  const auto call = PoolingCall::start(client_, std::move(requests), [&](Result<std::vector<PooledVector>> vectors) {
    result = vectors ? "vectors" : vectors.error().to_string();
  });
  ASSERT_TRUE(call);
  call.value()->on_failure();
  call.value()->on_step_end();
  EXPECT_EQ(result, "out of memory; try again");
  EXPECT_EQ(engine_.at(0).finished, FinishReason::abort);
  EXPECT_EQ(engine_.at(1).finished, FinishReason::abort);
}

}  // namespace
}  // namespace quire
