// Tests each error and each value of the calls for vectors, and of the forms for transcriptions.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/api/audio/form_data.h"
#include "server/api/audio/speech_model.h"
#include "server/api/audio/transcript.h"
#include "server/api/audio/transcription_request.h"
#include "server/api/audio/window_scores.h"
#include "server/api/pooling/embeddings.h"
#include "server/api/pooling/pooling_request.h"
#include "server/api/pooling/rerank.h"
#include "server/api/pooling/token_vectors.h"
#include "server/api/pooling/vector_form.h"
#include "server/fake_engine.h"
#include "server/request/request_context.h"
#include "server/request/served_model.h"

namespace quire::vectors_and_audio_test {
namespace {

namespace json = boost::json;

class PoolingBodies : public ::testing::Test {
 protected:
  using Prepare = Result<PreparedPooling> (*)(std::string body, const RequestContext& context);

  PoolingBodies() { load(); }
  void load() { model_ = ServedModel::create(engine_, options_).value(); }
  Result<PreparedPooling> prepared(Prepare prepare, const std::string& body) {
    return prepare(body, {.model = *model_, .options = options_, .tenant = "t"});
  }
  std::string error(Prepare prepare, const std::string& body) {
    const auto ready = prepared(prepare, body);
    return ready ? "accepted" : ready.error().to_string();
  }
  std::vector<std::string> prompts(Prepare prepare, const std::string& body) {
    const auto ready = prepared(prepare, body);
    if (!ready) return {ready.error().to_string()};
    std::vector<std::string> texts;
    for (const EngineRequest& request : ready->requests) texts.push_back(tokens_to_bytes(request.prompt));
    return texts;
  }
  std::string answer(Prepare prepare, const std::string& body, const std::vector<PooledVector>& vectors) {
    return prepared(prepare, body).value().answer({.id = "id", .model = "m", .created_s = 5}, vectors).value();
  }

  FakeEngine engine_;
  ServerOptions options_;
  std::unique_ptr<ServedModel> model_;
};

PoolingInfo shortened_vectors() {
  PoolingInfo info;
  info.is_matryoshka = true;
  info.sizes = {2, 4};
  return info;
}

PoolingInfo cross_encoder(const std::string& yes, const std::string& pair_template) {
  PoolingInfo info;
  info.no_token = "n";
  info.yes_token = yes;
  info.pair_template = pair_template;
  return info;
}

PoolingInfo no_vectors(const std::string& why) {
  PoolingInfo info;
  info.unsupported = why;
  return info;
}

std::string many_texts(std::size_t count) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) list += i == 0 ? "\"a\"" : ",\"a\"";
  return list + "]";
}

TEST_F(PoolingBodies, EmbeddingErrorsNameTheProblemAndTheFix) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "input: is missing; send a text or a list of texts"},
      {R"({"input": 3})", "input: contains integer 3; send texts, or token ids from 0 to 256"},
      {R"({"input": ["a", 3]})", "input: contains integer 3; send texts, or token ids from 0 to 256"},
      {R"({"input": [1, 257]})", "input: contains array; send texts, or token ids from 0 to 256"},
      {R"({"input": [1, -1]})", "input: contains array; send texts, or token ids from 0 to 256"},
      {R"({"input": [0, 256]})", "accepted"},
      {R"({"input": [[1], "a"]})", "accepted"},
      {R"({"input": )" + many_texts(2048) + "}", "accepted"},
      {R"({"input": )" + many_texts(2049) + "}", "input: contains 2049 texts; send at most 2048"},
      {R"({"input": ""})", "input: has no tokens; send some text"},
      {R"({"input": "a", "truncate_prompt_tokens": 0})", "truncate_prompt_tokens: is 0; use -1, or the number of tokens to keep"},
      {R"({"input": "a", "truncate_prompt_tokens": -2})", "truncate_prompt_tokens: is -2; use -1 to 2147483647"},
      {R"({"input": "a", "truncation_side": "top"})", "truncation_side: is 'top'; use left or right"},
      {R"({"input": "a", "priority": 2147483648})", "priority: is 2147483648; use -2147483647 to 2147483647"},
      {R"({"input": "a", "input_type": "q"})",
       "input_type: is not supported by this server, except as null; put the instruction into the text"},
      {R"({"input": "a", "late_chunking": true})",
       "late_chunking: is not supported by this server, except as false; send each chunk as a separate text"},
      {R"({"input": "a", "chat_template": "x"})",
       "chat_template: is not supported by this server, except as null; start the server with --chat-template"},
      {R"({"input": "a", "encoding_format": "xml"})", "encoding_format: is 'xml'; use float or base64"},
      {R"({"input": "a", "embed_dtype": "int8"})", R"(embed_dtype: is not supported by this server, except as "float32"; leave it out)"},
      {R"({"input": "a", "endianness": "big"})", "endianness: is 'big'; use little"},
      {R"({"input": "a", "endianness": "little"})", "accepted"},
      {R"({"input": "a", "dimensions": 5})", "dimensions: is 5; use 1 to 4"},
      {R"({"input": "a", "dimensions": 4})", "accepted"},
      {R"({"input": "a", "dimensions": 3})",
       "dimensions: is 3, but the model is not known to support vectors shorter than 4; leave it out, or start the server with "
       "--matryoshka if the model is trained for shorter vectors"},
  };
  for (const auto& [body, wanted] : cases) EXPECT_EQ(error(prepare_embeddings, body), wanted) << body.substr(0, 100);
  engine_.set_pooling(shortened_vectors());
  load();
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a", "dimensions": 2})"), "accepted");
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a", "dimensions": 3})"), "dimensions: is 3; use one of 2, 4");
  engine_.set_pooling(no_vectors("it is too small"));
  load();
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a"})"),
            "model: does not produce vectors: it is too small; start the server with --pooling");
  options_.pooling = PoolingKind::mean;
  EXPECT_EQ(prepared(prepare_embeddings, R"({"input": "a"})")->requests[0].sampling.pooling.kind, PoolingKind::mean);
  engine_.set_pooling(cross_encoder("y", "{query}"));
  load();
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a"})"),
            "model: is a cross-encoder, which does not produce embeddings; use /v1/rerank or /v1/score");
  options_.strict_fields = true;
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a", "user": "u"})"),
            "user: would be ignored, which --strict-fields forbids; leave it out");
}

