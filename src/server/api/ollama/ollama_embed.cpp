#include "server/api/ollama/ollama_embed.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "server/api/ollama/ollama_models.h"
#include "server/api/ollama/ollama_request.h"
#include "server/api/pooling/embeddings.h"
#include "server/api/pooling/pooling_request.h"
#include "server/api/pooling/vector_form.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

// Reads the fields that both routes share, except the texts. Returns the model's name as the client sent it.
std::string read_shared_fields(ObjectReader& reader, PoolingFields& fields, const RequestContext& context) {
  fields.model = reader.text("model");
  if (fields.model.empty()) reader.reject("model", "is missing", "use a model from /api/tags");
  (void)read_keep_alive(reader);
  if (boost::json::value* options = reader.find("options")) {
    if (!options->is_object()) {
      reader.reject("options", "must be an object, not " + describe(*options));
    } else {
      // The other options are about generated text.
      ObjectReader inner(options->get_object(), "options.");
      read_num_ctx(inner, context.model.max_model_len());
      if (const auto done = inner.finish(fields.ignored, true); !done) reader.reject(done.error());
    }
  }
  return fields.model;
}

// Finds the model that the client names, and adds a request to the engine for each text.
Result<PreparedPooling> prepare_texts(ObjectReader& reader, PoolingFields fields, std::vector<Prompt> texts, const char* field,
                                      const RequestContext& context) {
  if (auto found = find_ollama_model(context.model, fields.model); found)
    fields.model = *std::move(found);
  else if (!fields.model.empty())
    reader.reject(found.error());
  if (auto read = finish_fields(reader, fields, context); !read) return std::unexpected(std::move(read.error()));
  if (!context.model.pooling().pair_template.empty())
    return fail(ErrorCode::unsupported, "model", "is a cross-encoder, which does not produce embeddings", "use /v1/rerank or /v1/score");
  const auto kind = pooling_kind(context);
  if (!kind) return std::unexpected(kind.error());
  PreparedPooling prepared{.kind = "embd", .requests = {}, .answer = {}, .ignored = fields.ignored};
  for (Prompt& text : texts)
    if (auto added = add_pooled(prepared, std::move(text), fields, {.kind = *kind}, field, context); !added)
      return std::unexpected(std::move(added.error()));
  return prepared;
}

}  // namespace

Result<PreparedPooling> prepare_ollama_embed(std::string body, const RequestContext& context) {
  const auto received = std::chrono::steady_clock::now();
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  PoolingFields fields;
  std::string name = read_shared_fields(reader, fields, context);
  if (reader.boolean("truncate", true)) fields.truncate_to = -1;
  const std::uint32_t size = read_dimensions(reader, context);
  // A body without texts asks for the model to be loaded.
  const boost::json::value* input = reader.find("input");
  const bool is_load = input == nullptr || (input->is_array() && input->get_array().empty());
  std::vector<Prompt> texts;
  if (!is_load) texts = read_input(reader, context.model.tokenizer().vocab_size());
  auto prepared = prepare_texts(reader, std::move(fields), std::move(texts), "input", context);
  if (!prepared) return prepared;
  const auto submitted = std::chrono::steady_clock::now();
  prepared->answer = [name = std::move(name), size, received, submitted, num_tokens = prepared->num_prompt_tokens](
                         const PooledHead& /*head*/, std::span<const PooledVector> vectors) -> Result<std::string> {
    return json_object([&](JsonWriter& json) {
      json.field("model", name).begin_array("embeddings");
      for (const PooledVector& vector : vectors) write_vector(json, finished_vector(vector, size, true), false);
      const std::chrono::nanoseconds total = std::chrono::steady_clock::now() - received, load = submitted - received;
      json.end_array().field("total_duration", total.count()).field("load_duration", load.count());
      json.field("prompt_eval_count", num_tokens);
    });
  };
  return prepared;
}

Result<PreparedPooling> prepare_ollama_embeddings(std::string body, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  PoolingFields fields;
  (void)read_shared_fields(reader, fields, context);
  fields.truncate_to = -1;
  std::vector<Prompt> texts;
  if (std::string prompt = reader.text("prompt"); !prompt.empty()) texts.emplace_back(std::move(prompt));
  auto prepared = prepare_texts(reader, std::move(fields), std::move(texts), "prompt", context);
  if (!prepared) return prepared;
  prepared->answer = [](const PooledHead& /*head*/, std::span<const PooledVector> vectors) -> Result<std::string> {
    return json_object([&](JsonWriter& json) {
      json.key("embedding");
      write_vector(json, vectors.empty() ? PooledVector() : vectors.front(), false);
    });
  };
  return prepared;
}

}  // namespace quire
