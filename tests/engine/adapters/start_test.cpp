// Tests adapters at the start of an engine around a real model, in cases where no adapter is read.
#include <gtest/gtest.h>

#include "engine/collector.h"
#include "engine/feature_mix.h"
#include "quire/engine_builder.h"
#include "runtime/model/rig.h"

namespace quire {
namespace {

EngineOptions adapted_options(const tiny::TempFolder& folder) {
  EngineOptions options;
  options.model = test::write_windowed_model(folder.file("model"));
  options.num_threads = 1;
  options.cache.num_blocks = 50;
  options.adapters = {.max_loras = 1, .modules = {}};
  return options;
}

TEST(AdaptersAtTheStart, ReportsTheNameOfAnAdapterThatCannotBeRead) {
  const tiny::TempFolder folder;
  EngineOptions options = adapted_options(folder);
  options.adapters.modules = {{.name = "sql", .path = folder.file("absent")}};
  const auto engine = EngineBuilder(options).build();
  ASSERT_FALSE(engine.has_value());
  EXPECT_TRUE(engine.error().field.starts_with("lora_modules 'sql'")) << engine.error().to_string();
}

TEST(AdaptersAtTheStart, ServesTheBaseModelWhenNoAdapterIsLoaded) {
  const tiny::TempFolder folder;
  const auto engine = EngineBuilder(adapted_options(folder)).build().value();
  EXPECT_TRUE(engine->adapters().empty());
  EXPECT_FALSE(engine->load_adapter("sql", folder.file("absent")).has_value());
  EXPECT_EQ(engine->stats().adapters->num_failed_loads, 1U);
  EXPECT_EQ(engine->stats().adapters->max_loras, 1U);
  Collector sink;
  EngineRequest request{.prompt = {1, 2, 3}, .sampling = {}};
  request.sampling.max_tokens = 3;
  request.sampling.ignore_eos = true;
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).tokens.size(), 3U);
  request.adapter = "sql";
  EXPECT_EQ(engine->submit(request, sink).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace quire
