// Reads tokenizer.json and its companion files. Called once per model, when its headers are read, on any thread. If the files disagree, the
// value that transformers uses wins. A tokenizer that quire does not implement is an `unsupported` error.
#include "format/tokenizer_hf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "format/named_templates.h"
#include "format/quote.h"

namespace quire {
namespace {

using Algorithm = TokenizerSpec::Algorithm;
using TokenType = TokenizerSpec::TokenType;

constexpr std::size_t kMaxUnusedIds = 1 << 20;  // a token id may be at most this far above the number of tokens, which limits memory

class HfTokenizer {
 public:
  explicit HfTokenizer(const hf::Files& files, TokenizerSpec spec = {}) : files_(files), spec_(std::move(spec)) {}

  Result<TokenizerSpec> read() {
    for (const auto step : {&HfTokenizer::model, &HfTokenizer::added_tokens, &HfTokenizer::pipeline, &HfTokenizer::special_tokens,
                            &HfTokenizer::bos_and_eos, &HfTokenizer::end_of_generation, &HfTokenizer::chat_template}) {
      if (auto ok = (this->*step)(); !ok) return std::unexpected(std::move(ok.error()));
    }
    return std::move(spec_);
  }

  Result<TokenizerSpec> read_companions() {
    name_ids();
    for (const auto step : {&HfTokenizer::special_tokens, &HfTokenizer::end_of_generation, &HfTokenizer::chat_template})
      if (auto ok = (this->*step)(); !ok) return std::unexpected(std::move(ok.error()));
    return std::move(spec_);
  }

 private:
  Result<void> model() {
    const auto model = files_.tokenizer->at("model");
    if (!model) return std::unexpected(model.error());
    auto type = model->get_or<std::string>("type", model->find("merges") ? "BPE" : "unnamed");
    if (!type) return std::unexpected(std::move(type.error()));
    if (*type != "BPE") {
      return fail(ErrorCode::unsupported, model->path(),
                  fmt::format("tokenizer model {} is not supported (this build supports BPE)", in_quotes(*type)),
                  "use a GGUF file of this model, or another model");
    }
    for (const auto step : {&HfTokenizer::model_flags, &HfTokenizer::vocabulary, &HfTokenizer::merges})
      if (auto ok = (this->*step)(*model); !ok) return ok;
    return {};
  }

  Result<void> model_flags(const JsonRef& model) {
    auto ignore_merges = model.get_or<bool>("ignore_merges", false);
    if (!ignore_merges) return std::unexpected(std::move(ignore_merges.error()));
    spec_.ignore_merges = *ignore_merges;
    auto byte_fallback = model.get_or<bool>("byte_fallback", false);
    if (!byte_fallback) return std::unexpected(std::move(byte_fallback.error()));
    byte_fallback_ = *byte_fallback;
    auto dropout = model.get_or<double>("dropout", 0.0);
    if (!dropout) return std::unexpected(std::move(dropout.error()));
    if (*dropout != 0.0)
      return fail(ErrorCode::unsupported, model.path(), "tokenizer dropout is not supported", "set model.dropout to null");
    for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      auto text = model.get_or<std::string>(affix, "");
      if (!text) return std::unexpected(std::move(text.error()));
      if (!text->empty())
        return fail(ErrorCode::unsupported, model.path(), fmt::format("{} {} is not supported", affix, in_quotes(*text)),
                    "use a model whose tokenizer has no affixes");
    }
    return {};
  }

  Result<void> set_token(const JsonRef& where, TokenId id, std::string_view text, TokenType type) {
    const auto index = static_cast<std::size_t>(id);
    if (id < 0 || index > num_set_ + kMaxUnusedIds)
      return where.error(fmt::format("{} has the id {}, which is out of range", in_quotes(text), id));
    ++num_set_;
    if (index >= spec_.tokens.size()) {
      spec_.tokens.resize(index + 1);
      spec_.types.resize(index + 1, TokenType::unused);
    }
    if (spec_.types[index] != TokenType::unused && spec_.tokens[index] != text)
      return where.error(fmt::format("{} and {} share the id {}", in_quotes(text), in_quotes(spec_.tokens[index]), id));
    spec_.tokens[index] = text;
    spec_.types[index] = type;
    return {};
  }

  TokenType vocabulary_type(std::string_view text) const {
    if (unknown_ && *unknown_ == text) return TokenType::unknown;
    const bool byte = byte_fallback_ && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
    return byte ? TokenType::byte : TokenType::normal;
  }

  Result<void> vocabulary(const JsonRef& model) {
    auto unknown = model.get_optional<std::string>("unk_token");
    if (!unknown) return std::unexpected(std::move(unknown.error()));
    unknown_ = std::move(*unknown);
    const auto vocab = model.at("vocab");
    if (!vocab) return std::unexpected(vocab.error());
    const auto entries = vocab->object();
    if (!entries) return std::unexpected(entries.error());
    spec_.tokens.reserve((*entries)->size());
    spec_.types.reserve((*entries)->size());
    for (const auto& [key, value] : **entries) {
      const std::string_view text(key.data(), key.size());
      const auto* id = value.if_int64();
      if (!id || !std::in_range<TokenId>(*id)) return vocab->error(fmt::format("{} has no valid id", in_quotes(text)));
      if (auto ok = set_token(*vocab, static_cast<TokenId>(*id), text, vocabulary_type(text)); !ok) return ok;
    }
    if (spec_.tokens.empty()) return vocab->error("the vocabulary is empty");
    return {};
  }

