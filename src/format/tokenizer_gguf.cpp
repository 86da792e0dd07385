// Reads the keys tokenizer.ggml.*. Missing keys get llama.cpp's defaults. Called once per model, when its headers are read, on any thread.
// An unsupported tokenizer is not an error here: the spec states the reason, and callers that need text report an error later.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "format/named_templates.h"
#include "format/quote.h"
#include "format/tokenizer_file.h"

namespace quire {
namespace {

using Algorithm = TokenizerSpec::Algorithm;
using TokenType = TokenizerSpec::TokenType;

constexpr std::string_view kReconvertRemedy = "convert the model again with a current llama.cpp";

std::unexpected<Error> wrong_vocabulary(std::string field, std::string message) {
  return fail(ErrorCode::corrupt, std::move(field), std::move(message), std::string(kReconvertRemedy));
}

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, name) != names.end();
}

// `kIgnoreMerges`: in the original Hugging Face tokenizer of these pre-tokenizers, a pre-token that is in the vocabulary becomes one token
// without merging. `kAddBos`: texts of these pre-tokenizers begin with BOS.
constexpr std::array<std::string_view, 15> kIgnoreMerges{
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
    "lfm2",   "tekken",   "minicpm5",  "youtu",   "glm4",      "glm5",    "granite-embed-multi-97m",
    "kimi-k2"};
constexpr std::array<std::string_view, 10> kAddBos{"llama3",  "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
                                                   "pixtral", "midm-2.0", "lfm2",      "tekken",  "chameleon"};
constexpr std::array<std::string_view, 3> kNfc{"qwen2", "deepseek-r1-qwen", "megrez"};

// Control tokens that always end a turn, even if the metadata does not list them as end-of-generation tokens.
constexpr std::array<std::string_view, 9> kEndsTurn{"<|eot_id|>",      "<|im_end|>",         "<|end|>",
                                                    "<end_of_turn>",   "<|endoftext|>",      "<|eom_id|>",
                                                    "<|end_of_text|>", "<end_of_utterance>", "<｜end▁of▁sentence｜>"};

class GgufTokenizer {
 public:
  explicit GgufTokenizer(const GgufFile& file) : file_(file) {}

  Result<TokenizerSpec> read() {
    if (auto ok = choose_algorithm(); !ok) return std::unexpected(std::move(ok.error()));
    if (!file_.find("tokenizer.ggml.tokens")) return without_vocabulary();
    for (const auto step : {&GgufTokenizer::vocabulary, &GgufTokenizer::merges, &GgufTokenizer::special_tokens, &GgufTokenizer::flags,
                            &GgufTokenizer::neighbours})
      if (auto ok = (this->*step)(); !ok) return std::unexpected(std::move(ok.error()));
    collect_eog();
    return std::move(spec_);
  }

 private:
  Result<TokenizerSpec> without_vocabulary() {
    if (spec_.algorithm != Algorithm::unsupported) return wrong_vocabulary("tokenizer.ggml.tokens", "the key is missing");
    return std::move(spec_);
  }

  Result<void> choose_algorithm() {
    auto model = file_.get_or<std::string>("tokenizer.ggml.model", "none");
    if (!model) return std::unexpected(std::move(model.error()));
    auto pre = file_.get_or<std::string>("tokenizer.ggml.pre", "default");
    if (!pre) return std::unexpected(std::move(pre.error()));
    spec_.pre = std::move(*pre);
    if (*model == "gpt2") {
      spec_.algorithm = Algorithm::bpe_bytes;
      spec_.ignore_merges = is_one_of(spec_.pre, kIgnoreMerges);
      spec_.add_bos = is_one_of(spec_.pre, kAddBos);
      if (is_one_of(spec_.pre, kNfc)) spec_.normalizer = "nfc";
    } else if (*model == "llama") {
      spec_.algorithm = Algorithm::sentencepiece;
      spec_.add_space_prefix = true;
      spec_.add_bos = true;
    } else {
      spec_.unsupported = fmt::format(
          "tokenizer.ggml.model {} is not supported (supported: 'gpt2', byte-level BPE, and 'llama', SentencePiece)", in_quotes(*model));
    }
    return {};
  }