TEST_F(PoolingBodies, RequestsHaveTheFieldsOfTheBody) {
  const auto ready = prepared(prepare_embeddings, R"({"input": ["ab", [7]], "cache_salt": "s", "priority": -3, "user": "u"})");
  ASSERT_TRUE(ready) << ready.error().to_string();
  ASSERT_EQ(ready->requests.size(), 2U);
  EXPECT_EQ(ready->num_prompt_tokens, 3U);
  EXPECT_EQ(ready->ignored, std::vector<std::string>{"user"});
  EXPECT_STREQ(ready->kind, "embd");
  EXPECT_FALSE(ready->writes_files);
  const EngineRequest& request = ready->requests[0];
  EXPECT_TRUE(request.pooling);
  EXPECT_EQ(request.sampling.max_tokens, 1U);
  EXPECT_EQ(request.sampling.pooling.kind, PoolingKind::last);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.tags.tenant, "t");
  EXPECT_EQ(ready->requests[1].prompt, std::vector<TokenId>{7});
}

TEST_F(PoolingBodies, TextsAreCutToTheContext) {
  engine_.set_max_model_len(5);
  load();
  const auto cut = [&](const std::string& fields) { return prompts(prepare_embeddings, R"({"input": "abcdef")" + fields + "}").at(0); };
  EXPECT_TRUE(cut("").starts_with("input: This model's maximum context length is 5 tokens.")) << cut("");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": -1)"), "abcd");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": 9)"), "abcd");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": 4)"), "abcd");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": 2)"), "ab");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": 2, "truncation_side": "left")"), "ef");
  EXPECT_EQ(prompts(prepare_embeddings, R"({"input": "abcd"})").at(0), "abcd");
  EXPECT_TRUE(prompts(prepare_embeddings, R"({"input": "abcde"})").at(0).starts_with("input: This model's maximum"));
  EXPECT_TRUE(prompts(prepare_embeddings, R"({"input": [1,2,3,4,5]})").at(0).starts_with("input: This model's maximum"));
}

TEST_F(PoolingBodies, EmbeddingsAreScaledAndCut) {
  const std::vector<PooledVector> vectors = {{3.0F, 4.0F, 0.0F, 0.0F}, {0.0F, 0.0F, 0.0F, 0.0F}};
  const auto data = [&](const std::string& fields) {
    const json::value all = json::parse(answer(prepare_embeddings, R"({"input": ["a", "b"])" + fields + "}", vectors));
    EXPECT_EQ(all.at("id"), "id");
    EXPECT_EQ(all.at("object"), "list");
    EXPECT_EQ(all.at("model"), "m");
    EXPECT_EQ(all.at("created"), 5);
    EXPECT_EQ(all.at("usage"), json::parse(R"({"prompt_tokens":2,"total_tokens":2,"completion_tokens":0})"));
    EXPECT_EQ(all.at("data").as_array().at(1).at("index"), 1);
    EXPECT_EQ(all.at("data").as_array().at(0).at("object"), "embedding");
    return json::serialize(all.at("data").as_array().at(0).at("embedding"));
  };
  EXPECT_EQ(json::parse(data("")), json::parse("[0.6,0.8,0,0]"));
  EXPECT_EQ(json::parse(data(R"(, "normalize": false)")), json::parse("[3,4,0,0]"));
  EXPECT_EQ(json::parse(data(R"(, "normalize": true, "use_activation": false)")), json::parse("[3,4,0,0]"));
  EXPECT_EQ(data(R"(, "normalize": false, "encoding_format": "base64")"), R"("AABAQAAAgEAAAAAAAAAAAA==")");
  EXPECT_EQ(finished_vector(vectors[1], 0, true), vectors[1]) << "a vector of zeros stays";
  EXPECT_EQ(finished_vector(vectors[0], 2, false), (PooledVector{3.0F, 4.0F}));
  EXPECT_EQ(finished_vector(vectors[0], 4, false), vectors[0]);
  EXPECT_EQ(finished_vector(vectors[0], 5, false), vectors[0]);
  EXPECT_EQ(finished_vector(vectors[0], 1, true), PooledVector{1.0F}) << "it is cut before it is scaled";
}

