#pragma once
// A dense decoder on the CPU: load it, then run batches of many requests through it.
// Loaded once by the engine, run by the worker: one pass at a time, on the thread that leads the step and on its pool. It decides nothing
// about requests; what must be computed, and where keys and values lie, it is told.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/thread_pool.h"
#include "quire/error.h"
#include "quire/ids.h"
#include "quire/model_info.h"
#include "quire/options.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/model_file.h"

namespace quire {

struct Adapter;
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
};

// A run of consecutive tokens of one request.
struct BatchSequence {
  Slot slot;
  std::uint32_t first_position = 0;
  std::uint32_t num_tokens = 0;
  const Adapter* adapter = nullptr;  // lives until the pass is over
  std::uint32_t num_drafts = 0;      // of its tokens, the last ones: states behind each of them are kept
};

// A row that takes an embedding in the place of its token's.
struct EmbeddedRow {
  std::uint32_t row = 0;
  const float* embedding = nullptr;  // [hidden_size]; lives until the pass is over
};

// Rows are the tokens of the sequences, one sequence after the other. Each slot occurs once.
struct BatchInput {
  std::span<const TokenId> tokens;             // [row]
  std::span<const BatchSequence> sequences;    // num_tokens add up to tokens.size()
  std::span<const std::uint32_t> output_rows;  // rows of which something is wanted, ascending, any number of them
  std::span<const EmbeddedRow> embedded = {};  // ascending
};

// What a pass gives out of its output rows; what is not wanted is empty.
struct PassOutput {
  std::span<float> logits = {};  // [output row][vocab_size]
  std::span<float> hidden = {};  // [output row][hidden_size]: what the last layer made of the row, normed
  // [row][layer][experts_per_token]: the experts that the row goes through, the likeliest first. Of layers without experts, and in the last
  // layer of rows that are no output rows, it is left as it was.
  std::span<std::uint16_t> experts = {};
};

// Called by the thread that leads the pass, between its phases; may block.
class PassHooks {
 public:
  virtual ~PassHooks() = default;
  // The layer reads and writes its pages of the KV cache from now on.
  virtual void before_attention(std::uint32_t layer) = 0;
  // Keys and values of every row are in the layer's pages.
  virtual void after_kv_write(std::uint32_t layer) = 0;
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
Result<ModelInfo> inspect(const std::string& path);

}  // namespace quire
