#pragma once
// Operations on requests that every part of the scheduler uses: creation, tokens, block hashes, and views.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/kv/hash/hash_function.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_table.h"

namespace quire {

class Requests {
 public:
  // `hash` is null if CoreSeams provides a hash function.
  Requests(Context& context, KvCacheManager& kv, RequestTable& table, std::unique_ptr<HashFunction> hash)
      : context_(context), kv_(kv), table_(table), hash_(std::move(hash)) {
    QUIRE_CHECK(!hashes_blocks() || hash_ != nullptr || context.seams.hash != nullptr, "there is a hash function if blocks are hashed");
  }

  // Creates a request, whose arguments must be checked before. The request is in no queue yet.
  Request& create(const NewRequest& given);
  void append_token(Request& request, TokenId token);    // appends an output token
  void fill(Request& request, const NewRequest& given);  // fills a request that is not in the table; moves from `given.prompt_storage`
  void hash_blocks(Request& request);                    // vLLM's update_block_hashes: hashes blocks that have become full
  void reserve_memory(Request& request) { reserve_memory(request, request.tokens.size()); }
  void reserve_memory(Request& request, std::size_t num_known_tokens);  // for all tokens that the request can have
  // Frees the loaded blocks of a waiting request, which is then looked up again.
  void forget_loaded(Request& request);
  // Frees all blocks of the request. Its count of computed tokens does not change.
  void free_blocks(Request& request);
  // Records that a load of the request failed and left no usable blocks. After two such loads the connector is not asked any more
  // (FixOptions::unloaded_begin_anew).
  void note_lost_load(Request& request) const;
  void record(Request& request, RequestEventKind kind, double timestamp);  // with log_stats

  // Returns whether block hashes are needed: by the prefix cache or by a connector.
  [[nodiscard]] bool hashes_blocks() const {
    return context_.config.prefix_cache.enable_prefix_caching || context_.seams.connector != nullptr;
  }
  [[nodiscard]] KvRequest kv_request(Request& request);            // valid until the next call
  [[nodiscard]] GroupBlocks group_blocks(const Request& request);  // valid until the next call
  // Returns the blocks of the request's computed tokens; valid until the next call.
  [[nodiscard]] GroupBlocks computed_blocks(const Request& request);
  [[nodiscard]] static RequestView view(const Request& request);
  [[nodiscard]] static std::uint32_t num_blocks(const Request& request);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    // The hash function has no state, and the views are valid within one call.
    [[maybe_unused]] auto& [context, kv, table, hash, group_views, kv_content] = self;
  }

 private:
  [[nodiscard]] RequestContent content(const Request& request) const;

  Context& context_;
  KvCacheManager& kv_;
  RequestTable& table_;
  std::unique_ptr<HashFunction> hash_;
  std::vector<std::span<const BlockId>> group_views_;
  RequestContent kv_content_;
};

}  // namespace quire
