// Tests the file and the folder of --models.
#include "cli/models_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace quire {
namespace {

ModelsList models_list_of(std::string_view text) {
  auto list = parse_models_file(text);
  EXPECT_TRUE(list.has_value()) << list.error().to_string();
  return list.value_or(ModelsList{});
}

std::string models_problem(std::string_view text) {
  const auto list = parse_models_file(text);
  return list ? "none" : list.error().to_string();
}

TEST(ParseModelsFile, ReadsLimitsAndModels) {
  const ModelsList list = models_list_of(R"(# two models
max-loaded: 2
memory: 12GiB
models:   # the first one is the default
  - name: small
    model: ./small.gguf
    aliases: [claude-*, gpt-4o]
    flags:
      max-model-len: 4096
      lora-modules:
        - a=/x
        - b=/y

  # the other one
  - model: ORG/REPO:Q4_K_M
    aliases:
      - "*"
idle-seconds: 600
)");
  ASSERT_EQ(list.models.size(), 2U);
  EXPECT_EQ(list.limits.max_loaded, 2U);
  EXPECT_EQ(list.limits.memory_bytes, std::uint64_t{12} << 30);
  EXPECT_EQ(list.limits.idle_s, 600U);
  EXPECT_EQ(list.limits.wait_s, std::nullopt);
  EXPECT_EQ(list.models[0].name, "small");
  EXPECT_EQ(list.models[0].model, "./small.gguf");
  EXPECT_EQ(list.models[0].line, 5U);
  EXPECT_EQ(list.models[0].aliases, (std::vector<std::string>{"claude-*", "gpt-4o"}));
  ASSERT_EQ(list.models[0].flags.size(), 2U);
  EXPECT_EQ(list.models[0].flags[0].key, "max-model-len");
  EXPECT_EQ(list.models[0].flags[0].line, 9U);
  EXPECT_EQ(list.models[0].flags[1].values, (std::vector<std::string>{"a=/x", "b=/y"}));
  EXPECT_EQ(list.models[1].name, "");
  EXPECT_EQ(list.models[1].model, "ORG/REPO:Q4_K_M");
  EXPECT_EQ(list.models[1].aliases, (std::vector<std::string>{"*"}));
}

TEST(ParseModelsFile, AcceptsItemsAtTheLeft) {
  const ModelsList list = models_list_of("models:\n- model: a\n- model: b\n  name: c\nmax-loaded: 1\n");
  ASSERT_EQ(list.models.size(), 2U);
  EXPECT_EQ(list.models[1].name, "c");
  EXPECT_EQ(list.limits.max_loaded, 1U);
}

TEST(ParseModelsFile, NamesTheLineOfAnError) {
  EXPECT_EQ(models_problem(""), "line 1: no model is listed; write 'models:', and below it an item such as '- model: PATH' for each model");
  EXPECT_TRUE(models_problem("max-loaded: 1\nmodels:\n").starts_with("line 2: no model is listed"));
  EXPECT_EQ(models_problem("models:\n  - name: a\n"), "line 2: the model has no 'model'; add 'model: PATH' or 'model: ORG/REPO'");
  EXPECT_EQ(models_problem("max-load: 1\nmodels:\n  - model: a\n"), "line 1: 'max-load' is not a key here; did you mean 'max-loaded'?");
  EXPECT_TRUE(models_problem("models: [a]\n").starts_with("line 1: 'models' occurs twice, or has its value in the same line; write"));
  EXPECT_TRUE(models_problem("models:\n  - model: a\nmodels:\n  - model: b\n").starts_with("line 3: 'models' occurs twice"));
  EXPECT_EQ(models_problem("models:\n  - model: a\n    aliase: b\n"), "line 3: 'aliase' is not a key here; did you mean 'aliases'?");
  EXPECT_EQ(models_problem("models:\n  - model: [a, b]\n"), "line 2: model: is a list; give one value");
  EXPECT_EQ(models_problem("max-loaded: two\nmodels:\n  - model: a\n"),
            "line 1: max-loaded: 'two' is not a whole number; write digits only");
  EXPECT_TRUE(models_problem("memory: big\nmodels:\n  - model: a\n").starts_with("line 1: memory: 'big' is not a size"));
  EXPECT_TRUE(models_problem("models:\n  - model: a\n    flags: --x\n").starts_with("line 3: flags: is no block"));
  EXPECT_TRUE(models_problem("models:\n  - model: a\n   name: b\n").starts_with("line 3: the line is indented less"));
  EXPECT_TRUE(models_problem("models:\n  model: a\n").starts_with("line 2: the line is no item of 'models'"));
  EXPECT_TRUE(models_problem("models:\n  - model: a\n    flags:\n      max-model-len: 1\n      max-model-len: 2\n")
                  .starts_with("line 5: 'max-model-len' occurs twice"));
}

class ModelsFolder : public ::testing::Test {
 protected:
  ModelsFolder() { std::filesystem::create_directories(root_); }
  ~ModelsFolder() override { std::filesystem::remove_all(root_); }
  void add(const std::string& path) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "x";
  }
  // Returns "NAME MODEL FLAG..." of each model, with paths relative to the folder.
  [[nodiscard]] std::vector<std::string> found() const {
    std::vector<std::string> texts;
    const auto relative = [&](const std::string& path) { return std::filesystem::relative(path, root_).string(); };
    for (const ListedModel& model : list_models_folder(root_.string()).value_or(ModelsList{}).models) {
      texts.push_back(model.name + " " + relative(model.model));
      for (const ConfigEntry& flag : model.flags) texts.back() += " " + flag.key + "=" + relative(flag.values.front());
    }
    return texts;
  }
  const std::filesystem::path root_ = std::filesystem::path(::testing::TempDir()) /
                                      (std::string("models_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ModelsFolder, ListsFilesAndFolders) {
  for (const char* path : {"b.gguf", "a.gguf", "mmproj-a.gguf", "notes.txt", ".hidden.gguf", "split-00001-of-00002.gguf",
                           "split-00002-of-00002.gguf", "hf/config.json", "seeing/model.gguf", "seeing/mmproj-model.gguf", "empty/x.txt"})
    add(path);
  EXPECT_EQ(found(), (std::vector<std::string>{"a a.gguf", "b b.gguf", "hf hf", "seeing seeing/model.gguf mmproj=seeing/mmproj-model.gguf",
                                               "split split-00001-of-00002.gguf"}));
}

TEST_F(ModelsFolder, IsAnErrorWithoutModels) {
  add("notes.txt");
  EXPECT_FALSE(list_models_folder(root_.string()).has_value());
  EXPECT_FALSE(list_models_folder((root_ / "none").string()).has_value());
  EXPECT_EQ(read_models((root_ / "none").string()).error().field, "--models");
}

}  // namespace
}  // namespace quire