  Result<void> vocabulary() {
    auto tokens = file_.get_array<std::string_view>("tokenizer.ggml.tokens");
    if (!tokens) return std::unexpected(std::move(tokens.error()));
    if (tokens->empty()) return wrong_vocabulary("tokenizer.ggml.tokens", "the vocabulary is empty");
    spec_.tokens.assign(tokens->begin(), tokens->end());
    if (auto ok = token_types(); !ok) return ok;
    if (!file_.find("tokenizer.ggml.scores")) {
      if (spec_.algorithm == Algorithm::sentencepiece) return wrong_vocabulary("tokenizer.ggml.scores", "the key is missing");
      return {};
    }
    if (spec_.algorithm != Algorithm::sentencepiece) return {};  // byte-level BPE does not use scores
    auto scores = read_scores();
    if (!scores) return std::unexpected(std::move(scores.error()));
    if (auto ok = check_length("tokenizer.ggml.scores", scores->size()); !ok) return ok;
    spec_.scores = std::move(*scores);
    return {};
  }

  // Some converters write scores as integers.
  Result<std::vector<float>> read_scores() const {
    constexpr const char* kKey = "tokenizer.ggml.scores";
    if (auto whole = file_.get_array<std::int64_t>(kKey)) return std::vector<float>(whole->begin(), whole->end());
    return file_.get_array<float>(kKey);
  }

  Result<void> check_length(std::string_view key, std::size_t length) const {
    if (length == spec_.tokens.size()) return {};
    return wrong_vocabulary(std::string(key), fmt::format("has {} entries for {} tokens", length, spec_.tokens.size()));
  }

  Result<void> token_types() {
    constexpr std::array kTokenTypes{TokenType::normal,       TokenType::normal, TokenType::unknown, TokenType::control,
                                     TokenType::user_defined, TokenType::unused, TokenType::byte};
    if (!file_.find("tokenizer.ggml.token_type")) {
      spec_.types.assign(spec_.tokens.size(), TokenType::normal);
      return {};
    }
    auto types = file_.get_array<std::uint32_t>("tokenizer.ggml.token_type");
    if (!types) return std::unexpected(std::move(types.error()));
    if (auto ok = check_length("tokenizer.ggml.token_type", types->size()); !ok) return ok;
    spec_.types.reserve(types->size());
    for (const std::uint32_t type : *types) {
      if (type >= kTokenTypes.size())
        return wrong_vocabulary("tokenizer.ggml.token_type", fmt::format("contains the unknown type {}", type));
      spec_.types.push_back(kTokenTypes[type]);
    }
    return {};
  }

  Result<void> merges() {
    if (!file_.find("tokenizer.ggml.merges")) {
      // Moonshot AI's tokenizer has no merges; the rank of a token equals its id.
      spec_.ids_are_ranks = spec_.pre == "kimi-k2";
      if (spec_.algorithm == Algorithm::bpe_bytes && !spec_.ids_are_ranks)
        return wrong_vocabulary("tokenizer.ggml.merges", "the key is missing");
      return {};
    }
    auto merges = file_.get_array<std::string_view>("tokenizer.ggml.merges");
    if (!merges) return std::unexpected(std::move(merges.error()));
    for (const std::string_view merge : *merges) {
      const auto space = merge.find(' ', 1);
      if (merge.empty() || space == std::string_view::npos || space + 1 == merge.size())
        return wrong_vocabulary("tokenizer.ggml.merges", fmt::format("{} is not a pair of tokens", in_quotes(merge)));
    }
    spec_.merges.assign(merges->begin(), merges->end());
    return {};
  }

