#pragma once
// The model as the handlers use it: it converts text to tokens, and knows the model's names.
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
#include "server/request/image_prompt.h"
#include "server/request/infill.h"
#include "server/request/schema_memory.h"
#include "text/tool_calls/call_format.h"
#include "text/tool_calls/template_roles.h"

namespace quire {

using TextOrChat = std::variant<std::string, ChatPrompt>;

// Immutable after create(), except for the adapters, which the engine manages. Any thread may call every member.
class ServedModel {
 public:
  // `engine` must outlive this. If the model's own chat template is invalid, that is not an error here: chat requests report it.
  static Result<std::unique_ptr<ServedModel>> create(Engine& engine, const ServerOptions& options);

  [[nodiscard]] const std::string& name() const { return names_.front(); }
  // All names that requests may use for the model.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  // The source of the chat template, and the text of BOS and EOS; empty if the model has none.
  [[nodiscard]] const std::string& chat_template() const { return template_source_; }
  [[nodiscard]] const std::string& bos() const { return bos_; }
  [[nodiscard]] const std::string& eos() const { return eos_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] std::uint32_t max_model_len() const { return max_model_len_; }
  [[nodiscard]] const PoolingInfo& pooling() const { return pooling_; }
  [[nodiscard]] std::uint32_t hidden_size() const { return hidden_size_; }
  [[nodiscard]] const ExpertShape& experts() const { return experts_; }
  // Returns why the model does not support chats; empty: it does.
  [[nodiscard]] std::string chat_problem() const { return template_ ? "" : template_.error().to_string(); }

  // How the model writes tool calls and reasoning.
  [[nodiscard]] const CallFormat& call_format() const { return call_format_; }
  // Returns whether a control token is a delimiter of that format, so that its text belongs to an answer.
  [[nodiscard]] bool is_delimiter(TokenId token) const { return std::ranges::binary_search(delimiters_, token); }
  // Returns the control token with this text.
  [[nodiscard]] std::optional<TokenId> control_token(std::string_view text) const;
  // Returns the token for this text, if the text is always one token.
  [[nodiscard]] std::optional<TokenId> single_token(std::string_view text) const;

  // Calls SchemaMemory::check().
  [[nodiscard]] Result<void> check_schema(const std::string& schema, bool is_loose) const {
    return schema_memory_->check(schema, is_loose);
  }

  // Encodes vLLM's bad words: each with and without a leading space, for its occurrence within a text or at its beginning. Errors: a word
  // has no tokens.
  [[nodiscard]] Result<std::vector<std::vector<TokenId>>> encode_bad_words(const std::vector<std::string>& words) const;

  // Returns the adapter that a request names as its model; empty: the base model. Errors: the name is neither the model's nor an adapter's.
  [[nodiscard]] Result<std::string> adapter_of(const std::string& requested) const;

  // Returns how the images of chats are read. It allows none if the model does not support images.
  [[nodiscard]] ImageReading image_reading() const {
    return {processor_ != nullptr, iterates_parts_, max_images_, processor_ == nullptr ? "" : processor_->image_placeholder,
            fetcher_.get(),        accepts_embeds_};
  }
  // Returns the text that the template makes of a conversation, with images as their tokens. With continue_final_message the text ends
  // where that message does.
  [[nodiscard]] Result<std::string> render(ChatPrompt chat, const CancellationPoint* cancellation = nullptr) const;
  // Returns at most max_model_len() tokens. Longer text is an overflow_error(), with the number of tokens if it is not much larger. Text
  // that certainly has more tokens is refused before it is tokenized.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options, const char* field) const;
  // Encodes a text or a conversation that must fit into the context.
  [[nodiscard]] Result<std::vector<TokenId>> encode_input(TextOrChat input, bool add_special_tokens,
                                                          const CancellationPoint* cancellation = nullptr) const;

  // Moves the prompts out of `request`, and passes the cancellation point on the way. Returns one list of tokens per prompt, short enough
  // that max_tokens more fit. Sets in_reasoning, and if no max_tokens was requested, sampling.max_tokens to the number that fits.
  [[nodiscard]] Result<std::vector<std::vector<TokenId>>> encode_prompts(CompletionRequest& request,
                                                                         const CancellationPoint* cancellation = nullptr) const;

 private:
  [[nodiscard]] Result<std::string> render_messages(ChatPrompt chat, const CancellationPoint* cancellation) const;
  [[nodiscard]] Result<std::string> render_with(const ImagePrompt& prompt, ChatPrompt chat, const CancellationPoint* cancellation) const;
  [[nodiscard]] Result<std::vector<TokenId>> encode_chat(CompletionRequest& request, const CancellationPoint* cancellation) const;
  ServedModel() : template_(fail(ErrorCode::unsupported, "messages", "the model has no chat template", "use /v1/completions")) {}
  [[nodiscard]] Result<std::vector<TokenId>> encode_rendered(std::string_view text, bool add_special,
                                                             const CancellationPoint* cancellation) const;
  [[nodiscard]] Result<std::vector<TokenId>> encode_prompt(std::string_view text, const CompletionRequest& request,
                                                           const CancellationPoint* cancellation) const;
  [[nodiscard]] Result<std::vector<TokenId>> encode_after_prefix(const std::vector<TokenId>& known, std::string_view text,
                                                                 const CompletionRequest& request,
                                                                 const CancellationPoint* cancellation) const;
  // Adds the suffix and the infill tokens to the tokens of a prompt, if the request has a suffix.
  [[nodiscard]] Result<std::vector<TokenId>> with_suffix(std::vector<TokenId> prefix, const CompletionRequest& request) const;
  void truncate(std::vector<TokenId>& tokens, const CompletionRequest& request) const;
  [[nodiscard]] Result<void> check_length(std::size_t num_tokens, const CompletionRequest& request) const;

  Engine* engine_ = nullptr;  // manages the adapters
  std::vector<std::string> names_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  Result<ChatTemplate> template_;
  std::string template_source_, bos_, eos_;
  CallFormat call_format_;
  TemplateRoles roles_;
  std::optional<Infill> infill_;
  std::vector<TokenId> delimiters_;  // sorted
  std::uint32_t max_model_len_ = 0;
  PoolingInfo pooling_;
  ImageInfo images_;
  const ImageProcessor* processor_ = nullptr;  // for `images_`; null: the model supports text only
  bool iterates_parts_ = false;                // the template iterates over parts of messages
  bool accepts_embeds_ = false;                // ServerOptions::enable_mm_embeds
  std::uint32_t max_images_ = 0;               // per request
  std::uint64_t max_pixels_ = 0;               // of all images of one request
  std::unique_ptr<const MediaFetcher> fetcher_;
  std::unique_ptr<ImageMemory> image_memory_ = std::make_unique<ImageMemory>();
  std::unique_ptr<SchemaMemory> schema_memory_ = std::make_unique<SchemaMemory>();
  std::uint32_t hidden_size_ = 0;
  ExpertShape experts_;
  std::size_t longest_piece_bytes_ = 1;  // the most text that one token represents
};

}  // namespace quire
