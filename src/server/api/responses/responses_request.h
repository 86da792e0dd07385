#pragma once
// Translates the body of /v1/responses into the equivalent chat request.
#include <boost/json/object.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "server/api/responses/response_store.h"

namespace quire {

// The data of a request that its answer needs.
struct ResponseCall {
  bool is_stored = false;
  std::optional<std::string> compare_with{};  // prompt_cache_options.comparison_response_id
  std::string settings;                       // JSON text: fields of the answer that repeat fields of the request
  std::string input;                          // StoredResponse::input; empty if the answer is not stored
  std::string conversation;                   // StoredResponse::conversation without the answer; empty if the answer is not stored
};

struct ChatOfResponse {
  boost::json::object chat;
  ResponseCall call;
  std::shared_ptr<const StoredResponse> previous{};
};

// The response store and the tenant whose responses may be used.
struct TenantResponses {
  ResponseStore& store;
  std::string_view tenant;
};

// Consumes `body`. The returned chat must be read like a body of /v1/chat/completions. Appends to `ignored` the names of fields that do not
// change the answer. Errors name the fields that the client sent.
[[nodiscard]] Result<ChatOfResponse> chat_of_response(boost::json::object body, TenantResponses tenant_responses,
                                                      std::vector<std::string>& ignored);

// Converts an error of the translated chat: renames its fields to the names in this API.
[[nodiscard]] Error with_responses_field_names(Error error);

}  // namespace quire
