// Tests which fields of a body choose a model.
#include "server/models/requested_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

constexpr const char* kJson = "application/json";

TEST(ReadRequestedModel, ReadsTheOutermostModelOnly) {
  EXPECT_EQ(read_requested_model(R"({"messages": [{"model": "no"}], "metadata": {"model": "no"}, "model": "yes"})", kJson, false).model,
            "yes");
  EXPECT_EQ(read_requested_model(R"({"model": "a\u00e4\"b", "x": 1})", kJson, false).model, "aä\"b");
  EXPECT_EQ(read_requested_model(R"({"prompt": "x"})", kJson, false).model, "");
  EXPECT_EQ(read_requested_model(R"(["model", "x"])", kJson, false).model, "");
  EXPECT_EQ(read_requested_model(R"({"model": 5})", kJson, false).model, "");
  EXPECT_EQ(read_requested_model(R"({"model": "x", broken)", kJson, false).model, "x");
  EXPECT_EQ(read_requested_model("", kJson, false).model, "");
}

TEST(ReadRequestedModel, BoundsTheNameAndTheDepth) {
  EXPECT_LE(read_requested_model(R"({"model": ")" + std::string(100'000, 'x') + "\"}", kJson, false).model.size(), 2048U);
  EXPECT_EQ(read_requested_model(R"({"a": )" + std::string(100'000, '['), kJson, false).model, "");
}

TEST(ReadRequestedModel, ReadsOllamasFields) {
  const RequestedModel unload = read_requested_model(R"({"model": "m", "keep_alive": 0, "prompt": ""})", kJson, true);
  EXPECT_EQ(unload.keep_alive_s, 0.0);
  EXPECT_FALSE(unload.has_input);
  const RequestedModel chat = read_requested_model(R"({"name": "m", "messages": [{"keep_alive": 9}], "keep_alive": "5m"})", kJson, true);
  EXPECT_EQ(chat.model, "m");
  EXPECT_EQ(chat.keep_alive_s, 300.0);
  EXPECT_TRUE(chat.has_input);
  EXPECT_EQ(read_requested_model(R"({"model": "m", "keep_alive": -1})", kJson, true).keep_alive_s, -1.0);
  EXPECT_FALSE(read_requested_model(R"({"model": "m", "messages": []})", kJson, true).has_input);
  for (const char* input : {R"("input": "x")", R"("input": ["x"])", R"("input": [[1]])", R"("images": ["x"])", R"("suffix": "x")"})
    EXPECT_TRUE(read_requested_model(fmt::format(R"({{"model": "m", {}}})", input), kJson, true).has_input) << input;
}

TEST(ReadRequestedModel, ReadsForms) {
  const std::string body =
      "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\n\r\nabc\r\n"
      "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--x--\r\n";
  EXPECT_EQ(read_requested_model(body, "multipart/form-data; boundary=x", false).model, "whisper");
  EXPECT_EQ(read_requested_model("broken", "multipart/form-data; boundary=x", false).model, "");
}

}  // namespace
}  // namespace quire
