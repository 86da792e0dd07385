#include "server/embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/base64.h"
#include "base/json_text.h"
#include "server/openai_error.h"

namespace quire {

namespace json = boost::json;

namespace {

struct EmbeddingForm {
  std::uint32_t size = 0;  // 0: all numbers
  bool normalize = true;
  bool is_base64 = false;
};

std::optional<std::vector<TokenId>> token_list(const json::value& value, std::uint32_t vocab_size) {
  std::vector<TokenId> tokens;
  tokens.reserve(value.get_array().size());
  for (const json::value& item : value.get_array()) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() >= std::int64_t{vocab_size}) return std::nullopt;
    tokens.push_back(static_cast<TokenId>(item.get_int64()));
  }
  return tokens;
}

// A text, token ids, or a list of either.
std::vector<Prompt> read_input(ObjectReader& reader, std::uint32_t vocab_size) {
  std::vector<Prompt> texts;
  const json::value* input = reader.find("input");
  const auto add = [&](const json::value& value) {
    if (value.is_string())
      texts.emplace_back(std::string(value.get_string()));
    else if (auto tokens = value.is_array() ? token_list(value, vocab_size) : std::nullopt)
      texts.emplace_back(*std::move(tokens));
    else
      reader.reject("input", "holds " + describe(value), fmt::format("send texts, or token ids from 0 to {}", vocab_size - 1));
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
    reader.reject("input", fmt::format("holds {} texts", input->get_array().size()), fmt::format("send at most {}", kMaxPooledTexts));
  for (const json::value& item : input->get_array())
    if (!reader.failed()) add(item);
  return texts;
}

std::uint32_t read_size(ObjectReader& reader, const PoolingContext& context) {
  const std::uint32_t width = context.model.hidden_size();
  const PoolingInfo& info = context.model.pooling();
  const auto size = reader.integer("dimensions", 1, width);
  if (!size) return 0;
  if (!info.is_matryoshka && !context.options.is_matryoshka && *size != width) {
    reader.reject("dimensions", fmt::format("is {}, and the model is not known for shorter vectors than {}", *size, width),
                  "leave it out, or serve with --matryoshka if it is trained for them", ErrorCode::unsupported);
  }
  if (!info.sizes.empty() && std::ranges::find(info.sizes, static_cast<std::uint32_t>(*size)) == info.sizes.end())
    reader.reject("dimensions", fmt::format("is {}", *size), fmt::format("use one of {}", fmt::join(info.sizes, ", ")));
  return static_cast<std::uint32_t>(*size);
}

EmbeddingForm read_form(ObjectReader& reader, const PoolingContext& context) {
  EmbeddingForm form{.size = read_size(reader, context), .normalize = context.model.pooling().normalize};
  const std::string format = reader.text("encoding_format", "float");
  form.is_base64 = format == "base64";
  if (!form.is_base64 && format != "float") reader.reject("encoding_format", fmt::format("is '{}'", shown(format)), "use float or base64");
  form.normalize = reader.boolean("normalize", form.normalize);
  form.normalize = reader.boolean("use_activation", form.normalize);  // vLLM's newer name
  reader.only("embed_dtype", R"("float32")", "leave it out");
  if (const std::string endianness = reader.text("endianness", "native"); endianness != "native" && endianness != "little")
    reader.reject("endianness", fmt::format("is '{}'", shown(endianness)), "use little");
  return form;
}

void write_vector(std::string& out, std::span<const float> values, bool is_base64) {
  static_assert(std::endian::native == std::endian::little, "clients read little-endian numbers");
  if (is_base64) {
    out += '"' + base64_of(std::as_bytes(values)) + '"';
    return;
  }
  out += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    append_json_float(out, values[i]);
  }
  out += ']';
}

std::string embeddings_answer(const PooledHead& head, std::span<const PooledVector> vectors, const EmbeddingForm& form,
                              std::uint64_t num_prompt_tokens) {
  std::string body = fmt::format(R"({{"id":{},"object":"list","created":{},"model":{},"data":[)", json_string(head.id), head.created_s,
                                 json_string(head.model));
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    body += fmt::format(R"({}{{"index":{},"object":"embedding","embedding":)", i > 0 ? "," : "", i);
    write_vector(body, finished_vector(vectors[i], form.size, form.normalize), form.is_base64);
    body += '}';
  }
  return body + fmt::format(R"(],"usage":{}}})", pooled_usage(num_prompt_tokens));
}

}  // namespace

PooledVector finished_vector(std::span<const float> row, std::uint32_t size, bool normalize) {
  if (size > 0 && size < row.size()) row = row.first(size);
  PooledVector vector(row.begin(), row.end());
  if (!normalize) return vector;
  constexpr double kLeastLength = 1e-12;  // as torch's normalize()
  double squares = 0.0;
  for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
  const double length = std::max(std::sqrt(squares), kLeastLength);
  for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
  return vector;
}

Result<PreparedPooling> prepare_embeddings(std::string body, const PoolingContext& context) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  PoolingFields fields;
  read_pooling_fields(reader, fields);
  std::vector<Prompt> texts = read_input(reader, context.model.tokenizer().vocab_size());
  const EmbeddingForm form = read_form(reader, context);
  if (auto read = reader.finish(); !read) return std::unexpected(std::move(read.error()));
  if (auto named = context.model.check_name(fields.model); !named) return std::unexpected(std::move(named.error()));
  if (!context.model.pooling().pair_template.empty())
    return fail(ErrorCode::unsupported, "model", "judges pairs of texts and makes no vectors of them", "use /v1/rerank or /v1/score");
  const auto kind = pooling_kind(context);
  if (!kind) return std::unexpected(kind.error());
  PreparedPooling prepared{.kind = "embd", .requests = {}, .answer = {}};
  for (Prompt& text : texts)
    if (auto added = add_pooled(prepared, std::move(text), fields, {.kind = *kind}, "input", context); !added)
      return std::unexpected(std::move(added.error()));
  prepared.answer = [form, num_tokens = prepared.num_prompt_tokens](const PooledHead& head, std::span<const PooledVector> vectors) {
    return embeddings_answer(head, vectors, form, num_tokens);
  };
  return prepared;
}

}  // namespace quire
