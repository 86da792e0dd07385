#pragma once
// A model on the CPU: loaded once by the engine, then run by the worker on batches of many requests. One pass runs at a time, on the thread
// that leads the step and on its pool. The model does not schedule requests: the input of a pass defines what to compute, and where keys
// and values are.
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

// Options of load_model(). The limits determine the workspaces, which are allocated when the model is loaded. A pass that exceeds the
// limits ends the program.
struct LoadOptions {
  ActivationMode activations = ActivationMode::int16;
  KernelIsa isa = KernelIsa::best;
  std::uint32_t max_num_batched_tokens = 2048;  // rows of one forward pass
  std::uint32_t max_num_seqs = 128;             // requests of one forward pass
  std::uint32_t max_model_len = 0;              // maximum number of positions of a request; 0: the model's context
  std::uint32_t num_cache_groups = 1;           // largest number of groups in the KV caches of its passes
  std::uint32_t max_lora_rank = 0;              // largest rank of the adapters of its passes; 0: no adapters
  ThreadPool* pool = nullptr;                   // required; outlives the model
  void (*progress)(double) = nullptr;           // 0 to 1, on the loading thread
  WeightsOptions weights = {};                  // caching of packed weights between starts, and reading experts on demand
  // Replaces the kernels of `isa`, for example by kernels that measure time; null: uses the kernels of `isa`. Must outlive the model.
  const Kernels* kernels = nullptr;
};

// A loaded model with workspaces for one pass. Used by one thread at a time.
class Model {
 public:
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const ModelInfo& info() const;
  // Return the sizes in bytes of the packed weights and of the workspaces.
  [[nodiscard]] std::uint64_t weight_bytes() const;
  [[nodiscard]] std::uint64_t workspace_bytes() const;
  // Returns the name of the kernels, such as "avx512".
  [[nodiscard]] const char* kernel_name() const;
  // Returns the image encoder, or null if the model supports only text. The encoder uses the pool like a pass, so it runs between passes.
  [[nodiscard]] VisionEncoder* vision();
  // Returns counts of experts that are read on demand; zeros if all experts are in memory. May be called on any thread.
  [[nodiscard]] ExpertReads expert_reads() const;

  // Runs a pass: writes keys and values of every row to `cache`, and fills the parts of `output` that are not empty. A row attends to the
  // earlier positions of its slot, which earlier passes or this pass have written. A row's output depends only on its history: it has the
  // same bits for any batch and any division of the history into passes. Allocates no memory. The program ends if the input has more rows
  // or sequences than the limits, a token outside the vocabulary, a position at or above max_model_len or outside the slot's block table,
  // or a cache of another shape.
  void forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, const PassOutput& output, PassHooks* hooks = nullptr);
  // For models with an encoder (ModelInfo::encoder). Writes the encoder's output for an input, as keys and values of every layer, to the
  // slot's blocks of cross attention. All later passes over the slot's tokens attend to them. The bits depend only on the features.
  // Allocates no memory. The program ends if there is no encoder, the features have another size, or the slot does not have blocks for all
  // positions.
  void encode(std::span<const float> features, Slot slot, KvCache& cache, const BlockTables& tables);
  // Writes the logits of some output rows of the last pass, with the same bits as forward(). `rows` are indices among the output rows, in
  // any order.
  void read_logits(std::span<const std::uint32_t> rows, std::span<float> logits);
  // Writes the hidden states of some output rows of the last pass, with the same bits as forward().
  void read_hidden(std::span<const std::uint32_t> rows, std::span<float> hidden);

 private:
  friend class ModelLoader;
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Loads the weights of `file`; `info` must be file.info(). Errors: `io` if the file is truncated or rewritten during the load; errors of
// the formats; `unsupported` (architecture, tensor type, instruction set); `corrupt` (a tensor is missing or has the wrong shape), naming
// the key or the tensor.
Result<std::unique_ptr<Model>> load_model(const ModelFile& file, ModelInfo info, const LoadOptions& options);
// Opens and loads the model at `path`, a GGUF file or a Hugging Face folder (config.json, safetensors). The files are closed when the
// weights are packed.
Result<std::unique_ptr<Model>> load_model(const std::string& path, const LoadOptions& options);

// Returns what the model's headers say, without reading weights. Same errors as load_model(). A tokenizer that this build does not support
// is not an error (TokenizerSpec::unsupported has the reason).
Result<ModelInfo> inspect(const std::string& path, const std::string& mmproj = {});

}  // namespace quire