TEST_F(PoolingBodies, RerankErrorsNameTheProblemAndTheFix) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "query: is missing; send a text or a list of texts"},
      {R"({"query": "q"})", "documents: is missing; send a text or a list of texts"},
      {R"({"query": "q", "documents": []})", "documents: is empty; send a text"},
      {R"({"query": "q", "documents": [3]})", "documents: contains integer 3; send texts"},
      {R"({"query": {"txt": "q"}, "documents": "d"})", "query: contains object; send texts"},
      {R"({"query": ["a", "b"], "documents": ["c", "d"]})", "query: is a list; send one text"},
      {R"({"query": "q", "documents": )" + many_texts(2048) + "}", "accepted"},
      {R"({"query": "q", "documents": )" + many_texts(2049) + "}", "documents: contains 2049 texts; send at most 2048"},
      {R"({"query": "q", "documents": "d", "top_n": -1})", "top_n: is -1; use 0 to 1073741824"},
      {R"({"query": "q", "documents": "d", "max_tokens_per_doc": 5})",
       "max_tokens_per_doc: is not supported by this server, except as 0; send truncate_prompt_tokens"},
      {R"({"query": "", "documents": "d"})", "query: has no tokens; send some text"},
      {R"({"query": "q", "documents": ["d", ""]})", "documents: has no tokens; send some text"},
  };
  for (const auto& [body, wanted] : cases) EXPECT_EQ(error(prepare_rerank, body), wanted) << body.substr(0, 100);
  EXPECT_EQ(error(prepare_score, R"({"text_1": ["a", "b"], "text_2": ["c", "d", "e"]})"),
            "text_1: contains 2 texts for 3 documents; send one text, or one for each document");
  EXPECT_EQ(error(prepare_score, R"({"queries": "a"})"), "text_1: is missing; send a text or a list of texts");
  for (const auto& [one, two] : {std::pair("text_1", "text_2"), {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}}) {
    const std::string body = std::string(R"({")") + one + R"(": {"text": "a"}, ")" + two + R"(": ["b", {"text": "c"}]})";
    EXPECT_EQ(prompts(prepare_score, body), (std::vector<std::string>{"a", "b", "c"})) << body;
  }
}

TEST_F(PoolingBodies, RerankOrdersByScore) {
  const std::vector<PooledVector> vectors = {{1.0F, 0.0F}, {0.0F, 1.0F}, {1.0F, 1.0F}, {2.0F, 0.0F}, {0.0F, 3.0F}};
  const auto results = [&](const std::string& fields) {
    const json::value all =
        json::parse(answer(prepare_rerank, R"({"query": "q", "documents": ["a", "b", "c", "d"])" + fields + "}", vectors));
    EXPECT_EQ(all.at("id"), "id");
    EXPECT_EQ(all.at("model"), "m");
    EXPECT_EQ(all.at("usage").at("total_tokens"), 5);
    std::string shown;
    for (const json::value& one : all.at("results").as_array()) {
      shown += json::serialize(one.at("index"));
      if (one.as_object().contains("document")) shown += one.at("document").at("text").as_string();
      shown += " ";
    }
    return shown;
  };
  EXPECT_EQ(results(""), "2c 1b 0a 3d ") << "equal scores keep their order";
  EXPECT_EQ(results(R"(, "top_n": 1)"), "2c ");
  EXPECT_EQ(results(R"(, "top_n": 4)"), "2c 1b 0a 3d ");
  EXPECT_EQ(results(R"(, "top_n": 9)"), "2c 1b 0a 3d ");
  EXPECT_EQ(results(R"(, "top_n": 2, "return_documents": false)"), "2 1 ");
  const json::value scores = json::parse(
      answer(prepare_score, R"({"text_1": ["q", "r"], "text_2": ["a", "b"]})", {{1.0F, 0.0F}, {0.0F, 2.0F}, {3.0F, 4.0F}, {0.0F, 5.0F}}));
  EXPECT_NEAR(scores.at("data").as_array().at(0).at("score").to_number<double>(), 0.6, 1e-6);
  EXPECT_NEAR(scores.at("data").as_array().at(1).at("score").to_number<double>(), 1.0, 1e-6);
  EXPECT_EQ(scores.at("data").as_array().at(1).at("object"), "score");
}

TEST_F(PoolingBodies, CrossEncoderAsksForYesOrNo) {
  engine_.set_pooling(cross_encoder("y", "{a}{query}|{document}{{query}"));
  load();
  EXPECT_EQ(prompts(prepare_score, R"({"text_1": "{document}", "text_2": ["d", "e"]})"),
            (std::vector<std::string>{"{a}{document}|d{{document}", "{a}{document}|e{{document}"}))
      << "a text is not read as a template";
  const auto ready = prepared(prepare_score, R"({"text_1": "q", "text_2": "d"})");
  EXPECT_EQ(ready->requests.at(0).sampling.pooling.logits_of, (std::vector<TokenId>{'n', 'y'}));
  const json::value scores = json::parse(answer(prepare_score, R"({"text_1": "q", "text_2": ["d", "e"]})", {{0.0F, 0.0F}, {1.0F, 3.0F}}));
  EXPECT_NEAR(scores.at("data").as_array().at(0).at("score").to_number<double>(), 0.5, 1e-9);
  EXPECT_NEAR(scores.at("data").as_array().at(1).at("score").to_number<double>(), 0.880797, 1e-6);
  EXPECT_EQ(error(prepare_pooling, R"({"input": "a"})"),
            "task: is embed, but the model is a cross-encoder; use token_embed, /v1/rerank or /v1/score");
  engine_.set_pooling(cross_encoder("yes", "{query}"));
  load();
  EXPECT_EQ(error(prepare_score, R"({"text_1": "q", "text_2": "d"})"),
            "model: scores pairs with 'yes', which is not a token of its vocabulary");
}

