#include "core/connect/group_windows.h"

#include <fmt/format.h>

#include <variant>

namespace quire {
namespace {

// Only the next token reads a state, so a state behaves like a window of two tokens.
constexpr std::uint32_t kStateWindow = 2;

}  // namespace

Result<GroupWindows> GroupWindows::create(const CoreConfig& config) {
  const char* const remedy = "use a KV cache with full attention, sliding windows or states";
  const auto refuse = [&](std::string message) { return fail(ErrorCode::unsupported, "kv.groups", std::move(message), remedy); };
  if (config.kv.groups.empty()) return refuse("there are no cache groups");
  GroupWindows result;
  result.block_size_ = config.block_size;
  for (std::size_t group = 0; group < config.kv.groups.size(); ++group) {
    const LayerKvSpec& spec = config.kv.groups[group].spec;
    const auto* window = std::get_if<SlidingWindowSpec>(&spec);
    const auto* state = std::get_if<MambaSpec>(&spec);
    if (window == nullptr && state == nullptr && !std::holds_alternative<FullAttentionSpec>(spec) &&
        !std::holds_alternative<MlaAttentionSpec>(spec))
      return refuse(fmt::format("cache group {} has an attention type that cannot be offloaded", group));
    if (block_size_of(spec) != config.block_size)
      return fail(ErrorCode::unsupported, "block_size",
                  fmt::format("the block size of cache group {} differs from the block size of the KV cache", group),
                  "use a KV cache whose groups have the same block size");
    result.windows_.push_back(window != nullptr ? window->sliding_window : state != nullptr ? kStateWindow : 0);
    result.has_windows_ |= window != nullptr || state != nullptr;
  }
  if (result.windows_.size() > 1 && !config.fixes.hits_before_loads)
    return fail(ErrorCode::invalid_argument, "fixes.hits_before_loads",
                "must be on with several cache groups: a load could overwrite blocks found in the prefix cache", "turn it on");
  // With such windows nothing would be loaded, and a request would wait for its load forever.
  if (std::ranges::all_of(result.windows_, [](std::uint32_t window) { return window == 1; }))
    return fail(ErrorCode::unsupported, "kv.groups", "all sliding windows have one token, so no block can be loaded",
                "serve this model without a connector");
  return result;
}

}  // namespace quire
