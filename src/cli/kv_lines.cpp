#include "cli/kv_lines.h"

#include <fmt/format.h>

#include "base/format_bytes.h"

namespace quire {
namespace {

// Returns the size of one token's keys and values in the group, in bytes. (Tokens outside the group's sliding window take no memory.)
std::uint64_t bytes_per_token(const KvLayout& layout, std::size_t group) {
  return layout.group_block_bytes(group) / layout.groups[group].block_size;
}

// Returns the size in bytes of one request's states in a group of layers with states.
std::uint64_t state_bytes(const KvLayout& layout, std::size_t group) {
  std::uint64_t bytes = 0;
  for (const std::uint32_t layer : layout.groups[group].layers) bytes += layout.layers[layer].state_bytes;
  return bytes;
}

std::string describe_states(const KvLayout& layout, std::size_t group) {
  const auto& spec = std::get<MambaSpec>(layout.groups[group].spec);
  const char* kept = spec.mode == MambaCacheMode::all     ? "cached at the end of every block"
                     : spec.mode == MambaCacheMode::align ? "cached at block ends while needed"
                                                          : "not cached";
  return fmt::format("states ({}): {} per request, {}, {} per block", spec.mamba_type, format_bytes(state_bytes(layout, group)), kept,
                     format_bytes(layout.group_block_bytes(group)));
}

}  // namespace

std::string describe_kv_cost(const KvLayout& layout) {
  std::uint64_t per_token = 0;
  const KvGroupLayout* named = nullptr;
  for (std::size_t group = 0; group < layout.groups.size(); ++group) {
    if (layout.groups[group].keeps_states() || layout.groups[group].keeps_encoder_output()) continue;
    per_token += bytes_per_token(layout, group);
    if (named == nullptr) named = &layout.groups[group];
  }
  return fmt::format("{} per token, {} per block of {} tokens ({})", format_bytes(per_token), format_bytes(layout.bytes_per_block()),
                     named == nullptr ? 0 : named->block_size, name_of(layout.dtype));
}

std::uint64_t num_cacheable_tokens(const KvLayout& layout, std::uint64_t num_blocks) {
  std::uint64_t num_growing = 0, tokens = 0;
  for (const KvGroupLayout& group : layout.groups) {
    const auto* state = std::get_if<MambaSpec>(&group.spec);
    if ((state != nullptr && state->mode != MambaCacheMode::all) || group.keeps_encoder_output()) continue;
    ++num_growing;
    tokens = group.block_size;
  }
  return num_growing == 0 ? 0 : num_blocks / num_growing * tokens;
}

std::vector<std::string> describe_kv_groups(const KvLayout& layout) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < layout.groups.size(); ++i) {
    const KvGroupLayout& group = layout.groups[i];
    if (group.keeps_states()) {
      lines.push_back(fmt::format("group {}: {} layers with {}", i, group.layers.size(), describe_states(layout, i)));
      continue;
    }
    const std::uint32_t window = group.sliding_window();
    lines.push_back(fmt::format("group {}: {} layers with {}: {} per token, {} per block", i, group.layers.size(),
                                group.keeps_encoder_output() ? "cross-attention to the encoded audio"
                                : window == 0                ? "full attention"
                                                             : fmt::format("a window of {} tokens", window),
                                format_bytes(bytes_per_token(layout, i)), format_bytes(layout.group_block_bytes(i))));
  }
  return lines;
}

}  // namespace quire
