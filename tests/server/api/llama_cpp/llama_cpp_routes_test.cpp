// Tests the routes of llama.cpp's server over real sockets.
#include <boost/json/parse.hpp>
#include <string>

#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

using LlamaCppRoutes = RunningServer;

TEST_F(LlamaCppRoutes, DescribeTheModel) {
  start({.generation_defaults = {.temperature = 0.5}});
  const json::value props = HttpClient(port).get("/props").json();
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx"), 512);
  EXPECT_EQ(props.at("default_generation_settings").at("params").at("temperature"), 0.5);
  EXPECT_EQ(props.at("total_slots"), engine.options().scheduler.max_num_seqs);
  EXPECT_EQ(props.at("model_alias"), "bytes");
  EXPECT_EQ(props.at("eos_token"), "<|end|>");
  EXPECT_TRUE(props.at("chat_template").as_string().starts_with("{% for m in messages %}"));
  EXPECT_EQ(props.at("modalities"), json::parse(R"({"vision": false, "audio": false})"));
  EXPECT_EQ(props.at("model_path").as_string().find('/'), json::string::npos) << "clients learn only the name of the file";
}

TEST_F(LlamaCppRoutes, ListASlotPerRequest) {
  start();
  HttpClient client(port);
  client.send_post("/v1/completions", R"({"prompt": "abc", "max_tokens": 9, "temperature": 0.25})");
  ASSERT_TRUE(engine.wait_submitted(1));
  const json::value slots = HttpClient(port).get("/slots").json();
  ASSERT_EQ(slots.as_array().size(), engine.options().scheduler.max_num_seqs);
  const json::value& taken = slots.at(0);
  EXPECT_EQ(taken.at("is_processing"), true);
  EXPECT_EQ(taken.at("n_prompt_tokens"), 3);
  EXPECT_EQ(taken.at("params"), json::parse(R"({"n_predict": 9, "max_tokens": 9, "temperature": 0.25, "top_p": 1})"));
  EXPECT_EQ(slots.at(1), json::parse(R"({"id": 1, "id_task": -1, "n_ctx": 512, "speculative": false, "is_processing": false})"));
  EXPECT_EQ(HttpClient(port).get("/slots?fail_on_no_slot=1").status, 200U) << "other slots are free";
  EXPECT_EQ(HttpClient(port).get("/slots?fail=1").error_param(), "fail");
}

TEST_F(LlamaCppRoutes, RenderMessagesWithoutAnAnswer) {
  start();
  EXPECT_EQ(post("/apply-template", R"({"messages": [{"role": "user", "content": "hi"}]})").body, R"({"prompt":"<user>hi<assistant>"})");
  EXPECT_EQ(post("/apply-template", R"({"messages": []})").error_param(), "messages");
  EXPECT_EQ(engine.num_submitted(), 0U);
}

TEST_F(LlamaCppRoutes, HideRequestsFromTenants) {
  start({.tenant_keys = {{"a", "key-a"}}});
  EXPECT_EQ(HttpClient(port).get("/slots", "Authorization: Bearer key-a\r\n").status, 403U);
  EXPECT_EQ(HttpClient(port).get("/props", "Authorization: Bearer key-a\r\n").status, 200U);
}

}  // namespace
}  // namespace quire
