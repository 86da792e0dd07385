// Tests "kv_transfer_params" as vLLM's proxies send them: a consumer reads a producer's answer, and errors name the field.
#include "server/request/transfer_params.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/request/request_bodies.h"

namespace quire {
namespace {

Result<CompletionRequest> read(const std::string& params, const std::string& more = "") {
  return parse_completion_request(Api::completion, R"({"prompt": "a", "kv_transfer_params": )" + params + more + "}", {.vocab_size = 9});
}

TEST(TransferParams, ReadsItsAnswers) {
  const KvTransferParams params{.do_remote_prefill = true,
                                .remote_block_ids = {{5, 7, 6}},
                                .remote_engine_id = "engine \"1\"",
                                .remote_request_id = "1-abc",
                                .remote_host = "10.0.0.1",
                                .remote_port = 5600};
  const std::string text = transfer_params_json(params);
  EXPECT_EQ(text, R"({"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[5,7,6]],"remote_engine_id":"engine \"1\"",)"
                  R"("remote_request_id":"1-abc","remote_host":"10.0.0.1","remote_port":5600,"tp_size":1})");
  const auto request = read(text);
  ASSERT_TRUE(request) << request.error().to_string();
  EXPECT_EQ(request->kv_transfer, params);
  EXPECT_FALSE(request->hidden_states);
}

TEST(TransferParams, ReadsAProxysFields) {
  const auto asks = read(
      R"({"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null, "remote_block_ids": null, "remote_host": null, "remote_port": null})");
  ASSERT_TRUE(asks) << asks.error().to_string();
  EXPECT_EQ(asks->kv_transfer, (KvTransferParams{.do_remote_decode = true}));
  const auto flat = read(R"({"do_remote_prefill": true, "remote_block_ids": [4, 5], "remote_num_tokens": 32, "transfer_mode": "pull"})");
  ASSERT_TRUE(flat) << flat.error().to_string();
  EXPECT_EQ(flat->kv_transfer->remote_block_ids, (std::vector<std::vector<std::uint32_t>>{{4, 5}}));
  EXPECT_FALSE(read(R"({"do_remote_prefill": false})")->kv_transfer) << "no transfer is requested";
  EXPECT_FALSE(read("null")->kv_transfer);
}

TEST(TransferParams, NamesTheInvalidField) {
  for (const auto& [params, field] :
       {std::pair<const char*, const char*>{R"({"do_remote_prefill": 1})", "kv_transfer_params.do_remote_prefill"},
        {R"({"do_remote_prefill": true, "remote_block_ids": 3})", "kv_transfer_params.remote_block_ids"},
        {R"({"do_remote_prefill": true, "remote_block_ids": [-1]})", "kv_transfer_params.remote_block_ids"},
        {R"({"do_remote_prefill": true, "remote_block_ids": [[4294967296]]})", "kv_transfer_params.remote_block_ids"},
        {R"({"do_remote_prefill": true, "remote_block_ids": [[1], 2]})", "kv_transfer_params.remote_block_ids"},
        {R"({"do_remote_prefill": true, "remote_port": 65536})", "kv_transfer_params.remote_port"},
        {R"({"do_remote_prefill": true, "remote_host": 3})", "kv_transfer_params.remote_host"},
        {R"({"do_remote_prefill": true, "tp_size": 2})", "kv_transfer_params.tp_size"},
        {R"({"do_remote_prefil": true})", "kv_transfer_params.do_remote_prefil"},
        {R"({"do_remote_decode": true, "hidden_states": true})", "kv_transfer_params"},
        {"[]", "kv_transfer_params"}}) {
    const auto request = read(params);
    ASSERT_FALSE(request) << params;
    EXPECT_EQ(request.error().field, field) << params;
  }
  const auto streamed = read(R"({"do_remote_decode": true})", R"(, "stream": true)");
  ASSERT_FALSE(streamed);
  EXPECT_EQ(streamed.error().field, "kv_transfer_params");
  EXPECT_TRUE(read(R"({"do_remote_prefill": true})", R"(, "stream": true)")) << "a consumer may stream";
}