  // Returns "left right". Newer files store a merge as ["left", "right"]. Returns "" if the merge is malformed.
  static std::string merge_text(const boost::json::value& merge) {
    if (const auto* text = merge.if_string()) {
      const std::string_view whole(text->data(), text->size());
      const auto space = whole.find(' ');
      const bool pair =
          space != std::string_view::npos && space > 0 && space + 1 < whole.size() && whole.find(' ', space + 1) == std::string_view::npos;
      return pair ? std::string(whole) : "";
    }
    const auto* pair = merge.if_array();
    if (!pair || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string()) return "";
    const auto& left = (*pair)[0].get_string();
    const auto& right = (*pair)[1].get_string();
    if (left.empty() || right.empty() || left.find(' ') != left.npos || right.find(' ') != right.npos) return "";
    return fmt::format("{} {}", std::string_view(left.data(), left.size()), std::string_view(right.data(), right.size()));
  }

  Result<void> merges(const JsonRef& model) {
    const auto merges = model.at("merges");
    if (!merges) return std::unexpected(merges.error());
    const auto* list = merges->value().if_array();
    if (!list) return merges->error("expected an array");
    spec_.merges.reserve(list->size());
    for (std::size_t i = 0; i < list->size(); ++i) {
      std::string text = merge_text((*list)[i]);
      if (text.empty()) return merges->element(i, (*list)[i]).error("is not a pair of tokens without spaces");
      spec_.merges.push_back(std::move(text));
    }
    return {};
  }

  Result<void> added_tokens() {
    spec_.added_tokens_verbatim = true;
    const auto list = files_.tokenizer->find("added_tokens");
    if (list) {
      const auto tokens = list->elements();
      if (!tokens) return std::unexpected(tokens.error());
      for (const JsonRef& token : *tokens)
        if (auto ok = added_token(token); !ok) return ok;
    }
    name_ids();
    if (unknown_) spec_.unk = find_id(*unknown_);
    return {};
  }

  void name_ids() {
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) ids_.emplace(spec_.tokens[i], static_cast<TokenId>(i));
  }

  Result<void> added_token(const JsonRef& token) {
    auto id = token.get<TokenId>("id");
    if (!id) return std::unexpected(std::move(id.error()));
    auto content = token.get<std::string_view>("content");
    if (!content) return std::unexpected(std::move(content.error()));
    if (content->empty()) return token.error("the token is empty");
    auto special = token.get_or<bool>("special", false);
    if (!special) return std::unexpected(std::move(special.error()));
    if (auto ok = set_token(token, *id, *content, *special ? TokenType::control : TokenType::user_defined); !ok) return ok;
    TokenizerSpec::AddedToken flags{.id = *id};
    struct Flag {
      std::string_view key;
      bool* target;
    };
    for (const Flag& flag : {Flag{"lstrip", &flags.strip_left}, Flag{"rstrip", &flags.strip_right}, Flag{"single_word", &flags.single_word},
                             Flag{"normalized", &flags.normalized}}) {
      auto value = token.get_or<bool>(flag.key, false);
      if (!value) return std::unexpected(std::move(value.error()));
      *flag.target = *value;
    }
    if (flags.strip_left || flags.strip_right || flags.single_word || flags.normalized) spec_.added_tokens.push_back(flags);
    return {};
  }

