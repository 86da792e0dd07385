#pragma once
// Writes hidden states of prompts to files, in the format of vLLM's ExampleHiddenStatesConnector.
#include <cstdint>
#include <span>
#include <string>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "server/request/object_reader.h"
#include "server/request/request_context.h"

namespace quire {

// Reads "kv_transfer_params": {"hidden_states": true}. Returns whether hidden states are requested.
[[nodiscard]] bool read_hidden_states(ObjectReader& reader);

// Checks that the hidden states of all tokens do not exceed the limit of values, because they are held in memory until the last token is
// computed.
Result<void> check_hidden_values(std::uint64_t num_tokens, const char* field, const RequestContext& context);
// Checks that the server is started with a folder for hidden states, and check_hidden_values().
Result<void> check_hidden_states(std::uint64_t num_tokens, const char* field, const RequestContext& context);

// The folder for hidden states. Each tenant has a separate folder in `folder`, so that an existing file name reveals nothing about another
// tenant's request. Files of requests without a tenant are in `folder` itself.
struct HiddenStatesFolder {
  std::string folder, tenant;
  // Limit in bytes for all files in `folder`. If it is exceeded, the oldest file of the tenant with the most bytes is removed. 0: no limit.
  std::uint64_t max_bytes = 0;
};

[[nodiscard]] HiddenStatesFolder make_hidden_states_folder(const ServerOptions& options, std::string tenant);

// Writes NAME.safetensors and returns its path. Only the server's user can read the file. The file appears complete or not at all. It
// contains "hidden_states" in F32, [token][1][element], and "token_ids" in I64. Waits for the disk, so it must not be called on the
// engine's or the server's thread. Errors: `io`; the file is larger than the limit; the file exists.
Result<std::string> write_hidden_states(const HiddenStatesFolder& destination, const std::string& name, std::span<const TokenId> tokens,
                                        std::span<const float> rows);

// Returns {"hidden_states_path": ...}.
[[nodiscard]] std::string hidden_states_params(const std::string& path);

}  // namespace quire
