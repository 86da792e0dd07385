// Requests that wait for their images: which images they wait for, and the commands that come meanwhile.
#include "engine/requests/live_images.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/requests/recorded_loop.h"

namespace quire {
namespace {

// Keeps each image under its identifier, and encodes only what the test marks as done.
class ShelfWorker final : public WorkerBase {
 public:
  void start(const StepPlan& /*plan*/) override {}
  WorkerResult finish() override { return {}; }
  std::shared_ptr<const PromptImages> take_images(std::span<const PromptImage> given) override {
    auto images = std::make_shared<PromptImages>();
    for (const PromptImage& image : given) {
      images->features.push_back({image.identifier, image.position});
      images->pictures.push_back(shelf(image.identifier));
    }
    return images;
  }
  void encode_ahead(std::span<const std::shared_ptr<EncodedImage>> wanted) override {
    for (const auto& image : wanted) queued.push_back(image->identifier);
  }
  std::shared_ptr<EncodedImage> shelf(const std::string& identifier) {
    std::shared_ptr<EncodedImage>& image = images_[identifier];
    if (image == nullptr) {
      image = std::make_shared<EncodedImage>();
      image->identifier = identifier;
    }
    return image;
  }
  void done(const std::string& identifier) { shelf(identifier)->is_done = true; }

  std::vector<std::string> queued;

 private:
  std::map<std::string, std::shared_ptr<EncodedImage>> images_;
};

CoreConfig core_with_images() {
  EngineOptions options;
  options.cache.num_blocks = 50;
  options.cache.block_size = 4;
  options.scheduler.async_scheduling = false;
  CoreConfig config = resolve_options(options, simulated_model(), {1, 0}).value().core;
  config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size = 64;
  return config;
}

// Each image takes four tokens, at the given offsets.
Submission showing(std::uint64_t id, const std::vector<std::pair<std::string, std::uint32_t>>& images, std::uint32_t length = 21) {
  Submission submission;
  submission.id = {id};
  submission.request = make_request(length, 1);
  for (const auto& [identifier, offset] : images) submission.request.pictures.push_back({identifier, PlaceholderRange(offset, 4), nullptr});
  return submission;
}

class LiveImagesTest : public testing::Test {
 protected:
  // Runs a request in the core, so that the prefix cache has the full blocks of its prompt.
  void run(Submission submission) {
    const auto images = worker_.take_images(submission.request.pictures);
    NewRequest request;
    request.id = {1000};
    request.prompt = submission.request.prompt;
    request.max_tokens = 1;
    request.cache_salt = submission.request.cache_salt;
    request.multimodal = images->features;
    set_lora_fields(submission.adapter.get(), request);
    ASSERT_TRUE(core_->add(request).has_value());
    while (core_->has_work()) {
      const StepPlan& plan = core_->schedule();
      std::vector<SampledToken> sampled;
      for (const ScheduledRequest& scheduled : plan.scheduled)
        if (scheduled.samples) sampled.push_back({scheduled.id, 1});
      ASSERT_TRUE(core_->apply({.step = plan.step, .sampled = sampled}).has_value());
    }
  }
  bool take(Submission submission) { return images_.take(submission); }
  static std::vector<std::uint64_t> ids_of_all(const std::vector<LiveImages::Waiting>& waiting) {
    std::vector<std::uint64_t> ids;
    for (const LiveImages::Waiting& one : waiting) ids.push_back(one.submission.id.value);
    return ids;
  }
  using Names = std::vector<std::string>;
  using Ids = std::vector<std::uint64_t>;

