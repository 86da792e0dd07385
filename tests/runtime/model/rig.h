#pragma once
// A model with a KV cache and block tables, for tests that feed it token by token or all together.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/model.h"
#include "support/kv_layouts.h"

namespace quire::tiny {

// A temporary folder that is removed with the object.
class TempFolder {
 public:
  TempFolder() : path_((std::filesystem::temp_directory_path() / "quire_model_XXXXXX").string()) {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct RigOptions {
  ActivationMode activations = ActivationMode::f32;
  KvDtype kv = KvDtype::f32;
  KernelIsa isa = KernelIsa::best;
  std::uint32_t block_size = 16;
  std::uint32_t kernel_block_size = 0;  // 0 means block_size
  std::uint32_t num_threads = 2;
  std::uint32_t max_rows = 256;
  std::uint32_t num_slots = 256;
  std::uint32_t max_tokens = 128;  // per slot
  std::uint32_t num_blocks = 65;
  std::uint32_t max_lora_rank = 0;
  std::uint32_t num_encoder_positions = 0;  // per slot
  WeightsOptions weights = {};
  std::string mmproj = {};
};

inline constexpr std::uint32_t kMaxGroups = 2;

// The caller assigns blocks in any order with give_blocks; run() processes a slot's tokens.
class Rig {
 public:
  Rig(const std::string& path, const RigOptions& options)
      : num_slots_(options.num_slots),
        num_blocks_(options.num_blocks),
        pool_(options.num_threads),
        model_(load(path, options, pool_)),
        cache_(*KvCache::create(test::kv_layout_of(model_->info(), {.block_size = options.block_size,
                                                                    .num_blocks = kMaxGroups * options.num_blocks,
                                                                    .dtype = options.kv,
                                                                    .kernel_block_size = options.kernel_block_size}))),
        tables_(cache_.layout(), options.num_slots, options.max_tokens, options.num_encoder_positions) {}

  // Gives each cache group separate blocks: group g uses the blocks plus g * num_blocks.
  void give_blocks(Slot slot, const std::vector<BlockId>& blocks) {
    for (std::uint32_t group = 0; group < tables_.num_groups(); ++group) {
      std::vector<BlockId> own;
      for (const BlockId block : blocks) own.push_back(BlockId{block.value + group * num_blocks_});
      tables_.apply({.slot = slot, .group = group, .id = {}, .update = TableUpdate::append, .index = 0, .blocks = own});
    }
    tables_.commit(num_slots_);
  }

  // Runs one pass and returns the logits of every row.
  std::vector<float> run(std::span<const TokenId> tokens, const std::vector<BatchSequence>& sequences) {
    std::vector<std::uint32_t> rows(tokens.size());
    for (std::uint32_t i = 0; i < rows.size(); ++i) rows[i] = i;
    std::vector<float> logits(rows.size() * vocab());
    model_->forward({tokens, sequences, rows}, cache_, tables_, {logits});
    return logits;
  }

  [[nodiscard]] std::size_t vocab() const { return model_->info().vocab_size; }
  [[nodiscard]] Model& model() { return *model_; }
  [[nodiscard]] KvCache& cache() { return cache_; }
  [[nodiscard]] BlockTables& tables() { return tables_; }

 private:
  static std::unique_ptr<Model> load(const std::string& path, const RigOptions& options, ThreadPool& pool) {
    const auto file = ModelFile::open(path, options.mmproj);
    if (!file) ADD_FAILURE() << path << ": " << file.error().to_string();
    auto model = load_model(*file, file->info().value(),
                            {.activations = options.activations,
                             .isa = options.isa,
                             .max_num_batched_tokens = options.max_rows,
                             .max_num_seqs = options.num_slots,
                             .max_model_len = options.max_tokens,
                             .num_cache_groups = kMaxGroups,
                             .max_lora_rank = options.max_lora_rank,
                             .pool = &pool,
                             .weights = options.weights});
    if (!model) ADD_FAILURE() << path << ": " << model.error().to_string();
    return std::move(*model);
  }

  std::uint32_t num_slots_;
  std::uint32_t num_blocks_;  // of each group
  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  KvCache cache_;
  BlockTables tables_;
};

// Returns blocks first, first + step, ... for a request of `tokens` tokens.
inline std::vector<BlockId> blocks_for(std::uint32_t tokens, std::uint32_t block_size, std::uint32_t first, std::uint32_t step = 1) {
  std::vector<BlockId> blocks;
  for (std::uint32_t done = 0; done < tokens; done += block_size) blocks.push_back(BlockId{first + step * (done / block_size)});
  return blocks;
}

}  // namespace quire::tiny