TEST_F(PoolingBodies, PoolingErrorsNameTheProblemAndTheFix) {
  const std::string hi = R"("messages": [{"role": "user", "content": "hi"}])";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"input": "a", "task": "classify"})", "task: is 'classify'; use embed or token_embed"},
      {"{" + hi + R"(, "input": "a"})", "input: is not supported by this server, except as null; send either input or messages"},
      {R"({"input": "a", "dimensions": 3})", "dimensions: is not supported by this server, except as null; use /v1/embeddings"},
      {R"({"input": "a", "kv_transfer_params": {"hidden_states": true}})",
       "task: is embed, but kv_transfer_params requests hidden states; use token_embed"},
      {R"({"input": "a", "kv_transfer_params": 3})",
       R"(kv_transfer_params: must be an object, not integer 3; send {"hidden_states": true}, or remove it)"},
      {R"({"input": "a", "task": "token_embed", "kv_transfer_params": {"hidden_states": true}})",
       "kv_transfer_params: requests hidden states, which this server does not write; start the server with --hidden-states DIR"},
  };
  for (const auto& [body, wanted] : cases) EXPECT_EQ(error(prepare_pooling, body), wanted) << body;
  EXPECT_EQ(prompts(prepare_pooling, "{" + hi + "}").at(0), "<user>hi") << "it is encoded, not answered";
  EXPECT_EQ(prompts(prepare_pooling, "{" + hi + R"(, "add_generation_prompt": true})").at(0), "<user>hi<assistant>");
  EXPECT_EQ(prepared(prepare_pooling, R"({"input": "a", "task": "token_embed"})")->requests[0].sampling.pooling.kind, PoolingKind::all);
  options_.max_hidden_numbers = 12;
  EXPECT_EQ(error(prepare_pooling, R"({"input": "abc", "task": "token_embed"})"), "accepted");
  EXPECT_EQ(error(prepare_pooling, R"({"input": "abcd", "task": "token_embed"})"),
            "input: has at least 4 tokens, whose vectors of 4 numbers each exceed 12 numbers in total; send at most 3 tokens in a request");
  EXPECT_EQ(error(prepare_pooling, R"({"input": "abcd"})"), "accepted") << "one vector for the whole text";
}

TEST_F(PoolingBodies, RowsOfTokensAreScaledOneByOne) {
  const std::vector<PooledVector> rows = {{3.0F, 4.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 2.0F}};
  const auto data = [&](const std::string& fields) {
    return json::serialize(json::parse(answer(prepare_pooling, R"({"input": "ab", "task": "token_embed")" + fields + "}", rows))
                               .at("data")
                               .as_array()
                               .at(0)
                               .at("data"));
  };
  EXPECT_EQ(json::parse(data("")), json::parse("[[0.6,0.8,0,0],[0,0,0,1]]"));
  EXPECT_EQ(json::parse(data(R"(, "normalize": false)")), json::parse("[[3,4,0,0],[0,0,0,2]]"));
  EXPECT_EQ(data(R"(, "normalize": false, "encoding_format": "base64")"), R"("AABAQAAAgEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEA=")");
  const json::value whole = json::parse(answer(prepare_pooling, R"({"input": "a"})", {{0.0F, 2.0F}}));
  EXPECT_EQ(whole.at("data").as_array().at(0).at("data"), json::parse("[0,1]"));
  EXPECT_EQ(whole.at("data").as_array().at(0).at("object"), "pooling");
}

constexpr const char* kMultipart = "multipart/form-data; boundary=xyz";

std::string shown_form(const std::string& body, const std::string& type = kMultipart) {
  const auto parts = parse_form(type, body);
  if (!parts) return parts.error().to_string();
  std::string text;
  for (const FormPart& part : *parts) text += part.name + (part.is_file ? "!" : "=") + std::string(part.value) + ";";
  return text;
}

