// Tests the arguments of the process of one model.
#include "cli/model_arguments.h"

#include <gtest/gtest.h>

#include <utility>

#include "cli/command.h"

namespace quire {
namespace {

using Texts = std::vector<std::string>;

Result<PreparedModel> prepared_model(Texts flags, ListedModel model) {
  CLI::App app("", "quire");
  const Command serve = add_serve_command(app);
  flags.insert(flags.begin(), {"serve", "--models", "m.yaml"});
  app.parse(Texts(flags.rbegin(), flags.rend()));
  return prepare_model(*serve.app, model);
}

ListedModel listed_model(std::string name, std::vector<ConfigEntry> flags = {}) {
  return {.name = std::move(name), .model = "m.gguf", .aliases = {}, .flags = std::move(flags)};
}

TEST(PrepareModel, PassesFlagsOnAndGivesEachModelAFolder) {
  const auto model = prepared_model({"--kv-disk", "/kv", "--max-num-seqs", "4", "--port", "80"},
                                    listed_model("a/b", {{.key = "max-num-seqs", .values = {"2"}}}));
  ASSERT_TRUE(model.has_value()) << model.error().to_string();
  EXPECT_EQ(model->arguments, (Texts{"--max-num-seqs=2", "--kv-disk=/kv/a_b"}));
  EXPECT_EQ(model->flags->engine.scheduler.max_num_seqs, 2U);
}

TEST(PrepareModel, PassesFlagsThatMayBeSecretInTheEnvironment) {
  const auto common = prepared_model({"--kv-remote", "redis://u:secret@127.0.0.1:1/0", "--tenant-key", "a=secret"}, listed_model("a"));
  ASSERT_TRUE(common.has_value()) << common.error().to_string();
  EXPECT_EQ(common->arguments, Texts{});
  EXPECT_EQ(common->environment, Texts{"QUIRE_KV_REMOTE=redis://u:secret@127.0.0.1:1/0"});
  const auto own = prepared_model({}, listed_model("a", {{.key = "kv-remote", .values = {"redis://127.0.0.1:1/0"}}}));
  ASSERT_TRUE(own.has_value()) << own.error().to_string();
  EXPECT_EQ(own->environment, Texts{"QUIRE_KV_REMOTE=redis://127.0.0.1:1/0"});
}

TEST(FolderArgument, FindsAFolderOfTwoModels) {
  EXPECT_EQ(folder_argument(Texts{"m", "--kv-disk=/kv/a"}, Texts{"--kv-disk=/kv/a"}), "--kv-disk=/kv/a");
  EXPECT_EQ(folder_argument(Texts{"--kv-disk=/kv/a"}, Texts{"--kv-disk=/kv/b"}), std::nullopt);
  EXPECT_EQ(folder_argument(Texts{"m", "--threads=1"}, Texts{"m", "--threads=1"}), std::nullopt);
}

}  // namespace
}  // namespace quire
