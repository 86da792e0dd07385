#include "cli/kv_lines.h"

#include <fmt/format.h>

#include "cli/engine_flags.h"

namespace quire {
namespace {

// A token of a group costs this while it lies in the group's window.
std::uint64_t bytes_per_token(const KvLayout& layout, std::size_t group) {
  return layout.group_block_bytes(group) / layout.groups[group].block_size;
}

}  // namespace

std::string describe_kv_cost(const KvLayout& layout) {
  std::uint64_t per_token = 0;
  for (std::size_t group = 0; group < layout.groups.size(); ++group) per_token += bytes_per_token(layout, group);
  return fmt::format("{} per token, {} per block of {} tokens ({})", format_bytes(per_token), format_bytes(layout.bytes_per_block()),
                     layout.groups.front().block_size, layout.dtype == KvDtype::bf16 ? "bf16" : "f32");
}

std::vector<std::string> describe_kv_groups(const KvLayout& layout) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < layout.groups.size(); ++i) {
    const KvGroupLayout& group = layout.groups[i];
    const std::uint32_t window = group.sliding_window();
    lines.push_back(fmt::format("group {}: {} layers with {}: {} per token, {} per block", i, group.layers.size(),
                                window == 0 ? "full attention" : fmt::format("a window of {} tokens", window),
                                format_bytes(bytes_per_token(layout, i)), format_bytes(layout.group_block_bytes(i))));
  }
  return lines;
}

}  // namespace quire