TEST(FormBodies, AreParsedAsTheirRfcDefines) {
  const std::string fix = "; send multipart/form-data as RFC 7578 defines it";
  const auto one = [](const std::string& head) { return "--xyz\r\n" + head + "\r\n\r\nv\r\n--xyz--"; };
  const std::pair<std::string, std::string> cases[] = {
      {"--xyz--", ""},
      {"\r\n--xyz--", ""},
      {"--xyz \t\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--xyz \t \r\nContent-Disposition: form-data; "
       "name=b\r\n\r\nw\r\n--xyz--",
       "a=v;b=w;"},
      {one("Content-Disposition: form-data; name=\"a\""), "a=v;"},
      {one("content-disposition : form-data ; NAME = a ; filename=f"), "a!v;"},
      {one("Content-Disposition: form-data; name=a; filename*=UTF-8''f"), "a!v;"},
      {one("Content-Disposition: form-data; name=\"a\\\"b\\\\c\\d\""), "a\"b\\c\\d=v;"},
      {one("X: y\r\nContent-Disposition: form-data; name=a\r\nContent-Type: text/plain"), "a=v;"},
      {one("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: 8BIT"), "a=v;"},
      {one("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: 7bit"), "a=v;"},
      {one("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: binary"), "a=v;"},
      {one("Content-Disposition: form-data; name=" + std::string(256, 'n')), std::string(256, 'n') + "=v;"},
      {one("Content-Disposition: form-data; name=" + std::string(257, 'n')), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name=\"a"), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name=\"\""), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name"), "body: has a part without a name" + fix},
      {one("X: y"), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64"),
       "body: has a part with the unsupported Content-Transfer-Encoding 'base64'" + fix},
      {"", "body: does not contain the boundary" + fix},
      {"--xyzjunk\r\n", "body: has other characters after a boundary on the same line" + fix},
      {"--xyz\r\n\r\nv\r\n--xyz--", "body: has a part whose headers are incomplete or too large" + fix},
      {"--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\nv", "body: ends in the middle of a part" + fix},
  };
  for (const auto& [body, parts] : cases) EXPECT_EQ(shown_form(body), parts) << body;
  // The headers of a part have at most 4096 bytes with the empty line.
  const std::string disposition = "Content-Disposition: form-data; name=a\r\nX: ";
  EXPECT_EQ(shown_form(one(disposition + std::string(4096 - 4 - disposition.size(), 'x'))), "a=v;");
  EXPECT_EQ(shown_form(one(disposition + std::string(4096 - 3 - disposition.size(), 'x'))),
            "body: has a part whose headers are incomplete or too large" + fix);
  std::string parts;
  for (std::size_t i = 0; i < kMaxFormParts; ++i) parts += "--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n";
  EXPECT_EQ(parse_form(kMultipart, parts + "--xyz--")->size(), 64U);
  EXPECT_EQ(shown_form(parts + "--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--xyz--"),
            "body: has more than 64 parts" + fix);
}

TEST(FormBodies, BoundaryHasAtMostSeventyBytes) {
  const auto with = [](const std::string& boundary, const std::string& written) {
    return shown_form("--" + boundary + "\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--" + boundary + "--",
                      "multipart/form-data; boundary=" + written);
  };
  const std::string wrong = "Content-Type: has no valid boundary; send 'multipart/form-data; boundary=...' with 1 to 70 characters";
  EXPECT_EQ(with(std::string(70, 'b'), std::string(70, 'b')), "a=v;");
  EXPECT_EQ(with(std::string(71, 'b'), std::string(71, 'b')), wrong);
  EXPECT_EQ(with("b c", "\"b c\""), "a=v;");
  EXPECT_EQ(with("b", "b ; charset=utf-8"), "a=v;");
  EXPECT_EQ(with("b", ""), wrong);
  EXPECT_EQ(with("b", "\"b"), wrong);
  EXPECT_EQ(with("b", "\"b\r\n\""), wrong);
}

class TranscriptionForms : public ::testing::Test {
 protected:
  TranscriptionForms() { load(true); }
  void load(bool is_multilingual) {
    engine_.set_model(speech_model(is_multilingual));
    engine_.set_max_model_len(448);
    model_ = ServedModel::create(engine_, options_).value();
    speech_ = std::make_unique<SpeechModel>(
        SpeechModel{SpeechVocabulary::find(*model_, engine_.model()).value(), engine_.model().speech, LogMel(80), 448});
  }
  static std::string part(const std::string& name, const std::string& value) {
    return "--xyz\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n";
  }
  Result<TranscriptionRequest> read(const std::string& parts, bool is_translation = false) {
    std::string_view file;
    body_ = parts + "--xyz--";
    return read_transcription(kMultipart, body_, is_translation, *speech_, {.model = *model_, .options = options_, .tenant = "t"}, file);
  }
  Result<TranscriptionRequest> with(const std::string& name, const std::string& value, bool is_translation = false) {
    return read(part("file", "f") + part(name, value), is_translation);
  }
  std::string error(const std::string& name, const std::string& value, bool is_translation = false) {
    const auto request = with(name, value, is_translation);
    return request ? "accepted" : request.error().to_string();
  }

  FakeEngine engine_;
  ServerOptions options_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<SpeechModel> speech_;
  std::string body_;
};

