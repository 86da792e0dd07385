// Beam searches on a small model, everything in f32, must match vLLM's (tools/record/beams.py). They must also match themselves, however
// they are scheduled.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/collector.h"
#include "engine/create.h"
#include "format/json.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"
#include "support/sanitized.h"

namespace quire {
namespace {

// Both sides add the same f32 numbers in different orders.
constexpr double kMaxDifference = 5e-5;  // of a sum of up to 20 log probabilities

struct Found {
  std::vector<TokenId> tokens;
  double cum_logprob = 0.0;
  bool by_eos = false;
};

struct BeamCase {
  EngineRequest request;
  std::vector<Found> found;
  bool library_differs = false;  // LLM.beam_search found other beams than vLLM's server
};

std::vector<TokenId> ids(const boost::json::value& array) {
  std::vector<TokenId> out;
  for (const auto& value : array.as_array()) out.push_back(value.to_number<TokenId>());
  return out;
}

BeamCase read_case(const boost::json::value& json) {
  BeamCase c;
  c.request.prompt = ids(json.at("prompt"));
  c.request.n = json.at("width").to_number<std::uint32_t>();
  c.request.beam_search = BeamSearchOptions{.length_penalty = json.at("length_penalty").to_number<double>()};
  c.request.sampling.max_tokens = json.at("max_tokens").to_number<std::uint32_t>();
  c.request.sampling.ignore_eos = json.at("ignore_eos").as_bool();
  c.request.sampling.logprobs = 0;
  for (const auto& found : json.at("server").as_array())
    c.found.push_back({ids(found.at("tokens")), found.at("cum_logprob").to_number<double>(), found.at("by_eos").as_bool()});
  c.library_differs = json.as_object().contains("library");
  return c;
}

class BeamRecord : public testing::Test {
 protected:
  void SetUp() override {
    const auto record = read_json_file("tests/golden/beams.json");
    ASSERT_TRUE(record) << record.error().to_string();
    for (const auto& value : record->at("cases").as_array()) cases.push_back(read_case(value));
    const auto config = config_from_hf(JsonRef(record->at("config"), "config"));
    ASSERT_TRUE(config) << config.error().to_string();
    options.model = folder.file("beams");
    tiny::write_hf_folder(options.model, record->at("config"), tiny::make_tensors(*config, false, "F32"));
    // The vocabulary has as many tokens as the model, so that the model's EOS is one of them. Nothing is tokenised.
    std::string vocab;
    for (std::uint32_t i = 0; i < config->vocab_size; ++i)
      vocab += (i == 0 ? "\"t" : ", \"t") + std::to_string(i) + "\": " + std::to_string(i);
    tiny::write_file(options.model + "/tokenizer.json",
                     R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
                         "model": {"type": "BPE", "merges": [], "vocab": {)" +
                         vocab + "}}}");
    options.activations = ActivationMode::f32;
    options.cache.dtype = KvDtype::f32;
    options.cache.num_blocks = 1200;
    options.scheduler.max_model_len = record->at("max_model_len").to_number<std::uint32_t>();
  }

  [[nodiscard]] std::unique_ptr<Engine> start() const {
    auto engine = create_engine(options, nullptr, nullptr);
    EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
    return std::move(*engine);
  }

  tiny::TempFolder folder;
  EngineOptions options;
  std::vector<BeamCase> cases;
};

Found found_in(const Collector::Answer& answer) {
  Found found{answer.tokens, 0.0, answer.reason == FinishReason::stop};
  for (const PositionLogprobs& position : answer.logprobs) found.cum_logprob += static_cast<double>(position.entries[0].logprob);
  EXPECT_NE(answer.reason, FinishReason::error) << answer.error;
  return found;
}

TEST_F(BeamRecord, SearchesFindVllmsBeams) {
  Collector sink;
  const auto engine = start();
  std::vector<RequestId> searches;
  for (const BeamCase& c : cases) searches.push_back(engine->submit(c.request, sink).value());
  double largest = 0.0;
  std::uint32_t num_answers = 0, num_by_eos = 0, num_library_differs = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    num_library_differs += cases[i].library_differs ? 1 : 0;
    ASSERT_EQ(cases[i].found.size(), cases[i].request.n);
    for (std::uint32_t k = 0; k < cases[i].request.n; ++k, ++num_answers) {
      const Found found = found_in(sink.wait(RequestId{searches[i].value + k}));
      const Found& wanted = cases[i].found[k];
      EXPECT_EQ(found.tokens, wanted.tokens) << "prompt " << i << ", answer " << k << ": " << found.cum_logprob << " instead of "
                                             << wanted.cum_logprob;
      EXPECT_EQ(found.by_eos, wanted.by_eos);
      EXPECT_NEAR(found.cum_logprob, wanted.cum_logprob, kMaxDifference) << "prompt " << i << ", answer " << k;
      largest = std::max(largest, std::abs(found.cum_logprob - wanted.cum_logprob));
      num_by_eos += found.by_eos ? 1 : 0;
    }
  }
  engine->stop(60.0);
  EXPECT_EQ(cases.size(), 200U);
  EXPECT_GT(num_by_eos, 100U) << "the record must contain beams that end by EOS";
  EXPECT_GT(num_answers - num_by_eos, 100U);
  std::printf("%zu searches, %u answers, %u of them by EOS; largest difference of a cumulative log probability %.2g\n", cases.size(),
              num_answers, num_by_eos, largest);
  std::printf("vLLM's LLM.beam_search differs from its server's in %u of them\n", num_library_differs);
}

// The bits of all tokens and log probabilities: of searches, and of the requests that run concurrently.
struct Bits {
  std::vector<std::uint32_t> searches, others;
};

Bits bits_of(Engine& engine, const std::vector<EngineRequest>& searches, const std::vector<EngineRequest>& others) {
  Collector sink;
  std::vector<RequestId> search_ids, other_ids;
  for (std::size_t i = 0; i < std::max(searches.size(), others.size()); ++i) {
    if (i < searches.size()) search_ids.push_back(engine.submit(searches[i], sink).value());
    if (i < others.size()) other_ids.push_back(engine.submit(others[i], sink).value());
  }
  const auto append = [&sink](std::vector<std::uint32_t>& bits, RequestId id) {
    const Collector::Answer answer = sink.wait(id);
    for (const TokenId token : answer.tokens) bits.push_back(static_cast<std::uint32_t>(token));
    for (const PositionLogprobs& position : answer.logprobs)
      for (const TokenLogprob& entry : position.entries) bits.push_back(std::bit_cast<std::uint32_t>(entry.logprob));
  };
  Bits bits;
  for (std::size_t i = 0; i < searches.size(); ++i)
    for (std::uint32_t k = 0; k < searches[i].n; ++k) append(bits.searches, RequestId{search_ids[i].value + k});
  for (const RequestId id : other_ids) append(bits.others, id);
  EXPECT_EQ(engine.stop(60.0), 0U);
  EXPECT_EQ(engine.stats().num_free_blocks, engine.stats().num_blocks);
  return bits;
}

TEST_F(BeamRecord, SearchesAndConcurrentRequestsDoNotAffectEachOther) {
  std::vector<EngineRequest> searches, others;
  for (std::size_t i = 0; i < (kSanitized ? 8 : 40); ++i) {
    searches.push_back(cases[i].request);
    searches.back().sampling.logprobs = 3;
    EngineRequest& other = others.emplace_back(cases[cases.size() - 1 - i].request);
    other.beam_search.reset();
    other.n = 1;
    other.sampling.logprobs = 3;
    other.sampling.seed = i;
  }
  options.scheduler.async_scheduling = false;
  const Bits alone{bits_of(*start(), searches, {}).searches, bits_of(*start(), {}, others).others};
  for (const bool async : {false, true}) {
    options.scheduler.async_scheduling = async;
    const auto both = start();
    const Bits together = bits_of(*both, searches, others);
    EXPECT_TRUE(together.searches == alone.searches);
    EXPECT_TRUE(together.others == alone.others);
    const EngineOptions plenty = options;
    options.cache.block_size = 4;
    options.cache.num_blocks = 34;
    options.scheduler.max_num_batched_tokens = 48;
    const auto squeezed = start();
    const Bits preempted = bits_of(*squeezed, searches, others);
    EXPECT_GT(squeezed->stats().num_preemptions, 0U);
    EXPECT_TRUE(preempted.searches == alone.searches);
    EXPECT_TRUE(preempted.others == alone.others);
    options = plenty;
  }
}

}  // namespace
}  // namespace quire
