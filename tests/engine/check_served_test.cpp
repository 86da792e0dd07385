// Tests what an engine refuses because its worker does not support it: options of the core, requests, and the seams of a caller.
#include "engine/check_served.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "support/scripted_connector.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

using ChangeConfig = std::function<void(CoreConfig&)>;
using ChangeCapabilities = std::function<void(WorkerCapabilities&)>;

TEST(CheckServed, RefusesCoreOptionsThatTheWorkerDoesNotSupport) {
  struct Case {
    const char* field;
    const char* message;
    ChangeConfig change;
    ChangeCapabilities enable;
  };
  const char* const no_encoder = "the worker does not run an encoder";
  const char* const no_context = "the worker does not support context parallelism";
  const ChangeCapabilities encodes = [](WorkerCapabilities& worker) { worker.encoder_inputs = true; };
  const ChangeCapabilities splits = [](WorkerCapabilities& worker) { worker.context_parallel = true; };
  const ChangeCapabilities moves = [](WorkerCapabilities& worker) { worker.transfers = true; };
  const Case cases[] = {
      {"kv", "has 2 cache groups, but the worker supports at most 1", [](CoreConfig& c) { c.kv.groups.resize(2); },
       [](WorkerCapabilities& worker) { worker.num_cache_groups = 2; }},
      {"speculation.num_spec_tokens", "is 3, but the worker verifies at most 2 draft tokens per step",
       [](CoreConfig& c) { c.speculation.num_spec_tokens = 3; }, [](WorkerCapabilities& worker) { worker.num_spec_tokens = 3; }},
      {"encoder.max_encoder_tokens", no_encoder, [](CoreConfig& c) { c.encoder.max_encoder_tokens = 1; }, encodes},
      {"encoder.is_encoder_decoder", no_encoder, [](CoreConfig& c) { c.encoder.is_encoder_decoder = true; }, encodes},
      {"parallel.pipeline_parallel", "the worker does not support pipeline parallelism",
       [](CoreConfig& c) { c.parallel.pipeline_parallel = true; }, [](WorkerCapabilities& worker) { worker.pipeline = true; }},
      {"parallel.dcp_world_size", no_context, [](CoreConfig& c) { c.parallel.dcp_world_size = 2; }, splits},
      {"parallel.pcp_world_size", no_context, [](CoreConfig& c) { c.parallel.pcp_world_size = 2; }, splits},
      {"swap.swap_choice", "the worker has no transport", [](CoreConfig& c) { c.swap.swap_choice = SwapChoice::always; }, moves},
      {"swap.swap_choice", "the worker has no transport", [](CoreConfig& c) { c.swap.swap_choice = SwapChoice::measured; }, moves},
  };
  CoreConfig plain;
  plain.kv.groups.resize(1);
  plain.speculation.num_spec_tokens = 2;
  const WorkerCapabilities least{.num_spec_tokens = 2};
  ASSERT_TRUE(check_served(plain, least));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.field);
    CoreConfig config = plain;
    c.change(config);
    const Result<void> refused = check_served(config, least);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_EQ(refused.error().field, c.field);
    EXPECT_EQ(refused.error().message, c.message);
    WorkerCapabilities able = least;
    c.enable(able);
    EXPECT_TRUE(check_served(config, able));
  }
}

TEST(CheckServed, RefusesRequestsThatTheWorkerDoesNotSupport) {
  struct Case {
    const char* field;
    const char* message;
    std::function<void(EngineRequest&)> change;
    bool WorkerCapabilities::* capability;
  };
  const Case cases[] = {
      {"pictures", "are not supported by this engine's worker", [](EngineRequest& r) { r.pictures.resize(1); },
       &WorkerCapabilities::encoder_inputs},
      {"pooling", "is not supported by this engine's worker", [](EngineRequest& r) { r.pooling = true; }, &WorkerCapabilities::pooling},
      {"prompt_logprobs", "are not supported by this engine's worker", [](EngineRequest& r) { r.sampling.prompt_logprobs = 0; },
       &WorkerCapabilities::prompt_logprobs},
      {"routed_experts", "is set, but the model has no experts", [](EngineRequest& r) { r.sampling.routed_experts = true; },
       &WorkerCapabilities::routed_experts},
  };
  ASSERT_TRUE(check_served(EngineRequest(), {}));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.field);
    EngineRequest request;
    c.change(request);
    const Result<void> refused = check_served(request, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_EQ(refused.error().field, c.field);
    EXPECT_EQ(refused.error().message, c.message);
    EXPECT_EQ(refused.error().remedy, "leave it out");
    WorkerCapabilities able;
    able.*c.capability = true;
    EXPECT_TRUE(check_served(request, able));
  }
}