TEST_F(TranscriptionForms, ErrorsNameTheFieldTheProblemAndTheFix) {
  EXPECT_EQ(read(part("model", "ears")).error().to_string(), "file: is missing; send one audio file");
  EXPECT_EQ(read(part("file", "f") + part("file", "f")).error().to_string(), "file: is given more than once; send one audio file");
  EXPECT_EQ(read(part("file", "")).error().to_string(), "file: is empty; send an audio file");
  EXPECT_EQ(read(part("file", "f") + part("language", "en") + part("language", "en")).error().to_string(),
            "language: is given more than once; send it once");
  EXPECT_EQ(read(part("file", "f") + part("stream", "true") + part("response_format", "vtt")).error().to_string(),
            "stream: is not supported with response_format vtt; use response_format json or text, or leave it out");
  const std::string granularity = ", but timestamps are available only for segments; send segment";
  const std::string boolean = "; send true or false";
  const std::pair<std::pair<std::string, std::string>, std::string> cases[] = {
      {{"response_format", "xml"}, "response_format: is 'xml'; use json, verbose_json, text, srt or vtt"},
      {{"stream", "yes"}, "stream: is 'yes'" + boolean},
      {{"timestamp_granularities[]", "word"}, "timestamp_granularities: contains 'word'" + granularity},
      {{"timestamp_granularities", "line"}, "timestamp_granularities: contains 'line'" + granularity},
      {{"timestamp_granularities[]", "segment"}, "accepted"},
      {{"language", "xx"}, "language: 'xx' is not a language of this model; send an ISO 639-1 code such as en, or leave it out"},
      {{"temperature", "warm"}, "temperature: 'warm' is not a valid number"},
      {{"temperature", "1x"}, "temperature: '1x' is not a valid number"},
      {{"temperature", ""}, "accepted"},
      {{"seed", "-1"}, "seed: '-1' is not a valid number"},
      {{"temperature_increment_on_fallback", "0"}, "accepted"},
      {{"temperature_increment_on_fallback", "0.05"}, "accepted"},
      {{"temperature_increment_on_fallback", "0.04"}, "temperature_increment_on_fallback: is too small; send 0 or at least 0.05"},
      {{"temperature_increment_on_fallback", "-1"}, "temperature_increment_on_fallback: is too small; send 0 or at least 0.05"},
      {{"condition_on_previous_text", "maybe"}, "condition_on_previous_text: is 'maybe'" + boolean},
      {{"carry_initial_prompt", "2"}, "carry_initial_prompt: is '2'" + boolean},
      {{"prompt", std::string(16 << 10, 'p')}, "accepted"},
      {{"prompt", std::string((16 << 10) + 1, 'p')}, "prompt: is too long, with 16385 bytes; send a shorter text"},
      {{"model", "other"}, "model: 'other' is not served by this server; use 'ears'"},
  };
  for (const auto& [field, wanted] : cases) EXPECT_EQ(error(field.first, field.second), wanted) << field.first;
  EXPECT_EQ(with("timestamp_granularities[]", "word").error().code, ErrorCode::unsupported);
  EXPECT_EQ(with("timestamp_granularities[]", "line").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(with("b", "1")->ignored_fields, "b");
  EXPECT_EQ(read(part("file", "f") + part("b", "1") + part("a", "1"))->ignored_fields, "a,b");
  options_.strict_fields = true;
  EXPECT_EQ(error("b", "1"), "b: is unknown, which --strict-fields forbids; leave it out");
  options_.strict_fields = false;
  load(false);
  EXPECT_EQ(error("language", "de"), "language: is 'de', but this model supports English only; send en");
  EXPECT_EQ(error("language", "en"), "accepted");
  EXPECT_EQ(error("language", "en", true), "model: supports English only and cannot translate; use /v1/audio/transcriptions");
  EXPECT_EQ(with("language", "")->language, "en");
  speech_->words.previous.reset();
  EXPECT_EQ(error("prompt", "a"), "prompt: is not supported: the model has no <|startofprev|> token; leave it out");
  EXPECT_EQ(error("prompt", " \t\r\n"), "accepted");
}

TEST_F(TranscriptionForms, RequestsHaveTheValuesOfTheForm) {
  const auto plain = read(part("file", "f"));
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->form, TranscriptForm::json);
  EXPECT_FALSE(plain->stream);
  EXPECT_FALSE(plain->is_translation);
  EXPECT_EQ(plain->language, "");
  EXPECT_TRUE(plain->conditions_on_previous);
  EXPECT_FALSE(plain->keeps_previous);
  EXPECT_EQ(plain->sampling.temperature, 0.0F);
  EXPECT_EQ(plain->sampling.top_p, 1.0F);
  EXPECT_EQ(plain->sampling.top_k, 0);
  EXPECT_EQ(plain->sampling.min_p, 0.0F);
  EXPECT_EQ(plain->sampling.repetition_penalty, 1.0F);
  EXPECT_FALSE(plain->sampling.seed);
  EXPECT_EQ(plain->thresholds.max_compression_ratio, 2.4F);
  EXPECT_EQ(plain->thresholds.min_mean_logprob, -1.0F);
  EXPECT_EQ(plain->thresholds.temperature_increment, 0.2F);
  const auto full = read(part("file", "f") + part("temperature", "0.5") + part("top_p", "0.25") + part("top_k", "3") +
                             part("min_p", "0.125") + part("repetition_penalty", "1.5") + part("frequency_penalty", "0.75") +
                             part("presence_penalty", "-0.5") + part("seed", "9") + part("compression_ratio_threshold", "3") +
                             part("logprob_threshold", "-2") + part("temperature_increment_on_fallback", "0.5") +
                             part("condition_on_previous_text", "False") + part("carry_initial_prompt", "1") + part("language", "de") +
                             part("prompt", " \t ab ") + part("response_format", "text") + part("stream", "True"),
                         true);
  ASSERT_TRUE(full) << full.error().to_string();
  EXPECT_EQ(full->sampling.temperature, 0.5F);
  EXPECT_EQ(full->sampling.top_p, 0.25F);
  EXPECT_EQ(full->sampling.top_k, 3);
  EXPECT_EQ(full->sampling.min_p, 0.125F);
  EXPECT_EQ(full->sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(full->sampling.frequency_penalty, 0.75F);
  EXPECT_EQ(full->sampling.presence_penalty, -0.5F);
  EXPECT_EQ(full->sampling.seed, 9U);
  EXPECT_EQ(full->thresholds.max_compression_ratio, 3.0F);
  EXPECT_EQ(full->thresholds.min_mean_logprob, -2.0F);
  EXPECT_EQ(full->thresholds.temperature_increment, 0.5F);
  EXPECT_FALSE(full->conditions_on_previous);
  EXPECT_TRUE(full->keeps_previous);
  EXPECT_TRUE(full->is_translation);
  EXPECT_EQ(full->language, "de");
  EXPECT_EQ(tokens_to_bytes(full->previous), " ab ");
  EXPECT_EQ(full->form, TranscriptForm::text);
  EXPECT_TRUE(full->stream);
  EXPECT_EQ(with("top_k", "-1")->sampling.top_k, 0);
  for (const auto& [name, form] : {std::pair("json", TranscriptForm::json),
                                   {"verbose_json", TranscriptForm::verbose_json},
                                   {"text", TranscriptForm::text},
                                   {"srt", TranscriptForm::srt},
                                   {"vtt", TranscriptForm::vtt}})
    EXPECT_EQ(with("response_format", name)->form, form) << name;
}

TEST_F(TranscriptionForms, PromptKeepsItsLastTokens) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>('a' + i % 26);
  const auto request = with("prompt", text);
  ASSERT_TRUE(request) << request.error().to_string();
  EXPECT_EQ(tokens_to_bytes(request->previous), text.substr(300 - 223)) << "one token less than half of the context";
  EXPECT_EQ(tokens_to_bytes(with("prompt", text.substr(0, 222))->previous), " " + text.substr(0, 222));
  EXPECT_EQ(tokens_to_bytes(with("prompt", text.substr(0, 223))->previous), text.substr(0, 223));
}

