#pragma once
// The properties of a model that its files state. Values, made when a model is inspected or loaded and never changed; any thread may read
// them. Sizes of heads and layers are numbers of elements unless a unit is given. A property that a model does not have is empty or 0, and
// is no error.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/image.h"
#include "quire/base/pooling.h"

namespace quire {

// All data that a tokenizer needs, from any kind of file.
struct TokenizerSpec {
  enum class Algorithm : std::uint8_t { bpe_bytes, sentencepiece, unsupported };
  enum class TokenType : std::uint8_t { normal, unknown, control, user_defined, unused, byte };
  // How an added token affects the text around it (tokenizer.json). Tokens that are not listed have no flag set.
  struct AddedToken {
    TokenId id = 0;
    bool strip_left = false;   // removes the white space before the token
    bool strip_right = false;  // removes the white space after the token
    bool single_word = false;  // matches only between word boundaries
    bool normalized = false;   // matched after all other added tokens, in the normalized text
  };

  Algorithm algorithm = Algorithm::unsupported;
  std::string pre;                          // GGUF's tokenizer.ggml.pre; empty if split_patterns is set
  std::vector<std::string> split_patterns;  // regular expressions of tokenizer.json, applied one after another
  std::vector<std::string> tokens;          // id -> piece (byte-level alphabet for bpe_bytes, U+2581 spaces for sentencepiece)
  std::vector<TokenType> types;             // per token
  std::vector<float> scores;                // per token, sentencepiece only
  std::vector<std::string> merges;          // "left right" in rank order, bpe_bytes and merge-based sentencepiece
  std::string normalizer;                   // "", "nfc"
  bool add_space_prefix = false;
  bool space_prefix_first_only = false;      // the space is added only before the whole text, not before each piece between added tokens
  bool space_prefix_unless_present = false;  // no space is added if the text (or piece) already begins with a space
  bool add_bos = false;
  bool add_eos = false;
  bool ignore_merges = false;  // a pre-token that is in the vocabulary is not split (Llama 3)
  bool ids_are_ranks = false;  // bpe_bytes without a list of merges: neighbours merge into the token with the lowest id (tiktoken)
  // Added tokens match as they are written (tokenizer.json). False: U+2581 in an added token represents a space.
  bool added_tokens_verbatim = false;
  bool replaces_spaces_after_added_tokens = false;  // sentencepiece: spaces become U+2581 only after added tokens are found (Metaspace)
  // All ids that are added before and after a text, if there is more than one. Empty: add_bos and add_eos apply.
  std::vector<TokenId> before, after;
  std::optional<TokenId> bos, eos, unk, pad;
  std::vector<TokenId> eog;              // every id that ends a generation, eos included
  std::vector<AddedToken> added_tokens;  // added tokens with at least one flag
  std::string chat_template;             // empty: none
  std::string unsupported;               // the reason, if algorithm is unsupported
  std::vector<std::string> notes;        // parts of the files that are not used
};

// Summary of the matrices of a model that have the same format in memory.
struct WeightFormatSummary {
  std::string form;  // "4 bits", "6 bits", "8 bits", "bf16", "f32"
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;
  // True if the matrices are multiplied as integers when activations are integers (ActivationMode), which is fast. Otherwise they are
  // multiplied as floats.
  bool multiplies_integers = false;
};

// How a layer remembers earlier tokens: keys and values, a state that each token changes, or both.
enum class LayerMemory : std::uint8_t { attention, state, both };

// The encoder of an encoder-decoder model: the size of its input, and of the output to which the decoder attends.
struct EncoderInfo {
  std::uint32_t num_positions = 0;  // positions of the output; 0: the model has no encoder
  std::uint32_t num_features = 0;   // features of each of the 2 * num_positions input positions (audio: bands)
};

// How a speech-to-text model samples its answers (generation_config.json).
struct SpeechInfo {
  std::vector<TokenId> suppressed{};  // tokens that are never sampled
  std::vector<TokenId> not_first{};   // tokens that never begin an answer
  std::uint32_t max_first_time = 50;  // latest first timestamp, in steps of 0.02 s
  std::optional<bool> is_multilingual{};
};

// Counts of MoE experts that are read from a file when a forward pass needs them (WeightsOptions::expert_bytes), since the start.
struct ExpertReads {
  std::uint64_t num_used = 0;  // experts used, each counted once per layer and forward pass
  std::uint64_t num_read = 0;  // used experts that were not in memory
  std::uint64_t bytes_read = 0;
  std::uint64_t num_damaged = 0;  // matrices with wrong or missing bytes in the file, packed again from the model
};

// The properties of one model.
struct ModelInfo {
  std::string name;
  std::string architecture;  // "llama", "qwen2", "qwen3", ...
  std::string weight_types;  // "Q4_1 210, F32 61, Q8_0 1"
  std::uint32_t num_layers = 0;
  std::uint32_t hidden_size = 0;
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t context_length = 0;            // tokens
  std::vector<std::uint32_t> sliding_windows;  // tokens including the current one, by layer; 0: no window; empty: no layer has a window
  bool latent_attention = false;               // one vector per token for all heads, of head_dim values (multi-head latent attention)
  std::vector<LayerMemory> layer_memories;     // by layer; empty: all layers keep keys and values
  // Kind of the layers' states ("short_conv", ...), and the shapes of the parts of a state, which are f32. Empty: no layer has a state.
  std::string state_kind;
  std::vector<std::vector<std::uint64_t>> state_shapes;
  std::uint32_t num_experts = 0;  // experts in each MoE layer; 0: no MoE layers
  std::uint32_t experts_per_token = 0;
  std::uint64_t num_parameters = 0;
  std::uint64_t num_active_parameters = 0;   // parameters used per token, without the experts that the token does not use
  std::uint64_t weight_bytes = 0;            // size in memory, in the formats of the kernels
  std::uint64_t expert_bytes = 0;            // part of weight_bytes that routed experts take
  std::vector<WeightFormatSummary> held{};   // estimated from the header, largest first
  std::string quantisation{};                // as a Hugging Face folder states: "GPTQ, 4 bits in groups of 128"; empty: not stated
  std::vector<std::string> notes{};          // deviations that the author of the file may not expect
  std::vector<std::string> packing_notes{};  // for a loaded model: why packed weights were not cached or not used
  bool has_output = true;                    // false: without an output matrix, the model serves embeddings but generates no tokens
  std::shared_ptr<const TokenizerSpec> tokenizer = std::make_shared<TokenizerSpec>();  // never null; shared by all copies of this object
  PoolingInfo pooling{};
  ImageInfo pictures{};
  EncoderInfo encoder{};
  SpeechInfo speech{};  // for models with an encoder

  // Returns true for an encoder-decoder model.
  [[nodiscard]] bool has_encoder() const { return encoder.num_positions > 0; }
  // Returns true if a layer keeps a state.
  [[nodiscard]] bool has_states() const { return !state_shapes.empty(); }
};

}  // namespace quire
