#include "server/request/transfer_params.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/json_writer.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr const char* kShape = "send the kv_transfer_params from the producer's answer";

std::optional<std::vector<std::uint32_t>> ids_of(const json::array& values) {
  std::vector<std::uint32_t> ids;
  ids.reserve(values.size());
  for (const json::value& value : values) {
    if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
    ids.push_back(static_cast<std::uint32_t>(value.get_int64()));
  }
  return ids;
}

// Reads one list per cache group. Versions of vLLM that support only one group send the list of that group.
void read_block_ids(ObjectReader& reader, KvTransferParams& params) {
  const json::value* value = reader.find("remote_block_ids");
  if (value == nullptr) return;
  if (!value->is_array()) return reader.reject("remote_block_ids", "must be a list, not " + describe(*value), kShape);
  const json::array& lists = value->get_array();
  const bool is_nested = !lists.empty() && lists.front().is_array();
  if (!is_nested) {
    auto ids = ids_of(lists);
    if (!ids) return reader.reject("remote_block_ids", "must contain only block numbers", kShape);
    if (!ids->empty()) params.remote_block_ids.push_back(*std::move(ids));
    return;
  }
  params.remote_block_ids.reserve(lists.size());
  for (const json::value& list : lists) {
    auto ids = list.is_array() ? ids_of(list.get_array()) : std::nullopt;
    if (!ids) return reader.reject("remote_block_ids", "must contain only lists of block numbers", kShape);
    params.remote_block_ids.push_back(*std::move(ids));
  }
}

}  // namespace

void read_transfer_params(ObjectReader& reader, CompletionRequest& request) {
  json::value* value = reader.find("kv_transfer_params");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.reject("kv_transfer_params", "must be an object, not " + describe(*value),
                         R"(send {"hidden_states": true}, or remove it)");
  ObjectReader inner(value->get_object(), "kv_transfer_params.");
  request.hidden_states = inner.boolean("hidden_states", false);
  KvTransferParams params;
  params.do_remote_decode = inner.boolean("do_remote_decode", false);
  params.do_remote_prefill = inner.boolean("do_remote_prefill", false);
  read_block_ids(inner, params);
  params.remote_engine_id = inner.text("remote_engine_id");
  params.remote_request_id = inner.text("remote_request_id");
  params.remote_host = inner.text("remote_host");
  params.remote_port = static_cast<std::uint16_t>(inner.integer("remote_port", 0, 0, std::numeric_limits<std::uint16_t>::max()));
  params.tp_size = static_cast<std::uint32_t>(inner.integer("tp_size", 1, 1, 1));
  const bool is_transfer = params.do_remote_decode || params.do_remote_prefill;
  // Ignores unknown fields in a transfer, because other versions of vLLM send more fields.
  if (auto read = is_transfer ? inner.finish(request.ignored) : inner.finish(); !read) return reader.reject(std::move(read.error()));
  if (!is_transfer) return;
  if (params.do_remote_decode && request.stream)
    return reader.reject("kv_transfer_params", "requests do_remote_decode, which is not supported with stream", "do not stream");
  if (request.prompts.size() > 1 || request.hidden_states)
    return reader.reject("kv_transfer_params", "requires one prompt and no hidden states", "send a separate request for each");
  request.kv_transfer = std::move(params);
}

std::string transfer_params_json(const KvTransferParams& params) {
  const std::vector<std::uint32_t> blocks =
      params.remote_block_ids.empty() ? std::vector<std::uint32_t>() : params.remote_block_ids.front();
  return json_object([&](JsonWriter& json) {
    json.field("do_remote_prefill", params.do_remote_prefill).field("do_remote_decode", params.do_remote_decode);
    json.begin_array("remote_block_ids").value(blocks).end_array().field("remote_engine_id", params.remote_engine_id);
    json.field("remote_request_id", params.remote_request_id).field("remote_host", params.remote_host);
    json.field("remote_port", params.remote_port).field("tp_size", params.tp_size);
  });
}

}  // namespace quire