  ShelfWorker worker_;
  std::unique_ptr<Core> core_ = Core::create(core_with_images()).value();
  LiveImages images_{*core_, worker_};
};

TEST_F(LiveImagesTest, ARequestWaitsForItsImagesThatAreNotEncoded) {
  worker_.done("b");
  Submission submission = showing(1, {{"a", 0}, {"b", 8}, {"c", 12}});
  EXPECT_TRUE(images_.is_empty());
  ASSERT_TRUE(images_.take(submission));
  EXPECT_EQ(worker_.queued, (Names{"a", "c"}));
  EXPECT_FALSE(images_.is_empty());
  EXPECT_TRUE(images_.take_ready().empty());
  worker_.done("c");
  EXPECT_TRUE(images_.take_ready().empty());
  worker_.done("a");
  const auto ready = images_.take_ready();
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].submission.id, RequestId{1});
  EXPECT_TRUE(ready[0].submission.request.pictures.empty()) << "the worker has them";
  ASSERT_NE(ready[0].submission.encoder_inputs, nullptr);
  EXPECT_EQ(ready[0].submission.encoder_inputs->features().size(), 3U);
  EXPECT_TRUE(images_.is_empty());
  EXPECT_TRUE(images_.take_ready().empty());
}

TEST_F(LiveImagesTest, ARequestWithEncodedImagesDoesNotWait) {
  worker_.done("a");
  Submission submission = showing(1, {{"a", 0}});
  EXPECT_FALSE(images_.take(submission));
  EXPECT_TRUE(worker_.queued.empty());
  ASSERT_NE(submission.encoder_inputs, nullptr) << "its caller adds it with its images";
  EXPECT_EQ(submission.encoder_inputs->features().size(), 1U);
  EXPECT_TRUE(images_.is_empty());
}

TEST_F(LiveImagesTest, ARequestDoesNotWaitForImagesInThePrefixCache) {
  run(showing(1, {{"a", 0}, {"b", 16}}));
  EXPECT_FALSE(take(showing(2, {{"a", 0}, {"b", 16}}))) << "20 of 21 tokens are cached";
  EXPECT_TRUE(worker_.queued.empty());
  EXPECT_TRUE(take(showing(3, {{"a", 0}, {"b", 17}})));
  EXPECT_EQ(worker_.queued, Names{"b"}) << "only the image after the cached tokens";
  EXPECT_EQ(images_.num_waiting(), 1U);
}

TEST_F(LiveImagesTest, ARequestWaitsForImagesWhoseBlocksItMayNotRead) {
  run(showing(1, {{"a", 0}}));
  EXPECT_FALSE(take(showing(2, {{"a", 0}})));
  const auto resident = std::make_shared<const ResidentAdapter>(ResidentAdapter{.id = 4, .content_id = "content", .weights = nullptr});
  std::vector<Submission> others;
  for (std::uint64_t id = 3; id < 8; ++id) others.push_back(showing(id, {{"a", 0}}));
  others[0].request.cache_salt = "salt";
  others[1].request.sampling.prompt_logprobs = 0;
  others[2].request.sampling.routed_experts = true;
  others[3].adapter = std::make_shared<const AdapterLease>(AdapterLease{"name", resident});
  others[4].block_keys.resize(5);  // other hashes than those in the cache
  for (Submission& other : others) EXPECT_TRUE(take(std::move(other)));
  EXPECT_EQ(images_.num_waiting(), 5U);
}

TEST_F(LiveImagesTest, RequestsLeaveInTheOrderOfArrivalWhenTheirImagesAreDone) {
  EXPECT_TRUE(take(showing(1, {{"a", 0}})));
  EXPECT_TRUE(take(showing(2, {{"b", 0}})));
  EXPECT_TRUE(take(showing(3, {{"c", 0}})));
  EXPECT_TRUE(take(showing(4, {{"b", 0}})));
  worker_.done("b");
  EXPECT_EQ(ids_of_all(images_.take_ready()), (Ids{2, 4}));
  EXPECT_EQ(images_.num_waiting(), 2U);
  worker_.done("c");
  worker_.done("a");
  EXPECT_EQ(ids_of_all(images_.take_ready()), (Ids{1, 3}));
  EXPECT_EQ(images_.num_waiting(), 0U);
}