TEST(TransferErrors, NameTheFieldTheProblemAndTheFix) {
  const std::string fix = "; send the kv_transfer_params from the producer's answer";
  const BodyCase cases[] = {
      {"[]", R"(kv_transfer_params: must be an object, not array; send {"hidden_states": true}, or remove it)"},
      {R"({"do_remote_prefill": true, "remote_block_ids": 3})", "kv_transfer_params.remote_block_ids: must be a list, not integer 3" + fix},
      {R"({"do_remote_prefill": true, "remote_block_ids": [-1]})",
       "kv_transfer_params.remote_block_ids: must contain only block numbers" + fix},
      {R"({"do_remote_prefill": true, "remote_block_ids": [[1], 2]})",
       "kv_transfer_params.remote_block_ids: must contain only lists of block numbers" + fix},
      {R"({"do_remote_prefill": true, "tp_size": 2})", "kv_transfer_params.tp_size: is 2; use 1 to 1"},
      {R"({"do_remote_prefill": true, "tp_size": 0})", "kv_transfer_params.tp_size: is 0; use 1 to 1"},
      {R"({"do_remote_prefill": true, "remote_port": 65536})", "kv_transfer_params.remote_port: is 65536; use 0 to 65535"},
      {R"({"do_remote_prefill": true, "remote_port": 65535})", "accepted"},
      {R"({"do_remote_prefill": true, "remote_block_ids": [[4294967296]]})",
       "kv_transfer_params.remote_block_ids: must contain only lists of block numbers" + fix},
  };
  for (const BodyCase& one : cases)
    EXPECT_EQ(request_error(text_request(kHiPrompt + R"(, "kv_transfer_params": )" + one.fields)), one.error) << one.fields;
  EXPECT_EQ(request_error(text_request(kHiPrompt + R"(, "stream": true, "kv_transfer_params": {"do_remote_decode": true})")),
            "kv_transfer_params: requests do_remote_decode, which is not supported with stream; do not stream");
  EXPECT_EQ(request_error(text_request(R"("prompt": ["a", "b"], "kv_transfer_params": {"do_remote_prefill": true})")),
            "kv_transfer_params: requires one prompt and no hidden states; send a separate request for each");
  EXPECT_EQ(request_error(text_request(kHiPrompt + R"(, "kv_transfer_params": {"do_remote_prefill": true, "hidden_states": true})")),
            "kv_transfer_params: requires one prompt and no hidden states; send a separate request for each");
}

TEST(TransferBlocks, IncludeTheFirstAndTheLastNumber) {
  for (const char* ids : {"[0, 4294967295]", "[[0, 4294967295]]"}) {
    const auto request =
        text_request(kHiPrompt + R"(, "kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": )" + ids + "}");
    ASSERT_TRUE(request) << request.error().to_string();
    EXPECT_EQ(request->kv_transfer->remote_block_ids, (std::vector<std::vector<std::uint32_t>>{{0, 4294967295U}}));
    EXPECT_EQ(request->kv_transfer->remote_port, 0U);
    EXPECT_EQ(request->kv_transfer->tp_size, 1U);
    EXPECT_TRUE(request->kv_transfer->do_remote_prefill);
    EXPECT_FALSE(request->kv_transfer->do_remote_decode);
  }
  const auto groups = text_request(kHiPrompt + R"(, "kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": [[1], [2, 3]]})");
  EXPECT_EQ(groups->kv_transfer->remote_block_ids, (std::vector<std::vector<std::uint32_t>>{{1}, {2, 3}}));
  EXPECT_TRUE(text_request(kHiPrompt + R"(, "kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": []})")
                  ->kv_transfer->remote_block_ids.empty());
}

}  // namespace
}  // namespace quire