TEST(CheckServed, RefusesStructuredOutputWithoutTokenMasks) {
  EngineRequest request;
  request.structured_output = {.kind = StructuredOutput::Kind::regex, .text = "a+"};
  const Result<void> refused = check_served(request, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().field, "structured_output");
  EXPECT_NE(refused.error().remedy.find("QUIRE_GUIDANCE"), std::string::npos) << refused.error().remedy;
  EXPECT_EQ(check_served(request, {.token_masks = true}).has_value(), has_structured_output());
}

// A connector that claims to support states or cache groups.
class ClaimingConnector final : public test::QuietConnector {
 public:
  ClaimingConnector(bool states, bool groups) : states_(states), groups_(groups) {}
  [[nodiscard]] bool supports_states() const override { return states_; }
  [[nodiscard]] bool supports_groups() const override { return groups_; }

 private:
  bool states_, groups_;
};

EngineSeams seams_with(bool states, bool groups) {
  return {.connector = std::make_shared<ClaimingConnector>(states, groups),
          .transport = std::make_shared<test::ToyTier>(test::ToyOptions{})};
}

CoreConfig config_of(std::initializer_list<LayerKvSpec> specs) {
  CoreConfig config;
  for (const LayerKvSpec& spec : specs) config.kv.groups.push_back({.layer_names = {"layer"}, .spec = spec, .layer_specs = {}});
  return config;
}

TEST(CheckSeams, RequiresAConnectorAndATransportTogether) {
  const CoreConfig config = config_of({FullAttentionSpec()});
  const WorkerCapabilities able{.transfers = true};
  const EngineSeams both = seams_with(false, false);
  EXPECT_TRUE(check_seams({}, config, {}));
  EXPECT_TRUE(check_seams(both, config, able));
  const Result<void> no_transport = check_seams({.connector = both.connector}, config, able);
  ASSERT_FALSE(no_transport);
  EXPECT_EQ(no_transport.error().to_string(),
            "transport: is missing, but the connector needs one to transfer blocks; pass a transport with the connector");
  const Result<void> no_connector = check_seams({.transport = both.transport}, config, able);
  ASSERT_FALSE(no_connector);
  EXPECT_EQ(no_connector.error().to_string(),
            "connector: is missing, but the transport needs one to plan transfers; pass a connector with the transport");
  for (const auto& refused : {no_transport, no_connector}) EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  const Result<void> no_transfers = check_seams(both, config, {});
  ASSERT_FALSE(no_transfers);
  EXPECT_EQ(no_transfers.error().code, ErrorCode::unsupported);
  EXPECT_EQ(no_transfers.error().to_string(),
            "transport: the worker was created without a transport; create the worker with this transport, or leave the connector out");
}

TEST(CheckSeams, AConnectorMustSupportTheCacheOfTheModel) {
  struct Case {
    const char* model;
    CoreConfig config;
    bool needs_states, needs_groups;
  };
  const Case cases[] = {{"full attention", config_of({FullAttentionSpec()}), false, false},
                        {"latent attention", config_of({MlaAttentionSpec()}), false, false},
                        {"a window", config_of({SlidingWindowSpec()}), false, true},
                        {"two groups", config_of({FullAttentionSpec(), FullAttentionSpec()}), false, true},
                        {"states", config_of({FullAttentionSpec(), MambaSpec()}), true, true},
                        {"only states", config_of({MambaSpec()}), true, true}};
  for (const Case& c : cases)
    for (const bool states : {false, true})
      for (const bool groups : {false, true}) {
        SCOPED_TRACE(std::string(c.model) + (states ? ", states" : "") + (groups ? ", groups" : ""));
        const Result<void> checked = check_seams(seams_with(states, groups), c.config, {.num_cache_groups = 2, .transfers = true});
        const bool has_states = states || !c.needs_states, has_groups = groups || !c.needs_groups;
        ASSERT_EQ(checked.has_value(), has_states && has_groups);
        if (checked) continue;
        EXPECT_EQ(checked.error().code, ErrorCode::unsupported);
        EXPECT_EQ(checked.error().field, "connector");
        EXPECT_NE(checked.error().message.find(has_states ? "(supports_groups)" : "(supports_states)"), std::string::npos)
            << checked.error().message;
        EXPECT_NE(checked.error().remedy.find("--kv-disk or --kv-dram"), std::string::npos) << checked.error().remedy;
      }
  CoreConfig encoded = config_of({FullAttentionSpec()});
  encoded.encoder.is_encoder_decoder = true;
  const Result<void> refused = check_seams(seams_with(true, true), encoded, {.transfers = true, .encoder_inputs = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().to_string(),
            "connector: the encoder outputs of an encoder-decoder model cannot be stored or loaded; serve this model without a tier or "
            "connector");
  EXPECT_TRUE(check_seams({}, encoded, {.encoder_inputs = true})) << "there is no connector";
}

}  // namespace
}  // namespace quire