TEST_F(TranscriptionForms, WindowsHaveTheirPromptAndRules) {
  TranscriptionRequest request;
  request.sampling.temperature = 0.0F;
  const std::vector<TokenId> before = {'a', 'b'};
  const auto prompt = [&](const WindowTask& task) { return prompt_of(request, speech_->words, task); };
  EXPECT_EQ(prompt({.language = ""}), std::vector<TokenId>{kSpeechStart}) << "the language is detected";
  EXPECT_EQ(prompt({.language = "de"}), (std::vector<TokenId>{kSpeechStart, kSpeechGerman, kSpeechTranscribe, kSpeechNoTimes}));
  EXPECT_EQ(prompt({.language = "de", .has_timestamps = true, .previous = before}),
            (std::vector<TokenId>{kSpeechPrevious, 'a', 'b', kSpeechStart, kSpeechGerman, kSpeechTranscribe}));
  request.is_translation = true;
  EXPECT_EQ(prompt({.language = "en"}), (std::vector<TokenId>{kSpeechStart, kSpeechEnglish, kSpeechTranslate, kSpeechNoTimes}));
  const auto sampling = [&](const WindowTask& task) { return sampling_of(request, *speech_, task); };
  const SamplingParams detecting = sampling({.language = "", .temperature = 0.5F});
  EXPECT_EQ(detecting.timestamps.begins,
            (std::vector<std::vector<TokenId>>{{kSpeechEnglish, kSpeechGerman}, {kSpeechTranslate}, {kSpeechNoTimes}}));
  EXPECT_EQ(detecting.max_tokens, 227U) << "half of the context, and the tokens before the text";
  EXPECT_EQ(detecting.temperature, 0.5F);
  EXPECT_EQ(detecting.seed, 0U) << "a later attempt gives the same text each time";
  const SamplingParams known = sampling({.language = "de", .has_timestamps = true});
  EXPECT_EQ(known.max_tokens, 224U);
  EXPECT_FALSE(known.seed);
  EXPECT_TRUE(known.timestamps.has_timestamps);
  EXPECT_TRUE(known.timestamps.begins.empty());
  EXPECT_EQ(known.timestamps.first_time, kSpeechFirstTime);
  EXPECT_EQ(known.timestamps.end, kSpeechEnd);
  EXPECT_EQ(known.timestamps.max_first, 50U);
  EXPECT_EQ(known.stop_token_ids, std::vector<TokenId>{kSpeechEnd});
  EXPECT_EQ(known.logprobs, 0U);
  EXPECT_EQ(known.bad_words,
            (std::vector<std::vector<TokenId>>{{65}, {kSpeechStart}, {kSpeechTranscribe}, {kSpeechTranslate}, {kSpeechNoTimes}}));
  request.sampling.seed = 7;
  EXPECT_EQ(sampling({.language = "de", .temperature = 0.5F}).seed, 7U);
}

