// Reads the fields that /v1/embeddings, /pooling, /v1/score and /v1/rerank share, and builds the engine's request for a text. Runs where
// the body is read, on the server's thread or in the job pool, so it keeps no state between calls. Errors name the client's field.
#include "server/api/pooling/pooling_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/context_overflow.h"
#include "server/http/error_response.h"
#include "server/http/tenants.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"
namespace quire {
namespace {

// Truncates `tokens` to `most` tokens. With `keeps_last`, truncation on the right keeps the end-of-sequence token, because last-token
// pooling needs it.
void truncate(std::vector<TokenId>& tokens, std::size_t most, bool left, bool keeps_last) {
  if (tokens.size() <= most) return;
  const TokenId last = tokens.back();
  if (left) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(most));
  tokens.resize(most);
  if (keeps_last) tokens.back() = last;
}

Result<std::vector<TokenId>> encode_pooled(Prompt text, const PoolingFields& fields, const char* field, const ServedModel& model) {
  std::vector<TokenId> tokens;
  bool keeps_last = false;
  if (auto* given = std::get_if<std::vector<TokenId>>(&text)) {
    tokens = std::move(*given);
  } else {
    const EncodeOptions options{.add_special = fields.add_special_tokens, .parse_special = true};
    const std::string& words = std::get<std::string>(text);
    auto encoded = fields.truncate_to ? model.tokenizer().encode(words, options) : model.encode(words, options, field);
    if (!encoded) return fail(encoded.error().code, field, encoded.error().message, encoded.error().remedy);
    tokens = std::move(*encoded);
    keeps_last = fields.add_special_tokens && !tokens.empty() && model.tokenizer().eos() == tokens.back();
  }
  const std::size_t most = model.max_model_len() - 1;
  if (fields.truncate_to) {
    const std::int64_t wanted = *fields.truncate_to;
    truncate(tokens, wanted < 0 ? most : std::min(most, static_cast<std::size_t>(wanted)), fields.truncates_left, keeps_last);
  }
  if (tokens.empty()) return fail(ErrorCode::invalid_argument, field, "has no tokens", "send some text");
  if (tokens.size() > most)
    return std::unexpected(overflow_error(field, {.prompt_tokens = tokens.size(), .max_model_len = model.max_model_len()}));
  return tokens;
}

}  // namespace

void read_pooling_fields(ObjectReader& reader, PoolingFields& fields) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  fields.model = reader.text("model");
  fields.add_special_tokens = reader.boolean("add_special_tokens", true);
  fields.truncate_to = reader.integer("truncate_prompt_tokens", -1, kMost);
  if (fields.truncate_to == 0) reader.reject("truncate_prompt_tokens", "is 0", "use -1, or the number of tokens to keep");
  const std::string side = reader.text("truncation_side", "right");
  if (side != "left" && side != "right") reader.reject("truncation_side", fmt::format("is '{}'", shown(side)), "use left or right");
  fields.truncates_left = side == "left";
  fields.cache_salt = reader.text("cache_salt");
  fields.priority = reader.integer("priority", 0, -kMost, kMost);
  reader.ignore("user");
  reader.ignore("request_id");
  // Rejects fields with which other vendors request a different vector of the same text.
  for (const char* other : {"input_type", "prompt_name", "instruction"}) reader.only(other, "null", "put the instruction into the text");
  reader.only("late_chunking", "false", "send each chunk as a separate text");
  reader.only("chat_template", "null", "start the server with --chat-template");
}

Result<PoolingKind> pooling_kind(const RequestContext& context) {
  if (context.options.pooling) return *context.options.pooling;
  const PoolingInfo& info = context.model.pooling();
  if (info.unsupported.empty()) return info.kind;
  return fail(ErrorCode::unsupported, "model", fmt::format("does not produce vectors: {}", info.unsupported),
              "start the server with --pooling");
}

Result<void> finish_fields(ObjectReader& reader, PoolingFields& fields, const RequestContext& context) {
  if (auto read = reader.finish(fields.ignored); !read) return read;
  if (auto heeded = check_ignored(fields.ignored, context.options); !heeded) return heeded;
  auto adapter = context.model.adapter_of(fields.model);
  if (!adapter) return std::unexpected(std::move(adapter.error()));
  fields.adapter = *std::move(adapter);
  return {};
}

Result<void> add_pooled(PreparedPooling& prepared, Prompt text, const PoolingFields& fields, PoolingParams params, const char* field,
                        const RequestContext& context) {
  auto tokens = encode_pooled(std::move(text), fields, field, context.model);
  if (!tokens) return std::unexpected(std::move(tokens.error()));
  EngineRequest& request = prepared.requests.emplace_back();
  prepared.num_prompt_tokens += tokens->size();
  request.prompt = std::move(*tokens);
  request.pooling = true;
  request.sampling.pooling = std::move(params);
  request.sampling.max_tokens = 1;
  request.cache_salt = salt_of(context.options.tenant_secret, context.tenant, fields.cache_salt);
  request.priority = fields.priority;
  request.tags.tenant = context.tenant;
  request.adapter = prepared.adapter = fields.adapter;
  prepared.ignored = fields.ignored;
  return {};
}

void write_pooled_usage(JsonWriter& json, std::uint64_t num_prompt_tokens) {
  json.begin_object("usage").field("prompt_tokens", num_prompt_tokens).field("total_tokens", num_prompt_tokens);
  json.field("completion_tokens", 0).end_object();
}

std::string pooled_list(const PooledHead& head, std::string_view object, std::size_t count, std::uint64_t num_prompt_tokens,
                        const std::function<void(JsonWriter& json, std::size_t i)>& write) {
  return json_object([&](JsonWriter& json) {
    json.field("id", head.id).field("object", "list").field("created", head.created_s).field("model", head.model).begin_array("data");
    for (std::size_t i = 0; i < count; ++i) {
      json.begin_object().field("index", i).field("object", object);
      write(json, i);
      json.end_object();
    }
    json.end_array();
    write_pooled_usage(json, num_prompt_tokens);
  });
}

}  // namespace quire
