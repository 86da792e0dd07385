// Implements /pooling: reads a body, builds a request for each of its texts or for its conversation, and writes the answer. Reading and
// writing run on the server's thread or in the job pool; between them the engine computes. The rows of all tokens may be large, so their
// total size is limited before the engine gets a request.
#include "server/api/pooling/token_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json_writer.h"
#include "server/api/pooling/vector_form.h"
#include "server/http/error_response.h"
#include "server/http/tenants.h"
#include "server/request/chat_messages.h"
#include "server/request/hidden_states.h"
#include "server/request/served_model.h"
namespace quire {

namespace json = boost::json;

namespace {

struct PoolingRequest {
  PoolingFields fields;
  const char* field = "input";
  std::vector<Prompt> texts;
  std::optional<ChatPrompt> chat;       // replaces `texts`
  std::vector<PromptImage> pictures{};  // images of the conversation, set when it is rendered
  bool of_tokens = false;
  bool to_files = false;
  VectorForm form;
};

// Reads a conversation. By default no generation prompt and no special tokens are added, as in vLLM, because the conversation is encoded
// and not answered.
ChatPrompt read_conversation(json::object& object, ObjectReader& reader, PoolingFields& fields, const ImageReading& image_reading) {
  if (json::value& generates = object["add_generation_prompt"]; generates.is_null()) generates = false;
  fields.add_special_tokens = reader.boolean("add_special_tokens", false);
  reader.ignore("media_io_kwargs");
  return read_chat_prompt(reader, image_reading);
}

// Returns whether the vectors of all tokens are requested (task token_embed). The default task is embed, as in vLLM for embedding models.
bool read_of_tokens(ObjectReader& reader) {
  const std::string task = reader.text("task", "embed");
  if (task != "embed" && task != "token_embed")
    reader.reject("task", fmt::format("is '{}'", shown(task)), "use embed or token_embed", ErrorCode::unsupported);
  return task == "token_embed";
}

Result<PoolingRequest> parse_pooling(std::string body, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  PoolingRequest request;
  read_pooling_fields(reader, request.fields);
  request.of_tokens = read_of_tokens(reader);
  if (object->contains("messages")) {
    request.field = "messages";
    reader.only("input", "null", "send either input or messages");
    request.chat = read_conversation(*object, reader, request.fields, context.model.image_reading());
  } else {
    request.texts = read_input(reader, context.model.tokenizer().vocab_size());
  }
  request.form.normalize = request.of_tokens || context.model.pooling().normalize;
  read_form(reader, request.form);
  reader.only("dimensions", "null", "use /v1/embeddings");
  request.to_files = read_hidden_states(reader);
  if (request.to_files && !request.of_tokens)
    reader.reject("task", "is embed, but kv_transfer_params requests hidden states", "use token_embed");
  reader.ignore("mm_processor_kwargs");
  if (auto read = finish_fields(reader, request.fields, context); !read) return std::unexpected(std::move(read.error()));
  return request;
}

// Writes the rows as an array [token][number], or the bytes of all numbers in base64.
void write_rows(JsonWriter& json, std::span<const float> rows, std::uint32_t width, const VectorForm& form) {
  PooledVector all;
  if (!form.is_base64) json.begin_array();
  for (std::size_t begin = 0; begin < rows.size(); begin += width) {
    const PooledVector row = finished_vector(rows.subspan(begin, width), 0, form.normalize);
    if (form.is_base64) {
      all.insert(all.end(), row.begin(), row.end());
      continue;
    }
    json.value(row);
  }
  if (form.is_base64)
    write_vector(json, all, true);
  else
    json.end_array();
}

// Returns the body of the response. `width` is the size of each token's vector, or 0 if each answer is one vector.
std::string pooling_answer(const PooledHead& head, std::span<const PooledVector> answers, const VectorForm& form, std::uint32_t width,
                           std::uint64_t num_prompt_tokens) {
  return pooled_list(head, "pooling", answers.size(), num_prompt_tokens, [&](JsonWriter& json, std::size_t i) {
    json.key("data");
    if (width > 0)
      write_rows(json, answers[i], width, form);
    else
      write_vector(json, finished_vector(answers[i], 0, form.normalize), form.is_base64);
  });
}

Result<void> render_chat(PoolingRequest& request, const RequestContext& context) {
  if (!request.chat) return {};
  if (request.chat->pictures.empty()) {
    auto text = context.model.render(std::move(*request.chat), context.cancellation);
    if (!text) return std::unexpected(std::move(text.error()));
    request.texts.emplace_back(std::move(*text));
    return {};
  }
  CompletionRequest chat;
  chat.api = Api::chat;
  chat.chat = std::move(*request.chat);
  chat.add_special_tokens = request.fields.add_special_tokens;
  chat.truncate_to = request.fields.truncate_to;
  chat.cache_salt = salt_of(context.options.tenant_secret, context.tenant, request.fields.cache_salt);
  auto prompts = context.model.encode_prompts(chat);
  if (!prompts) return std::unexpected(std::move(prompts.error()));
  request.texts.emplace_back(std::move(prompts->front()));
  request.pictures = std::move(chat.pictures);
  return {};
}

// Writes the rows to files and returns the body of the response, which contains the paths instead of the rows.
Result<std::string> files_answer(const PooledHead& head, std::span<const PooledVector> answers,
                                 const std::vector<std::vector<TokenId>>& prompts, const HiddenStatesFolder& destination,
                                 std::uint64_t num_prompt_tokens) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    auto path = write_hidden_states(destination, fmt::format("{}-{}", head.id, i), prompts[i], answers[i]);
    if (!path) return std::unexpected(path.error());
    paths.push_back(*std::move(path));
  }
  return pooled_list(head, "pooling", answers.size(), num_prompt_tokens, [&](JsonWriter& json, std::size_t i) {
    json.begin_array("data").end_array().raw_field("kv_transfer_params", hidden_states_params(paths[i]));
  });
}

