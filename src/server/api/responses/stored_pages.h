#pragma once
// Reads the items of stored responses' requests, page by page.
#include <cstddef>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "server/api/responses/response_store.h"

namespace quire {

struct ItemPage {
  bool is_ascending = false;
  std::size_t limit = 20;
  std::string after;  // id of the item before the page; empty: from the beginning
};

// Parses the query of a request target.
Result<ItemPage> parse_item_page(std::string_view target);

// Returns the body of the response. Called on any thread.
[[nodiscard]] std::string input_items(const StoredResponse& response, const ItemPage& page);

}  // namespace quire
