#pragma once
// A dense decoder on the CPU: load it, then run batches of many requests through it.
// Loaded once by the engine, run by the worker: one pass at a time, on the thread that leads the step and on its pool. It decides nothing
// about requests; what must be computed, and where keys and values lie, it is told.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/kept/expert_store.h"
#include "runtime/model/layers/batch_input.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

class VisionEncoder;

// The limits fix the workspaces, which are taken when the model is loaded; a pass beyond them is a broken invariant.
struct LoadOptions {
  ActivationMode activations = ActivationMode::int16;
  KernelIsa isa = KernelIsa::best;
  std::uint32_t max_num_batched_tokens = 2048;  // rows of one forward pass
  std::uint32_t max_num_seqs = 128;             // requests of one forward pass
  std::uint32_t max_model_len = 0;              // positions below it are computed; 0: the model's context
  std::uint32_t num_cache_groups = 1;           // of the KV caches it will see, at most
  std::uint32_t max_lora_rank = 0;              // of the adapters that passes will name, at most; 0: none
  ThreadPool* pool = nullptr;                   // required; outlives the model
  void (*progress)(double) = nullptr;           // 0 to 1, on the loading thread
  WeightsOptions weights = {};                  // what is kept of them between starts, and which are read when they are wanted
};

// Weights, and workspaces for one pass. One thread at a time.
class Model {
 public:
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const ModelInfo& info() const;
  // Bytes held: packed weights, and workspaces.
  [[nodiscard]] std::uint64_t weight_bytes() const;
  [[nodiscard]] std::uint64_t workspace_bytes() const;
  // "avx512", ...
  [[nodiscard]] const char* kernel_name() const;
  // What makes embeddings of pictures; null: the model reads text alone. It works on the pool, as a pass does, and so between two of them.
  [[nodiscard]] VisionEncoder* vision();
  // Where experts are read when they are wanted; else zeros. Any thread.
  [[nodiscard]] ExpertReads expert_reads() const;

  // Writes keys and values of every row to `cache`, and to `output` what it has room for. A row sees the earlier positions of its slot,
  // which earlier passes or this one have written. A row's output depends on its own history alone: the same bits whatever else is in the
  // batch and however the history was cut into passes. Allocates nothing.
  // Broken invariants: more rows or sequences than the limits, a token outside the vocabulary, a position at or beyond max_model_len or
  // outside the slot's block table, a cache of another shape.
  void forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, const PassOutput& output, PassHooks* hooks = nullptr);
  // Of a model with an encoder (ModelInfo::encoder): what it makes of an input, as keys and values for every layer, goes to the slot's
  // blocks of cross attention; all later passes over the slot's tokens see it. Bits depend on the features alone. Allocates nothing. Broken
  // invariants: no encoder, features of another size, a slot without blocks for all positions.
  void encode(std::span<const float> features, Slot slot, KvCache& cache, const BlockTables& tables);
  // The same logits afterwards, until the next pass, of some output rows: each by its place among them, in any order.
  void read_logits(std::span<const std::uint32_t> rows, std::span<float> logits);
  // And the same hidden rows.
  void read_hidden(std::span<const std::uint32_t> rows, std::span<float> hidden);

 private:
  friend class ModelLoader;
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The weights of `file`, of which `info` is file.info(). A file that is cut or rewritten meanwhile is an error (`io`). Errors: those of the
// formats, `unsupported` (architecture, tensor type, instruction set), `corrupt` (tensor missing or of the wrong shape), naming the key or
// the tensor.
Result<std::unique_ptr<Model>> load_model(const ModelFile& file, ModelInfo info, const LoadOptions& options);
// `path` is a GGUF file or a Hugging Face folder (config.json, safetensors), which is closed again once the weights are packed.
Result<std::unique_ptr<Model>> load_model(const std::string& path, const LoadOptions& options);

// Reads headers only. Errors as above; a tokenizer this build cannot run is no error (TokenizerSpec::unsupported says why).
Result<ModelInfo> inspect(const std::string& path, const std::string& mmproj = {});

}  // namespace quire
