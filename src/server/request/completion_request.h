#pragma once
// The request for text that all APIs share, and the reader of its fields. The fields have the names and defaults of OpenAI and vLLM. An API
// with other names first translates its fields into these names.
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "quire/base/cancellation_point.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/request.h"
#include "quire/base/sampling.h"
#include "quire/engine.h"
#include "quire/text/generation_config.h"
#include "server/request/answer_shape.h"
#include "server/request/structured_output.h"
#include "server/request/tool_use.h"

namespace quire {

class MediaFetcher;

enum class Api : std::uint8_t { completion, chat };

// A prompt as text, or as token ids that the client sent.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

// An image of a message, as the client sent it.
struct ChatImage {
  std::string field;  // the client's name for the part with the image
  std::vector<std::byte> file;
  Sha256Digest digest{};                        // digest of the file or of the embeddings
  std::shared_ptr<const ImageEmbeds> embeds{};  // set if the client sent embeddings instead of a file
};

// Which images in messages are accepted, and how they are read.
struct ImageReading {
  bool supports_images = false;           // the model supports images
  bool parts = false;                     // the template needs the parts of a message separately (iterates_parts)
  std::uint32_t most = 0;                 // images per request
  std::string_view placeholder;           // text that represents an image if the parts are joined
  const MediaFetcher* fetcher = nullptr;  // fetches images by URL; null: URLs are refused
  bool accepts_embeds = false;            // encoder outputs are accepted instead of a file
};

struct ChatPrompt {
  boost::json::array messages;          // as templates expect them: text parts joined (unless ImageReading::parts), tool arguments parsed
  std::vector<ChatImage> pictures;      // images of the messages' parts {"type": "image"}, or of the placeholders in texts
  boost::json::value tools = nullptr;   // array or null
  boost::json::object template_kwargs;  // further variables for the template
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer continues the last message
};

struct PromptComparison;

// Requests that the prompt's fingerprint is stored for later comparisons (prompt_fingerprint.h), and compared with an earlier prompt.
struct ComparisonRequest {
  std::string with;  // answer id of the earlier prompt; empty: no comparison
};

// The value of `service_tier` that makes a request a background request (RequestTags::is_background). OpenAI's name.
inline constexpr std::string_view kBackgroundTier = "flex";

// The parameters of a body with defaults filled in, before tokenization. Tokenization moves the prompts out.
struct CompletionRequest {
  Api api = Api::completion;
  std::string model;               // empty: not given
  std::string adapter;             // LoRA adapter that `model` names; empty: none
  std::vector<Prompt> prompts;     // completion only
  ChatPrompt chat;                 // chat only
  bool add_special_tokens = true;  // false for chats: the template writes special tokens
  SamplingParams sampling;         // sampling.max_tokens is the largest integer if `max_tokens` is absent
  std::optional<std::uint32_t> max_tokens;
  std::optional<std::uint32_t> default_max_tokens;  // used if `max_tokens` is absent; reduced to what fits
  std::uint32_t n = 1;
  std::uint32_t best_of = 1;                     // choices sampled per prompt; the n most likely ones are the answer
  std::optional<BeamSearchOptions> beam_search;  // the beam width is n
  std::optional<OutputForm> form;                // the output form that the answer must have
  ToolUse tool_use;                              // chat only
  bool in_reasoning = false;                     // chat: the prompt ends within a reasoning part
  bool includes_reasoning = true;                // chat: the answer includes the reasoning
  bool echo = false;
  bool echo_only = false;                       // max_tokens is 0: one token is sampled but not reported
  bool hidden_states = false;                   // the prompt's hidden states are written to a file
  std::optional<KvTransferParams> kv_transfer;  // the blocks go to another server, or come from one
  bool cached_only = false;                     // fail_if_not_cached
  bool prompt_logprobs = false;                 // true: sampling.prompt_logprobs are reported; false: they are only for `echo`
  std::uint32_t first_routed_token = 0;         // with sampling.routed_experts: the first prompt token whose experts are reported
  bool stream = false;
  bool include_usage = false;     // the last chunk contains the usage
  bool continuous_usage = false;  // every chunk contains the usage
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::string cache_salt;
  std::int64_t priority = 0;  // requests with smaller values run first
  RequestTags tags;
  std::string session_key;                     // the agent's id for its session; becomes the job if tags have none
  std::optional<std::int64_t> truncate_to;     // number of last tokens of a prompt to keep; -1: as many as fit
  std::shared_ptr<const AnswerShape> shape{};  // set by the API that has read the request
  // Tokens of an earlier turn. If the prompt's text begins with their text, the prompt reuses these tokens, so that it finds their cached
  // blocks.
  std::shared_ptr<const std::vector<TokenId>> known_prefix_tokens{};
  std::vector<std::string> bad_words;
  bool return_token_ids = false;
  bool tokens_as_ids = false;                          // return_tokens_as_token_ids, for log probabilities
  std::optional<std::string> suffix;                   // completion: text after the answer
  bool session = false;                                // completion: the prompt may be extended later (/v1/requests/{id}/input)
  std::vector<std::string> ignored;                    // names of fields that do not change the answer
  std::vector<std::string> warnings{};                 // the reasons why constraints in `ignored` are not enforced
  std::vector<PromptImage> pictures{};                 // chat: set when the prompt is encoded
  std::optional<ComparisonRequest> compare{};          // chat only
  std::shared_ptr<const PromptComparison> compared{};  // set when the request starts, if `compare` names an answer
};

struct RequestLimits {
  std::uint32_t max_choices = 128;  // limit for the number of prompts times n (or best_of)
  std::uint32_t vocab_size = 0;     // token ids of a prompt must be smaller
  // Number of tokens of a completion without max_tokens. 16 is OpenAI's default. nullopt: as many as fit, as in a chat.
  std::optional<std::uint32_t> completion_tokens = 16;
  GenerationDefaults defaults{};
  bool routed_experts = false;  // requests may ask for routed experts
  ImageReading image_reading{};
  const CancellationPoint* cancellation = nullptr;  // called between messages; may be null
};

inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;

// Sets the fields with defaults that `body` does not contain.
void fill_defaults(boost::json::object& body, const GenerationDefaults& defaults);

Result<CompletionRequest> parse_completion_request(Api api, std::string_view body, const RequestLimits& limits);
Result<CompletionRequest> parse_completion_request(Api api, boost::json::object object, const RequestLimits& limits);

}  // namespace quire
