#include "runtime/sample/token_counts.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace quire {
namespace {

std::size_t bucket_of(TokenId token, std::size_t table_size) {
  return (static_cast<std::uint32_t>(token) * 0x9E3779B1U) & (table_size - 1);
}

}  // namespace

void TokenCounts::reset(std::uint32_t num_tokens) {
  table_.assign(std::max<std::size_t>(16, std::bit_ceil(std::size_t{num_tokens} * 2 + 1)), Entry{});
  size_ = 0;
}

TokenCounts::Entry& TokenCounts::at(TokenId token) {
  QUIRE_CHECK(token >= 0);
  if ((size_ + 1) * std::size_t{2} > table_.size()) grow();
  std::size_t bucket = bucket_of(token, table_.size());
  while (table_[bucket].token >= 0 && table_[bucket].token != token) bucket = (bucket + 1) & (table_.size() - 1);
  Entry& entry = table_[bucket];
  if (entry.token < 0) {
    entry.token = token;
    ++size_;
  }
  return entry;
}

void TokenCounts::grow() {
  const std::vector<Entry> old = std::move(table_);
  table_.assign(std::max<std::size_t>(16, old.size() * 2), Entry{});
  size_ = 0;
  for (const Entry& entry : old)
    if (entry.token >= 0) at(entry.token) = entry;
}

}  // namespace quire
