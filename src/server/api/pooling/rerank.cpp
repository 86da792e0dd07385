// Implements /v1/score and /v1/rerank: reads pairs of texts, builds the requests that score them, and writes the scores. Reading and
// writing run on the server's thread or in the job pool; between them the engine computes. A prompt is built in one pass over the template,
// so "{document}" within a client's text is not replaced.
#include "server/api/pooling/rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/json_writer.h"
#include "server/request/served_model.h"
namespace quire {

namespace json = boost::json;

namespace {

struct TextPair {
  std::uint32_t query = 0, document = 0;
};

struct PairCall {
  PoolingFields fields;
  const char* query_field = "query";
  const char* document_field = "documents";
  std::vector<std::string> queries, documents;
  std::vector<TextPair> pairs;
};

// Reads a text, an object {"text": ...}, or a list of texts and such objects.
std::vector<std::string> read_texts(ObjectReader& reader, std::string_view name) {
  std::vector<std::string> texts;
  const json::value* value = reader.find(name);
  const auto add = [&](const json::value& item) {
    const json::value* text = item.is_object() ? item.get_object().if_contains("text") : &item;
    if (text == nullptr || !text->is_string()) return reader.reject(name, "contains " + describe(item), "send texts");
    texts.emplace_back(text->get_string());
  };
  if (value == nullptr) {
    reader.reject(name, "is missing", "send a text or a list of texts");
  } else if (!value->is_array()) {
    add(*value);
  } else {
    for (const json::value& item : value->get_array())
      if (!reader.failed()) add(item);
    if (value->get_array().empty()) reader.reject(name, "is empty", "send a text");
  }
  return texts;
}

// Pairs one query with each document, or query i with document i.
void pair_up(ObjectReader& reader, PairCall& call) {
  const std::size_t num_queries = call.queries.size(), num_documents = call.documents.size();
  if (num_documents > kMaxPooledTexts)
    reader.reject(call.document_field, fmt::format("contains {} texts", num_documents), fmt::format("send at most {}", kMaxPooledTexts));
  if (num_queries != 1 && num_queries != num_documents && !reader.failed())
    reader.reject(call.query_field, fmt::format("contains {} texts for {} documents", num_queries, num_documents),
                  "send one text, or one for each document");
  call.pairs.reserve(num_documents);
  for (std::uint32_t i = 0; i < num_documents; ++i) call.pairs.push_back({num_queries == 1 ? 0 : i, i});
}

std::string pair_prompt(std::string_view form, std::string_view query, std::string_view document) {
  std::string text;
  constexpr std::string_view kQuery = "{query}", kDocument = "{document}";
  while (!form.empty()) {
    const std::size_t brace = std::min(form.find('{'), form.size());
    text += form.substr(0, brace);
    form.remove_prefix(brace);
    const bool is_query = form.starts_with(kQuery), is_document = form.starts_with(kDocument);
    if (is_query || is_document) {
      text += is_query ? query : document;
      form.remove_prefix(is_query ? kQuery.size() : kDocument.size());
    } else if (!form.empty()) {
      text += '{';
      form.remove_prefix(1);
    }
  }
  return text;
}

Result<TokenId> label_token(const std::string& word, const ServedModel& model) {
  const auto tokens = model.encode(word, {.add_special = false, .parse_special = true}, "model");
  if (tokens && tokens->size() == 1) return tokens->front();
  return fail(ErrorCode::unsupported, "model", fmt::format("scores pairs with '{}', which is not a token of its vocabulary", word),
              "use another reranking model");
}

double cosine_of(std::span<const float> a, std::span<const float> b) {
  double dot = 0.0, of_a = 0.0, of_b = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    of_a += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    of_b += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return dot / std::max(std::sqrt(of_a * of_b), 1e-12);
}

using Scores = std::function<std::vector<double>(std::span<const PooledVector>)>;

// Builds one prompt per pair, which asks the model for yes or no. A score is the probability of yes.
Result<Scores> score_with_cross_encoder(PreparedPooling& prepared, const PairCall& call, const RequestContext& context) {
  const PoolingInfo& info = context.model.pooling();
  const auto no = label_token(info.no_token, context.model), yes = label_token(info.yes_token, context.model);
  if (!no || !yes) return std::unexpected(no ? yes.error() : no.error());
  for (const TextPair& pair : call.pairs) {
    Prompt prompt = pair_prompt(info.pair_template, call.queries[pair.query], call.documents[pair.document]);
    auto added = add_pooled(prepared, std::move(prompt), call.fields, {.logits_of = {*no, *yes}}, call.document_field, context);
    if (!added) return std::unexpected(std::move(added.error()));
  }
  return [](std::span<const PooledVector> logits) {
    std::vector<double> scores;
    scores.reserve(logits.size());
    for (const PooledVector& says : logits)
      scores.push_back(1.0 / (1.0 + std::exp(static_cast<double>(says[0]) - static_cast<double>(says[1]))));
    return scores;
  };
}

Result<Scores> compare_vectors(PreparedPooling& prepared, PairCall& call, const RequestContext& context) {
  const auto kind = pooling_kind(context);
  if (!kind) return std::unexpected(kind.error());
  for (const auto& [texts, field] : {std::pair(&call.queries, call.query_field), std::pair(&call.documents, call.document_field)}) {
    for (const std::string& text : *texts) {
      auto added = add_pooled(prepared, text, call.fields, {.kind = *kind}, field, context);
      if (!added) return std::unexpected(std::move(added.error()));
    }
  }
  return [pairs = call.pairs, num_queries = call.queries.size()](std::span<const PooledVector> vectors) {
    std::vector<double> scores;
    scores.reserve(pairs.size());
    for (const TextPair& pair : pairs) scores.push_back(cosine_of(vectors[pair.query], vectors[num_queries + pair.document]));
    return scores;
  };
}

Result<Scores> add_pairs(PreparedPooling& prepared, PairCall& call, const RequestContext& context) {
  return context.model.pooling().pair_template.empty() ? compare_vectors(prepared, call, context)
                                                       : score_with_cross_encoder(prepared, call, context);
}

std::string score_answer(const PooledHead& head, const std::vector<double>& scores, std::uint64_t num_prompt_tokens) {
  return pooled_list(head, "score", scores.size(), num_prompt_tokens,
                     [&](JsonWriter& json, std::size_t i) { json.field("score", scores[i]); });
}

// Returns the answer with the `most` documents of the highest scores. `documents` is empty if the answer must not contain the texts.
std::string rerank_answer(const PooledHead& head, const std::vector<double>& scores, const std::vector<std::string>& documents,
                          std::size_t most, std::uint64_t num_prompt_tokens) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&scores](std::size_t a, std::size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  order.resize(std::min(order.size(), most));
  return json_object([&](JsonWriter& json) {
    json.field("id", head.id).field("model", head.model);
    write_pooled_usage(json, num_prompt_tokens);
    json.begin_array("results");
    for (const std::size_t i : order) {
      json.begin_object().field("index", i);
      if (!documents.empty()) json.begin_object("document").field("text", documents[i]).end_object();
      json.field("relevance_score", scores[i]).end_object();
    }
    json.end_array();
  });
}

// Reads the queries and the documents under any of the field names that vLLM has used.
void read_sides(ObjectReader& reader, PairCall& call, const json::object& object) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"text_1", "text_2"}, {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}};
  const auto* used = std::ranges::find_if(kNames, [&](const auto& names) { return object.contains(names.second); });
  if (used == std::end(kNames)) used = std::begin(kNames);
  call.query_field = used->first;
  call.document_field = used->second;
  call.queries = read_texts(reader, used->first);
  call.documents = read_texts(reader, used->second);
}

}  // namespace

