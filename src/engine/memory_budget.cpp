#include "engine/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "base/format_bytes.h"

namespace quire {
namespace {

constexpr const char* kTierBytes = "cpu_bytes_to_use";

std::uint64_t add(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

// Returns cpu_bytes_to_use of a connector; 0 if the parameter is missing or not a number. The connector itself reports errors in its
// parameters.
std::uint64_t host_bytes_of(const NamedConnector& connector) {
  const auto found = connector.parameters.find(kTierBytes);
  if (found == connector.parameters.end()) return 0;
  const std::string& text = found->second;
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && end == text.data() + text.size() ? bytes : 0;
}

}  // namespace

std::vector<MemoryShare> tier_shares(const EngineSeams& seams) {
  std::vector<MemoryShare> shares = {{"kv_dram", "tier in host memory", seams.kv_dram.bytes}};
  if (const auto connectors = expand_connectors(seams.choice.connectors))
    for (const NamedConnector& connector : *connectors) shares.push_back({"kv_connector", "connector", host_bytes_of(connector)});
  return shares;
}

std::vector<MemoryShare> memory_shares(const EngineOptions& given, const ResolvedEngine& resolved, std::uint64_t draft_bytes,
                                       const EngineSeams& seams) {
  std::vector<MemoryShare> shares = tier_shares(seams);
  // With a weights cache, packed weights are pages of its file, which the kernel can drop and read again.
  const WeightsOptions& weights = resolved.options.weights;
  if (weights.cache_folder.empty()) shares.push_back({nullptr, "weights", resolved.model.weight_bytes});
  if (weights.expert_bytes > 0) shares.push_back({"expert_memory", "experts", std::min(weights.expert_bytes, resolved.model.expert_bytes)});
  shares.push_back({given.cache.num_blocks != 0 ? "num_blocks" : "kv_cache_bytes", "KV cache", resolved.layout.total_bytes()});
  shares.push_back({nullptr, "draft model", draft_bytes});
  shares.push_back({"kv_swap", "swap", resolved.options.kv_swap.bytes});
  shares.push_back({"journal_memory", "journal", resolved.options.journal.memory_bytes});
  return shares;
}

std::uint64_t sum_of(const std::vector<MemoryShare>& shares) {
  std::uint64_t sum = 0;
  for (const MemoryShare& share : shares) sum = add(sum, share.bytes);
  return sum;
}

Result<void> check_memory(const std::vector<MemoryShare>& shares, std::uint64_t total_bytes) {
  const std::uint64_t sum = sum_of(shares);
  if (total_bytes == 0 || sum <= total_bytes) return {};
  const MemoryShare* largest = nullptr;
  std::string others;
  for (const MemoryShare& share : shares)
    if (share.option != nullptr && share.bytes > 0 && (largest == nullptr || share.bytes > largest->bytes)) largest = &share;
  std::uint64_t fixed = 0;
  for (const MemoryShare& share : shares) {
    if (&share == largest || share.bytes == 0) continue;
    fixed = add(fixed, share.bytes);
    others += fmt::format("{}{} {}", others.empty() ? "" : ", ", share.name, format_bytes(share.bytes));
  }
  const std::string memory = fmt::format("this machine or its control group has {} of memory", format_bytes(total_bytes));
  if (largest == nullptr || fixed >= total_bytes)
    return fail(ErrorCode::invalid_argument, largest == nullptr ? "model" : largest->option,
                fmt::format("{}, but the server needs {} ({}{}{})", memory, format_bytes(sum),
                            largest == nullptr ? "" : fmt::format("{} {}", largest->name, format_bytes(largest->bytes)),
                            largest == nullptr || others.empty() ? "" : ", ", others),
                "serve a smaller model, or give the process more memory");
  return fail(ErrorCode::invalid_argument, largest->option,
              fmt::format("{} does not fit: {}{}{}", format_bytes(largest->bytes), memory,
                          others.empty() ? "" : ", and the server also needs ", others),
              fmt::format("use at most {}, or give the process more memory", format_bytes(total_bytes - fixed)));
}

}  // namespace quire
