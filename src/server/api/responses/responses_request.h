#pragma once
// The body of /v1/responses as the chat request that says the same.
#include <boost/json/object.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "server/api/responses/response_store.h"

namespace quire {

// What its answer needs of a request.
struct ResponseCall {
  bool is_stored = false;
  std::optional<std::string> compare_with{};  // prompt_cache_options.comparison_response_id
  std::string settings;                       // the answer's fields that repeat the request's: JSON text behind a comma
  std::string input;                          // as StoredResponse has them; empty if it is not stored
  std::string conversation;                   // the same, without the answer
};

struct ChatOfResponse {
  boost::json::object chat;
  ResponseCall call;
  std::shared_ptr<const StoredResponse> previous{};
};

// Where earlier responses are: this tenant's.
struct ResponseShelf {
  ResponseStore& store;
  std::string_view tenant;
};

// Takes `body` apart. The chat is read like a body of /v1/chat/completions; errors here name the fields that the client has sent. Names of
// fields that do not change the answer are appended to `ignored`.
[[nodiscard]] Result<ChatOfResponse> chat_of_response(boost::json::object body, ResponseShelf shelf, std::vector<std::string>& ignored);

// An error of that chat, with the names that this API has for its fields.
[[nodiscard]] Error in_words_of_responses(Error error);

}  // namespace quire
