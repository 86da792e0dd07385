// Tests what the server of several models answers itself. A shell script that never becomes ready takes the place of `quire serve`.
#include "server/models/models_router.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace quire {
namespace {

class ModelsRouterTest : public testing::Test {
 protected:
  static ModelsOptions two_models() {
    const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "models_router_test.sh";
    std::ofstream(path) << "#!/bin/sh\nexec sleep 60\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    ModelsOptions models;
    models.program = path.string();
    for (const char* name : {"one", "two"})
      models.entries.push_back({.name = name, .aliases = {}, .arguments = {}, .adapters = {}, .memory_bytes = 0, .facts = {}});
    return models;
  }

  HttpResponse answer(const std::string& method, const std::string& target) {
    HttpRequest request;
    request.method = method;
    request.target = target;
    return router_.handle(request, [] {}).response;
  }

  boost::asio::io_context io_{1};
  ModelsOptions models_ = two_models();
  ServerOptions options_{};
  Logger logger_{LogOptions{.level = LogLevel::off}};
  ModelPool pool_{io_, models_, {}, logger_};
  ModelsRouter router_{io_, pool_, options_, logger_};
};

TEST_F(ModelsRouterTest, ReportsALoadingModelAsBusy) {
  EXPECT_EQ(answer("POST", "/unload").body, R"({"unloaded":[],"busy":[]})");
  const auto hold = pool_.request(1, [](const Result<std::uint16_t>&) {});
  ASSERT_EQ(pool_.status(1).state, ModelState::loading);
  EXPECT_EQ(answer("POST", "/unload").body, R"({"unloaded":[],"busy":["two"]})");
  EXPECT_EQ(answer("POST", "/unload?model=one").body, R"({"unloaded":[],"busy":[]})");
}

}  // namespace
}  // namespace quire
