#pragma once
// The common form of every API's request for text, and the reader of its fields. The fields have the names and defaults of OpenAI and vLLM;
// an API with other names translates its fields into these first.
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

// Text, or token ids from the client.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

// An image of a message, as received.
struct ChatImage {
  std::string field;  // the part with the image, in the client's words
  std::vector<std::byte> file;
  Sha256Digest digest{};                        // of the file, or of the embeddings
  std::shared_ptr<const ImageEmbeds> embeds{};  // instead of a file
};

// Whether and how images of messages are read.
struct ImageReading {
  bool supports_images = false;           // the model supports images
  bool parts = false;                     // the template needs the parts of a message separately
  std::uint32_t most = 0;                 // images per request
  std::string_view placeholder;           // placeholder of an image in texts, if parts are joined
  const MediaFetcher* fetcher = nullptr;  // fetches images by URL; null: URLs are refused
  bool accepts_embeds = false;            // encoder outputs are accepted instead of a file
};

struct ChatPrompt {
  boost::json::array messages;          // as templates expect them: text parts joined (ImageReading::parts), tool arguments parsed
  std::vector<ChatImage> pictures;      // images of the messages' parts {"type": "image"}, or of the placeholders in texts
  boost::json::value tools = nullptr;   // array or null
  boost::json::object template_kwargs;  // more variables for the template
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer continues that message
};

struct PromptComparison;

// If set, the prompt's fingerprint is stored for comparison with later prompts (prompt_fingerprint.h), and compared with an earlier one.
struct ComparisonRequest {
  std::string with;  // answer id of the earlier prompt; empty: no comparison
};

// The parameters of a body, with defaults filled in, before anything is tokenized. Tokenizing moves the prompts out.
struct CompletionRequest {
  Api api = Api::completion;
  std::string model;               // empty: not given
  std::string adapter;             // LoRA adapter that `model` names; empty: none
  std::vector<Prompt> prompts;     // completion only
  ChatPrompt chat;                 // chat only
  bool add_special_tokens = true;  // false for chats: the template writes them
  SamplingParams sampling;         // without `max_tokens`, its max_tokens is the largest integer
  std::optional<std::uint32_t> max_tokens;
  std::optional<std::uint32_t> default_max_tokens;  // if `max_tokens` is absent; fewer if fewer fit
  std::uint32_t n = 1;
  std::uint32_t best_of = 1;                     // choices sampled per prompt; the n likeliest are the answer
  std::optional<BeamSearchOptions> beam_search;  // with a width of n
  std::optional<OutputForm> form;                // the form that the answer must have
  ToolUse tool_use;                              // chat only
  bool in_reasoning = false;                     // chat: the prompt ends within a reasoning part
  bool includes_reasoning = true;                // chat: the answer includes the reasoning
  bool echo = false;
  bool echo_only = false;                       // max_tokens is 0: the token that must be sampled is not reported
  bool hidden_states = false;                   // the prompt's hidden states are written to a file
  std::optional<KvTransferParams> kv_transfer;  // its blocks are for another server, or come from one
  bool cached_only = false;                     // fail_if_not_cached
  bool prompt_logprobs = false;                 // sampling.prompt_logprobs are reported, not only used for `echo`
  std::uint32_t first_routed_token = 0;         // with sampling.routed_experts, the first prompt token with reported experts
  bool stream = false;
  bool include_usage = false;     // a last chunk reports the usage
  bool continuous_usage = false;  // every chunk reports the usage
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::string cache_salt;
  std::int64_t priority = 0;  // the smallest runs first
  RequestTags tags;
  std::string session_key;                     // the agent's name for its session: the job, if tags name none; may be empty
  std::optional<std::int64_t> truncate_to;     // keep this many last tokens of a prompt; -1: as many as fit
  std::shared_ptr<const AnswerShape> shape{};  // set by the API that has read the request
  // Tokens of an earlier turn. If the prompt's text begins with their text, the prompt reuses these tokens, so that their cached blocks are
  // found.
  std::shared_ptr<const std::vector<TokenId>> known_prefix_tokens{};
  std::vector<std::string> bad_words;
  bool return_token_ids = false;
  bool tokens_as_ids = false;                          // return_tokens_as_token_ids, for log probabilities
  std::optional<std::string> suffix;                   // completion: text after the answer
  bool session = false;                                // completion: the prompt may be extended later (/v1/requests/{id}/input)
  std::vector<std::string> ignored;                    // names of fields that do not change the answer
  std::vector<std::string> warnings{};                 // why constraints among them are not enforced
  std::vector<PromptImage> pictures{};                 // chat, after it is encoded
  std::optional<ComparisonRequest> compare{};          // chat only
  std::shared_ptr<const PromptComparison> compared{};  // set at the start, if `compare` names an answer
};

struct RequestLimits {
  std::uint32_t max_choices = 128;  // prompts times n (or best_of)
  std::uint32_t vocab_size = 0;     // the ids of a prompt's tokens must be smaller
  GenerationDefaults defaults{};
  bool routed_experts = false;  // requests may ask for them
  ImageReading image_reading{};
  const CancellationPoint* cancellation = nullptr;  // passed between messages; null: none
};

inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;

// Sets the fields that `body` does not contain.
void fill_defaults(boost::json::object& body, const GenerationDefaults& defaults);

Result<CompletionRequest> parse_completion_request(Api api, std::string_view body, const RequestLimits& limits);
Result<CompletionRequest> parse_completion_request(Api api, boost::json::object object, const RequestLimits& limits);

}  // namespace quire
