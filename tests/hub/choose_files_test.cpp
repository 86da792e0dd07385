#include "hub/choose_files.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quire {
namespace {

using Names = std::vector<std::string>;

std::vector<HubFile> listing_of(const Names& names) {
  std::vector<HubFile> files;
  for (const std::string& name : names) files.push_back({.path = name, .size = 10 * (files.size() + 1)});
  return files;
}

Names paths_of(const std::vector<HubFile>& files) {
  Names names;
  for (const HubFile& file : files) names.push_back(file.path);
  return names;
}

Result<ChosenFiles> choose(const Names& names, const std::string& variant = "") {
  return choose_files(listing_of(names), {"org/repo", variant});
}

// Returns the chosen paths, or the text of the error.
Names chosen(const Names& names, const std::string& variant = "") {
  const auto result = choose(names, variant);
  return result ? paths_of(result->files) : Names{"error: " + result.error().to_string()};
}

TEST(QuantInName, FindsTheLastQuantization) {
  EXPECT_EQ(quant_in("Qwen3-0.6B-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(quant_in("dir-Q8_0/qwen2.5-0.5b-instruct-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(quant_in("model.fp16.gguf"), "FP16");
  EXPECT_EQ(quant_in("SmolLM2-135M-Instruct.Q4_1.gguf"), "Q4_1");
  EXPECT_EQ(quant_in("GLM-4.5-UD-Q4_K_XL.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(quant_in("m-IQ2_XXS.gguf"), "IQ2_XXS");
  EXPECT_EQ(quant_in("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(quant_in("QwQ-32B.gguf"), "");
  EXPECT_EQ(quant_in(""), "");
}

TEST(ChooseFiles, PrefersFourBitsThenMoreThenFewer) {
  EXPECT_EQ(chosen({"m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q2_K.gguf"}), Names{"m-Q4_K_M.gguf"});
  EXPECT_EQ(chosen({"m-Q8_0.gguf", "m-Q4_0.gguf"}), Names{"m-Q4_0.gguf"});
  EXPECT_EQ(chosen({"m-F16.gguf", "m-Q2_K.gguf"}), Names{"m-F16.gguf"});
  EXPECT_EQ(chosen({"m-Q5_K_M.gguf", "m-Q3_K_M.gguf"}), Names{"m-Q5_K_M.gguf"});
  EXPECT_EQ(chosen({"large.gguf", "m.gguf"}), Names{"large.gguf"}) << "without a known quantization: the smallest file";
}

TEST(ChooseFiles, ListsOtherQuantizationsAndImageEncoders) {
  const auto result = choose({"m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-m-F16.gguf", "m.imatrix.gguf", "README.md"});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->model, "m-Q4_K_M.gguf");
  EXPECT_EQ(result->quant, "Q4_K_M");
  EXPECT_EQ(result->other_quants, Names{"Q8_0"});
  EXPECT_EQ(result->image_encoders, Names{"mmproj-m-F16.gguf"});
}

TEST(ChooseFiles, TakesTheNamedQuantizationOrFile) {
  const Names repo{"m-Q8_0.gguf", "m-UD-Q4_K_XL.gguf", "sub/m-Q4_K_M.gguf", "mmproj-F16.gguf"};
  EXPECT_EQ(chosen(repo, "q8_0"), Names{"m-Q8_0.gguf"});
  EXPECT_EQ(chosen(repo, "Q4_K_XL"), Names{"m-UD-Q4_K_XL.gguf"});
  EXPECT_EQ(chosen(repo, "m-Q4_K_M.gguf"), Names{"sub/m-Q4_K_M.gguf"});
  EXPECT_EQ(chosen(repo, "sub/m-Q4_K_M.gguf"), Names{"sub/m-Q4_K_M.gguf"});
  EXPECT_EQ(chosen(repo, "mmproj-F16.gguf"), Names{"mmproj-F16.gguf"});
}

TEST(ChooseFiles, NamesTheQuantizationsThatAreThere) {
  const auto result = choose({"m-Q8_0.gguf", "m-Q4_0.gguf"}, "Q6_K");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::not_found);
  EXPECT_EQ(result.error().field, "MODEL");
  EXPECT_EQ(result.error().remedy, "it has Q4_0, Q8_0");
}

TEST(ChooseFiles, AsksForTheFileIfSeveralMatch) {
  const auto result = choose({"a-Q4_0.gguf", "b-Q4_0.gguf"});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(result.error().remedy.find("org/repo:FILE: a-Q4_0.gguf, b-Q4_0.gguf"), std::string::npos) << result.error().remedy;
}

TEST(ChooseFiles, TakesAllPartsInOrder) {
  const Names parts{"m-Q4_0-00001-of-00003.gguf", "m-Q4_0-00002-of-00003.gguf", "m-Q4_0-00003-of-00003.gguf"};
  EXPECT_EQ(chosen({parts[2], "m-Q8_0.gguf", parts[0], parts[1]}), parts);
  EXPECT_EQ(chosen(parts, parts[1]), parts) << "any part names the model";
  EXPECT_EQ(chosen({parts[0], parts[2], "m-Q8_0.gguf"}), Names{"m-Q8_0.gguf"}) << "an incomplete model is not chosen";
  const auto missing = choose({parts[0], parts[2]}, "Q4_0");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("2 of 3 parts"), std::string::npos) << missing.error().message;
}

TEST(ChooseFiles, IgnoresPartNumbersThatCannotBe) {
  EXPECT_EQ(chosen({"m-Q4_0-00000-of-00003.gguf", "m-Q4_0-00004-of-00003.gguf"}, "Q4_0").size(), 1U);
  EXPECT_TRUE(choose({"-00001-of-00001.gguf"}));
}

TEST(ChooseFiles, TakesWeightsConfigAndTokenizerOfAFolder) {
  const Names wanted{"config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"};
  Names repo = wanted;
  for (const char* other : {"model.bin", "original/model.safetensors", "consolidated.safetensors", "model.fp16.safetensors", "README.md"})
    repo.emplace_back(other);
  Names found = chosen(repo), sorted = wanted;
  EXPECT_EQ(found.back(), "model.safetensors") << "the weights are last";
  std::ranges::sort(found);
  std::ranges::sort(sorted);
  EXPECT_EQ(found, sorted);
  EXPECT_TRUE(choose(repo)->has_tokenizer);
  EXPECT_FALSE(choose({"config.json", "model.safetensors"})->has_tokenizer);
}

TEST(ChooseFiles, RequiresAllShards) {
  const Names shards{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
  EXPECT_EQ(chosen(shards).size(), 4U);
  const auto missing = choose({shards[0], shards[1], shards[3]});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
}

TEST(ChooseFiles, RefusesARepositoryWithoutAModel) {
  for (const Names& names : {Names{}, Names{"config.json", "pytorch_model.bin"}, Names{"model.safetensors"}}) {
    const auto result = choose(names);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  }
  EXPECT_EQ(choose({"config.json", "model.safetensors"}, "Q4_0").error().code, ErrorCode::not_found);
}

TEST(ChooseFiles, TakesALoraAdapter) {
  EXPECT_EQ(chosen({"adapter_config.json", "adapter_model.safetensors"}), (Names{"adapter_config.json", "adapter_model.safetensors"}));
}

}  // namespace
}  // namespace quire