Result<PreparedPooling> prepare_score(std::string body, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  PairCall call;
  read_pooling_fields(reader, call.fields);
  read_sides(reader, call, *object);
  pair_up(reader, call);
  if (auto read = finish_fields(reader, call.fields, context); !read) return std::unexpected(std::move(read.error()));
  PreparedPooling prepared{.kind = "score", .requests = {}, .answer = {}};
  auto scores = add_pairs(prepared, call, context);
  if (!scores) return std::unexpected(std::move(scores.error()));
  prepared.answer = [scores = *std::move(scores), num_tokens = prepared.num_prompt_tokens](const PooledHead& head,
                                                                                           std::span<const PooledVector> vectors) {
    return score_answer(head, scores(vectors), num_tokens);
  };
  return prepared;
}

Result<PreparedPooling> prepare_rerank(std::string body, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  PairCall call;
  read_pooling_fields(reader, call.fields);
  call.queries = read_texts(reader, "query");
  call.documents = read_texts(reader, "documents");
  if (call.queries.size() > 1) reader.reject("query", "is a list", "send one text");
  const std::int64_t wanted = reader.integer("top_n", 0, 0, std::int64_t{1} << 30);
  const bool repeats = reader.boolean("return_documents", true);
  reader.only("max_tokens_per_doc", "0", "send truncate_prompt_tokens");
  pair_up(reader, call);
  if (auto read = finish_fields(reader, call.fields, context); !read) return std::unexpected(std::move(read.error()));
  PreparedPooling prepared{.kind = "rerank", .requests = {}, .answer = {}};
  auto scores = add_pairs(prepared, call, context);
  if (!scores) return std::unexpected(std::move(scores.error()));
  const std::size_t most = wanted == 0 ? call.documents.size() : static_cast<std::size_t>(wanted);
  if (!repeats) call.documents.clear();
  prepared.answer = [scores = *std::move(scores), documents = std::move(call.documents), most, num_tokens = prepared.num_prompt_tokens](
                        const PooledHead& head, std::span<const PooledVector> vectors) {
    return rerank_answer(head, scores(vectors), documents, most, num_tokens);
  };
  return prepared;
}

}  // namespace quire
