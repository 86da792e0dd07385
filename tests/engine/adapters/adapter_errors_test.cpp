// Tests the errors and log lines of the adapter registry, which clients and operators read.
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/adapters/adapter_registry.h"
#include "engine/adapters/made_adapters.h"
#include "support/pipe.h"

namespace quire {
namespace {

TEST(AdapterErrors, SayHowToCorrectTheCall) {
  test::MadeAdapters folders;
  folders.put("/a", "bytes of a");
  folders.put("/b", "bytes of b");
  AdapterRegistry registry(1, folders.loader());
  ASSERT_TRUE(registry.load("a", "/a", false));
  const SharedLease lease = registry.lease("a").value();
  const auto text = [](const auto& result) { return result ? std::string() : result.error().to_string(); };
  EXPECT_EQ(text(registry.load("", "/a", false)), "lora_name: is empty; give the adapter a name");
  EXPECT_EQ(text(registry.load("b", "", false)), "lora_path: is empty; give the path of the adapter's folder");
  EXPECT_EQ(text(registry.load("a", "/b", false)), "lora_name: 'a' is already loaded; unload it first, or set load_inplace to true");
  EXPECT_EQ(text(registry.load("b", "/b", false)),
            "max_cpu_loras: all 1 adapters that fit in memory are in use; try again later, or start the server with a larger "
            "--max-cpu-loras");
  const std::string unknown = "adapter: there is no adapter 'x'; load it first";
  EXPECT_EQ(text(registry.unload("x")), unknown);
  EXPECT_EQ(text(registry.lease("x")), unknown);
  EXPECT_EQ(text(registry.lease_resident("x")), unknown);
  EXPECT_EQ(text(registry.identify("x")), unknown);
  EXPECT_EQ(text(registry.unload(std::string(201, 'y'))), "adapter: there is no adapter '" + std::string(200, 'y') + "'; load it first");
  EXPECT_EQ(registry.stats().num_failed_loads, 0U) << "no folder was read";
}

TEST(AdapterErrors, ReportWhatTheReaderThrows) {
  AdapterRegistry registry(1, [](const std::string&) -> Result<std::shared_ptr<const Adapter>> { throw std::runtime_error("no memory"); });
  const auto failed = registry.load("a", "/a", false);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::io);
  EXPECT_EQ(failed.error().to_string(),
            "lora_path: '/a' could not be read: no memory; check the folder and the free memory, then load the adapter again");
}

TEST(AdapterErrors, ReachTheThreadsThatWaitForTheSameFolder) {
  test::MadeAdapters folders;
  folders.put("/a", "bytes of a");
  folders.put("/b", "bytes of b");
  AdapterRegistry registry(1, folders.loader());
  ASSERT_TRUE(registry.load("a", "/a", false));
  ASSERT_TRUE(registry.load("b", "/b", false));  // evicts "a"
  folders.remove("/a");
  std::latch begun(1);
  std::promise<void> may_end;
  folders.before_read([&, wait = may_end.get_future().share()](const std::string&) {
    if (!begun.try_wait()) begun.count_down();
    wait.wait();
  });
  auto reads = std::async(std::launch::async, [&] { return registry.lease("a"); });
  begun.wait();
  auto waits = std::async(std::launch::async, [&] { return registry.lease("a"); });
  may_end.set_value();
  for (auto* asked : {&reads, &waits}) {
    const auto lease = asked->get();
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().code, ErrorCode::not_found);
    EXPECT_EQ(lease.error().field, "lora_path");
  }
}

TEST(AdapterLog, ReportsLoadsFailuresAndUnloads) {
  Pipe pipe;
  {
    test::MadeAdapters folders;
    folders.put("/a", "bytes");
    AdapterRegistry registry(2, folders.loader(), std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()}));
    ASSERT_TRUE(registry.load("a", "/a", false));
    EXPECT_FALSE(registry.load("x", "/x", false));
    EXPECT_FALSE(registry.unload("x"));
    ASSERT_TRUE(registry.lease("a"));
    ASSERT_TRUE(registry.unload("a"));
  }
  std::vector<std::string> lines = pipe.lines();
  for (std::string& line : lines) line.erase(0, line.find(' ') + 1);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].substr(0, lines[0].find("seconds=")), "info adapter_loaded name=a path=/a digest=bytes rank=8 bytes=0 ");
  EXPECT_EQ(lines[1], "warning adapter_failed name=x path=/x why=\"lora_path: there is no folder /x; give one\"");
  EXPECT_EQ(lines[2], "info adapter_unloaded name=a");
}

}  // namespace
}  // namespace quire