TEST_F(LiveImagesTest, CommandsWaitWithTheirRequest) {
  Submission first = showing(1, {{"a", 0}}), second = showing(4, {{"b", 0}});
  first.request.n = 3;
  ASSERT_TRUE(images_.take(first));
  ASSERT_TRUE(images_.take(second));
  EXPECT_EQ(images_.num_waiting(), 4U);
  EXPECT_FALSE(images_.fork({.parent = {9}, .options = {}}));
  EXPECT_TRUE(images_.fork({.parent = {3}, .first = {10}, .options = {.n = 2}}));
  EXPECT_TRUE(images_.fork({.parent = {11}, .first = {20}, .options = {.n = 1}})) << "a child of a child";
  EXPECT_FALSE(images_.fork({.parent = {12}, .options = {}}));
  EXPECT_EQ(images_.num_waiting(), 7U);
  EXPECT_EQ(images_.ids(), (std::vector<RequestId>{{1}, {2}, {3}, {10}, {11}, {20}, {4}}));

  SessionTokens to_parent{.id = {4}, .tokens = {1}}, to_child{.id = {10}, .tokens = {2}}, to_other{.id = {9}, .tokens = {3}};
  EXPECT_TRUE(images_.append(to_parent));
  EXPECT_TRUE(images_.append(to_child));
  EXPECT_FALSE(images_.append(to_other));
  EXPECT_EQ(to_other.tokens, std::vector<TokenId>{3}) << "an input of another request stays with the caller";
  worker_.done("a");
  worker_.done("b");
  const auto ready = images_.take_ready();
  ASSERT_EQ(ready.size(), 2U);
  ASSERT_EQ(ready[0].forks.size(), 2U);
  EXPECT_EQ(ready[0].forks[0].first, RequestId{10});
  EXPECT_EQ(ready[0].forks[1].first, RequestId{20});
  ASSERT_EQ(ready[0].inputs.size(), 1U);
  EXPECT_EQ(ready[0].inputs[0].id, RequestId{10});
  EXPECT_EQ(ready[0].inputs[0].tokens, std::vector<TokenId>{2});
  EXPECT_TRUE(ready[0].submission.inputs.empty());
  EXPECT_EQ(ready[1].submission.inputs, (std::vector<std::vector<TokenId>>{{1}}));
  EXPECT_TRUE(ready[1].inputs.empty());
}

TEST_F(LiveImagesTest, ASubmissionStopsWaitingWhenItsLastRequestEnds) {
  using Ended = LiveImages::Ended;
  Submission first = showing(1, {{"a", 0}});
  first.request.n = 2;
  ASSERT_TRUE(images_.take(first));
  ASSERT_TRUE(take(showing(3, {{"b", 0}})));
  ASSERT_TRUE(images_.fork({.parent = {1}, .first = {10}, .options = {.n = 1}}));
  LiveImages::Waiting whole;
  EXPECT_EQ(images_.end({9}, FinishReason::abort, whole), Ended::unknown);
  EXPECT_EQ(images_.end({2}, FinishReason::stop, whole), Ended::one);
  EXPECT_EQ(images_.num_waiting(), 3U);
  EXPECT_EQ(images_.end({2}, FinishReason::abort, whole), Ended::one) << "a second end of a request does not count";
  EXPECT_EQ(images_.num_waiting(), 3U);
  EXPECT_EQ(images_.end({10}, FinishReason::abort, whole), Ended::one);
  EXPECT_EQ(images_.end({1}, FinishReason::abort, whole), Ended::all);
  EXPECT_EQ(whole.submission.id, RequestId{1});
  ASSERT_EQ(whole.submission.ended.size(), 3U);
  EXPECT_EQ(whole.submission.ended[0].id, RequestId{2});
  EXPECT_EQ(whole.submission.ended[0].reason, FinishReason::stop);
  ASSERT_EQ(whole.forks.size(), 1U);
  EXPECT_EQ(images_.num_waiting(), 1U);
  EXPECT_EQ(images_.end({1}, FinishReason::abort, whole), Ended::unknown);
  EXPECT_EQ(images_.end({3}, FinishReason::abort, whole), Ended::all);
  EXPECT_TRUE(images_.is_empty());
}

}  // namespace
}  // namespace quire
