// A custom connector: it reports that the first eight tokens of each prompt are stored elsewhere. A request waits while its blocks are
// filled, and computes only the other tokens. Here the simulated transfer ends in the third step.
#include <cstdio>
#include <numeric>

#include "quire/core.h"

class EightTokens : public quire::Connector {
 public:
  quire::ExternalMatch match(const quire::RequestView& request, std::uint32_t num_local_tokens) override {
    const bool has_more = num_local_tokens < 8 && request.num_prompt_tokens > 8;
    return {.num_tokens = has_more ? 8 - num_local_tokens : 0, .load_async = has_more};
  }
  void allocated(const quire::RequestView& request, quire::GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    std::printf("load %u tokens of request %llu into blocks", num_external_tokens, static_cast<unsigned long long>(request.id.value));
    for (const quire::BlockId block : blocks[0]) std::printf(" %u", block.value);
    std::puts("");
    loading.push_back(request.id);
  }
  bool finished(const quire::RequestView& /*request*/, quire::GroupBlocks /*blocks*/) override { return false; }  // nothing to store
  void planned(const quire::StepPlan& /*plan*/) override {}
  void step_output() override {}
  bool reset() override { return true; }

  std::vector<quire::RequestId> loading;
};

int main() {
  quire::FullAttentionSpec layer;
  layer.block_size = 4;
  quire::CoreConfig config;
  config.block_size = 4;
  config.kv = {.num_blocks = 13, .groups = {{.layer_names = {"layer"}, .spec = layer, .layer_specs = {}}}};
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_num_batched_tokens = 16;
  config.scheduler.max_model_len = 64;
  config.scheduler.async_scheduling = false;
  config.limits.max_outstanding_plans = 1;
  EightTokens connector;
  const auto core = quire::Core::create(config, {.connector = &connector});
  if (!core) return std::fprintf(stderr, "%s\n", core.error().to_string().c_str()), 1;
  std::vector<quire::TokenId> prompt(14);
  std::iota(prompt.begin(), prompt.end(), 100);
  if (!(*core)->add({.id = {1}, .prompt = prompt, .max_tokens = 1})) return 1;
  for (int step = 0; (*core)->has_work(); ++step) {
    const quire::StepPlan& plan = (*core)->schedule();
    std::printf("step %d: %u tokens to compute\n", step, plan.num_scheduled_tokens);
    std::vector<quire::SampledToken> sampled;
    for (const quire::ScheduledRequest& request : plan.scheduled) sampled.push_back({request.id, 7});
    std::vector<quire::RequestId> received;
    if (step == 2) received.swap(connector.loading);
    if (!(*core)->apply({.step = plan.step, .sampled = sampled, .has_connector_output = true, .finished_receiving = received})) return 1;
  }
  return (*core)->all_blocks_free() ? 0 : 1;
}