// Returns the kind of pooling: PoolingKind::all for the rows of all tokens, else the kind that /v1/embeddings uses.
Result<PoolingKind> kind_of(const PoolingRequest& request, const RequestContext& context) {
  if (request.of_tokens) return PoolingKind::all;
  if (context.model.pooling().pair_template.empty()) return pooling_kind(context);
  return fail(ErrorCode::unsupported, "task", "is embed, but the model is a cross-encoder", "use token_embed, /v1/rerank or /v1/score");
}

}  // namespace

Result<PreparedPooling> prepare_pooling(std::string body, const RequestContext& context) {
  auto request = parse_pooling(std::move(body), context);
  if (!request) return std::unexpected(std::move(request.error()));
  const auto kind = kind_of(*request, context);
  if (!kind) return std::unexpected(kind.error());
  if (auto rendered = render_chat(*request, context); !rendered) return std::unexpected(std::move(rendered.error()));
  PreparedPooling prepared{.kind = "pool", .requests = {}, .answer = {}};
  for (Prompt& text : request->texts) {
    if (auto added = add_pooled(prepared, std::move(text), request->fields, {.kind = *kind}, request->field, context); !added)
      return std::unexpected(std::move(added.error()));
    prepared.requests.back().pictures = request->pictures;
    if (!request->of_tokens) continue;
    if (auto fits = check_hidden_values(prepared.num_prompt_tokens, request->field, context); !fits)
      return std::unexpected(std::move(fits.error()));
  }
  if (request->to_files) {
    if (auto served = check_hidden_states(prepared.num_prompt_tokens, request->field, context); !served)
      return std::unexpected(std::move(served.error()));
    std::vector<std::vector<TokenId>> prompts;
    prompts.reserve(prepared.requests.size());
    for (const EngineRequest& each : prepared.requests) prompts.push_back(each.prompt);
    prepared.writes_files = true;
    prepared.answer = [prompts = std::move(prompts), destination = make_hidden_states_folder(context.options, std::string(context.tenant)),
                       num_tokens = prepared.num_prompt_tokens](const PooledHead& head, std::span<const PooledVector> answers) {
      return files_answer(head, answers, prompts, destination, num_tokens);
    };
    return prepared;
  }
  const std::uint32_t width = request->of_tokens ? context.model.hidden_size() : 0;
  prepared.answer = [form = request->form, width, num_tokens = prepared.num_prompt_tokens](const PooledHead& head,
                                                                                           std::span<const PooledVector> answers) {
    return pooling_answer(head, answers, form, width, num_tokens);
  };
  return prepared;
}

}  // namespace quire
