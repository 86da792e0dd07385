// Implements a connector that loads a request's blocks from other servers, and keeps blocks for other servers. Called by the core during
// steps, and by the engine between steps. No function waits: the functions only queue work for the threads of the server and the fetcher.
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

constexpr std::size_t kPeerNameBytes = 32;  // size of a block hash
constexpr std::chrono::seconds kRenewalInterval(5);

PeerSource source_of(const KvTransferParams& params) {
  return {
      .host = params.remote_host, .port = params.remote_port, .engine_id = params.remote_engine_id, .request_id = params.remote_request_id};
}

// Returns the id under which consumers request the blocks. Its random digits prevent a client from guessing the id of another request.
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
  free_slots_.reserve(store_.num_places());
  for (std::uint32_t place = store_.num_places(); place > 0; --place) free_slots_.push_back(place - 1);
}

void PeerConnector::expect(RequestId request, const KvTransferParams& params) {
  const bool is_new =
      transfer_requests_.try_emplace(request, TransferRequest{.params = params, .renewed = std::chrono::steady_clock::now()}).second;
  QUIRE_CHECK(is_new, "a request is expected once");
}

std::shared_ptr<const KvTransferParams> PeerConnector::take_transfer_params(RequestId request) {
  const auto found = answers_.find(request);
  if (found == answers_.end()) return nullptr;
  auto answer = std::move(found->second);
  answers_.erase(found);
  return answer;
}

void PeerConnector::renew(std::chrono::steady_clock::time_point now) {
  if (store_.fetcher() == nullptr) return;
  for (auto& [request, given] : transfer_requests_) {
    if (!given.params.do_remote_prefill || now - given.renewed < kRenewalInterval) continue;
    given.renewed = now;
    store_.fetcher()->renew(source_of(given.params));
  }
}

// Implements vLLM's get_num_new_matched_tokens.
ExternalMatch PeerConnector::match(const RequestView& request, std::uint32_t num_local_tokens) {
  constexpr ExternalMatch kNothing{.num_tokens = 0, .load_async = false};
  const auto found = transfer_requests_.find(request.id);
  if (found == transfer_requests_.end() || !found->second.params.do_remote_prefill) return kNothing;
  TransferRequest& given = found->second;
  // The last token is always computed on this server, because the first output token is sampled from it.
  const std::size_t num_blocks =
      std::min<std::size_t>((request.num_prompt_tokens - 1) / options_.block_size, num_remote_blocks(given.params));
  const std::size_t first = num_local_tokens / options_.block_size, end_tokens = num_blocks * options_.block_size;
  if (num_local_tokens % options_.block_size != 0 || num_blocks <= first || num_blocks - first > free_slots_.size()) return kNothing;
  given.num_local_tokens = num_local_tokens;
  return {.num_tokens = static_cast<std::uint32_t>(end_tokens - num_local_tokens), .load_async = true};
}

// Implements vLLM's update_state_after_alloc.
void PeerConnector::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  const auto found = transfer_requests_.find(request.id);
  if (found == transfer_requests_.end() || !found->second.params.do_remote_prefill) return;
  TransferRequest& given = found->second;
  // A request has only one transfer, whether or not it succeeds.
  given.params.do_remote_prefill = false;
  const std::uint32_t first = given.num_local_tokens / options_.block_size, num_blocks = num_external_tokens / options_.block_size;
  if (num_blocks == 0) {
    if (num_remote_blocks(given.params) > 0) store_.fetcher()->release(source_of(given.params));
    return;
  }
  QUIRE_CHECK(!blocks.empty() && first + num_blocks <= blocks[0].size(), "allocated blocks were matched before");
  OpenTransfer load = make(request, TransferDirection::load, first, blocks[0].subspan(first, num_blocks));
  given.ticket = load.ticket;
  store_.fetcher()->expect(load.ticket, source_of(given.params), first, num_blocks);
  pending_.push_back(std::move(load));
}

