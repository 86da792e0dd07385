// Rows of a prompt's last layer in a file. Reading and checking happen on the pool that parses requests, writing on one that may wait for a
// disk. A file is written under another name and renamed, so that nobody ever reads half of one.
#include "server/request/hidden_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/json_text.h"
#include "server/request/served_model.h"
namespace quire {

namespace json = boost::json;

namespace {

// Its length, and the header itself, which is filled up so that the numbers behind it are aligned.
std::string safetensors_header(std::size_t num_tokens, std::size_t num_numbers) {
  const std::size_t width = num_numbers / num_tokens, rows_end = num_numbers * sizeof(float);
  std::string header = fmt::format(
      R"({{"hidden_states":{{"dtype":"F32","shape":[{},1,{}],"data_offsets":[0,{}]}},"token_ids":{{"dtype":"I64","shape":[{}],"data_offsets":[{},{}]}}}})",
      num_tokens, width, rows_end, num_tokens, rows_end, rows_end + num_tokens * sizeof(std::int64_t));
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string out;
  for (std::uint64_t length = header.size(), i = 0; i < 8; ++i) out += static_cast<char>(length >> 8 * i & 0xFFU);
  return out + header;
}

void write_bytes(std::ofstream& out, std::span<const std::byte> bytes) {
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Error not_written(const std::string& folder, int cause) {
  return {ErrorCode::io, "kv_transfer_params",
          fmt::format("asks for a file in '{}', which cannot be written: {}", folder, std::generic_category().message(cause)),
          "see to the folder of --hidden-states, and send it again"};
}

}  // namespace

bool read_hidden_states(ObjectReader& reader) {
  json::value* params = reader.find("kv_transfer_params");
  if (params == nullptr) return false;
  if (!params->is_object()) {
    reader.reject("kv_transfer_params", "holds " + describe(*params), R"(send {"hidden_states": true}, or remove it)");
    return false;
  }
  ObjectReader inner(params->get_object(), "kv_transfer_params.");
  const bool wanted = inner.boolean("hidden_states", false);
  if (auto read = inner.finish(); !read) reader.reject(std::move(read.error()));
  return wanted;
}

Result<void> check_hidden_numbers(std::uint64_t num_tokens, const char* field, const RequestContext& context) {
  const std::uint64_t width = context.model.hidden_size(), most = context.options.max_hidden_numbers;
  if (num_tokens * width <= most) return {};
  return fail(ErrorCode::invalid_argument, field,
              fmt::format("has {} tokens or more, whose vectors of {} numbers each are more than {} in all", num_tokens, width, most),
              fmt::format("send at most {} tokens in a call", most / std::max<std::uint64_t>(width, 1)));
}

Result<void> check_hidden_states(std::uint64_t num_tokens, const char* field, const RequestContext& context) {
  if (context.options.hidden_states_folder.empty())
    return fail(ErrorCode::unsupported, "kv_transfer_params", "asks for hidden states, and this server writes none",
                "serve with --hidden-states DIR");
  return check_hidden_numbers(num_tokens, field, context);
}

Result<std::string> write_hidden_states(const StatesPlace& place, const std::string& name, std::span<const TokenId> tokens,
                                        std::span<const float> rows) {
  static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");
  namespace fs = std::filesystem;
  // A tenant may be called "..".
  const fs::path home = place.tenant.empty() ? fs::path(place.folder) : fs::path(place.folder) / ("tenant-" + place.tenant);
  const fs::path path = home / (name + ".safetensors"), draft = home / ("." + name + ".tmp");
  std::error_code code;
  if (!place.tenant.empty() && !fs::create_directory(home, code) && code) return std::unexpected(not_written(home.string(), code.value()));
  if (fs::exists(path, code))
    return fail(ErrorCode::invalid_argument, "X-Request-Id", "is one whose hidden states are there already", "send another one, or none");
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  errno = 0;
  std::ofstream out(draft, std::ios::binary | std::ios::trunc);
  const std::string header = safetensors_header(tokens.size(), rows.size());
  write_bytes(out, std::as_bytes(std::span(header)));
  write_bytes(out, std::as_bytes(rows));
  write_bytes(out, std::as_bytes(std::span(ids)));
  out.close();
  const int cause = out ? 0 : errno;
  if (out) fs::rename(draft, path, code);
  if (out && !code) return path.string();
  const Error error = not_written(home.string(), out ? code.value() : cause);
  fs::remove(draft, code);
  return std::unexpected(error);
}

std::string hidden_states_params(const std::string& path) {
  return fmt::format(R"({{"hidden_states_path":{}}})", json_string(path));
}

}  // namespace quire
