// Which LoRA adapters there are, and whose weights are in memory. Called on the threads of clients and operators when one is named, loaded
// or unloaded. Files are read, and weights freed, with the mutex let go, so that a name that is known never waits for another one's file.
#include "engine/adapters/adapter_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// What a client has sent, in a message.
std::string quoted(const std::string& name) {
  return fmt::format("'{}'", name.substr(0, 200));
}

std::string block_name_of(const std::string& digest) {
  return "sha256:" + digest;
}

}  // namespace

AdapterRegistry::AdapterRegistry(std::uint32_t max_resident, AdapterLoader loader, std::shared_ptr<Logger> logger)
    : max_resident_(max_resident), loader_(std::move(loader)), logger_(std::move(logger)) {
  QUIRE_CHECK(max_resident_ > 0, "room for an adapter");
}

Result<AdapterInfo> AdapterRegistry::load(const std::string& name, const std::string& path, bool replace) {
  if (name.empty()) return fail(ErrorCode::invalid_argument, "lora_name", "is empty", "give the adapter a name");
  if (path.empty()) return fail(ErrorCode::invalid_argument, "lora_path", "is empty", "give the adapter's folder");
  Dropped dropped;
  Lock lock(mutex_);
  wait(lock, name);  // what has become of it is said to who asked for it
  if (!replace && names_.contains(name)) {
    return fail(ErrorCode::invalid_argument, "lora_name", fmt::format("{} has been loaded already", quoted(name)),
                "unload it, or set load_inplace to true");
  }
  if (Result<void> loaded = read(lock, name, path, dropped); !loaded) return std::unexpected(std::move(loaded.error()));
  // Nobody has taken it away since: read() has not let go of the mutex behind it.
  return describe(name, names_.at(name));
}

Result<void> AdapterRegistry::unload(const std::string& name) {
  Dropped dropped;
  Lock lock(mutex_);
  wait(lock, name);
  const auto found = names_.find(name);
  if (found == names_.end()) return std::unexpected(unknown(name));
  const std::string digest = std::move(found->second.digest);
  names_.erase(found);
  leave(digest, dropped);
  lock.unlock();
  if (logger_ != nullptr) logger_->write(LogLevel::info, "adapter_unloaded", {{"name", name}});
  return {};
}

Result<SharedLease> AdapterRegistry::lease(const std::string& name) {
  Dropped dropped;
  Lock lock(mutex_);
  while (true) {
    if (std::optional<Error> error = wait(lock, name)) return std::unexpected(*std::move(error));
    const auto found = names_.find(name);
    if (found == names_.end()) return std::unexpected(unknown(name));
    if (SharedLease lease = lease_of(name, found->second); lease != nullptr) return lease;
    const std::string path = found->second.path;
    if (Result<void> loaded = read(lock, name, path, dropped); !loaded) return std::unexpected(std::move(loaded.error()));
  }
}

Result<SharedLease> AdapterRegistry::lease_resident(const std::string& name) {
  const Lock lock(mutex_);
  const auto found = names_.find(name);
  if (found == names_.end()) return std::unexpected(unknown(name));
  return lease_of(name, found->second);
}

Result<SharedLease> AdapterRegistry::identify(const std::string& name) const {
  const Lock lock(mutex_);
  const auto found = names_.find(name);
  if (found == names_.end()) return std::unexpected(unknown(name));
  auto resident = std::make_shared<const ResidentAdapter>(
      ResidentAdapter{.id = sets_.at(found->second.digest).id, .block_name = block_name_of(found->second.digest), .weights = nullptr});
  return std::make_shared<const AdapterLease>(AdapterLease{name, std::move(resident)});
}

std::vector<AdapterInfo> AdapterRegistry::list() const {
  const Lock lock(mutex_);
  std::vector<AdapterInfo> all;
  all.reserve(names_.size());
  for (const auto& [name, named] : names_) all.push_back(describe(name, named));
  return all;
}

AdapterStats AdapterRegistry::stats() const {
  const Lock lock(mutex_);
  AdapterStats stats{.num_known = static_cast<std::uint32_t>(names_.size()),
                     .num_resident = static_cast<std::uint32_t>(order_.size()) + num_left(),
                     .num_loads = num_loads_,
                     .num_evictions = num_evictions_,
                     .num_failed_loads = num_failures_};
  for (const std::string& digest : order_) stats.bytes += sets_.at(digest).num_bytes;
  return stats;
}

Error AdapterRegistry::unknown(const std::string& name) {
  return {ErrorCode::not_found, "adapter", fmt::format("no adapter is called {}", quoted(name)), "load it first"};
}

SharedLease AdapterRegistry::lease_of(const std::string& name, const Named& named) {
  Set& set = sets_.at(named.digest);
  if (set.kept == nullptr) return nullptr;
  order_.splice(order_.end(), order_, set.place);
  return std::make_shared<const AdapterLease>(AdapterLease{name, set.kept});
}

// Leases are copied without the mutex, but the first of a set is made with it: one that is not shared stays so.
Result<void> AdapterRegistry::make_room(Dropped& dropped) {
  forget_gone();
  const auto is_unused = [this](const std::string& digest) { return sets_.at(digest).kept.use_count() == 1; };
  const std::size_t num_taken = order_.size() + num_left() + loading_.size();
  const std::size_t num_wanted = num_taken < max_resident_ ? 0 : num_taken - max_resident_ + 1;
  // All or none: who is not loaded takes the place of nobody.
  if (std::cmp_less(std::ranges::count_if(order_, is_unused), num_wanted)) {
    return fail(ErrorCode::overloaded, "max_cpu_loras", fmt::format("all {} adapters that may be in memory are in use", max_resident_),
                "try again later, or serve with a larger --max-cpu-loras");
  }
  for (std::size_t i = 0; i < num_wanted; ++i) {
    const auto unused = std::ranges::find_if(order_, is_unused);
    dropped.push_back(std::move(sets_.at(*unused).kept));
    order_.erase(unused);
    ++num_evictions_;
  }
  return {};
}

