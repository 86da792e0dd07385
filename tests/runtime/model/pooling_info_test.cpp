// Tests how models' files describe the pooling of embeddings.
#include "runtime/model/weights/pooling_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "runtime/model/logit_record.h"

namespace quire {
namespace {

void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

std::string module(const char* type, const char* path) {
  return std::string(R"({"type": "sentence_transformers.models.)") + type + R"(", "path": ")" + path + R"("})";
}

TEST(PoolingInfo, DefaultsToTheNormalisedLastToken) {
  const tiny::TempFolder folder;
  const PoolingInfo info = pooling_info(folder.file(""));
  EXPECT_EQ(info.kind, PoolingKind::last);
  EXPECT_TRUE(info.normalize);
  EXPECT_FALSE(info.is_matryoshka);
  EXPECT_EQ(info.unsupported, "");
  EXPECT_EQ(info.pair_template, "");
}

TEST(PoolingInfo, IsReadFromTheModulesOfSentenceTransformers) {
  const std::pair<const char*, PoolingKind> cases[] = {
      {R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})", PoolingKind::first},
      {R"({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true})", PoolingKind::mean},
      {R"({"word_embedding_dimension": 8, "pooling_mode_lasttoken": true, "include_prompt": true})", PoolingKind::last},
      {R"({"pooling_mode": "mean"})", PoolingKind::mean}};
  for (const auto& [config, kind] : cases) {
    const tiny::TempFolder folder;
    write_text(folder.file("modules.json"), "[" + module("Transformer", "") + "," + module("Pooling", "1_Pooling") + "]");
    write_text(folder.file("1_Pooling/config.json"), config);
    PoolingInfo info = pooling_info(folder.file(""));
    EXPECT_EQ(info.unsupported, "") << config;
    EXPECT_EQ(info.kind, kind) << config;
    EXPECT_FALSE(info.normalize) << "no module normalises";
    write_text(folder.file("modules.json"), "[" + module("Pooling", "1_Pooling") + "," + module("Normalize", "2_Normalize") + "]");
    EXPECT_TRUE(pooling_info(folder.file("")).normalize);
  }
}

TEST(PoolingInfo, ReportsUnsupportedModules) {
  const tiny::TempFolder folder;
  const auto unsupported = [&] { return pooling_info(folder.file("")).unsupported; };
  write_text(folder.file("modules.json"), "[" + module("Pooling", "1_Pooling") + "]");
  EXPECT_NE(unsupported().find("config.json"), std::string::npos) << "the pooling config is missing";
  write_text(folder.file("1_Pooling/config.json"), R"({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true})");
  EXPECT_NE(unsupported().find("max_tokens+mean_tokens"), std::string::npos) << unsupported();
  write_text(folder.file("modules.json"), "[" + module("Dense", "2_Dense") + "]");
  EXPECT_NE(unsupported().find("dense"), std::string::npos);
  write_text(folder.file("modules.json"), "{}");
  EXPECT_NE(unsupported(), "");
  write_text(folder.file("modules.json"), "[3, null, {\"type\": 5}]");
  EXPECT_EQ(unsupported(), "") << "unknown entries are ignored";
}

TEST(PoolingInfo, ReadsVllmsOverridesFromTheConfig) {
  const tiny::TempFolder folder;
  write_text(folder.file("config.json"), R"({"matryoshka_dimensions": [32, 64], "classifier_from_token": ["No", "Yes"]})");
  const PoolingInfo info = pooling_info(folder.file(""));
  EXPECT_TRUE(info.is_matryoshka);
  EXPECT_EQ(info.sizes, (std::vector<std::uint32_t>{32, 64}));
  EXPECT_EQ(info.no_token, "No");
  EXPECT_EQ(info.yes_token, "Yes");
  EXPECT_NE(info.pair_template.find("{document}"), std::string::npos);
}

TEST(PoolingInfo, IsReadFromTheKeysOfAGgufFile) {
  const std::pair<std::uint32_t, PoolingKind> cases[] = {
      {0, PoolingKind::last}, {1, PoolingKind::mean}, {2, PoolingKind::first}, {3, PoolingKind::last}, {4, PoolingKind::last}};
  for (const auto& [type, kind] : cases) {
    const tiny::TempFolder folder;
    const ModelConfig config = tiny::small_llama();
    tiny::GgufHeader header = tiny::gguf_header(config);
    header.add("llama.pooling_type", type);
    if (type == 4) header.add("tokenizer.chat_template.rerank", "ask {query} of {document}");
    tiny::write_file(folder.file("model.gguf"), header.file(tiny::make_tensors(config, true, "F32")));
    const auto info = inspect(folder.file("model.gguf"));
    ASSERT_TRUE(info) << info.error().to_string();
    EXPECT_EQ(info->pooling.kind, kind) << type;
    EXPECT_TRUE(info->pooling.normalize);
    EXPECT_EQ(info->pooling.pair_template, type == 4 ? "ask {query} of {document}" : "");
    EXPECT_EQ(info->pooling.yes_token, type == 4 ? "yes" : "");
  }
}

TEST(PoolingInfo, BrokenFilesDoNotCrash) {
  const std::string whole = "[" + module("Pooling", "1_Pooling") + "," + module("Normalize", "2_Normalize") + "]";
  const std::string config = R"({"pooling_mode_mean_tokens": true, "matryoshka_dimensions": [1, -1, "x"], "classifier_from_token": [1]})";
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const tiny::TempFolder folder;
    const auto damaged = [&](std::string text) {
      for (std::uint64_t i = random.below(4); i > 0; --i) text[random.below(text.size())] = static_cast<char>(random.below(256));
      return text.substr(0, random.below(text.size() + 1));
    };
    write_text(folder.file("modules.json"), damaged(whole));
    write_text(folder.file("1_Pooling/config.json"), damaged(config));
    write_text(folder.file("config.json"), damaged(config));
    const PoolingInfo info = pooling_info(folder.file(""));
    EXPECT_TRUE(info.kind == PoolingKind::mean || info.kind == PoolingKind::last);
  }
}

// Qwen3-Embedding is published like this: only the decoder.
TEST(PoolingInfo, LoadsAFolderWithoutTheOutputMatrix) {
  const tiny::LogitRecord record = tiny::read_logit_record("");
  const auto found = std::ranges::find(record.cases, std::string("qwen3_hf_F32"), &tiny::LogitCase::name);
  ASSERT_NE(found, record.cases.end());
  const auto config = config_from_hf(JsonRef(found->config, "config.json"));
  ASSERT_TRUE(config);
  std::vector<tiny::Tensor> tensors;
  for (tiny::Tensor& tensor : tiny::make_tensors(*config, false, "F32")) {
    if (tensor.name == "lm_head.weight") continue;
    tensor.name.erase(0, std::string("model.").size());
    tensors.push_back(std::move(tensor));
  }
  const tiny::TempFolder folder;
  tiny::write_hf_folder(folder.file("bare"), found->config, tensors);
  ThreadPool threads(1);
  const auto model = load_model(folder.file("bare"), {.pool = &threads});
  EXPECT_TRUE(model) << model.error().to_string();
}

}  // namespace
}  // namespace quire
