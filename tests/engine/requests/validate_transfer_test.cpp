// The kv_transfer_params that a server accepts in each role, and the texts of the errors for all others.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/requests/validate_request.h"

namespace quire {
namespace {

// Returns the error for a request with these parameters, and no text if a server with the role accepts it.
std::string transfer_error(KvRole role, KvTransferParams params, ErrorCode code = ErrorCode::invalid_argument,
                           const std::function<void(EngineRequest&)>& change = {}) {
  EngineRequest request;
  request.kv_transfer = std::move(params);
  if (change) change(request);
  const Result<void> valid = validate_transfer(request, role);
  if (valid) return "";
  EXPECT_EQ(valid.error().code, code);
  return valid.error().to_string();
}

KvTransferParams from_producer() {
  return {.do_remote_prefill = true,
          .remote_block_ids = {{7}},
          .remote_engine_id = "engine",
          .remote_request_id = "request",
          .remote_host = "host",
          .remote_port = 1};
}

constexpr KvRole kRoles[] = {KvRole::none, KvRole::producer, KvRole::consumer, KvRole::both};

TEST(ValidateTransfer, AcceptsRequestsWithoutParametersInEachRole) {
  for (const KvRole role : kRoles) EXPECT_TRUE(validate_transfer(EngineRequest{}, role));
}

TEST(ValidateTransfer, AcceptsTheDirectionOfTheServersRole) {
  const std::string no_role =
      "kv_transfer_params: is set, but this server does not exchange KV cache blocks with other servers; start the server with --kv-role, "
      "or leave it out";
  EXPECT_EQ(transfer_error(KvRole::none, {}, ErrorCode::unsupported), no_role);
  const KvTransferParams decode{.do_remote_decode = true};
  EXPECT_EQ(transfer_error(KvRole::producer, decode), "");
  EXPECT_EQ(transfer_error(KvRole::both, decode), "");
  EXPECT_EQ(transfer_error(KvRole::consumer, decode, ErrorCode::unsupported),
            "kv_transfer_params: sets do_remote_decode, but this server is a consumer; send the request to a producer");
  EXPECT_EQ(transfer_error(KvRole::consumer, from_producer()), "");
  EXPECT_EQ(transfer_error(KvRole::both, from_producer()), "");
  EXPECT_EQ(transfer_error(KvRole::producer, from_producer(), ErrorCode::unsupported),
            "kv_transfer_params: sets do_remote_prefill, but this server is a producer; send the request to a consumer");
  for (const KvRole role : {KvRole::producer, KvRole::consumer, KvRole::both}) {
    EXPECT_EQ(transfer_error(role, {}), "");
    EXPECT_EQ(transfer_error(role, {.do_remote_decode = true, .do_remote_prefill = true}),
              "kv_transfer_params: sets both do_remote_decode and do_remote_prefill; set only one of them");
  }
}

TEST(ValidateTransfer, RefusesRequestsThatAreNotOnePlainAnswer) {
  const std::pair<std::string, std::function<void(EngineRequest&)>> changes[] = {
      {"n", [](EngineRequest& r) { r.n = 2; }},
      {"beam_search", [](EngineRequest& r) { r.beam_search.emplace(); }},
      {"session", [](EngineRequest& r) { r.session = true; }},
      {"pooling", [](EngineRequest& r) { r.pooling = true; }}};
  for (const auto& [field, change] : changes)
    EXPECT_EQ(transfer_error(KvRole::both, from_producer(), ErrorCode::unsupported, change),
              field + ": is set, but kv_transfer_params do not support it; leave it out");
}

TEST(ValidateTransfer, BoundsTheNamesAndBlocksOfTheSource) {
  for (const auto& [field, name] :
       {std::pair("remote_engine_id", &KvTransferParams::remote_engine_id),
        std::pair("remote_request_id", &KvTransferParams::remote_request_id), std::pair("remote_host", &KvTransferParams::remote_host)}) {
    KvTransferParams params = from_producer();
    params.*name = std::string(128, 'x');
    EXPECT_EQ(transfer_error(KvRole::both, params), "");
    params.*name = std::string(129, 'x');
    EXPECT_EQ(transfer_error(KvRole::both, params), std::string("kv_transfer_params: has a ") + field + " of 129 bytes; use at most 128");
  }
  const auto too_many = [](std::size_t count, std::size_t groups) {
    return "kv_transfer_params: has " + std::to_string(count) + " remote_block_ids in " + std::to_string(groups) +
           " groups, but at most 1048576 in 64 groups are allowed; send the kv_transfer_params from the producer's answer";
  };
  constexpr std::size_t kMost = std::size_t{1} << 20U;
  KvTransferParams params = from_producer();
  params.remote_block_ids.assign(64, {1});
  EXPECT_EQ(transfer_error(KvRole::both, params), "");
  params.remote_block_ids.assign(65, {1});
  EXPECT_EQ(transfer_error(KvRole::both, params), too_many(65, 65));
  params.remote_block_ids = {{7}, std::vector<std::uint32_t>(kMost - 1)};
  EXPECT_EQ(transfer_error(KvRole::both, params), "");
  params.remote_block_ids = {{7}, std::vector<std::uint32_t>(kMost)};
  EXPECT_EQ(transfer_error(KvRole::both, params), too_many(kMost + 1, 2));
}

TEST(ValidateTransfer, NeedsTheWholeSourceOfBlocks) {
  const std::string no_source =
      "kv_transfer_params: sets do_remote_prefill, but does not name the source of the blocks; send remote_engine_id, remote_request_id, "
      "remote_host and remote_port from the producer's answer";
  const std::function<void(KvTransferParams&)> removals[] = {
      [](KvTransferParams& p) { p.remote_engine_id.clear(); }, [](KvTransferParams& p) { p.remote_request_id.clear(); },
      [](KvTransferParams& p) { p.remote_host.clear(); }, [](KvTransferParams& p) { p.remote_port = 0; }};
  for (const auto& remove : removals) {
    KvTransferParams params = from_producer();
    remove(params);
    EXPECT_EQ(transfer_error(KvRole::both, params), no_source);
    params.remote_block_ids = {{}, {}};
    EXPECT_EQ(transfer_error(KvRole::both, params), "") << "the producer keeps no blocks";
    params = from_producer();
    remove(params);
    params.do_remote_prefill = false;
    EXPECT_EQ(transfer_error(KvRole::both, params), "") << "no block is loaded";
  }
}

}  // namespace
}  // namespace quire
