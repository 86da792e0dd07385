// Routes of /v1/responses. Runs on the server's thread, except for jobs of the job pool. A tenant sees only its own responses. The
// request's API key determines the tenant; no field of the body does.
#include "server/api/responses/responses_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "server/api/responses/responses_answer.h"
#include "server/api/responses/responses_request.h"
#include "server/api/responses/stored_pages.h"
#include "server/api/serving.h"
#include "server/http/error_response.h"
#include "server/http/query.h"
#include "server/request/object_reader.h"
#include "server/request/prepare.h"

namespace quire {

namespace {

constexpr std::string_view kCompact = "/v1/responses/compact";
constexpr std::string_view kResponse = "/v1/responses/*", kInputItems = "/v1/responses/*/input_items";
constexpr std::uint64_t kMaxConversationBytes = 32 << 10;  // assumed size of a stored conversation

using Store = std::shared_ptr<ResponseStore>;

class ResponseShape final : public AnswerShape {
 public:
  ResponseShape(ResponseCall call, Store store) : call_(std::move(call)), store_(std::move(store)) {}

  [[nodiscard]] std::string_view id_prefix() const override { return "resp_"; }
  [[nodiscard]] bool always_has_parts() const override { return true; }
  [[nodiscard]] Error with_client_field_names(Error error) const override { return with_responses_field_names(std::move(error)); }
  [[nodiscard]] std::unique_ptr<AnswerWriter> make_writer(AnswerHead head, const CompletionRequest& request,
                                                          const Tokenizer& tokenizer) const override {
    auto keep = [store = store_, tenant = request.tags.tenant](StoredResponse stored) {
      store->put(tenant, std::make_shared<const StoredResponse>(std::move(stored)));
    };
    auto writer = std::make_unique<ResponseWriter>(std::move(head), request.stream, call_, tokenizer, std::move(keep));
    writer->set_comparison(request.compared);
    return writer;
  }

 private:
  ResponseCall call_;
  Store store_;
};

Result<CompletionRequest> read_response_body(std::string body, const Store& store, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}), context.cancellation);
  if (!object) return std::unexpected(object.error());
  std::vector<std::string> ignored;
  const GenerationDefaults& defaults = context.options.generation_defaults;
  fill_defaults(*object, {.temperature = defaults.temperature, .top_p = defaults.top_p});
  auto translated = chat_of_response(std::move(*object), {*store, context.tenant}, ignored);
  if (!translated) return std::unexpected(translated.error());
  const bool is_stored = translated->call.is_stored;
  const std::optional<std::string> compare_with = translated->call.compare_with;
  auto shape = std::make_shared<const ResponseShape>(std::move(translated->call), store);
  auto parsed = read_chat_of(std::move(shape), std::move(translated->chat), ignored, context);
  if (!parsed) return parsed;
  parsed->return_token_ids = is_stored;
  if (is_stored || compare_with) parsed->compare = {.with = compare_with.value_or("")};
  if (translated->previous != nullptr) parsed->known_prefix_tokens = {translated->previous, &translated->previous->tokens};
  return parsed;
}

Result<std::string> count_input_tokens(std::string body, const Store& store, const RequestContext& context) {
  auto parsed = read_response_body(std::move(body), store, context);
  if (!parsed) return std::unexpected(parsed.error());
  const auto count = count_prompt_tokens(*std::move(parsed), context);
  if (!count) return std::unexpected(count.error());
  return json_object([&](JsonWriter& json) { json.field("object", "response.input_tokens").field("input_tokens", *count); });
}

// Returns the number of bytes to read, including the assumed size of an earlier conversation, because a small body may continue a large
// conversation.
std::size_t num_bytes_to_read(const HttpRequest& request, const ResponseStore& store) {
  const bool is_alone =
      request.body.find("previous_response_id") == std::string::npos && request.body.find("item_reference") == std::string::npos;
  return request.body.size() + (is_alone ? 0 : std::min(store.num_bytes(), kMaxConversationBytes));
}

