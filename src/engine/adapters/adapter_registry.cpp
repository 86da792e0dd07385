// Manages the registered LoRA adapters and the weights that are in memory. Called on the threads of clients and operators when an adapter
// is named, loaded or unloaded. Files are read and weights are freed without the mutex, so a request for a resident adapter never waits for
// another adapter's files.
#include "engine/adapters/adapter_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Quotes text from a client for a message.
std::string quoted(const std::string& name) {
  return fmt::format("'{}'", name.substr(0, 200));
}

std::string content_id_of(const std::string& digest) {
  return "sha256:" + digest;
}

// Calls the loader. Converts an exception of the loader, for example if memory runs out, to an error.
Result<std::shared_ptr<const Adapter>> load_files(const AdapterLoader& loader, const std::string& path) {
  try {
    return loader(path);
  } catch (const std::exception& e) {
    return fail(ErrorCode::io, "lora_path", fmt::format("{} could not be read: {}", quoted(path), e.what()),
                "check the folder and the free memory, then load the adapter again");
  }
}

}  // namespace

AdapterRegistry::AdapterRegistry(std::uint32_t max_resident, AdapterLoader loader, std::shared_ptr<Logger> logger)
    : max_resident_(max_resident), loader_(std::move(loader)), logger_(std::move(logger)) {
  QUIRE_CHECK(max_resident_ > 0, "max_resident is at least 1");
}

Result<AdapterInfo> AdapterRegistry::load(const std::string& name, const std::string& path, bool replace) {
  if (name.empty()) return fail(ErrorCode::invalid_argument, "lora_name", "is empty", "give the adapter a name");
  if (path.empty()) return fail(ErrorCode::invalid_argument, "lora_path", "is empty", "give the path of the adapter's folder");
  Dropped dropped;
  Lock lock(mutex_);
  wait(lock, name);  // the caller that started the load reports its result
  if (!replace && names_.contains(name)) {
    return fail(ErrorCode::invalid_argument, "lora_name", fmt::format("{} is already loaded", quoted(name)),
                "unload it first, or set load_inplace to true");
  }
  if (Result<void> loaded = read(lock, name, path, dropped); !loaded) return std::unexpected(std::move(loaded.error()));
  // The name is still registered, because read() returns without releasing the mutex again.
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
      ResidentAdapter{.id = sets_.at(found->second.digest).id, .content_id = content_id_of(found->second.digest), .weights = nullptr});
  return std::make_shared<const AdapterLease>(AdapterLease{name, std::move(resident)});
}

std::vector<AdapterInfo> AdapterRegistry::list() const {
  const Lock lock(mutex_);
  std::vector<AdapterInfo> all;
  all.reserve(names_.size());
  for (const auto& [name, entry] : names_) all.push_back(describe(name, entry));
  return all;
}

AdapterStats AdapterRegistry::stats() const {
  const Lock lock(mutex_);
  AdapterStats stats{.num_known = static_cast<std::uint32_t>(names_.size()),
                     .num_resident = static_cast<std::uint32_t>(order_.size()) + num_unnamed(),
                     .num_loads = num_loads_,
                     .num_evictions = num_evictions_,
                     .num_failed_loads = num_failures_};
  for (const std::string& digest : order_) stats.bytes += sets_.at(digest).num_bytes;
  return stats;
}

Error AdapterRegistry::unknown(const std::string& name) {
  return {ErrorCode::not_found, "adapter", fmt::format("there is no adapter {}", quoted(name)), "load it first"};
}

SharedLease AdapterRegistry::lease_of(const std::string& name, const AdapterEntry& entry) {
  WeightSet& set = sets_.at(entry.digest);
  if (set.kept == nullptr) return nullptr;
  order_.splice(order_.end(), order_, set.place);
  return std::make_shared<const AdapterLease>(AdapterLease{name, set.kept});
}

