#pragma once
// A decoder on the CPU: load it, then run batches of many requests through it. Loaded once by the engine and run by the worker: one pass at
// a time, on the thread that leads the step and on its pool. It decides nothing about requests: the input of a pass says what to compute,
// and where keys and values lie.
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
#include "runtime/model/layers/batch_input.h"
#include "runtime/model/packed/expert_store.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

class VisionEncoder;
struct Kernels;

// The limits fix the workspaces, which are allocated when the model is loaded. A pass that exceeds them is a broken invariant.
struct LoadOptions {
  ActivationMode activations = ActivationMode::int16;
  KernelIsa isa = KernelIsa::best;
  std::uint32_t max_num_batched_tokens = 2048;  // rows of one forward pass
  std::uint32_t max_num_seqs = 128;             // requests of one forward pass
  std::uint32_t max_model_len = 0;              // positions below it can be computed; 0: the model's context
  std::uint32_t num_cache_groups = 1;           // largest number of groups in the KV caches of its passes
  std::uint32_t max_lora_rank = 0;              // largest rank of the adapters of its passes; 0: no adapters
  ThreadPool* pool = nullptr;                   // required; outlives the model
  void (*progress)(double) = nullptr;           // 0 to 1, on the loading thread
  WeightsOptions weights = {};                  // which weights are cached between starts, and which are read on demand
  // Replaces the kernels of `isa`, for example by kernels that measure time; null: no replacement. Must outlive the model.
  const Kernels* kernels = nullptr;
};

// Holds weights, and workspaces for one pass. One thread at a time.
class Model {
 public:
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const ModelInfo& info() const;
  // Bytes of the packed weights, and of the workspaces.
  [[nodiscard]] std::uint64_t weight_bytes() const;
  [[nodiscard]] std::uint64_t workspace_bytes() const;
  // Name of the kernels, such as "avx512".
  [[nodiscard]] const char* kernel_name() const;
  // Returns the encoder of images; null: the model reads text alone. It works on the pool like a pass, and therefore between two passes.
  [[nodiscard]] VisionEncoder* vision();
  // Returns counts for experts that are read on demand, else zeros. Any thread.
  [[nodiscard]] ExpertReads expert_reads() const;

  // Writes keys and values of every row to `cache`, and fills the parts of `output` that are not empty. A row sees the earlier positions of
  // its slot, which earlier passes or this one have written. A row's output depends on its own history alone: it has the same bits whatever
  // else is in the batch, and however the history was cut into passes. Allocates nothing. Broken invariants: more rows or sequences than
  // the limits, a token outside the vocabulary, a position at or beyond max_model_len or outside the slot's block table, a cache of another
  // shape.
  void forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, const PassOutput& output, PassHooks* hooks = nullptr);
  // For models with an encoder (ModelInfo::encoder). Writes the encoder's output for an input, as keys and values of every layer, to the
  // slot's blocks of cross attention. All later passes over the slot's tokens attend to it. The bits depend on the features alone.
  // Allocates nothing. Broken invariants: no encoder, features of another size, a slot without blocks for all positions.
  void encode(std::span<const float> features, Slot slot, KvCache& cache, const BlockTables& tables);
  // Writes the logits of some output rows of the last pass, with the same bits as forward(). `rows` are indices of output rows, in any
  // order.
  void read_logits(std::span<const std::uint32_t> rows, std::span<float> logits);
  // Writes hidden rows of the last pass in the same way.
  void read_hidden(std::span<const std::uint32_t> rows, std::span<float> hidden);

 private:
  friend class ModelLoader;
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Loads the weights of `file`; `info` must be file.info(). A file that is truncated or rewritten meanwhile is an error (`io`). Other
// errors: errors of the formats, `unsupported` (architecture, tensor type, instruction set), `corrupt` (tensor missing or of the wrong
// shape), naming the key or the tensor.
Result<std::unique_ptr<Model>> load_model(const ModelFile& file, ModelInfo info, const LoadOptions& options);
// `path` is a GGUF file or a Hugging Face folder (config.json, safetensors). It is closed again once the weights are packed.
Result<std::unique_ptr<Model>> load_model(const std::string& path, const LoadOptions& options);

// Reads headers only. Errors as above. A tokenizer that this build cannot run is no error (TokenizerSpec::unsupported says why).
Result<ModelInfo> inspect(const std::string& path, const std::string& mmproj = {});

}  // namespace quire
