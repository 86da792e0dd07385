#include "lab/workload/block_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace quire {
namespace {

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;

BlockHash name_of(std::uint64_t key) {
  BlockHash name;
  std::memcpy(name.bytes.data(), &key, sizeof key);
  return name;
}

std::uint64_t joined(std::uint64_t parent, std::uint64_t value) {
  return mix_bits(parent * kStep + mix_bits(value + kStep));
}

}  // namespace

BlockHash MixedHashes::hash(const BlockHash* parent, const HashInput& input) {
  std::uint64_t key = parent != nullptr ? parent->prefix() : 0;
  for (const TokenId token : input.tokens) key = joined(key, static_cast<std::uint32_t>(token));
  return name_of(key);
}

Result<BlockHasher> BlockHasher::create(const Workload& workload, std::uint32_t block_size) {
  const std::uint32_t id_tokens = workload.id_tokens;
  if (id_tokens != 0 && id_tokens % block_size != 0 && block_size % id_tokens != 0)
    return fail(ErrorCode::invalid_argument, "block_size",
                fmt::format("is {}, but the workload has one block id per {} tokens", block_size, id_tokens),
                fmt::format("use a divisor or a multiple of {}", id_tokens));
  return BlockHasher(workload, block_size);
}

void BlockHasher::of(const WorkloadRequest& request, std::vector<BlockHash>& names) const {
  names.clear();
  if (workload_->id_tokens == 0 || request.num_runs == 0) return;
  const std::uint32_t num_blocks = request.prompt_tokens / block_size_;
  const std::uint32_t per_id = std::max(1U, workload_->id_tokens / block_size_);
  const std::uint32_t per_block = std::max(1U, block_size_ / workload_->id_tokens);
  names.reserve(num_blocks);
  std::uint64_t key = 0;
  std::uint32_t index = 0;
  for (std::uint32_t run = request.first_run; run < request.first_run + request.num_runs; ++run) {
    const IdRun& ids = workload_->runs[run];
    for (std::uint32_t i = 0; i < ids.count && names.size() < num_blocks; ++i, ++index) {
      // From this id on, equal ids of different name spaces get different hashes.
      if (index == request.shared_ids && request.name_space != 0) key = joined(key, ~std::uint64_t{request.name_space});
      key = joined(key, ids.first + i);
      if ((index + 1) % per_block != 0) continue;
      for (std::uint32_t part = 0; part < per_id && names.size() < num_blocks; ++part) names.push_back(name_of(joined(key, part)));
    }
  }
}

}  // namespace quire
