// Explains why a request was preempted and what that cost, with a sink for the events of the core. It prints which request needed blocks,
// which blocks were evicted for it, and how much of the preempted request was still cached later.
#include <cstdio>
#include <map>
#include <numeric>

#include "quire/base/events.h"
#include "quire/core.h"

class Explainer : public quire::EventSink {
 public:
  void on_event(const quire::Event& event) override {
    const auto step = static_cast<unsigned long long>(event.step.value), owner = static_cast<unsigned long long>(event.owner.value),
               other = static_cast<unsigned long long>(event.beneficiary.value);
    if (event.what == quire::EventKind::preempted) {
      std::printf("step %llu: request %llu is preempted: request %llu needs %u more free block(s)\n", step, owner, other, event.amount);
      preempted[owner] = true;
    } else if (event.what == quire::EventKind::block_cached) {
      filled_by[event.name] = owner;
    } else if (event.what == quire::EventKind::block_evicted) {
      std::printf("step %llu: block %u, filled by request %llu, is evicted for request %llu\n", step, event.block.value,
                  filled_by[event.name], other);
    } else if (event.what == quire::EventKind::admission_tried && preempted[owner]) {
      std::printf("step %llu: request %llu waits to resume: %u of its %u tokens are still cached\n", step, owner, event.amount,
                  event.total);
    }
  }

 private:
  std::map<unsigned long long, bool> preempted;
  std::map<quire::BlockHashBytes, unsigned long long> filled_by;
};

int main() {
  quire::FullAttentionSpec layer;
  layer.block_size = 4;
  quire::CoreConfig config;
  config.block_size = 4;
  config.kv = {.num_blocks = 9, .groups = {{.layer_names = {"layer"}, .spec = layer, .layer_specs = {}}}};
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_num_batched_tokens = 32;
  config.scheduler.max_model_len = 32;
  config.scheduler.async_scheduling = false;
  config.limits.max_outstanding_plans = 1;
  Explainer explainer;
  const auto core = quire::Core::create(config, {.events = &explainer});
  if (!core) return std::fprintf(stderr, "%s\n", core.error().to_string().c_str()), 1;
  for (const std::uint64_t id : {1, 2}) {
    std::vector<quire::TokenId> prompt(14);
    std::iota(prompt.begin(), prompt.end(), static_cast<quire::TokenId>(100 * id));
    if (!(*core)->add({.id = {id}, .prompt = prompt, .max_tokens = 8})) return 1;
  }
  while ((*core)->has_work()) {
    const quire::StepPlan& plan = (*core)->schedule();
    std::vector<quire::SampledToken> sampled;
    for (const quire::ScheduledRequest& request : plan.scheduled)
      if (request.samples) sampled.push_back({request.id, 7});
    if (!(*core)->apply({.step = plan.step, .sampled = sampled})) return 1;
  }
  return (*core)->all_blocks_free() ? 0 : 1;
}
