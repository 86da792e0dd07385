// Steps the core by hand: three requests in a cache of twelve blocks. It prints each plan, and a counter replaces the model. The second
// request is preempted when the cache is full, and resumes while its blocks are still cached. The third request finds the prompt that it
// shares with the first one.
#include <cstdio>
#include <numeric>

#include "quire/core.h"

quire::CoreConfig config() {
  quire::FullAttentionSpec layer;
  layer.block_size = 4;
  quire::CoreConfig config;
  config.block_size = 4;
  config.kv = {.num_blocks = 13, .groups = {{.layer_names = {"layer"}, .spec = layer, .layer_specs = {}}}};  // block 0 is the null block
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_num_batched_tokens = 16;
  config.scheduler.max_model_len = 64;
  config.scheduler.async_scheduling = false;
  config.limits.max_outstanding_plans = 1;
  return config;
}

void print(const quire::StepPlan& plan) {
  std::printf("step %llu:", static_cast<unsigned long long>(plan.step.value));
  for (const quire::ScheduledRequest& request : plan.scheduled)
    std::printf("  request %llu tokens [%u, %u)%s", static_cast<unsigned long long>(request.id.value), request.num_computed_tokens,
                request.num_computed_tokens + request.num_tokens, request.samples ? " samples" : "");
  for (const quire::BlockTableDelta& delta : plan.table_deltas) {
    std::printf("  slot %u +", delta.slot.value);
    for (const quire::BlockId block : delta.blocks) std::printf(" %u", block.value);
  }
  std::puts("");
}

int main() {
  const auto core = quire::Core::create(config());
  if (!core) return std::fprintf(stderr, "%s\n", core.error().to_string().c_str()), 1;
  std::vector<quire::TokenId> shared(18), other(28);
  std::iota(shared.begin(), shared.end(), 100);
  std::iota(other.begin(), other.end(), 200);
  for (const auto& [id, prompt] : {std::pair{1, &shared}, std::pair{2, &other}, std::pair{3, &shared}})
    if (const auto added = (*core)->add({.id = {static_cast<std::uint64_t>(id)}, .prompt = *prompt, .max_tokens = 3}); !added) return 1;
  for (quire::TokenId token = 1000; (*core)->has_work(); ++token) {
    const quire::StepPlan& plan = (*core)->schedule();
    print(plan);
    std::vector<quire::SampledToken> sampled;
    for (const quire::ScheduledRequest& request : plan.scheduled)
      if (request.samples) sampled.push_back({request.id, token});
    const auto outcome = (*core)->apply({.step = plan.step, .sampled = sampled});
    if (!outcome) return std::fprintf(stderr, "%s\n", outcome.error().to_string().c_str()), 1;
    for (const quire::RequestUpdate& update : (*outcome)->updates)
      if (update.finished) std::printf("  request %llu ends\n", static_cast<unsigned long long>(update.id.value));
  }
}