// Evicts unused sets until one more set fits. A set without a lease stays unused while the mutex is held, because without the mutex threads
// only copy existing leases.
Result<void> AdapterRegistry::make_room(Dropped& dropped) {
  forget_unused_sets();
  const auto is_unused = [this](const std::string& digest) { return sets_.at(digest).kept.use_count() == 1; };
  const std::size_t num_taken = order_.size() + num_unnamed() + loading_.size();
  const std::size_t num_wanted = num_taken < max_resident_ ? 0 : num_taken - max_resident_ + 1;
  // Either evicts enough sets or none: an adapter that cannot be loaded must not cause evictions.
  if (std::cmp_less(std::ranges::count_if(order_, is_unused), num_wanted)) {
    return fail(ErrorCode::overloaded, "max_cpu_loras", fmt::format("all {} adapters that fit in memory are in use", max_resident_),
                "try again later, or start the server with a larger --max-cpu-loras");
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
  QUIRE_CHECK(is_alone, "one thread at a time loads an adapter");
  const std::shared_ptr<Loading> loading = place->second;
  lock.unlock();
  dropped.clear();  // frees memory before more is read
  const auto begin = std::chrono::steady_clock::now();
  Result<std::shared_ptr<const Adapter>> loaded = load_files(loader_, path);
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
  loaded_.notify_all();  // waiting threads continue when the mutex is released, so they see the changes below
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
  AdapterEntry& entry = place->second;
  const std::string before = std::exchange(entry.digest, weights->digest);
  entry.path = path;
  entry.rank = weights->rank;
  entry.bytes = weights->bytes();
  const auto [found, is_first] = sets_.try_emplace(entry.digest);
  WeightSet& set = found->second;
  if (is_first) set.id = next_id_++;
  set.num_bytes = entry.bytes;
  const bool has_other = is_new || before != entry.digest;
  if (has_other) ++set.num_names;
  if (set.kept != nullptr) {
    order_.splice(order_.end(), order_, set.place);
  } else {
    // If leases of the same contents are open, their copy of the weights is reused.
    set.kept = set.leased.lock();
    if (set.kept == nullptr)
      set.kept = std::make_shared<const ResidentAdapter>(
          ResidentAdapter{.id = set.id, .content_id = content_id_of(entry.digest), .weights = weights});
    set.leased = set.kept;
    set.place = order_.insert(order_.end(), entry.digest);
  }
  if (set.kept->weights != weights)
    dropped.push_back(std::make_shared<const ResidentAdapter>(ResidentAdapter{.content_id = {}, .weights = std::move(weights)}));
  if (!is_new && has_other) leave(before, dropped);
}

// Removes one name of a set, because the name was unloaded or refers to other contents now.
void AdapterRegistry::leave(const std::string& digest, Dropped& dropped) {
  WeightSet& set = sets_.at(digest);
  if (--set.num_names > 0) return;
  // An evicted set may still be in memory for a moment, but its slot already belongs to another set.
  set.occupies_slot = set.kept != nullptr;
  if (set.kept != nullptr) {
    dropped.push_back(std::move(set.kept));
    order_.erase(set.place);
  }
  if (std::ranges::find(unnamed_, digest) == unnamed_.end()) unnamed_.push_back(digest);
}

// Forgets the sets that have neither a name nor a lease.
void AdapterRegistry::forget_unused_sets() {
  std::erase_if(unnamed_, [this](const std::string& digest) {
    const auto found = sets_.find(digest);
    if (found == sets_.end() || found->second.num_names > 0) return true;
    if (!found->second.leased.expired()) return false;
    sets_.erase(found);
    return true;
  });
}

std::uint32_t AdapterRegistry::num_unnamed() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(unnamed_, [this](const std::string& digest) {
    const auto found = sets_.find(digest);
    return found != sets_.end() && found->second.num_names == 0 && found->second.occupies_slot && !found->second.leased.expired();
  }));
}

std::optional<Error> AdapterRegistry::wait(Lock& lock, const std::string& name) {
  std::optional<Error> error;
  // Repeated, because another waiting thread may have begun to read the files again.
  for (auto found = loading_.find(name); found != loading_.end(); found = loading_.find(name)) {
    const std::shared_ptr<Loading> loading = found->second;
    loaded_.wait(lock, [&] { return loading->is_over; });
    error = loading->error;
  }
  return error;
}

AdapterInfo AdapterRegistry::describe(const std::string& name, const AdapterEntry& entry) const {
  return {.name = name,
          .path = entry.path,
          .digest = entry.digest,
          .rank = entry.rank,
          .bytes = entry.bytes,
          .is_resident = sets_.at(entry.digest).kept != nullptr};
}

}  // namespace quire
