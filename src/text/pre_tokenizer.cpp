// Stores the expressions that split a text into pieces, and applies them. Called by the byte-level encoder for each text. Thread-safe.
// Expressions may come from a model's files, so each search has a limited number of steps (regex.h). Quadratic expressions of known models
// are replaced by equivalent linear ones.
#include "text/pre_tokenizer.h"

#include <algorithm>

#include "base/known_splits.h"
#include "text/utf8.h"

namespace quire {
namespace {

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekV3 = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
                                    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
// Matches letters of scripts that have upper and lower case.
constexpr const char* kDeepseekLetters = R"(\s?[)"
                                         "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-Ჺ"
                                         "Ჽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓ"
                                         "ℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-"
                                         "𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
                                         "]+";
constexpr const char* kDeepseekHan = "[一-龥ࠀ-一가-\xED\x9F\xBF]+";

struct NamedPreTokenizer {
  std::vector<std::string_view> names;
  std::vector<std::string> patterns;
};

// Names as GGUF writers spell them. The expressions come from the models' tokenizer.json files.
const std::vector<NamedPreTokenizer>& known_pre_tokenizers() {
  static const std::vector<NamedPreTokenizer> table{
      {{"gpt-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "phi-2", "exaone4", "gigachat", "a.x-4.0", "mellum"}, {kGpt2Split}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"}, {R"(\p{N})", kGpt2Split}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "glm4"}, {kLlama3}},
      {{"chatglm-bpe", "dbrx", "smaug-bpe"}, {kLlama3}},
      {{"qwen2"}, {kQwen2}},
      {{"qwen35"}, {kQwen35}},
      {{"deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "solar-open"}, {kQwen2}},
      {{"tekken"}, {kTekken}},
      {{"gpt-4o", "llama4", "minimax-m2"}, {kGpt4o}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseekV3}},
      {{"kimi-k2"}, {kKimiSplit}},
      {{"deepseek-llm"}, {R"([\r\n])", kDeepseekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kDeepseekHan, R"(\p{N}+)"}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekHan, R"(\p{N})"}},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Split, "[0-9][0-9][0-9]"}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, R"(\p{N})"}},
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Split, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
  };
  return table;
}

// Replaces an expression of known models that is quadratic in a run of white space by an equivalent linear one. The replacement lets a
// match begin only at the start of a run: if a match can begin later in the run, it can also begin at the start.
std::string without_quadratic_search(const std::string& pattern) {
  return pattern == R"(\s+$)" ? R"((?<!\s)\s+$)" : pattern;
}

}  // namespace

Result<std::vector<std::string>> pre_tokenizer_by_name(std::string_view name) {
  if (name.empty()) return std::vector<std::string>{};
  for (const NamedPreTokenizer& entry : known_pre_tokenizers())
    if (std::ranges::find(entry.names, name) != entry.names.end()) return entry.patterns;
  return fail(ErrorCode::unsupported, "tokenizer.ggml.pre", "the pre-tokenizer \"" + std::string(name) + "\" is not supported",
              "use the model's Hugging Face folder, whose tokenizer.json defines it");
}

Result<PreTokenizer> PreTokenizer::create(const std::vector<std::string>& patterns) {
  std::vector<Regex> regexes;
  for (const std::string& pattern : patterns) {
    auto regex = Regex::create(without_quadratic_search(pattern));
    if (!regex) return std::unexpected(regex.error());
    regexes.push_back(std::move(*regex));
  }
  return PreTokenizer(std::move(regexes));
}

Result<void> PreTokenizer::for_each_piece(std::string_view text, const Visit& visit) const {
  const auto went_on = text.empty() ? Result<bool>(true) : cut(0, text, visit);
  return went_on ? Result<void>{} : std::unexpected(went_on.error());
}

// Splits `text`, which must not be empty, by the expressions from index `stage` on.
Result<bool> PreTokenizer::cut(std::size_t stage, std::string_view text, const Visit& visit) const {
  if (stage == regexes_.size()) return visit(text);
  std::size_t done = 0;
  const auto pass_on = [&](std::size_t end) -> Result<bool> {
    const std::string_view piece = text.substr(done, end - done);
    done = end;
    return piece.empty() ? Result<bool>(true) : cut(stage + 1, piece, visit);
  };
  for (std::size_t from = 0; from < text.size();) {
    const auto found = regexes_[stage].find(text, from);
    if (!found) return std::unexpected(found.error());
    const auto& match = *found;
    if (!match) break;
    const auto [begin, end] = *match;
    for (const std::size_t border : {begin, end})
      if (auto went_on = pass_on(border); !went_on || !*went_on) return went_on;
    from = end > begin || end == text.size() ? end : end + utf8_char_length(text, end);
  }
  return pass_on(text.size());
}

}  // namespace quire
