#pragma once
// FakeWorker simulates a worker without a model. Each KV entry is a digest of the whole history up to its token, so the worker detects a
// read of a wrong, stale or unwritten block immediately. The sampled token is a function of the history, so the output of a request must
// not depend on how it was scheduled. A request with its own seed differs: the tokens of a fork then differ from its parent's. The worker
// also checks that the plan keeps its contract. By default there is one cache group with full attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/plan.h"

namespace quire::test {

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = (a ^ (b + 0x9E3779B97F4A7C15ULL)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 29)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 32);
}

class FakeWorker {
 public:
  FakeWorker(std::uint32_t num_blocks, std::uint32_t block_size, std::uint32_t max_num_seqs, TokenId vocabulary)
      : block_size_(block_size), vocabulary_(vocabulary), kv_(std::size_t{num_blocks} * block_size), rows_(max_num_seqs) {}

  // Sets per cache group how many tokens a token attends to, including itself; 0 means all. All groups have one block size.
  void use_windows(std::vector<std::uint32_t> windows) { windows_ = std::move(windows); }
  void set_seed(RequestId id, std::uint64_t seed) { seeds_[id] = seed; }

  // Sets the salt that separates this request's content from other requests with the same tokens.
  void set_salt(RequestId id, std::uint64_t salt) { salts_[id] = salt; }
  // Disables the content checks. With hostile hashes the content of hits is wrong on purpose.
  void trust_nothing() { check_content_ = false; }

  // The result's view is valid until the next run.
  StepResult run(const StepPlan& plan) {
    take_deltas(plan);
    for (const BlockCopy& copy : plan.copies)
      std::copy_n(kv_.begin() + copy.source.value * block_size_, block_size_, kv_.begin() + copy.destination.value * block_size_);
    num_copies += plan.copies.size();
    for (const BlockId zeroed : plan.blocks_to_zero) std::ranges::fill(block(zeroed), 0);
    if (load) load(plan);
    sampled_.clear();
    for (const ScheduledRequest& s : plan.scheduled) write(s);
    for (const ScheduledRequest& s : plan.scheduled) {
      read(s);
      if (s.samples) sample(s);
    }
    return {plan.step, sampled_};
  }

  // Returns the entries of a block, for tests that transfer blocks. It supports one cache group.
  [[nodiscard]] std::span<std::uint64_t> block(BlockId block) {
    return std::span(kv_).subspan(std::size_t{block.value} * block_size_, block_size_);
  }
  [[nodiscard]] const std::vector<BlockId>& table(Slot slot) const { return rows_[slot.value]->tables[0]; }

  // Returns the tokens that a request outputs when it runs alone.
  [[nodiscard]] std::vector<TokenId> expected(const std::vector<TokenId>& prompt, std::uint64_t salt, std::size_t num_outputs,
                                              std::uint64_t seed = 0) const {
    std::vector<TokenId> outputs;
    std::uint64_t digest = salt;
    for (TokenId token : prompt) digest = mix(digest, static_cast<std::uint64_t>(token));
    while (outputs.size() < num_outputs) {
      outputs.push_back(token_of(digest, seed));
      digest = mix(digest, static_cast<std::uint64_t>(outputs.back()));
    }
    return outputs;
  }

  std::uint64_t num_copies = 0;  // number of copied blocks
  // Runs the loads of a plan when they must happen after the copies and the zeroing (plan.h).
  std::function<void(const StepPlan&)> load;

 private:
  struct Row {
    RequestId id;
    std::vector<TokenId> tokens;
    std::vector<std::vector<BlockId>> tables;  // per group
  };

