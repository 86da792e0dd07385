// EngineBuilder::build: a model on this machine's processors.
#include "engine/create.h"

#include "base/usable_cores.h"
#include "base/usable_memory.h"
#include "engine/engine_impl.h"
#include "engine/kv_plan.h"
#include "engine/resolve_options.h"
#include "runtime/model/model.h"
#include "runtime/model/model_file.h"

namespace quire {

Result<std::unique_ptr<Engine>> EngineBuilder::build(void (*progress)(double)) const {
  return create_engine(options_, progress, nullptr, seams_);
}

Result<std::unique_ptr<Engine>> create_engine(const EngineOptions& options, void (*progress)(double), LogitsObserver* observer,
                                              const EngineSeams& seams) {
  const Result<ModelFile> file = ModelFile::open(options.model);
  if (!file) return std::unexpected(file.error());
  const Result<ModelInfo> header = file->info();
  if (!header) return std::unexpected(header.error());
  const Result<EngineOptions> resolved = resolve_options(options, *header, {usable_cores(), usable_memory_bytes()});
  if (!resolved) return std::unexpected(resolved.error());
  auto plan = plan_kv(*header, *resolved);
  if (!plan) return std::unexpected(plan.error());
  const auto num_groups = static_cast<std::uint32_t>(plan->layout.groups.size());
  auto cache = KvCache::create(std::move(plan->layout));
  if (!cache) return std::unexpected(cache.error());
  auto pool = std::make_unique<ThreadPool>(resolved->num_threads);
  auto model = load_model(*file, *header,
                          {.activations = resolved->activations,
                           .isa = resolved->isa,
                           .max_num_batched_tokens = resolved->scheduler.max_num_batched_tokens,
                           .max_num_seqs = resolved->scheduler.max_num_seqs,
                           .max_model_len = resolved->scheduler.max_model_len,
                           .num_cache_groups = num_groups,
                           .pool = pool.get(),
                           .progress = progress});
  if (!model) return std::unexpected(model.error());
  const ModelInfo info = (*model)->info();
  auto worker =
      std::make_unique<Worker>(worker_limits(*resolved), std::move(pool), std::move(*model), std::move(*cache), seams.transport, observer);
  return make_engine(*resolved, info, std::move(worker), seams);
}

Result<ModelInfo> inspect_model(const std::string& path) {
  return inspect(path);
}

}  // namespace quire
