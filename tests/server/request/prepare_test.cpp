// Tests what a prepared request passes to the engine: the job, the called tool, and the limits of echoes and of log probabilities.
#include "server/request/prepare.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/context_overflow.h"
#include "base/digest.h"
#include "server/api/openai/openai_shape.h"
#include "server/fake_engine.h"
#include "server/http/tenants.h"
#include "server/request/served_model.h"

namespace quire {
namespace {

constexpr const char* kCallTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}<tool_call>\n{\"name\": <name>, \"arguments\": "
    "<object>}\n</tool_call>{% endif %}<assistant>";
constexpr const char* kClockTool = R"("tools":[{"type":"function","function":{"name":"clock"}}])";

class PreparedRequests : public ::testing::Test {
 protected:
  Result<PreparedCompletion> prepare(Api api, const std::string& fields) {
    if (model_ == nullptr) model_ = std::move(ServedModel::create(engine_, options_).value());
    const RequestContext context{.model = *model_, .options = options_, .tenant = "t", .session = session_};
    auto request = parse_completion_request(api, "{" + fields + "}", limits_of(context));
    if (!request) return std::unexpected(request.error());
    request->shape = std::make_shared<const OpenAiShape>(api);
    return prepare_completion(*std::move(request), context);
  }
  Result<PreparedCompletion> text(const std::string& fields) { return prepare(Api::completion, R"("prompt":"abc",)" + fields); }
  Result<PreparedCompletion> chat(const std::string& fields) {
    return prepare(Api::chat, R"("messages":[{"role":"user","content":"hi"}],)" + fields);
  }
  static std::string shown(const Result<PreparedCompletion>& prepared) { return prepared ? "accepted" : prepared.error().to_string(); }
  std::string job(const std::string& fields) { return text(fields).value().prompts.at(0).tags.job; }
  // Returns the tool that the engine gets for an answer, or "(not asked)".
  std::string tool_of(const std::string& fields, const std::string& answer) {
    const PreparedCompletion prepared = chat(fields).value();
    const EngineRequest& request = prepared.prompts.at(0);
    return request.tool_name_function ? request.tool_name_function(bytes_to_tokens(answer)) : "(not asked)";
  }

  FakeEngine engine_;
  ServerOptions options_;
  std::string session_;
  std::unique_ptr<ServedModel> model_;
};

TEST_F(PreparedRequests, SessionNamesTheJobUnlessTheClientDoes) {
  EXPECT_EQ(job(R"("max_tokens":1)"), "");
  session_ = "header";
  EXPECT_EQ(job(R"("max_tokens":1)"), "header");
  EXPECT_EQ(job(R"("prompt_cache_key":"key")"), "key") << "the body's key is closer to the conversation than the header";
  EXPECT_EQ(job(R"("prompt_cache_key":"key","job_id":"own")"), "own");
  EXPECT_EQ(job(R"("use_beam_search":true,"n":2,"temperature":0)"), "") << "a beam search belongs to no job";
  EXPECT_EQ(text(R"("max_tokens":1)")->prompts.at(0).tags.tenant, "t");
}

TEST_F(PreparedRequests, LongSessionNamesAreReplacedByTheirHashes) {
  session_ = std::string(64, 's');
  EXPECT_EQ(job(R"("max_tokens":1)"), session_) << "64 bytes are the engine's limit for a job";
  session_ += 's';
  const std::string hash = to_hex(Sha256::of(std::as_bytes(std::span(session_))));
  EXPECT_EQ(job(R"("max_tokens":1)"), hash);
  EXPECT_EQ(hash.size(), 64U);
  EXPECT_EQ(job(R"("prompt_cache_key":")" + session_ + '"'), hash);
}

TEST_F(PreparedRequests, TheCalledToolIsReadFromTheAnswerOfAJob) {
  engine_.set_chat_template(kCallTemplate);
  engine_.set_max_model_len(4096);
  const std::string call = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";
  const std::string fence = "I look.\n```bash\nls -l\n```\n";
  const std::string job = R"("job_id":"j",)";
  EXPECT_EQ(tool_of(job + kClockTool, call), "clock");
  EXPECT_EQ(tool_of(job + kClockTool, "first\n" + call + call), "clock") << "the first call counts";
  EXPECT_EQ(tool_of(job + kClockTool, "no call"), "");
  EXPECT_EQ(tool_of(job + kClockTool, fence), "ls") << "an answer without a call may follow the convention of mini-swe-agent";
  EXPECT_EQ(tool_of(job + R"("max_tokens":9)", fence), "ls");
  EXPECT_EQ(tool_of(job + R"("max_tokens":9)", call), "") << "the request has no tools";
  EXPECT_EQ(tool_of(job + R"("tool_choice":"none",)" + kClockTool, call), "") << "the answer is text";
  EXPECT_EQ(tool_of(kClockTool, call), "(not asked)") << "the request belongs to no job";
  EXPECT_EQ(tool_of(job + R"("is_last_step":true,)" + kClockTool, call), "(not asked)") << "no tool runs after the last step";
  EXPECT_EQ(tool_of(job + R"("tool":"make",)" + kClockTool, call), "(not asked)") << "the client has named the tool";
}

TEST_F(PreparedRequests, SpecialTokensDoNotHideTheCalledTool) {
  const TokenId mark = engine_.add_control_token("<|mark|>");
  engine_.set_chat_template(kCallTemplate);
  engine_.set_max_model_len(4096);
  const PreparedCompletion prepared = chat(R"("job_id":"j",)" + std::string(kClockTool)).value();
  std::vector<TokenId> tokens = bytes_to_tokens("<tool_call>\n{\"name\": \"clo");
  tokens.push_back(mark);
  for (const TokenId token : bytes_to_tokens("ck\", \"arguments\": {}}\n</tool_call>")) tokens.push_back(token);
  tokens.push_back(kFakeEos);
  EXPECT_EQ(prepared.prompts.at(0).tool_name_function(tokens), "clock");
}

TEST_F(PreparedRequests, LogProbabilitiesFindTheBestChoices) {
  EXPECT_EQ(text(R"("n":1,"best_of":2)")->prompts.at(0).sampling.logprobs, 0U);
  EXPECT_EQ(text(R"("n":1,"best_of":2,"logprobs":3)")->prompts.at(0).sampling.logprobs, 3U);
  EXPECT_EQ(text(R"("n":2,"best_of":2)")->prompts.at(0).sampling.logprobs, std::nullopt) << "all choices are returned";
  EXPECT_EQ(text(R"("n":2)")->prompts.at(0).sampling.logprobs, std::nullopt);
}

TEST_F(PreparedRequests, EchoesOfAllChoicesFitTheLimit) {
  options_.max_echo_bytes = 12;
  EXPECT_EQ(text(R"("echo":true,"n":4)")->echoes, std::vector<std::string>(4, "abc")) << "12 bytes are as many as may be";
  EXPECT_EQ(shown(text(R"("echo":true,"n":5)")),
            "echo: would repeat 3 bytes in each of 5 choices, more than 12 bytes in total; request fewer choices, or leave it out");
  EXPECT_EQ(prepare(Api::completion, R"("prompt":["abc","de"],"echo":true,"n":2)")->echoes,
            (std::vector<std::string>{"abc", "abc", "de", "de"}));
  EXPECT_EQ(shown(prepare(Api::completion, R"("prompt":["abc","de"],"echo":true,"n":3)")),
            "echo: would repeat 3 bytes in each of 6 choices, more than 12 bytes in total; request fewer choices, or leave it out")
      << "the choices of all prompts count";
  EXPECT_TRUE(text(R"("n":5)")->echoes.empty());
}

TEST_F(PreparedRequests, PromptLogProbabilitiesOfAllChoicesFitTheLimit) {
  options_.max_prompt_logprobs = 24;
  EXPECT_EQ(shown(text(R"("prompt_logprobs":1,"n":4)")), "accepted") << "3 tokens with 2 values in each of 4 choices";
  const std::string remedy = "; request fewer values or fewer choices, or send a shorter prompt";
  EXPECT_EQ(shown(text(R"("prompt_logprobs":1,"n":5)")),
            "prompt_logprobs: would return 3 tokens with 10 values each, more than 24 values in total" + remedy);
  EXPECT_EQ(shown(text(R"("echo":true,"logprobs":4,"n":2)")),
            "echo: would return 3 tokens with 10 values each, more than 24 values in total" + remedy);
  EXPECT_EQ(shown(prepare(Api::completion, R"("prompt":["abc","de"],"prompt_logprobs":1,"n":3)")),
            "prompt_logprobs: would return 5 tokens with 6 values each, more than 24 values in total" + remedy);
  options_.max_prompt_logprobs = 38;
  EXPECT_EQ(shown(chat(R"("prompt_logprobs":1,"n":3)")), "accepted") << "a chat returns its 19 tokens once";
  options_.max_prompt_logprobs = 37;
  EXPECT_EQ(shown(chat(R"("prompt_logprobs":1,"n":3)")),
            "prompt_logprobs: would return 19 tokens with 2 values each, more than 37 values in total" + remedy);
}

TEST_F(PreparedRequests, CountAndReturnTheTokensOfEachPrompt) {
  const auto prepared = prepare(Api::completion, R"("prompt":["abc","de"],"return_token_ids":true)");
  EXPECT_EQ(prepared->num_prompt_tokens, (std::vector<std::uint64_t>{3, 2}));
  EXPECT_EQ(prepared->first_prompt_tokens, (std::vector<TokenId>{'a', 'd'}));
  EXPECT_EQ(prepared->returned_prompts, (std::vector{bytes_to_tokens("abc"), bytes_to_tokens("de")}));
  EXPECT_TRUE(text(R"("n":1)")->returned_prompts.empty());
}

TEST_F(PreparedRequests, StrictServersNameTheFirstIgnoredField) {
  EXPECT_EQ(shown(text(R"("user":"u")")), "accepted");
  options_.strict_fields = true;
  EXPECT_EQ(shown(text(R"("n":1)")), "accepted");
  EXPECT_EQ(shown(text(R"("unknown_field":1)")), "unknown_field: would be ignored, which --strict-fields forbids; leave it out");
}

TEST_F(PreparedRequests, SecretsOfTenantsChangeTheSalt) {
  EXPECT_EQ(text(R"("cache_salt":"mine")")->prompts.at(0).cache_salt, "mine");
  options_.tenant_secret = "secret";
  EXPECT_EQ(text(R"("cache_salt":"mine")")->prompts.at(0).cache_salt, salt_of("secret", "t", "mine"));
}

TEST_F(PreparedRequests, TokensAreCountedAlsoWhenTheyDoNotFit) {
  engine_.set_max_model_len(20);
  model_ = std::move(ServedModel::create(engine_, options_).value());
  const RequestContext context{.model = *model_, .options = options_, .tenant = "t"};
  const auto counted = [&](std::size_t num_bytes, const std::string& more = {}) {
    auto request = parse_completion_request(
        Api::chat, R"({"messages":[{"role":"user","content":")" + std::string(num_bytes, 'a') + "\"}]" + more + "}", limits_of(context));
    request->shape = std::make_shared<const OpenAiShape>(Api::chat);
    const auto count = count_prompt_tokens(*std::move(request), context);
    return count ? std::to_string(*count)
                 : count.error().field + " " + std::to_string(static_cast<int>(overflow_of(count.error()).has_value()));
  };
  EXPECT_EQ(counted(2), "19");
  EXPECT_EQ(counted(20), "37") << "a client counts to find out whether its prompt fits";
  EXPECT_EQ(counted(23), "40");
  EXPECT_EQ(counted(24), "messages 1") << "beyond two contexts the number is not known";
  EXPECT_EQ(counted(2, R"(,"model":"other")"), "model 0");
}

}  // namespace
}  // namespace quire