  void take_deltas(const StepPlan& plan) {
    for (Slot slot : plan.released) {
      EXPECT_TRUE(rows_.at(slot.value).has_value()) << "a released slot was in the batch";
      rows_[slot.value].reset();
    }
    for (const AdmittedRequest& a : plan.admitted) {
      EXPECT_FALSE(rows_.at(a.slot.value).has_value()) << "the slot of an admitted request was free";
      EXPECT_LE(a.num_prompt_tokens, a.tokens.size());
      rows_[a.slot.value] = Row{a.id, {a.tokens.begin(), a.tokens.end()}, std::vector<std::vector<BlockId>>(windows_.size())};
    }
    for (const BlockTableDelta& d : plan.table_deltas) {
      ASSERT_TRUE(rows_.at(d.slot.value).has_value());
      auto& table = rows_[d.slot.value]->tables.at(d.group);
      if (d.update == TableUpdate::replace_one) {
        ASSERT_EQ(d.blocks.size(), 1U);
        table.at(d.index) = d.blocks[0];
        continue;
      }
      if (d.update == TableUpdate::replace_all) table.clear();
      table.insert(table.end(), d.blocks.begin(), d.blocks.end());
    }
  }

  std::uint64_t& entry(const Row& row, std::size_t group, std::uint32_t position) {
    EXPECT_LT(position / block_size_, row.tables[group].size()) << "a scheduled token has no block";
    const BlockId block = row.tables[group].at(position / block_size_);
    EXPECT_NE(block, kNullBlock);
    return kv_.at(std::size_t{block.value} * block_size_ + position % block_size_);
  }

  std::uint64_t digest_before(const Row& row, std::uint32_t position) {
    std::uint64_t digest = salts_[row.id];
    for (std::uint32_t i = 0; i < position; ++i) digest = mix(digest, static_cast<std::uint64_t>(row.tokens[i]));
    return digest;
  }

  void write(const ScheduledRequest& s) {
    ASSERT_TRUE(rows_.at(s.slot.value).has_value());
    const Row& row = *rows_[s.slot.value];
    EXPECT_EQ(row.id, s.id);
    ASSERT_LE(s.num_computed_tokens + s.num_tokens, row.tokens.size());
    EXPECT_EQ(s.samples, s.num_computed_tokens + s.num_tokens == row.tokens.size());
    std::uint64_t digest = digest_before(row, s.num_computed_tokens);
    for (std::uint32_t i = s.num_computed_tokens; i < s.num_computed_tokens + s.num_tokens; ++i) {
      digest = mix(digest, static_cast<std::uint64_t>(row.tokens[i]));
      for (std::size_t group = 0; group < windows_.size(); ++group) entry(row, group, i) = mix(digest, group);
    }
  }

  void read(const ScheduledRequest& s) {
    const Row& row = *rows_[s.slot.value];
    std::uint64_t digest = salts_[row.id];
    for (std::uint32_t i = 0; check_content_ && i < s.num_computed_tokens + s.num_tokens; ++i) {
      digest = mix(digest, static_cast<std::uint64_t>(row.tokens[i]));
      for (std::size_t group = 0; group < windows_.size(); ++group) {
        if (windows_[group] > 0 && i + windows_[group] <= s.num_computed_tokens) continue;
        ASSERT_EQ(entry(row, group, i), mix(digest, group)) << "request " << s.id.value << " reads a wrong entry at position " << i;
      }
    }
  }

  void sample(const ScheduledRequest& s) {
    Row& row = *rows_[s.slot.value];
    const TokenId token = token_of(digest_before(row, static_cast<std::uint32_t>(row.tokens.size())), seeds_[s.id]);
    row.tokens.push_back(token);
    sampled_.push_back({s.id, token});
  }

  [[nodiscard]] TokenId token_of(std::uint64_t digest, std::uint64_t seed) const {
    return static_cast<TokenId>((seed == 0 ? digest : mix(digest, seed)) % static_cast<std::uint64_t>(vocabulary_));
  }

  std::uint32_t block_size_;
  TokenId vocabulary_;
  bool check_content_ = true;
  std::vector<std::uint64_t> kv_;
  std::vector<std::optional<Row>> rows_;
  std::vector<std::uint32_t> windows_{0};
  std::map<RequestId, std::uint64_t> salts_, seeds_;
  std::vector<SampledToken> sampled_;
};

}  // namespace quire::test
