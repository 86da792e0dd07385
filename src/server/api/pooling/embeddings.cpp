#include "server/api/pooling/embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/api/pooling/vector_form.h"
#include "server/request/served_model.h"
namespace quire {
namespace {

std::string embeddings_answer(const PooledHead& head, std::span<const PooledVector> vectors, const VectorForm& form,
                              std::uint64_t num_prompt_tokens) {
  return pooled_list(head, "embedding", vectors.size(), num_prompt_tokens, [&](JsonWriter& json, std::size_t i) {
    json.key("embedding");
    write_vector(json, finished_vector(vectors[i], form.size, form.normalize), form.is_base64);
  });
}

}  // namespace

std::uint32_t read_dimensions(ObjectReader& reader, const RequestContext& context) {
  const std::uint32_t width = context.model.hidden_size();
  const PoolingInfo& info = context.model.pooling();
  const auto size = reader.integer("dimensions", 1, width);
  if (!size) return 0;
  if (!info.is_matryoshka && !context.options.is_matryoshka && *size != width) {
    reader.reject("dimensions", fmt::format("is {}, but the model is not known to support vectors shorter than {}", *size, width),
                  "leave it out, or start the server with --matryoshka if the model is trained for shorter vectors",
                  ErrorCode::unsupported);
  }
  if (!info.sizes.empty() && std::ranges::find(info.sizes, static_cast<std::uint32_t>(*size)) == info.sizes.end())
    reader.reject("dimensions", fmt::format("is {}", *size), fmt::format("use one of {}", fmt::join(info.sizes, ", ")));
  return static_cast<std::uint32_t>(*size);
}

Result<PreparedPooling> prepare_embeddings(std::string body, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  PoolingFields fields;
  read_pooling_fields(reader, fields);
  std::vector<Prompt> texts = read_input(reader, context.model.tokenizer().vocab_size());
  VectorForm form{.size = read_dimensions(reader, context), .normalize = context.model.pooling().normalize, .is_base64 = false};
  read_form(reader, form);
  if (auto read = finish_fields(reader, fields, context); !read) return std::unexpected(std::move(read.error()));
  if (!context.model.pooling().pair_template.empty())
    return fail(ErrorCode::unsupported, "model", "is a cross-encoder, which does not produce embeddings", "use /v1/rerank or /v1/score");
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
