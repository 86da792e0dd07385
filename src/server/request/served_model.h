#pragma once
// The model as the handlers need it: text in, tokens out, and its names.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quire/engine.h"
#include "quire/server_options.h"
#include "quire/text/chat_template.h"
#include "quire/text/tokenizer.h"
#include "server/http/media_fetcher.h"
#include "server/request/completion_request.h"
#include "server/request/expert_shape.h"
#include "server/request/infill.h"
#include "server/request/picture_prompt.h"
#include "text/tool_calls/call_format.h"

namespace quire {

using TextOrChat = std::variant<std::string, ChatPrompt>;

// Immutable after create, but for the adapters, which the engine knows: every member may be called from any thread.
class ServedModel {
 public:
  // `engine` must outlive this. A chat template that cannot be read is no error here: chat requests are told why.
  static Result<std::unique_ptr<ServedModel>> create(Engine& engine, const ServerOptions& options);

  [[nodiscard]] const std::string& name() const { return names_.front(); }
  // All that requests may call it by.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  // The source of its chat template, and the text of its control tokens; empty where it has none.
  [[nodiscard]] const std::string& chat_template() const { return template_source_; }
  [[nodiscard]] const std::string& bos() const { return bos_; }
  [[nodiscard]] const std::string& eos() const { return eos_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] std::uint32_t max_model_len() const { return max_model_len_; }
  [[nodiscard]] const PoolingInfo& pooling() const { return pooling_; }
  [[nodiscard]] std::uint32_t hidden_size() const { return hidden_size_; }
  [[nodiscard]] const ExpertShape& experts() const { return experts_; }
  // Empty, or why there are no chats with this model.
  [[nodiscard]] std::string chat_problem() const { return template_ ? "" : template_.error().to_string(); }

  // How it writes calls of tools and what it thinks.
  [[nodiscard]] const CallFormat& call_format() const { return call_format_; }
  // Whether a control token is a mark of that format, so that its text belongs to an answer.
  [[nodiscard]] bool is_mark(TokenId token) const { return std::ranges::binary_search(marks_, token); }
  // The control token of this text.
  [[nodiscard]] std::optional<TokenId> control_token(std::string_view text) const;
  // The token that this text is always made of, if it is one.
  [[nodiscard]] std::optional<TokenId> single_token(std::string_view text) const;

  // vLLM's: each with and without a space before it, as it stands within a text or at its begin. Errors: a word without tokens.
  [[nodiscard]] Result<std::vector<std::vector<TokenId>>> encode_bad_words(const std::vector<std::string>& words) const;

  // The model a request names, if it names one, must be this, or an adapter of it: its name; empty: the model alone.
  [[nodiscard]] Result<std::string> adapter_of(const std::string& requested) const;

  // Of the pictures of chats; none where the model sees none.
  [[nodiscard]] PictureReading picture_reading() const {
    return {processor_ != nullptr, wants_parts_, max_pictures_, processor_ == nullptr ? "" : processor_->mark,
            fetcher_.get(),        takes_embeds_};
  }
  // The text a template makes of a conversation, pictures in it as their tokens; with continue_final_message it ends where that message
  // does.
  [[nodiscard]] Result<std::string> render(ChatPrompt chat) const;
  // At most max_model_len() tokens; text that cannot but have more is refused before it is tokenized.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options, const char* field) const;
  // Text or a conversation that fits into the context.
  [[nodiscard]] Result<std::vector<TokenId>> encode_input(TextOrChat input, bool add_special_tokens) const;

  // Takes the prompts out of `request`: one list of tokens each, short enough that max_tokens more fit. Sets sampling.max_tokens to what
  // fits if none was asked for, and in_thought.
  [[nodiscard]] Result<std::vector<std::vector<TokenId>>> encode_prompts(CompletionRequest& request) const;

 private:
  [[nodiscard]] Result<std::string> render_messages(ChatPrompt chat) const;
  [[nodiscard]] Result<std::string> render_with(const PicturePrompt& prompt, ChatPrompt chat) const;
  [[nodiscard]] Result<std::vector<TokenId>> encode_chat(CompletionRequest& request) const;
  ServedModel() : template_(fail(ErrorCode::unsupported, "messages", "the model has no chat template", "use /v1/completions")) {}
  [[nodiscard]] Result<std::vector<TokenId>> encode_rendered(std::string_view text, bool add_special) const;
  [[nodiscard]] Result<std::vector<TokenId>> encode_prompt(std::string_view text, const CompletionRequest& request) const;
  [[nodiscard]] Result<std::vector<TokenId>> encode_behind(const std::vector<TokenId>& known, std::string_view text,
                                                           const CompletionRequest& request) const;
  // Around the tokens of a prompt, where there is a suffix.
  [[nodiscard]] Result<std::vector<TokenId>> with_suffix(std::vector<TokenId> prefix, const CompletionRequest& request) const;
  void truncate(std::vector<TokenId>& tokens, const CompletionRequest& request) const;
  [[nodiscard]] Result<void> check_length(std::size_t num_tokens, const CompletionRequest& request) const;

  Engine* engine_ = nullptr;  // knows its adapters
  std::vector<std::string> names_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  Result<ChatTemplate> template_;
  std::string template_source_, bos_, eos_;
  CallFormat call_format_;
  std::optional<Infill> infill_;
  std::vector<TokenId> marks_;  // sorted
  std::uint32_t max_model_len_ = 0;
  PoolingInfo pooling_;
  PictureInfo pictures_;
  const PictureProcessor* processor_ = nullptr;  // of them; null: the model reads text alone
  bool wants_parts_ = false;                     // the template goes through parts of messages
  bool takes_embeds_ = false;                    // ServerOptions::enable_mm_embeds
  std::uint32_t max_pictures_ = 0;               // of one request
  std::unique_ptr<const MediaFetcher> fetcher_;
  std::unique_ptr<PictureMemory> picture_memory_ = std::make_unique<PictureMemory>();
  std::uint32_t hidden_size_ = 0;
  ExpertShape experts_;
  std::size_t longest_piece_bytes_ = 1;  // no token stands for more text than this
};

}  // namespace quire