Error no_response(std::string_view id) {
  return {ErrorCode::not_found, "id", fmt::format("'{}' is unknown or no longer stored", shown(id)),
          "check the id, and whether the response was created with \"store\": false"};
}

Reply create_response(Serving& serving, const Store& store, HttpRequest& request, const Wake& wake) {
  const auto read = [store](std::string body, const RequestContext& context) {
    return read_response_body(std::move(body), store, context);
  };
  return serving.complete(request, num_bytes_to_read(request, *store), wake, read);
}

Reply count_input(Serving& serving, const Store& store, HttpRequest& request, const Wake& wake) {
  return serving.answer_body(
      request, num_bytes_to_read(request, *store), wake,
      [&serving, store, tenant = serving.tenant_of(request)](std::string body, const CancellationPoint& cancellation) {
        return count_input_tokens(std::move(body), store, serving.context(tenant, &cancellation));
      });
}

Reply read_response(Serving& serving, ResponseStore& store, const HttpRequest& request) {
  const std::string_view id = path_parameter(kResponse, request.path());
  QueryReader query(request.target);
  if (query.boolean("stream", false)) query.reject("stream", "is not supported for a finished response", "read it without stream");
  for (const char* hint : {"include", "include[]", "include_obfuscation"}) (void)query.text(hint, "");
  if (const auto done = query.finish(); !done) return serving.refuse(done.error());
  const auto found = store.find(serving.tenant_of(request), id);
  if (found == nullptr) return serving.refuse(no_response(id));
  return Serving::json_reply(found->body);
}

Reply delete_response(Serving& serving, ResponseStore& store, const HttpRequest& request) {
  const std::string id(path_parameter(kResponse, request.path()));
  if (!store.erase(serving.tenant_of(request), id)) return serving.refuse(no_response(id));
  return Serving::json_reply([&](JsonWriter& json) { json.field("id", id).field("object", "response").field("deleted", true); });
}

Reply read_input(Serving& serving, ResponseStore& store, HttpRequest& request, const Wake& wake) {
  const auto page = parse_item_page(request.target);
  if (!page) return serving.refuse(page.error());
  const std::string_view id = path_parameter(kInputItems, request.path());
  const auto found = store.find(serving.tenant_of(request), id);
  if (found == nullptr) return serving.refuse(no_response(id));
  return serving.answer_body(
      request, found->input.size(), wake,
      [found, page = *page](const std::string& /*body*/, const CancellationPoint& /*cancellation*/) -> Result<std::string> {
        return input_items(*found, page);
      });
}

}  // namespace

ApiRoutes responses_routes(Serving& serving) {
  const auto store = std::make_shared<ResponseStore>(serving.options().max_response_store_bytes);
  // Without this route, "compact" would be read as the id of a response.
  const auto no_compaction = [&serving](HttpRequest&, const Wake&) {
    return serving.refuse(
        {ErrorCode::not_found, "", "this server does not compact conversations", "ask the model for a summary, or send truncation"});
  };
  return {.routes = {
              {kCompact, "POST", Access::key, no_compaction},
              {"/v1/responses", "POST", Access::key,
               [&serving, store](HttpRequest& request, const Wake& wake) { return create_response(serving, store, request, wake); }},
              {"/v1/responses/input_tokens", "POST", Access::key,
               [&serving, store](HttpRequest& request, const Wake& wake) { return count_input(serving, store, request, wake); }},
              {kResponse, "GET", Access::key,
               [&serving, store](HttpRequest& request, const Wake&) { return read_response(serving, *store, request); }},
              {kResponse, "DELETE", Access::key,
               [&serving, store](HttpRequest& request, const Wake&) { return delete_response(serving, *store, request); }},
              {kInputItems, "GET", Access::key,
               [&serving, store](HttpRequest& request, const Wake& wake) { return read_input(serving, *store, request, wake); }},
          }};
}

}  // namespace quire