// Creates a transfer in which each block has a slot, and the offload key that follows from the request's tokens.
PeerConnector::OpenTransfer PeerConnector::make(const RequestView& request, TransferDirection direction, std::uint32_t first,
                                                std::span<const BlockId> blocks) {
  QUIRE_CHECK(blocks.size() <= free_slots_.size(), "the transfer has a free slot for each block");
  QUIRE_CHECK((first + blocks.size()) * kPeerNameBytes <= request.block_hashes.size(), "full blocks have hashes");
  OpenTransfer moving{.request = request.id,
                      .direction = direction,
                      .ticket = ++next_ticket_,
                      .blocks = {blocks.begin(), blocks.end()},
                      .names = {},
                      .places = {free_slots_.end() - static_cast<std::ptrdiff_t>(blocks.size()), free_slots_.end()},
                      .numbers = {}};
  free_slots_.resize(free_slots_.size() - blocks.size());
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

// Implements vLLM's request_finished.
bool PeerConnector::finished(const RequestView& request, GroupBlocks blocks) {
  const auto found = transfer_requests_.find(request.id);
  if (found == transfer_requests_.end()) return false;
  const TransferRequest given = std::move(found->second);
  transfer_requests_.erase(found);
  if (given.params.do_remote_prefill && num_remote_blocks(given.params) > 0) store_.fetcher()->release(source_of(given.params));
  if (given.ticket != 0) {
    // Drops the request's transfers that are not in a plan yet.
    std::erase_if(pending_, [&](const OpenTransfer& moving) {
      if (moving.ticket != given.ticket) return false;
      free_slots_.insert(free_slots_.end(), moving.places.begin(), moving.places.end());
      return true;
    });
    store_.fetcher()->cancel(given.ticket);
  }
  if (!given.params.do_remote_decode || request.status != RequestStatus::finished_length) return false;
  const std::size_t num_tokens = std::min(request.num_prompt_tokens, request.num_computed_tokens);
  const std::size_t num_blocks = std::min<std::size_t>(num_tokens / options_.block_size, blocks.empty() ? 0 : blocks[0].size());
  const bool has_room = num_kept_ + num_blocks <= options_.max_kept_blocks && num_blocks <= free_slots_.size();
  keep(request, num_blocks > 0 && has_room ? blocks[0].first(num_blocks) : std::span<const BlockId>());
  return num_blocks > 0 && has_room;
}

// Keeps the blocks and prepares the answer for the client. If `blocks` is empty, the answer lists no blocks, and the consumer computes the
// prompt.
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
    OpenTransfer kept = make(request, TransferDirection::store, 0, blocks);
    // Makes the blocks available now: a consumer may request them before the next plan, which keeps them and is made only after the step in
    // flight. The request still holds the blocks, and all of them are written.
    std::vector<PeerServer::Block> promised(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      promised[i].name = kept.names[i];
      promised[i].bytes = options_.block_bytes;
      promised[i].copy = [this, block = blocks[i]](std::span<std::byte> bytes) { return transport_.read_block(0, block, bytes); };
    }
    store_.server()->open_lease(kept.ticket, answer->remote_request_id, std::move(promised));
    num_kept_ += static_cast<std::uint32_t>(blocks.size());
    pending_.push_back(std::move(kept));
  }
  answers_.insert_or_assign(request.id, std::move(answer));
}

void PeerConnector::plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) {
  std::erase_if(pending_, [&](OpenTransfer& moving) {
    const std::optional<TransferId> id = transfers.add({.id = {},
                                                        .request = moving.request,
                                                        .direction = moving.direction,
                                                        .need = TransferNeed::nothing,
                                                        .group = 0,
                                                        .blocks = moving.blocks,
                                                        .places = moving.numbers});
    if (id) open_transfers_.emplace(id->value, std::move(moving));
    return id.has_value();
  });
}

// Implements vLLM's update_connector_output.
void PeerConnector::completed(const TransferCompletion& completion) {
  const auto found = open_transfers_.find(completion.transfer.value);
  if (found == open_transfers_.end()) return;
  const OpenTransfer moved = std::move(found->second);
  open_transfers_.erase(found);
  if (moved.direction == TransferDirection::load) {
    const std::size_t num_bad = completion.outcome == TransferOutcome::done ? 0
                                : completion.bad_blocks.empty()             ? moved.blocks.size()
                                                                            : completion.bad_blocks.size();
    num_loaded_tokens_ += (moved.blocks.size() - num_bad) * options_.block_size;
    if (const auto given = transfer_requests_.find(moved.request); given != transfer_requests_.end()) given->second.ticket = 0;
  }
  // Ends the server's lease, too, in case the store was given up because a step writes to its blocks.
  if (moved.direction == TransferDirection::store) store_.server()->end(moved.ticket);
  release(moved);
}

void PeerConnector::release(const OpenTransfer& moving) {
  free_slots_.insert(free_slots_.end(), moving.places.begin(), moving.places.end());
  if (moving.direction == TransferDirection::load) return;
  QUIRE_CHECK(num_kept_ >= moving.blocks.size(), "the count of kept blocks includes the blocks of the store");
  num_kept_ -= static_cast<std::uint32_t>(moving.blocks.size());
}

// Makes sure that no consumer receives the request's blocks any more.
void PeerConnector::release_kept_blocks(RequestId request) {
  for (const auto& [id, moving] : open_transfers_)
    if (moving.request == request && moving.direction == TransferDirection::store) store_.server()->end(moving.ticket);
  std::erase_if(pending_, [&](const OpenTransfer& moving) {
    if (moving.request != request || moving.direction != TransferDirection::store) return false;
    store_.server()->end(moving.ticket);
    release(moving);
    return true;
  });
  answers_.erase(request);
}

}  // namespace quire
