#pragma once
// Hidden states of prompts in files, as vLLM's ExampleHiddenStatesConnector leaves them.
#include <cstdint>
#include <span>
#include <string>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "server/request/object_reader.h"
#include "server/request/request_context.h"

namespace quire {

// Of "kv_transfer_params": {"hidden_states": true}.
[[nodiscard]] bool read_hidden_states(ObjectReader& reader);

// Of rows of all tokens, which wait in memory for the last one.
Result<void> check_hidden_numbers(std::uint64_t num_tokens, const char* field, const RequestContext& context);
// That the server writes them, and that so many fit into memory.
Result<void> check_hidden_states(std::uint64_t num_tokens, const char* field, const RequestContext& context);

// Each tenant has a folder of its own in `folder`, so that no name that is taken tells of another tenant's request. Without a tenant:
// `folder`.
struct StatesPlace {
  std::string folder, tenant;
};

// NAME.safetensors there, whole or not at all: "hidden_states" in F32, [token][1][number], and "token_ids" in I64. Its path. It
// waits for the disk: neither on the engine's thread nor on the server's. Errors: `io`, or it is there.
Result<std::string> write_hidden_states(const StatesPlace& place, const std::string& name, std::span<const TokenId> tokens,
                                        std::span<const float> rows);

// {"hidden_states_path": ...}
[[nodiscard]] std::string hidden_states_params(const std::string& path);

}  // namespace quire
