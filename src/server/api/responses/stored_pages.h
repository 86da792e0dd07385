#pragma once
// What is read of answers that are kept: the items of their requests, page by page.
#include <cstddef>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "server/api/responses/response_store.h"

namespace quire {

struct ItemPage {
  bool is_ascending = false;
  std::size_t limit = 20;
  std::string after;  // the id of an item; empty: from the begin
};

// Of the query of a request's target.
Result<ItemPage> parse_item_page(std::string_view target);

// Any thread. The body of the answer.
[[nodiscard]] std::string input_items(const StoredResponse& response, const ItemPage& page);

}  // namespace quire
