#include "core/connect/group_windows.h"

#include <fmt/format.h>

#include <variant>

namespace quire {
namespace {

// A state is asked of where the token behind it runs, by that token alone: as if it attended to the one before.
constexpr std::uint32_t kStateWindow = 2;

}  // namespace

Result<GroupWindows> GroupWindows::create(const CoreConfig& config) {
  const char* const remedy = "offload a cache of full attention, sliding windows and states";
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
      return refuse(fmt::format("the layers of group {} keep neither all blocks, nor those of a window, nor states", group));
    if (block_size_of(spec) != config.block_size)
      return fail(ErrorCode::unsupported, "block_size", fmt::format("blocks of group {} have other names than the cache's own", group),
                  "offload a cache whose groups have blocks of one size");
    result.windows_.push_back(window != nullptr ? window->sliding_window : state != nullptr ? kStateWindow : 0);
    result.has_windows_ |= window != nullptr || state != nullptr;
  }
  if (result.windows_.size() > 1 && !config.cures.hits_before_loads)
    return fail(ErrorCode::invalid_argument, "cures.hits_before_loads", "what is loaded may destroy what was found in the cache",
                "turn it on with several cache groups");
  // Then nothing would be loaded, and a request would wait for it for ever.
  if (std::ranges::all_of(result.windows_, [](std::uint32_t window) { return window == 1; }))
    return refuse("tokens attend to nothing but themselves");
  return result;
}

}  // namespace quire
