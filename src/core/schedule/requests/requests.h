#pragma once
// What every part of the scheduler does with a request: what it is made of, its tokens and their names, and how others see it.
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
  // `hash` is null where the seams hand one in.
  Requests(Context& context, KvCacheManager& kv, RequestTable& table, std::unique_ptr<HashFunction> hash)
      : context_(context), kv_(kv), table_(table), hash_(std::move(hash)) {
    QUIRE_CHECK(!names_blocks() || hash_ != nullptr || context.seams.hash != nullptr, "who names blocks has a function for it");
  }

  // Checked, and in no queue yet.
  Request& create(const NewRequest& given);
  void append_token(Request& request, TokenId token);    // an output
  void fill(Request& request, const NewRequest& given);  // of one that nobody knows; its prompt_storage is moved from
  void name_blocks(Request& request);                    // update_block_hashes: those that have become full
  void reserve_memory(Request& request) { reserve_memory(request, request.tokens.size()); }
  void reserve_memory(Request& request, std::size_t num_known_tokens);  // for all it can ever have
  // One that waits: what was loaded for it goes back, and it is looked up anew.
  void forget_loaded(Request& request);
  // A load of its own failed and left nothing of use. A connector may know better the second time, and is not asked for a third
  // (cures.unloaded_begin_anew).
  void note_lost_load(Request& request) const;
  void record(Request& request, RequestEventKind kind, double timestamp);  // with log_stats

  // Names are needed by the prefix cache, and by a connector of its own accord.
  [[nodiscard]] bool names_blocks() const {
    return context_.config.prefix_cache.enable_prefix_caching || context_.seams.connector != nullptr;
  }
  [[nodiscard]] KvRequest kv_request(Request& request);            // valid until the next call
  [[nodiscard]] GroupBlocks group_blocks(const Request& request);  // valid until the next call
  // Those of its computed tokens; the same.
  [[nodiscard]] GroupBlocks computed_blocks(const Request& request);
  [[nodiscard]] static RequestView view(const Request& request);
  [[nodiscard]] static std::uint32_t num_blocks(const Request& request);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    // A hash is a pure function, and views are of one call.
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
