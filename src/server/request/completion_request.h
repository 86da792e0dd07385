#pragma once
// What every API's request for text comes to, and the reader of its fields. They have OpenAI's and vLLM's names and defaults; an API with
// others says the same in these first.
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

// Text, or tokens the client has made itself.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

// A picture of a message, as it came.
struct ChatPicture {
  std::string field;  // the part that has it, in the client's words
  std::vector<std::byte> file;
  Sha256Digest digest{};                          // of the file, or of the embeddings
  std::shared_ptr<const PictureEmbeds> embeds{};  // in place of a file
};

// Whether pictures of messages are read, and how.
struct PictureReading {
  bool sees = false;                      // the model takes some
  bool parts = false;                     // its template wants the parts of a message apart
  std::uint32_t most = 0;                 // in one request
  std::string_view mark;                  // stands for one in texts, where parts are joined
  const MediaFetcher* fetcher = nullptr;  // of those that are elsewhere; null: they are refused
  bool takes_embeds = false;              // what an encoder has made of one, in place of its file
};

struct ChatPrompt {
  boost::json::array messages;          // as templates want them: text parts joined (PictureReading::parts), tool arguments parsed
  std::vector<ChatPicture> pictures;    // of the messages' parts {"type": "image"}, or of the places that texts have for them
  boost::json::value tools = nullptr;   // array or null
  boost::json::object template_kwargs;  // further names for the template
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer goes on with it
};

struct PromptComparison;

// The prompt is kept so that later ones can be compared with it (prompt_print.h), and compared with that of an earlier answer.
struct PromptCompare {
  std::string with;  // the answer's id; empty: with none
};

// What a body asked for, with defaults filled in, before anything is tokenized; the prompts are taken out when that is done.
struct CompletionRequest {
  Api api = Api::completion;
  std::string model;               // empty: not said
  std::string adapter;             // that this names; empty: none
  std::vector<Prompt> prompts;     // completion
  ChatPrompt chat;                 // chat
  bool add_special_tokens = true;  // chat: false, the template writes them
  SamplingParams sampling;         // max_tokens absent: the largest integer
  std::optional<std::uint32_t> max_tokens;
  std::optional<std::uint32_t> usual_max_tokens;  // where it says none; fewer if fewer fit
  std::uint32_t n = 1;
  std::uint32_t best_of = 1;                     // choices to draw of each prompt, of which the n likeliest are the answer
  std::optional<BeamSearchOptions> beam_search;  // n wide
  std::optional<OutputForm> form;                // what the answer must look like
  ToolUse tool_use;                              // chat
  bool in_thought = false;                       // chat: the prompt ends within a reasoning part
  bool tells_thoughts = true;                    // chat: what the model thinks is part of the answer
  bool echo = false;
  bool echo_only = false;                       // max_tokens 0: of what is drawn (one token must be) nothing is told
  bool hidden_states = false;                   // of the prompt, in a file
  std::optional<KvTransferParams> kv_transfer;  // its blocks are for another server, or come from one
  bool cached_only = false;                     // fail_if_not_cached
  bool prompt_logprobs = false;                 // sampling.prompt_logprobs are told, not only for `echo`
  std::uint32_t first_routed_token = 0;         // of the prompt, where sampling.routed_experts are told: those before it are not
  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // usage in every chunk
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::string cache_salt;
  std::int64_t priority = 0;  // smaller goes first
  RequestTags tags;
  std::string session_key;                     // an agent's own name of its session: its job, where tags name none; may be empty
  std::optional<std::int64_t> truncate_to;     // the last tokens of a prompt; -1: as many as fit
  std::shared_ptr<const AnswerShape> shape{};  // set by the API that has read it
  // Of an earlier turn: where the prompt's text begins with theirs it is made of them, so that their cached blocks are found.
  std::shared_ptr<const std::vector<TokenId>> known_beginning{};
  std::vector<std::string> bad_words;
  bool return_token_ids = false;
  bool tokens_as_ids = false;                          // return_tokens_as_token_ids: of log probabilities
  std::optional<std::string> suffix;                   // completion: what the answer leads to
  bool session = false;                                // completion: more of its prompt may follow (/v1/requests/{id}/input)
  std::vector<std::string> ignored;                    // names of fields that do not change the answer
  std::vector<PromptPicture> pictures{};               // chat, once it is encoded
  std::optional<PromptCompare> compare{};              // chat
  std::shared_ptr<const PromptComparison> compared{};  // when it starts, if there is something to compare it with
};

struct RequestLimits {
  std::uint32_t max_choices = 128;  // prompts times n (or best_of)
  std::uint32_t vocab_size = 0;     // token ids of a prompt must be below
  GenerationDefaults defaults{};
  bool routed_experts = false;  // may be asked for
  PictureReading pictures{};
};

inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;

// Takes the place of what `body` does not say.
void fill_defaults(boost::json::object& body, const GenerationDefaults& defaults);

Result<CompletionRequest> parse_completion_request(Api api, std::string_view body, const RequestLimits& limits);
Result<CompletionRequest> parse_completion_request(Api api, boost::json::object object, const RequestLimits& limits);

}  // namespace quire
