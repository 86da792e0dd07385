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
  // `hash` is null if the seams provide a hash function.
  Requests(Context& context, KvCacheManager& kv, RequestTable& table, std::unique_ptr<HashFunction> hash)
      : context_(context), kv_(kv), table_(table), hash_(std::move(hash)) {
    QUIRE_CHECK(!hashes_blocks() || hash_ != nullptr || context.seams.hash != nullptr, "there is a hash function if blocks are hashed");
  }

  // Creates a request, which must be checked. It is in no queue yet.
  Request& create(const NewRequest& given);
  void append_token(Request& request, TokenId token);    // appends an output
  void fill(Request& request, const NewRequest& given);  // of an unknown request; moves from `given.prompt_storage`
  void hash_blocks(Request& request);                    // update_block_hashes: hashes blocks that have become full
  void reserve_memory(Request& request) { reserve_memory(request, request.tokens.size()); }
  void reserve_memory(Request& request, std::size_t num_known_tokens);  // for all tokens it can ever have
  // Frees the loaded blocks of a waiting request, which is then looked up again.
  void forget_loaded(Request& request);
  // Frees all blocks of the request. Its computed tokens stay counted.
  void free_blocks(Request& request);
  // Records that a load of the request failed and left nothing usable. The connector may know better the second time, and is not asked a
  // third time (FixOptions::unloaded_begin_anew).
  void note_lost_load(Request& request) const;
  void record(Request& request, RequestEventKind kind, double timestamp);  // with log_stats

  // The prefix cache needs block hashes, and so does a connector, even without the prefix cache.
  [[nodiscard]] bool hashes_blocks() const {
    return context_.config.prefix_cache.enable_prefix_caching || context_.seams.connector != nullptr;
  }
  [[nodiscard]] KvRequest kv_request(Request& request);            // valid until the next call
  [[nodiscard]] GroupBlocks group_blocks(const Request& request);  // valid until the next call
  // Returns the blocks of its computed tokens; valid until the next call.
  [[nodiscard]] GroupBlocks computed_blocks(const Request& request);
  [[nodiscard]] static RequestView view(const Request& request);
  [[nodiscard]] static std::uint32_t num_blocks(const Request& request);

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    // A hash is a pure function, and views are valid within one call.
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
