#include "server/api/pooling/vector_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/base64.h"
#include "server/api/pooling/pooling_request.h"
#include "server/http/error_response.h"

namespace quire {

namespace json = boost::json;

namespace {

std::optional<std::vector<TokenId>> token_list(const json::value& value, std::uint32_t vocab_size) {
  std::vector<TokenId> tokens;
  tokens.reserve(value.get_array().size());
  for (const json::value& item : value.get_array()) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() >= std::int64_t{vocab_size}) return std::nullopt;
    tokens.push_back(static_cast<TokenId>(item.get_int64()));
  }
  return tokens;
}

}  // namespace

std::vector<Prompt> read_input(ObjectReader& reader, std::uint32_t vocab_size) {
  std::vector<Prompt> texts;
  const json::value* input = reader.find("input");
  const auto add = [&](const json::value& value) {
    if (value.is_string())
      texts.emplace_back(std::string(value.get_string()));
    else if (auto tokens = value.is_array() ? token_list(value, vocab_size) : std::nullopt)
      texts.emplace_back(*std::move(tokens));
    else
      reader.reject("input", "contains " + describe(value), fmt::format("send texts, or token ids from 0 to {}", vocab_size - 1));
  };
  if (input == nullptr) {
    reader.reject("input", "is missing", "send a text or a list of texts");
    return texts;
  }
  const bool is_list = input->is_array() && !input->get_array().empty() && !input->get_array().front().is_number();
  if (!is_list) {
    add(*input);
    return texts;
  }
  if (input->get_array().size() > kMaxPooledTexts)
    reader.reject("input", fmt::format("contains {} texts", input->get_array().size()), fmt::format("send at most {}", kMaxPooledTexts));
  for (const json::value& item : input->get_array())
    if (!reader.failed()) add(item);
  return texts;
}

void read_form(ObjectReader& reader, VectorForm& form) {
  const std::string format = reader.text("encoding_format", "float");
  form.is_base64 = format == "base64";
  if (!form.is_base64 && format != "float") reader.reject("encoding_format", fmt::format("is '{}'", shown(format)), "use float or base64");
  form.normalize = reader.boolean("normalize", form.normalize);
  form.normalize = reader.boolean("use_activation", form.normalize);  // newer name in vLLM
  reader.only("embed_dtype", R"("float32")", "leave it out");
  if (const std::string endianness = reader.text("endianness", "native"); endianness != "native" && endianness != "little")
    reader.reject("endianness", fmt::format("is '{}'", shown(endianness)), "use little");
}

PooledVector finished_vector(std::span<const float> row, std::uint32_t size, bool normalize) {
  if (size > 0 && size < row.size()) row = row.first(size);
  PooledVector vector(row.begin(), row.end());
  if (!normalize) return vector;
  constexpr double kLeastLength = 1e-12;  // the minimum in torch's normalize()
  double squares = 0.0;
  for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
  const double length = std::max(std::sqrt(squares), kLeastLength);
  for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
  return vector;
}

void write_vector(JsonWriter& json, std::span<const float> values, bool is_base64) {
  static_assert(std::endian::native == std::endian::little, "the machine is little-endian, as clients expect");
  if (is_base64)
    json.value(base64_of(std::as_bytes(values)));
  else
    json.value(values);
}

}  // namespace quire