Result<void> AdapterRegistry::read(Lock& lock, const std::string& name, const std::string& path, Dropped& dropped) {
  if (Result<void> room = make_room(dropped); !room) return room;
  const auto [place, is_alone] = loading_.emplace(name, std::make_shared<Loading>());
  QUIRE_CHECK(is_alone, "one reads a name at a time");
  const std::shared_ptr<Loading> loading = place->second;
  lock.unlock();
  dropped.clear();  // before there is more
  const auto begin = std::chrono::steady_clock::now();
  Result<std::shared_ptr<const Adapter>> loaded = fail(ErrorCode::io, "lora_path", "could not be read");
  try {
    loaded = loader_(path);
  } catch (const std::exception& e) {  // memory ran out
    loaded = fail(ErrorCode::io, "lora_path", fmt::format("could not be read: {}", e.what()));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (logger_ != nullptr && loaded) {
    logger_->write(LogLevel::info, "adapter_loaded",
                   {{"name", name},
                    {"path", path},
                    {"digest", (*loaded)->digest},
                    {"rank", std::uint64_t{(*loaded)->rank}},
                    {"bytes", (*loaded)->bytes()},
                    {"seconds", took.count()}});
  } else if (logger_ != nullptr) {
    logger_->write(LogLevel::warn, "adapter_failed", {{"name", name}, {"path", path}, {"why", loaded.error().to_string()}});
  }
  lock.lock();
  loading_.erase(name);
  loading->is_over = true;
  loaded_.notify_all();  // they see what follows: the mutex is held
  if (!loaded) {
    ++num_failures_;
    loading->error = loaded.error();
    return std::unexpected(std::move(loaded.error()));
  }
  ++num_loads_;
  put(name, path, *std::move(loaded), dropped);
  return {};
}

void AdapterRegistry::put(const std::string& name, const std::string& path, std::shared_ptr<const Adapter> weights, Dropped& dropped) {
  const auto [place, is_new] = names_.try_emplace(name);
  Named& named = place->second;
  const std::string before = std::exchange(named.digest, weights->digest);
  named.path = path;
  named.rank = weights->rank;
  named.bytes = weights->bytes();
  const auto [found, is_first] = sets_.try_emplace(named.digest);
  Set& set = found->second;
  if (is_first) set.id = next_id_++;
  set.num_bytes = named.bytes;
  const bool has_other = is_new || before != named.digest;
  if (has_other) ++set.num_names;
  if (set.kept != nullptr) {
    order_.splice(order_.end(), order_, set.place);
  } else {
    // Those who have a lease of the same bytes have the first copy of them.
    set.kept = set.leased.lock();
    if (set.kept == nullptr)
      set.kept = std::make_shared<const ResidentAdapter>(
          ResidentAdapter{.id = set.id, .block_name = block_name_of(named.digest), .weights = weights});
    set.leased = set.kept;
    set.place = order_.insert(order_.end(), named.digest);
  }
  if (set.kept->weights != weights)
    dropped.push_back(std::make_shared<const ResidentAdapter>(ResidentAdapter{.block_name = {}, .weights = std::move(weights)}));
  if (!is_new && has_other) leave(before, dropped);
}

// A name stands for other bytes, or is gone.
void AdapterRegistry::leave(const std::string& digest, Dropped& dropped) {
  Set& set = sets_.at(digest);
  if (--set.num_names > 0) return;
  // One that was evicted may still be there for a moment, in the place of what is loaded instead.
  set.takes_place = set.kept != nullptr;
  if (set.kept != nullptr) {
    dropped.push_back(std::move(set.kept));
    order_.erase(set.place);
  }
  if (std::ranges::find(left_, digest) == left_.end()) left_.push_back(digest);
}

// Sets without a name whose last lease has ended.
void AdapterRegistry::forget_gone() {
  std::erase_if(left_, [this](const std::string& digest) {
    const auto found = sets_.find(digest);
    if (found == sets_.end() || found->second.num_names > 0) return true;
    if (!found->second.leased.expired()) return false;
    sets_.erase(found);
    return true;
  });
}

std::uint32_t AdapterRegistry::num_left() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(left_, [this](const std::string& digest) {
    const auto found = sets_.find(digest);
    return found != sets_.end() && found->second.num_names == 0 && found->second.takes_place && !found->second.leased.expired();
  }));
}

std::optional<Error> AdapterRegistry::wait(Lock& lock, const std::string& name) {
  std::optional<Error> error;
  // Once more, where another one who waited has begun to read it again.
  for (auto found = loading_.find(name); found != loading_.end(); found = loading_.find(name)) {
    const std::shared_ptr<Loading> loading = found->second;
    loaded_.wait(lock, [&] { return loading->is_over; });
    error = loading->error;
  }
  return error;
}

AdapterInfo AdapterRegistry::describe(const std::string& name, const Named& named) const {
  return {.name = name,
          .path = named.path,
          .digest = named.digest,
          .rank = named.rank,
          .bytes = named.bytes,
          .is_resident = sets_.at(named.digest).kept != nullptr};
}

}  // namespace quire
