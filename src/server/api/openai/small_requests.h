#pragma once
// Parses the bodies of OpenAI's routes other than completions and chats.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "server/answers/completion.h"
#include "server/request/completion_request.h"
#include "server/request/served_model.h"

namespace quire {

// Parses the body of /v1/requests/{id}/fork.
Result<ForkCall> parse_fork_call(std::string_view body, std::uint32_t max_choices);

// The body of /v1/requests/{id}/input.
struct InputCall {
  std::optional<Prompt> prompt;     // nullopt: no more input
  bool add_special_tokens = false;  // false by default, because the first prompt of the session already has them
  bool is_last = false;             // the session ends after this input is answered
};
Result<InputCall> parse_input_call(std::string_view body, std::uint32_t vocab_size);

struct TokenizeRequest {
  std::string model;
  TextOrChat input;           // "prompt" or "messages", or llama.cpp's "content"
  bool is_llama_cpp = false;  // the body has llama.cpp's fields: the answer has llama.cpp's form, with pieces if return_token_strs is set
  bool parse_special = true;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};
Result<TokenizeRequest> parse_tokenize_request(std::string_view body, const ImageReading& image_reading = {});

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};
Result<DetokenizeRequest> parse_detokenize_request(std::string_view body, std::uint32_t vocab_size);

}  // namespace quire
