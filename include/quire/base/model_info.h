#pragma once
// What a model file says of itself.
// Values. Made when a model is inspected or loaded, and never changed; any thread may read them. Sizes of heads and layers are counts of
// numbers unless a unit is given. What a model cannot be asked for is empty or 0, and not an error.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/picture.h"
#include "quire/base/pooling.h"

namespace quire {

// Everything a tokenizer needs, whatever file it came from.
struct TokenizerSpec {
  enum class Algorithm : std::uint8_t { bpe_bytes, sentencepiece, unsupported };
  enum class TokenType : std::uint8_t { normal, unknown, control, user_defined, unused, byte };
  // How an added token treats its neighbours (tokenizer.json); tokens not listed have no flag.
  struct AddedToken {
    TokenId id = 0;
    bool strip_left = false;   // swallows the white space before it
    bool strip_right = false;  // and after it
    bool single_word = false;  // only between word borders
    bool normalized = false;   // matched in the normalized text
  };

  Algorithm algorithm = Algorithm::unsupported;
  std::string pre;                          // GGUF's tokenizer.ggml.pre; empty when split_patterns tells
  std::vector<std::string> split_patterns;  // tokenizer.json: regular expressions applied in turn
  std::vector<std::string> tokens;          // id -> piece (byte-level alphabet for bpe_bytes, U+2581 spaces for sentencepiece)
  std::vector<TokenType> types;             // per token
  std::vector<float> scores;                // per token, sentencepiece only
  std::vector<std::string> merges;          // "left right" in rank order, bpe_bytes and merge-based sentencepiece
  std::string normalizer;                   // "", "nfc"
  bool add_space_prefix = false;
  bool space_prefix_first_only = false;      // the prefix goes before the text only, not before each piece between added tokens
  bool space_prefix_unless_present = false;  // and not where the text (or piece) begins with a space already
  bool add_bos = false;
  bool add_eos = false;
  bool ignore_merges = false;  // a whole pre-token that is a vocabulary entry is taken as it is (Llama 3)
  std::optional<TokenId> bos, eos, unk, pad;
  std::vector<TokenId> eog;              // every id that ends a generation, eos included
  std::vector<AddedToken> added_tokens;  // those with a flag set
  std::string chat_template;             // empty: none
  std::string unsupported;               // why, when algorithm is unsupported
};

// The matrices of a model that are in one form in memory.
struct HeldMatrices {
  std::string form;  // "4 bits", "6 bits", "8 bits", "bf16", "f32"
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;
  bool in_integers = false;  // multiplied in integers where activations are (ActivationMode), which is fast; else in floats
};

// What a layer knows of earlier tokens: their keys and values, a state that each token changes, or both side by side.
enum class LayerMemory : std::uint8_t { attention, state, both };

// Of a model of two halves: what its encoder reads, and how much of it the decoder attends to.
struct EncoderInfo {
  std::uint32_t num_positions = 0;  // that come out; 0: the model has none
  std::uint32_t num_features = 0;   // of each of 2 * num_positions places of an input (of a sound, bands)
};

// How a model that writes down sounds wants its answers drawn (generation_config.json).
struct SpeechInfo {
  std::vector<TokenId> suppressed{};  // are never drawn
  std::vector<TokenId> not_first{};   // no answer begins with one
  std::uint32_t max_first_time = 50;  // steps of 0.02 s
  std::optional<bool> is_multilingual{};
};

// Experts of a mixture that come from a file when a pass wants them (WeightsOptions::expert_bytes), since the start.
struct ExpertReads {
  std::uint64_t num_used = 0;  // by passes, each expert once in a layer
  std::uint64_t num_read = 0;  // of these were not in memory
  std::uint64_t bytes_read = 0;
  std::uint64_t num_damaged = 0;  // matrices whose bytes were others than were written, or gone: packed again from the model
};

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
  std::vector<std::uint32_t> sliding_windows;  // tokens, by layer, the current one among them; 0: none; empty: no layer has one
  bool latent_attention = false;               // one vector per token for all heads, of head_dim values (multi-head latent attention)
  std::vector<LayerMemory> layer_memories;     // by layer; empty: keys and values in all
  // Of a layer with a state: "short_conv", ..., and the shapes of its parts, which are f32. Empty: no layer has one.
  std::string state_kind;
  std::vector<std::vector<std::uint64_t>> state_shapes;
  std::uint32_t num_experts = 0;  // of a mixture, in each layer that has any; 0: none
  std::uint32_t experts_per_token = 0;
  std::uint64_t num_parameters = 0;
  std::uint64_t num_used_parameters = 0;  // by one token: without the experts that it does not go through
  std::uint64_t weight_bytes = 0;         // in memory, unpacked into kernel formats
  std::uint64_t expert_bytes = 0;         // of these, of routed experts
  std::vector<HeldMatrices> held{};       // estimated from the header, the largest first
  std::string quantisation{};             // of a Hugging Face folder: "GPTQ, 4 bits in groups of 128"; empty: it names none
  std::vector<std::string> notes{};       // what is not as the file's maker may expect
  std::shared_ptr<const TokenizerSpec> tokenizer = std::make_shared<TokenizerSpec>();  // never null; every copy of this shares it
  PoolingInfo pooling{};
  PictureInfo pictures{};
  EncoderInfo encoder{};
  SpeechInfo speech{};  // of one with an encoder

  [[nodiscard]] bool has_encoder() const { return encoder.num_positions > 0; }
  [[nodiscard]] bool has_states() const { return !state_shapes.empty(); }
};

}  // namespace quire
