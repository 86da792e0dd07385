// What a request loads from other servers, as a connector. Called by the core in the middle of steps, and by the engine between them. It
// waits for nothing: what it asks of the server's and the fetcher's thread is a line in their queue.
#include "engine/tiers/peer_connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "base/check.h"
#include "quire/core.h"

namespace quire {
namespace {

constexpr std::size_t kPeerNameBytes = 32;  // of a block's name
constexpr std::chrono::seconds kBetweenRenewals(5);

PeerSource source_of(const KvTransferParams& params) {
  return {
      .host = params.remote_host, .port = params.remote_port, .engine_id = params.remote_engine_id, .request_id = params.remote_request_id};
}

// Nobody is to guess the name of another one's request.
std::string request_name(RequestId request) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", request.value, random(), random());
}

std::size_t num_remote_blocks(const KvTransferParams& params) {
  return params.remote_block_ids.empty() ? 0 : params.remote_block_ids.front().size();
}

}  // namespace

PeerConnector::PeerConnector(PeerStore& store, StoreTransport& transport, PeerConnectorOptions options)
    : store_(store), transport_(transport), options_(std::move(options)) {
  free_places_.reserve(store_.num_places());
  for (std::uint32_t place = store_.num_places(); place > 0; --place) free_places_.push_back(place - 1);
}

void PeerConnector::expect(RequestId request, const KvTransferParams& params) {
  const bool is_new = given_.try_emplace(request, Given{.params = params, .renewed = std::chrono::steady_clock::now()}).second;
  QUIRE_CHECK(is_new, "a request is expected once");
}

std::shared_ptr<const KvTransferParams> PeerConnector::take_answer(RequestId request) {
  const auto found = answers_.find(request);
  if (found == answers_.end()) return nullptr;
  auto answer = std::move(found->second);
  answers_.erase(found);
  return answer;
}

void PeerConnector::renew(std::chrono::steady_clock::time_point now) {
  if (store_.fetcher() == nullptr) return;
  for (auto& [request, given] : given_) {
    if (!given.params.do_remote_prefill || now - given.renewed < kBetweenRenewals) continue;
    given.renewed = now;
    store_.fetcher()->renew(source_of(given.params));
  }
}

// get_num_new_matched_tokens
ExternalMatch PeerConnector::match(const RequestView& request, std::uint32_t num_local_tokens) {
  constexpr ExternalMatch kNothing{.num_tokens = 0, .load_async = false};
  const auto found = given_.find(request.id);
  if (found == given_.end() || !found->second.params.do_remote_prefill) return kNothing;
  Given& given = found->second;
  // The last token runs anew: what is sampled comes of it.
  const std::size_t num_blocks =
      std::min<std::size_t>((request.num_prompt_tokens - 1) / options_.block_size, num_remote_blocks(given.params));
  const std::size_t first = num_local_tokens / options_.block_size, end_tokens = num_blocks * options_.block_size;
  if (num_local_tokens % options_.block_size != 0 || num_blocks <= first || num_blocks - first > free_places_.size()) return kNothing;
  given.num_local_tokens = num_local_tokens;
  return {.num_tokens = static_cast<std::uint32_t>(end_tokens - num_local_tokens), .load_async = true};
}

// update_state_after_alloc
void PeerConnector::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  const auto found = given_.find(request.id);
  if (found == given_.end() || !found->second.params.do_remote_prefill) return;
  Given& given = found->second;
  // One transfer for each request, whatever comes of it.
  given.params.do_remote_prefill = false;
  const std::uint32_t first = given.num_local_tokens / options_.block_size, num_blocks = num_external_tokens / options_.block_size;
  if (num_blocks == 0) {
    if (num_remote_blocks(given.params) > 0) store_.fetcher()->release(source_of(given.params));
    return;
  }
  QUIRE_CHECK(!blocks.empty() && first + num_blocks <= blocks[0].size(), "what is allocated was matched");
  Moving load = make(request, TransferDirection::load, first, blocks[0].subspan(first, num_blocks));
  given.ticket = load.ticket;
  store_.fetcher()->expect(load.ticket, source_of(given.params), first, num_blocks);
  pending_.push_back(std::move(load));
}

// With a place for each block, and the name that the request's tokens give it.
PeerConnector::Moving PeerConnector::make(const RequestView& request, TransferDirection direction, std::uint32_t first,
                                          std::span<const BlockId> blocks) {
  QUIRE_CHECK(blocks.size() <= free_places_.size(), "there are places");
  QUIRE_CHECK((first + blocks.size()) * kPeerNameBytes <= request.block_hashes.size(), "full blocks have names");
  Moving moving{.request = request.id,
                .direction = direction,
                .ticket = ++next_ticket_,
                .blocks = {blocks.begin(), blocks.end()},
                .names = {},
                .places = {free_places_.end() - static_cast<std::ptrdiff_t>(blocks.size()), free_places_.end()},
                .numbers = {}};
  free_places_.resize(free_places_.size() - blocks.size());
  moving.names.reserve(blocks.size());
  moving.numbers.reserve(blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    OffloadKey& name = moving.names.emplace_back();
    std::memcpy(name.hash.data(), &request.block_hashes[(first + i) * kPeerNameBytes], kPeerNameBytes);
    store_.use(moving.places[i], {.ticket = moving.ticket, .index = i});
    moving.numbers.push_back(transport_.assign(moving.places[i], name));
  }
  return moving;
}

