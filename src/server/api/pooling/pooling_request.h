#pragma once
// What calls for vectors of texts have in common: their texts, and the requests that the engine gets for them.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine.h"
#include "quire/server_options.h"
#include "server/answers/pooling_call.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"
#include "server/request/request_context.h"

namespace quire {

// Texts, or pairs of them, in one call.
inline constexpr std::size_t kMaxPooledTexts = 2048;

// Fields of every such call.
struct PoolingFields {
  std::string model;
  std::string adapter{};  // that this names; empty: none
  bool add_special_tokens = true;
  // Keeps so many tokens of each text; -1: as many as fit.
  std::optional<std::int64_t> truncate_to;
  bool truncates_left = false;
  std::string cache_salt;
  std::int64_t priority = 0;
};

void read_pooling_fields(ObjectReader& reader, PoolingFields& fields);
// The model's own way, or the one that it is served with. Errors: `unsupported`.
Result<PoolingKind> pooling_kind(const RequestContext& context);
// The adapter that they name. Errors: `not_found`.
Result<void> find_adapter(PoolingFields& fields, const RequestContext& context);
// Adds a request. `field`: where its text is from.
Result<void> add_pooled(PreparedPooling& prepared, Prompt text, const PoolingFields& fields, PoolingParams params, const char* field,
                        const RequestContext& context);
std::string pooled_usage(std::uint64_t num_prompt_tokens);

}  // namespace quire
