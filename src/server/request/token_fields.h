#pragma once
// Reads token ids in request bodies.
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "server/request/object_reader.h"

namespace quire {

// Returns nullopt if the value is not an integer from 0 to vocab_size - 1.
[[nodiscard]] std::optional<TokenId> token_of(const boost::json::value& value, std::uint32_t vocab_size);
// Reads an array of token ids. Reports errors to the reader.
[[nodiscard]] std::vector<TokenId> read_tokens(ObjectReader& reader, std::string_view name, const boost::json::value& value,
                                               std::uint32_t vocab_size);

}  // namespace quire