// request_finished
bool PeerConnector::finished(const RequestView& request, GroupBlocks blocks) {
  const auto found = given_.find(request.id);
  if (found == given_.end()) return false;
  const Given given = std::move(found->second);
  given_.erase(found);
  if (given.params.do_remote_prefill && num_remote_blocks(given.params) > 0) store_.fetcher()->release(source_of(given.params));
  if (given.ticket != 0) {
    // What is not in a plan yet never will be.
    std::erase_if(pending_, [&](const Moving& moving) {
      if (moving.ticket != given.ticket) return false;
      free_places_.insert(free_places_.end(), moving.places.begin(), moving.places.end());
      return true;
    });
    store_.fetcher()->cancel(given.ticket);
  }
  if (!given.params.do_remote_decode || request.status != RequestStatus::finished_length) return false;
  const std::size_t num_tokens = std::min(request.num_prompt_tokens, request.num_computed_tokens);
  const std::size_t num_blocks = std::min<std::size_t>(num_tokens / options_.block_size, blocks.empty() ? 0 : blocks[0].size());
  const bool has_room = num_kept_ + num_blocks <= options_.most_kept && num_blocks <= free_places_.size();
  keep(request, num_blocks > 0 && has_room ? blocks[0].first(num_blocks) : std::span<const BlockId>());
  return num_blocks > 0 && has_room;
}

// Without blocks its client is told that there are none, and the consumer computes the prompt.
void PeerConnector::keep(const RequestView& request, std::span<const BlockId> blocks) {
  auto answer = std::make_shared<KvTransferParams>(KvTransferParams{.do_remote_prefill = true,
                                                                    .remote_engine_id = options_.engine_id,
                                                                    .remote_request_id = request_name(request.id),
                                                                    .remote_host = options_.host,
                                                                    .remote_port = options_.port});
  std::vector<std::uint32_t>& ids = answer->remote_block_ids.emplace_back();
  ids.reserve(blocks.size());
  for (const BlockId block : blocks) ids.push_back(block.value);
  if (!blocks.empty()) {
    Moving kept = make(request, TransferDirection::store, 0, blocks);
    // Who is told of it asks before the plan that keeps it is made, which is when the step under way is over. The blocks are held already,
    // and all of them have been written.
    std::vector<PeerServer::Block> promised(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      promised[i].name = kept.names[i];
      promised[i].bytes = options_.block_bytes;
      promised[i].copy = [this, block = blocks[i]](std::span<std::byte> bytes) { return transport_.read_block(0, block, bytes); };
    }
    store_.server()->promise(kept.ticket, answer->remote_request_id, std::move(promised));
    num_kept_ += static_cast<std::uint32_t>(blocks.size());
    pending_.push_back(std::move(kept));
  }
  answers_.insert_or_assign(request.id, std::move(answer));
}

void PeerConnector::plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) {
  std::erase_if(pending_, [&](Moving& moving) {
    const std::optional<TransferId> id = transfers.add({.id = {},
                                                        .request = moving.request,
                                                        .direction = moving.direction,
                                                        .need = TransferNeed::nothing,
                                                        .group = 0,
                                                        .blocks = moving.blocks,
                                                        .places = moving.numbers});
    if (id) moving_.emplace(id->value, std::move(moving));
    return id.has_value();
  });
}

// update_connector_output
void PeerConnector::completed(const TransferCompletion& completion) {
  const auto found = moving_.find(completion.transfer.value);
  if (found == moving_.end()) return;
  const Moving moved = std::move(found->second);
  moving_.erase(found);
  if (moved.direction == TransferDirection::load) {
    const std::size_t num_bad = completion.outcome == TransferOutcome::done ? 0
                                : completion.bad_blocks.empty()             ? moved.blocks.size()
                                                                            : completion.bad_blocks.size();
    num_loaded_tokens_ += (moved.blocks.size() - num_bad) * options_.block_size;
    if (const auto given = given_.find(moved.request); given != given_.end()) given->second.ticket = 0;
  }
  // One that a step has taken the blocks of is not at its end there.
  if (moved.direction == TransferDirection::store) store_.server()->end(moved.ticket);
  let_go(moved);
}

void PeerConnector::let_go(const Moving& moving) {
  free_places_.insert(free_places_.end(), moving.places.begin(), moving.places.end());
  if (moving.direction == TransferDirection::load) return;
  QUIRE_CHECK(num_kept_ >= moving.blocks.size(), "what is kept is counted");
  num_kept_ -= static_cast<std::uint32_t>(moving.blocks.size());
}

// What it has computed is not to be given to anybody.
void PeerConnector::drop_kept(RequestId request) {
  for (const auto& [id, moving] : moving_)
    if (moving.request == request && moving.direction == TransferDirection::store) store_.server()->end(moving.ticket);
  std::erase_if(pending_, [&](const Moving& moving) {
    if (moving.request != request || moving.direction != TransferDirection::store) return false;
    store_.server()->end(moving.ticket);
    let_go(moving);
    return true;
  });
  answers_.erase(request);
}

}  // namespace quire