  // Returns nullopt for an id outside the vocabulary, as llama.cpp ignores such ids.
  Result<std::optional<TokenId>> token_id(std::string_view name) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    const auto written = file_.get_or<std::int64_t>(key, -1);
    if (!written) return std::unexpected(written.error());
    const std::int64_t id = *written;
    // Converters write -1 (as i64 or u32) for "none".
    if (id == -1 || id == 0xFFFFFFFF) return std::optional<TokenId>{};
    if (id < 0 || static_cast<std::uint64_t>(id) >= spec_.tokens.size()) {
      spec_.notes.push_back(fmt::format("{}: {} is not in the vocabulary of {} tokens and is ignored", key, id, spec_.tokens.size()));
      return std::optional<TokenId>{};
    }
    return std::optional<TokenId>(static_cast<TokenId>(id));
  }

  Result<void> special_tokens() {
    struct Special {
      std::string_view name;
      std::optional<TokenId>* target;
      TokenId sentencepiece_default;
    };
    for (const Special& special : {Special{"bos", &spec_.bos, 1}, Special{"eos", &spec_.eos, 2}, Special{"unknown", &spec_.unk, 0},
                                   Special{"padding", &spec_.pad, -1}, Special{"eot", &eot_, -1}, Special{"eom", &eom_, -1}}) {
      auto id = token_id(special.name);
      if (!id) return std::unexpected(std::move(id.error()));
      *special.target = *id;
      const bool defaulted = spec_.algorithm == Algorithm::sentencepiece && special.sentencepiece_default >= 0 && !*id;
      if (defaulted && static_cast<std::size_t>(special.sentencepiece_default) < spec_.tokens.size())
        *special.target = special.sentencepiece_default;
    }
    return {};
  }

  Result<void> flags() {
    struct Flag {
      std::string_view key;
      bool* target;
    };
    for (const Flag& flag : {Flag{"tokenizer.ggml.add_bos_token", &spec_.add_bos}, Flag{"tokenizer.ggml.add_eos_token", &spec_.add_eos},
                             Flag{"tokenizer.ggml.add_space_prefix", &spec_.add_space_prefix}}) {
      auto value = file_.get_or<bool>(flag.key, *flag.target);
      if (!value) return std::unexpected(std::move(value.error()));
      *flag.target = *value;
    }
    auto chat_template = file_.get_or<std::string>("tokenizer.chat_template", "");
    if (!chat_template) return std::unexpected(std::move(chat_template.error()));
    auto tool_use = file_.get_or<std::string>("tokenizer.chat_template.tool_use", "");
    if (!tool_use) return std::unexpected(std::move(tool_use.error()));
    spec_.chat_template = with_tool_use(std::move(*chat_template), std::move(*tool_use));
    if (spec_.add_bos && !spec_.bos)
      return wrong_vocabulary("tokenizer.ggml.bos_token_id", "the key is missing, but add_bos_token requires it");
    if (spec_.add_eos && !spec_.eos)
      return wrong_vocabulary("tokenizer.ggml.eos_token_id", "the key is missing, but add_eos_token requires it");
    return {};
  }

  // Sets the tokens that strip the white space next to them. GGUF files do not state this, so llama.cpp decides by the model's name
  // (llama-vocab.cpp, "Handle per token attributes"). Phi-3's tokenizer.json agrees with llama.cpp.
  Result<void> neighbours() {
    auto name = file_.get_or<std::string>("general.name", "");
    if (!name) return std::unexpected(std::move(name.error()));
    const auto architecture = file_.get_or<std::string>("general.architecture", "");
    if (!architecture) return std::unexpected(architecture.error());
    std::ranges::transform(*name, name->begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const bool is_phi3 =
        name->contains("phi-3") || name->contains("phi3") || (*architecture == "phi3" && spec_.algorithm == Algorithm::sentencepiece);
    if (!is_phi3) return {};
    constexpr std::array<std::string_view, 3> kKeepSpaces{"<unk>", "<s>", "<|endoftext|>"};
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
      const TokenType type = spec_.types[i];
      const bool is_special = type == TokenType::control || type == TokenType::user_defined || type == TokenType::unknown;
      if (is_special && !is_one_of(spec_.tokens[i], kKeepSpaces))
        spec_.added_tokens.push_back({.id = static_cast<TokenId>(i), .strip_right = true});
    }
    return {};
  }

  void collect_eog() {
    for (const auto& id : {spec_.eos, eot_, eom_})
      if (id) spec_.eog.push_back(*id);
    std::optional<TokenId> end, call, done;  // in the Harmony format, <|end|> ends a message but not the answer
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
      if (spec_.types[i] != TokenType::control) continue;
      const auto id = static_cast<TokenId>(i);
      if (is_one_of(spec_.tokens[i], kEndsTurn)) spec_.eog.push_back(id);
      for (const auto& [text, token] : {std::pair("<|end|>", &end), {"<|call|>", &call}, {"<|return|>", &done}})
        if (spec_.tokens[i] == text) *token = id;
    }
    if (call && done) {
      spec_.eog.insert(spec_.eog.end(), {*call, *done});
      std::erase(spec_.eog, end.value_or(-1));
    }
    std::ranges::sort(spec_.eog);
    const auto rest = std::ranges::unique(spec_.eog);
    spec_.eog.erase(rest.begin(), rest.end());
  }

  const GgufFile& file_;
  TokenizerSpec spec_;
  std::optional<TokenId> eot_;
  std::optional<TokenId> eom_;
};

}  // namespace

Result<TokenizerSpec> tokenizer_from_gguf(const GgufFile& file) {
  return GgufTokenizer(file).read();
}

}  // namespace quire