  [[nodiscard]] std::optional<TokenId> find_id(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  Result<void> pipeline() {
    if (auto ok = hf::read_splitting(*files_.tokenizer, spec_); !ok) return ok;
    return hf::read_post_processor(*files_.tokenizer, spec_);
  }

  // Returns the id of a token that tokenizer_config.json or special_tokens_map.json names by a string or by an object with the key
  // "content".
  Result<std::optional<TokenId>> named_token(const JsonRef& config, std::string_view key) const {
    const auto member = config.find(key);
    if (!member) return std::optional<TokenId>{};
    auto text = member->value().is_object() ? member->get<std::string>("content") : member->as<std::string>();
    if (!text) return std::unexpected(std::move(text.error()));
    return find_id(*text);
  }

  // Sets BOS, EOS, UNK and padding; tokenizer_config.json takes precedence over special_tokens_map.json. Keeps the ids that the
  // post-processor adds to a text, also if BOS or EOS becomes another token.
  Result<void> special_tokens() {
    const auto before = spec_.add_bos ? spec_.bos : std::nullopt, after = spec_.add_eos ? spec_.eos : std::nullopt;
    struct Named {
      std::string_view key;
      std::optional<TokenId>* target;
    };
    for (const Named& named :
         {Named{"bos_token", &spec_.bos}, Named{"eos_token", &spec_.eos}, Named{"unk_token", &spec_.unk}, Named{"pad_token", &spec_.pad}}) {
      for (const auto* file : {&files_.special_tokens, &files_.config}) {
        if (!*file) continue;
        auto id = named_token(**file, named.key);
        if (!id) return std::unexpected(std::move(id.error()));
        if (*id) *named.target = *id;
      }
    }
    if (before && before != spec_.bos) spec_.before = {*before};
    if (after && after != spec_.eos) spec_.after = {*after};
    return {};
  }

  // Sets BOS and EOS as the Llama and Gemma tokenizer classes of transformers do, which ignore the post-processor.
  Result<void> bos_and_eos() {
    if (!files_.config) return {};
    const JsonRef& config = *files_.config;
    auto name = config.get_or<std::string>("tokenizer_class", "");
    if (!name) return std::unexpected(std::move(name.error()));
    if (name->ends_with("Fast")) name->resize(name->size() - 4);
    constexpr std::array<std::string_view, 3> kClasses{"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"};
    if (std::ranges::find(kClasses, *name) == kClasses.end()) return {};
    auto add_bos = config.get_or<bool>("add_bos_token", true);
    if (!add_bos) return std::unexpected(std::move(add_bos.error()));
    auto add_eos = config.get_or<bool>("add_eos_token", false);
    if (!add_eos) return std::unexpected(std::move(add_eos.error()));
    if (*add_bos && !spec_.bos) return config.error("add_bos_token is set, but the vocabulary has no bos_token");
    if (*add_eos && !spec_.eos) return config.error("add_eos_token is set, but the vocabulary has no eos_token");
    spec_.add_bos = *add_bos;
    spec_.add_eos = *add_eos;
    spec_.before.clear();
    spec_.after.clear();
    return {};
  }

  // Adds the end-of-generation ids; `eos_token_id` is an id or a list of ids.
  Result<void> add_eog(const JsonRef& config) {
    const auto member = config.find("eos_token_id");
    if (!member) return {};
    std::vector<JsonRef> ids{*member};
    if (member->value().is_array()) ids = *member->elements();
    for (const JsonRef& item : ids) {
      const auto id = item.as<TokenId>();
      if (!id) return std::unexpected(id.error());
      // An id outside the vocabulary is never sampled. transformers and vLLM accept and ignore such an id.
      if (*id < 0 || static_cast<std::size_t>(*id) >= spec_.tokens.size())
        spec_.notes.push_back(
            fmt::format("{}: {} is not in the vocabulary of {} tokens and is ignored", item.path(), *id, spec_.tokens.size()));
      else
        spec_.eog.push_back(*id);
    }
    return {};
  }

  Result<void> end_of_generation() {
    for (const auto* file : {&files_.generation, &files_.model}) {
      if (!*file || !spec_.eog.empty()) continue;
      if (auto ok = add_eog(**file); !ok) return ok;
    }
    if (!spec_.eos && !spec_.eog.empty()) spec_.eos = spec_.eog.front();
    if (spec_.eos) spec_.eog.push_back(*spec_.eos);
    std::ranges::sort(spec_.eog);
    const auto rest = std::ranges::unique(spec_.eog);
    spec_.eog.erase(rest.begin(), rest.end());
    return {};
  }

  Result<void> chat_template() {
    const auto member = files_.config ? files_.config->find("chat_template") : std::nullopt;
    return member ? configured_template(*member) : Result<void>{};
  }

  // Reads a template, or a list of named templates: the default one and the one for requests with tools.
  Result<void> configured_template(const JsonRef& member) {
    if (!member.value().is_array()) {
      auto text = member.as<std::string>();
      if (!text) return std::unexpected(std::move(text.error()));
      spec_.chat_template = std::move(*text);
      return {};
    }
    const auto items = *member.elements();
    std::string by_default, tool_use;
    for (const JsonRef& item : items) {
      const auto name = item.get<std::string_view>("name");
      if (!name) return std::unexpected(name.error());
      if (*name != "default" && *name != "tool_use") continue;
      auto text = item.get<std::string>("template");
      if (!text) return std::unexpected(std::move(text.error()));
      (*name == "default" ? by_default : tool_use) = std::move(*text);
    }
    spec_.chat_template = with_tool_use(std::move(by_default), std::move(tool_use));
    return {};
  }

  const hf::Files& files_;
  TokenizerSpec spec_;
  bool byte_fallback_ = false;
  std::size_t num_set_ = 0;  // number of tokens set so far
  std::optional<std::string> unknown_;
  std::unordered_map<std::string_view, TokenId> ids_;  // views into spec_.tokens
};

}  // namespace

Result<TokenizerSpec> hf::read_tokenizer(const Files& files) {
  return HfTokenizer(files).read();
}

Result<TokenizerSpec> hf::read_companions(TokenizerSpec spec, const Files& files) {
  return HfTokenizer(files, std::move(spec)).read_companions();
}

}  // namespace quire