TEST_F(TranscriptionForms, VocabularyMustHaveWhispersTokens) {
  EXPECT_EQ(speech_->words.languages, (std::vector<std::pair<std::string, TokenId>>{{"en", kSpeechEnglish}, {"de", kSpeechGerman}}));
  EXPECT_EQ(speech_->words.language("de"), kSpeechGerman);
  EXPECT_FALSE(speech_->words.language("fr"));
  EXPECT_EQ(speech_->words.previous, kSpeechPrevious);
  EXPECT_FALSE(speech_->words.no_speech);
  EXPECT_TRUE(speech_->words.is_multilingual);
  EXPECT_FALSE(speech_->words.is_timestamp(kSpeechFirstTime - 1));
  EXPECT_TRUE(speech_->words.is_timestamp(kSpeechFirstTime));
  EXPECT_EQ(speech_->words.seconds_of(kSpeechFirstTime + 50), 1.0);
  const auto problem = [&](const ModelInfo& info) {
    const auto found = SpeechVocabulary::find(*model_, info);
    return found ? "accepted" : found.error().to_string();
  };
  ModelInfo info = speech_model();
  EXPECT_EQ(problem(info), "accepted");
  --info.vocab_size;
  EXPECT_EQ(problem(info), "model: the vocabulary of ears has no timestamp tokens; use a Whisper model");
  info = speech_model();
  info.encoder = {};
  EXPECT_EQ(problem(info), "model: ears does not support audio; use a Whisper model");
  FakeEngine text;
  const auto plain = ServedModel::create(text, {}).value();
  EXPECT_EQ(SpeechVocabulary::find(*plain, speech_model()).error().to_string(),
            "model: the vocabulary of bytes has no <|startoftranscript|>; use a Whisper model");
}

TEST(TranscriptText, HasTimesAndMediaTypes) {
  Transcript transcript{.is_translation = true, .language = "de", .duration_s = 2.0};
  transcript.segments = {{.start_s = 3599.9996, .end_s = 3600.0, .text = "  "},
                         {.start_s = -1.0, .end_s = 59.9994, .text = " a-->-->b ", .window_s = 1.234}};
  EXPECT_EQ(write_transcript(transcript, TranscriptForm::srt), "1\n00:00:00,000 --> 00:00:59,999\na->->b\n\n")
      << "a segment without text has no number";
  transcript.segments[0].text = "x";
  EXPECT_EQ(write_transcript(transcript, TranscriptForm::vtt).substr(0, 40), "WEBVTT\n\n01:00:00.000 --> 01:00:00.000\nx\n");
  const json::value verbose = json::parse(write_transcript(transcript, TranscriptForm::verbose_json));
  EXPECT_EQ(verbose.at("task"), "translate");
  EXPECT_EQ(verbose.at("segments").as_array()[1].at("seek"), 123);
  EXPECT_EQ(verbose.at("segments").as_array()[0].at("id"), 0);
  EXPECT_EQ(verbose.at("usage"), json::parse(R"({"type":"duration","seconds":2})"));
  transcript.duration_s = 2.01;
  EXPECT_EQ(json::parse(write_transcript(transcript, TranscriptForm::json)).at("usage").at("seconds"), 3);
  for (const TranscriptForm form : {TranscriptForm::json, TranscriptForm::verbose_json}) EXPECT_EQ(media_type(form), "application/json");
  for (const TranscriptForm form : {TranscriptForm::text, TranscriptForm::srt, TranscriptForm::vtt})
    EXPECT_EQ(media_type(form), "text/plain; charset=utf-8");
  EXPECT_EQ(delta_event("a"), "data: {\"type\":\"transcript.text.delta\",\"delta\":\"a\"}\n\n");
  EXPECT_EQ(done_event({.language = "en", .duration_s = 1.0}),
            "data: {\"type\":\"transcript.text.done\",\"text\":\"\",\"usage\":{\"type\":\"duration\",\"seconds\":1}}\n\ndata: [DONE]\n\n");
}

TEST(WindowLimits, AreThoseOfWhisper) {
  const WindowThresholds rules;
  EXPECT_FALSE(needs_retry({.mean_logprob = -1.0, .compression_ratio = static_cast<double>(2.4F)}, rules)) << "the limits themselves pass";
  EXPECT_TRUE(needs_retry({.mean_logprob = -1.1, .no_speech_prob = 0.6}, rules)) << "0.6 is not more than 0.6";
  EXPECT_FALSE(needs_retry({.mean_logprob = -1.1, .no_speech_prob = 0.61}, rules));
  EXPECT_TRUE(is_silence({.mean_logprob = -1.0, .no_speech_prob = 0.61}, rules));
  EXPECT_FALSE(is_silence({.mean_logprob = -0.99, .no_speech_prob = 0.61}, rules));
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = 0.6F}), (std::vector<float>{0.0F, 0.6F}));
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = 1.0F}), (std::vector<float>{0.0F, 1.0F}));
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = 1.1F}), std::vector<float>{0.0F});
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = -1.0F}), std::vector<float>{0.0F});
}

}  // namespace
}  // namespace quire::vectors_and_audio_test
