#pragma once
// Base classes of the connectors in this folder. PrefixConnector stores the full blocks of a request when it has ended without an error,
// and loads them for prompts that begin with them, while the request waits. CopyingTransport copies synchronously, in start().
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/plan.h"
#include "quire/connector.h"
#include "quire/connector_registry.h"

namespace examples {

inline constexpr std::uint64_t kNowhere = UINT64_MAX;  // the block to load was removed

class PrefixConnector : public quire::Connector {
 public:
  explicit PrefixConnector(std::uint32_t block_size) : block_size_(block_size) {}

  quire::ExternalMatch match(const quire::RequestView& request, std::uint32_t num_local_tokens) override {
    const std::uint32_t first = first_[request.id] = num_local_tokens / block_size_;
    std::uint32_t end = first;  // at least one token is computed
    while (end < (request.tokens.size() - 1) / block_size_ && find(name_of(request, end))) ++end;
    return {.num_tokens = (end - first) * block_size_, .load_async = end > first};
  }
  void allocated(const quire::RequestView& request, quire::GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    Moving load{.request = request.id, .direction = quire::TransferDirection::load};
    for (std::uint32_t i = first_.at(request.id), count = num_external_tokens / block_size_; count > 0; ++i, --count) {
      load.add(name_of(request, i), blocks[0][i], find(name_of(request, i)).value_or(kNowhere));
      hold(load.names.back());
    }
    pending_.push_back(std::move(load));
  }
  bool finished(const quire::RequestView& request, quire::GroupBlocks blocks) override {
    first_.erase(request.id);
    std::erase_if(pending_, [&](const Moving& load) {
      if (load.request == request.id) end(load, false);
      return load.request == request.id;
    });
    using enum quire::RequestStatus;
    if (request.status != finished_stopped && request.status != finished_length) return false;
    Moving store{.request = request.id, .direction = quire::TransferDirection::store};
    const auto num_full = std::min<std::size_t>(request.block_hashes.size() / 32, request.num_computed_tokens / block_size_);
    for (std::uint32_t i = 0; i < num_full; ++i)
      if (const auto place = reserve(name_of(request, i))) store.add(name_of(request, i), blocks[0][i], *place);
    if (store.blocks.empty()) return false;
    pending_.push_back(std::move(store));
    return true;  // completed() is called when the store is over
  }
  void planned(const quire::StepPlan& /*plan*/) override {}
  void plan_transfers(const quire::StepPlan& /*plan*/, quire::TransferList& transfers) override {
    std::erase_if(pending_, [&](const Moving& moving) {  // a refused transfer is added again with the next plan
      quire::Transfer transfer;
      transfer.request = moving.request;
      transfer.direction = moving.direction;
      transfer.blocks = moving.blocks;
      transfer.places = moving.places;
      const auto id = transfers.add(transfer);
      if (id) moving_[*id] = moving;
      return id.has_value();
    });
  }
  void completed(const quire::TransferCompletion& completion) override {
    const auto found = moving_.find(completion.transfer);
    if (found == moving_.end()) return;
    end(found->second, completion.outcome == quire::TransferOutcome::done);
    if (completion.outcome == quire::TransferOutcome::failed && found->second.direction == quire::TransferDirection::load)
      for (const std::string& name : found->second.names) forget(name);
    moving_.erase(found);
  }
  void step_output() override {}

 protected:
  // Returns the slot of a stored block.
  virtual std::optional<std::uint64_t> find(const std::string& name) = 0;
  // Returns the slot for a block to store; nullopt: there is no room, or the block is stored already.
  virtual std::optional<std::uint64_t> reserve(const std::string& name) = 0;
  virtual void stored(const std::string& name, bool is_good) = 0;
  // The slot of the block must not change from the hold() of a load to its release().
  virtual void hold(const std::string& /*name*/) {}
  virtual void release(const std::string& /*name*/) {}
  virtual void forget(const std::string& name) = 0;

 private:
  struct Moving {
    quire::RequestId request;
    quire::TransferDirection direction;
    std::vector<std::string> names = {};
    std::vector<quire::BlockId> blocks = {};
    std::vector<std::uint64_t> places = {};
    void add(std::string name, quire::BlockId block, std::uint64_t place) {
      names.push_back(std::move(name));
      blocks.push_back(block);
      places.push_back(place);
    }
  };
  static std::string name_of(const quire::RequestView& request, std::uint32_t index) {
    const auto bytes = request.block_hashes.subspan(std::size_t{index} * 32, 32);
    return {bytes.begin(), bytes.end()};
  }
  void end(const Moving& moving, bool is_good) {
    for (const std::string& name : moving.names) moving.direction == quire::TransferDirection::load ? release(name) : stored(name, is_good);
  }

  std::uint32_t block_size_;
  std::map<quire::RequestId, std::uint32_t> first_;  // index of the first block that match() looked up
  std::vector<Moving> pending_;                      // for the next plan
  std::map<quire::TransferId, Moving> moving_;
};

class CopyingTransport : public quire::Transport {
 public:
  void attach(const quire::KvPages& pages, std::function<void()> notify) override {
    pages_ = pages;
    notify_ = std::move(notify);
  }
  void start(const quire::Transfer& transfer) override {
    bool is_good = true;
    for (std::size_t i = 0; i < transfer.blocks.size(); ++i) {
      std::vector<std::span<std::byte>> parts;
      for (std::uint32_t tensor = 0; tensor < pages_.layout->groups[transfer.group].layers.size(); ++tensor)
        parts.push_back(pages_.page(tensor, transfer.blocks[i]));
      const std::uint64_t place = transfer.places[i];
      is_good &= place != kNowhere && (transfer.direction == quire::TransferDirection::load ? load(place, parts) : store(place, parts));
    }
    quire::TransferCompletion& over = over_.emplace_back();
    over.transfer = transfer.id;
    over.outcome = is_good ? quire::TransferOutcome::done : quire::TransferOutcome::failed;
    notify_();
  }
  void poll(std::vector<quire::TransferCompletion>& over) override {
    over.insert(over.end(), over_.begin(), over_.end());
    over_.clear();
  }
  void wait(quire::TransferId /*transfer*/) override {}  // start() has completed the transfer
  void detach() override {}

 protected:
  using Parts = std::vector<std::span<std::byte>>;
  // Return false if the copy failed.
  virtual bool load(std::uint64_t place, const Parts& parts) = 0;
  virtual bool store(std::uint64_t place, const Parts& parts) = 0;

  quire::KvPages pages_;

 private:
  std::function<void()> notify_;
  std::vector<quire::TransferCompletion> over_;
};

}  // namespace examples
