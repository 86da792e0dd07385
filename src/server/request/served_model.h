#pragma once
// The model as the handlers use it: converts text to tokens, and has the names of the model.
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

// Immutable after create(), except for the adapters, which the engine manages. Thread-safe.
class ServedModel {
 public:
  // `engine` must outlive this object. An invalid chat template of the model is not an error of create(); chat requests report it.
  static Result<std::unique_ptr<ServedModel>> create(Engine& engine, const ServerOptions& options);

  [[nodiscard]] const std::string& name() const { return names_.front(); }
  // Returns all names that requests may use for the model.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  // Return the source of the chat template, and the text of BOS and EOS. Empty if the model has none.
  [[nodiscard]] const std::string& chat_template() const { return template_source_; }
  [[nodiscard]] const std::string& bos() const { return bos_; }
  [[nodiscard]] const std::string& eos() const { return eos_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] std::uint32_t max_model_len() const { return max_model_len_; }
  [[nodiscard]] const PoolingInfo& pooling() const { return pooling_; }
  [[nodiscard]] std::uint32_t hidden_size() const { return hidden_size_; }
  [[nodiscard]] const ExpertShape& experts() const { return experts_; }
  // Returns the reason why the model does not support chats, or an empty string if it does.
  [[nodiscard]] std::string chat_problem() const { return template_ ? "" : template_.error().to_string(); }

  // Returns the format in which the model writes tool calls and reasoning.
  [[nodiscard]] const CallFormat& call_format() const { return call_format_; }
  // Returns whether the control token is a delimiter of call_format(). The text of such a token belongs to the answer.
  [[nodiscard]] bool is_delimiter(TokenId token) const { return std::ranges::binary_search(delimiters_, token); }
  // Returns whether the vocabulary has fill-in-the-middle tokens, so that a completion can have a suffix.
  [[nodiscard]] bool supports_infill() const { return infill_.has_value(); }
  // Returns the control token with this text, or nullopt if no token has it.
  [[nodiscard]] std::optional<TokenId> control_token(std::string_view text) const;
  // Returns the token for this text, or nullopt if the text is not exactly one token.
  [[nodiscard]] std::optional<TokenId> single_token(std::string_view text) const;

  // Returns the result of SchemaMemory::check().
  [[nodiscard]] Result<void> check_schema(const std::string& schema, bool is_loose) const {
    return schema_memory_->check(schema, is_loose);
  }

  // Encodes bad_words as vLLM does: each word without a leading space, as at the beginning of a text, and with a leading space, as within a
  // text. Errors: a word has no tokens.
  [[nodiscard]] Result<std::vector<std::vector<TokenId>>> encode_bad_words(const std::vector<std::string>& words) const;

  // Returns the name of the adapter that a request names as its model, or an empty string for the base model. Errors: neither the model nor
  // an adapter has the name.
  [[nodiscard]] Result<std::string> adapter_of(const std::string& requested) const;

  // Returns how the images of chats are read. Allows no images if the model does not support images.
  [[nodiscard]] ImageReading image_reading() const {
    return {processor_ != nullptr, iterates_parts_, max_images_, processor_ == nullptr ? "" : processor_->image_placeholder,
            fetcher_.get(),        accepts_embeds_};
  }
  // Returns the conversation as the template renders it, with the tokens of images as text. With continue_final_message, the text ends
  // where the last message ends.
  [[nodiscard]] Result<std::string> render(ChatPrompt chat, const CancellationPoint* cancellation = nullptr) const;
  // Returns at most max_model_len() tokens. For a longer text, returns overflow_error(), with the exact number of tokens if the text is at
  // most twice as long. A text that certainly has too many tokens is refused before it is tokenized.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options, const char* field) const;
  // Encodes a text or a conversation. Errors: it does not fit into the context.
  [[nodiscard]] Result<std::vector<TokenId>> encode_input(TextOrChat input, bool add_special_tokens,
                                                          const CancellationPoint* cancellation = nullptr) const;

  // Moves the prompts out of `request` and encodes them. Calls the cancellation point during the work. Returns one list of tokens per
  // prompt, short enough that max_tokens more tokens fit. Sets in_reasoning and, if the request has no max_tokens, sets sampling.max_tokens
  // to the number of tokens that fit.
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
  // Returns the prompt with the infill tokens and the suffix, or the unchanged prompt if the request has no suffix.
  [[nodiscard]] Result<std::vector<TokenId>> with_suffix(std::vector<TokenId> prefix, const CompletionRequest& request) const;
  void truncate(std::vector<TokenId>& tokens, const CompletionRequest& request) const;
  [[nodiscard]] Result<void> check_length(std::size_t num_tokens, const CompletionRequest& request) const;

  Engine* engine_ = nullptr;  // manages the adapters
  std::vector<std::string> names_;
  std::vector<std::string> name_patterns_;  // further names, such as "claude-*", which no list shows
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
  const ImageProcessor* processor_ = nullptr;  // processor for `images_`; null: the model does not support images
  bool iterates_parts_ = false;                // the template iterates over parts of messages
  bool accepts_embeds_ = false;                // ServerOptions::enable_mm_embeds
  std::uint32_t max_images_ = 0;               // limit per request
  std::uint64_t max_pixels_ = 0;               // limit for all images of a request together
  std::unique_ptr<const MediaFetcher> fetcher_;
  std::unique_ptr<ImageMemory> image_memory_ = std::make_unique<ImageMemory>();
  std::unique_ptr<SchemaMemory> schema_memory_ = std::make_unique<SchemaMemory>();
  std::uint32_t hidden_size_ = 0;
  ExpertShape experts_;
  std::size_t longest_piece_bytes_ = 1;  // maximum bytes of text that one token represents
};

}  // namespace quire
