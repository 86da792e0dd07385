#pragma once
// Reads the fields that all pooling routes share, and builds their requests to the engine.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "quire/base/error.h"
#include "quire/engine.h"
#include "quire/server_options.h"
#include "server/answers/pooling_call.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"
#include "server/request/request_context.h"

namespace quire {

// Maximum number of texts, or of pairs of texts, in one call.
inline constexpr std::size_t kMaxPooledTexts = 2048;

// The fields that all pooling routes share.
struct PoolingFields {
  std::string model;
  std::string adapter{};  // LoRA adapter that `model` names; empty: none
  bool add_special_tokens = true;
  // Maximum number of tokens to keep of each text; -1: as many as fit.
  std::optional<std::int64_t> truncate_to;
  bool truncates_left = false;
  std::string cache_salt;
  std::int64_t priority = 0;
  std::vector<std::string> ignored;  // names of fields that do not change the answer
};

void read_pooling_fields(ObjectReader& reader, PoolingFields& fields);
// Returns the kind of pooling that --pooling sets, or else the model's kind. Errors: `unsupported`.
Result<PoolingKind> pooling_kind(const RequestContext& context);
// Finishes the reader: fields that were not read are added to `ignored`, or rejected with --strict-fields. Then finds the adapter that
// `model` names. Errors: the reader's first error, `unsupported`, `not_found`.
Result<void> finish_fields(ObjectReader& reader, PoolingFields& fields, const RequestContext& context);
// Adds the engine request for one text. Errors name `field`.
Result<void> add_pooled(PreparedPooling& prepared, Prompt text, const PoolingFields& fields, PoolingParams params, const char* field,
                        const RequestContext& context);
void write_pooled_usage(JsonWriter& json, std::uint64_t num_prompt_tokens);
// Returns the body of a response with a list of `count` objects; `write` writes the further fields of object i. `object` is the type of the
// objects.
[[nodiscard]] std::string pooled_list(const PooledHead& head, std::string_view object, std::size_t count, std::uint64_t num_prompt_tokens,
                                      const std::function<void(JsonWriter& json, std::size_t i)>& write);

}  // namespace quire
