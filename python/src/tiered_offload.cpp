// Binds quire.TieredOffload (host memory above a folder) and quire.BlockCopier (copies between this memory and a KV cache in host memory).
// No code here holds the GIL while it waits for a disk or a thread.
#include "quire/tiered_offload.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "errors.h"
#include "module.h"
#include "offload_key_bytes.h"
#include "quire/block_copier.h"

namespace quire::python {
namespace {

// One row per block or slot.
using Pages = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Marks = nb::ndarray<std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = std::vector<std::uint64_t>;

TieredOffloadOptions options_of(std::uint32_t num_slots, const std::vector<Pages>& pages, const std::vector<Marks>& written,
                                const nb::bytes& fingerprint) {
  TieredOffloadOptions options;
  options.host.num_slots = num_slots;
  for (const Pages& one : pages) {
    if (one.shape(0) < num_slots) throw nb::value_error("pages: each tensor must have at least num_slots rows");
    options.pages.push_back({.begin = reinterpret_cast<std::byte*>(one.data()), .page_bytes = one.shape(1)});
  }
  for (const Marks& one : written) {
    if (one.shape(0) < num_slots) throw nb::value_error("written: each array must have at least num_slots entries");
    options.written.push_back(one.data());
  }
  if (written.empty()) throw nb::value_error("written: must have the array of at least one worker");
  if (fingerprint.size() != options.fingerprint.size()) throw nb::value_error("fingerprint: must have 32 bytes");
  std::memcpy(options.fingerprint.data(), fingerprint.c_str(), fingerprint.size());
  return options;
}

class PyTieredOffload {
 public:
  PyTieredOffload(std::uint32_t num_slots, std::vector<Pages> pages, std::vector<Marks> written, std::string folder,
                  std::uint64_t budget_bytes, const nb::bytes& fingerprint, const std::string& policy, std::int64_t store_threshold,
                  std::int64_t max_tracked_keys, bool enable_events, std::uint64_t bytes_per_second)
      : pages_(std::move(pages)), written_(std::move(written)) {
    TieredOffloadOptions options = options_of(num_slots, pages_, written_, fingerprint);
    options.host.policy = value_or_raise(parse_offload_policy(policy));
    options.host.store_threshold = store_threshold;
    options.host.max_tracked_keys = max_tracked_keys;
    options.host.enable_events = enable_events;
    options.folder = std::move(folder);
    options.budget_bytes = budget_bytes;
    options.bytes_per_second = bytes_per_second;
    Result<std::unique_ptr<TieredOffload>> opened = [&] {
      const nb::gil_scoped_release released;
      return TieredOffload::open(options);
    }();
    tiers_ = value_or_raise(std::move(opened));
  }
  ~PyTieredOffload() { close(); }
  PyTieredOffload(const PyTieredOffload&) = delete;
  PyTieredOffload& operator=(const PyTieredOffload&) = delete;

  void close() {
    const nb::gil_scoped_release released;
    tiers_.reset();
  }

  std::optional<std::uint32_t> lookup(const KeyList& keys) { return tiers().lookup(keys_of(keys)); }
  nb::bytes find(const KeyList& keys) { return states_as_bytes(tiers().find(keys_of(keys))); }
  bool bring_up(const KeyList& keys) { return tiers().bring_up(keys_of(keys)); }
  void count(const KeyList& keys) { tiers().count(keys_of(keys)); }
  bool discard(const nb::bytes& key) { return tiers().discard(key_of(key)); }
  std::uint32_t num_slots() { return tiers().num_slots(); }
  Slots prepare_load(const KeyList& keys) { return slot_indices(value_or_raise(tiers().prepare_load(keys_of(keys)))); }
  void complete_load(const KeyList& keys) { value_or_raise(tiers().complete_load(keys_of(keys))); }
  void touch(const KeyList& keys) { tiers().touch(keys_of(keys)); }
  void use(const KeyList& keys) { tiers().use(keys_of(keys)); }
  std::optional<std::tuple<KeyList, Slots, Numbers, KeyList>> prepare_store(const KeyList& keys) {
    const auto store = tiers().prepare_store(keys_of(keys));
    if (!store) return std::nullopt;
    return std::tuple(bytes_of_keys(store->keys), slot_indices(store->slots), Numbers(store->numbers.begin(), store->numbers.end()),
                      bytes_of_keys(store->evicted));
  }
  void complete_store(const KeyList& keys, bool success) { tiers().complete_store(keys_of(keys), success); }
  std::vector<std::tuple<KeyList, bool>> take_events() {
    std::vector<std::tuple<KeyList, bool>> events;
    events.reserve(tiers().num_events());
    for (std::size_t i = 0; i < tiers().num_events(); ++i)
      events.emplace_back(bytes_of_keys(tiers().event(i).keys), tiers().event(i).removed);
    tiers().clear_events();
    return events;
  }
  nb::dict stats() {
    const TieredOffloadStats stats = tiers().stats();
    nb::dict answer;
    answer["num_places"] = stats.num_places;
    answer["num_held"] = stats.num_held;
    answer["num_restored"] = stats.num_restored;
    answer["num_written"] = stats.num_written;
    answer["bytes_written"] = stats.bytes_written;
    answer["num_read"] = stats.num_read;
    answer["bytes_read"] = stats.bytes_read;
    answer["reading_s"] = stats.reading_s;
    answer["num_refused"] = stats.num_refused;
    answer["num_failed"] = stats.num_failed;
    answer["num_dropped"] = stats.num_dropped;
    answer["loads_left_out"] = stats.loads_left_out;
    answer["stores_left_out"] = stats.stores_left_out;
    return answer;
  }

 private:
  TieredOffload& tiers() {
    if (tiers_ == nullptr) raise_state("this TieredOffload is closed");
    return *tiers_;
  }

  std::vector<Pages> pages_;  // keeps the memory alive
  std::vector<Marks> written_;
  std::unique_ptr<TieredOffload> tiers_;
};

class PyBlockCopier {
 public:
  PyBlockCopier(std::vector<Pages> device, std::vector<Pages> host, Marks written)
      : device_(std::move(device)), host_(std::move(host)), written_(std::move(written)) {
    if (device_.size() != host_.size()) throw nb::value_error("host: must have as many tensors as device");
    std::vector<CopiedTensor> tensors;
    for (std::size_t i = 0; i < device_.size(); ++i) {
      const std::size_t bytes = device_[i].shape(1);
      if (bytes == 0 || host_[i].shape(1) != bytes)
        throw nb::value_error("host: pages must have as many bytes as the pages of device, at least 1");
      tensors.push_back({.device = reinterpret_cast<std::byte*>(device_[i].data()),
                         .host = reinterpret_cast<std::byte*>(host_[i].data()),
                         .page_bytes = bytes,
                         .num_device_pages = device_[i].shape(0),
                         .num_host_pages = host_[i].shape(0)});
    }
    copier_ = std::make_unique<BlockCopier>(std::move(tensors), written_.data(), written_.shape(0));
  }
  ~PyBlockCopier() {
    const nb::gil_scoped_release released;
    copier_.reset();
  }
  PyBlockCopier(const PyBlockCopier&) = delete;
  PyBlockCopier& operator=(const PyBlockCopier&) = delete;

  void submit(std::uint64_t id, bool to_host, Numbers device_pages, Numbers host_pages, Numbers slots, Numbers numbers,
              std::vector<std::uint32_t> tensors) {
    if (!copier_->submit({.id = id,
                          .to_host = to_host,
                          .device_pages = std::move(device_pages),
                          .host_pages = std::move(host_pages),
                          .tensors = std::move(tensors),
                          .marks = std::move(slots),
                          .numbers = std::move(numbers)}))
      throw nb::value_error(
          "device_pages, host_pages, slots, numbers, tensors: parallel lists must have equal lengths, and all pages, slots and tensors "
          "must exist");
  }
  std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> take_over(bool to_host) {
    std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> over;
    for (const CopyCompletion& one : copier_->take_over(to_host)) over.emplace_back(one.id, one.bytes, one.seconds);
    return over;
  }
  void wait(const Numbers& ids) {
    const nb::gil_scoped_release released;
    copier_->wait(ids);
  }

 private:
  std::vector<Pages> device_, host_;  // keep the memory alive
  Marks written_;
  std::unique_ptr<BlockCopier> copier_;
};

void mark_written(const Marks& written, const Numbers& slots, const Numbers& numbers) {
  if (slots.size() != numbers.size()) throw nb::value_error("numbers: must have one entry per slot");
  for (const std::uint64_t slot : slots)
    if (slot >= written.shape(0)) throw nb::value_error("slots: a slot does not exist");
  for (std::size_t i = 0; i < slots.size(); ++i) __atomic_store_n(written.data() + slots[i], numbers[i], __ATOMIC_RELEASE);
}

}  // namespace

void bind_tiered_offload(nb::module_& m) {
  nb::class_<PyTieredOffload> c(
      m, "TieredOffload",
      "An OffloadManager above a folder. Blocks that are stored in host memory are also written to the folder. A block\n"
      "that only the folder has is first loaded into host memory, and lookup() counts it only then. Only opening and\n"
      "close() wait for the disk. Not thread-safe.");
  c.def(nb::init<std::uint32_t, std::vector<Pages>, std::vector<Marks>, std::string, std::uint64_t, const nb::bytes&, const std::string&,
                 std::int64_t, std::int64_t, bool, std::uint64_t>(),
        nb::arg("num_slots"), nb::arg("pages"), nb::arg("written"), nb::arg("folder"), nb::arg("budget_bytes"), nb::arg("fingerprint"),
        nb::arg("policy") = "lru", nb::arg("store_threshold") = 0, nb::arg("max_tracked_keys") = 64'000, nb::arg("enable_events") = false,
        nb::arg("bytes_per_second") = 0,
        "pages: for each tensor of each worker, an array with one row per slot. written: for each worker, an array with\n"
        "the number of the last store that was copied into each slot. budget_bytes: limit for the whole folder.\n"
        "fingerprint: 32 bytes that identify everything that the bytes of a block depend on, except its hash.\n"
        "bytes_per_second: disk limit in each direction; 0: no limit. ValueError if an option is out of range, or if the\n"
        "folder is in use, belongs to another model, or cannot be written.");
  c.def("close", &PyTieredOffload::close, "Finishes the writes in flight and releases the folder. Other calls then raise RuntimeError.");
  c.def("lookup", &PyTieredOffload::lookup, nb::arg("keys"),
        "Returns how many leading keys can be loaded from host memory without a gap. None: ask again, some keys are being loaded from the "
        "folder.");
  c.def("find", &PyTieredOffload::find, nb::arg("keys"), kFindDoc);
  c.def("bring_up", &PyTieredOffload::bring_up, nb::arg("keys"),
        "Starts to load keys from the folder into host memory: as many leading keys as fit. Returns True if any of the keys are on their "
        "way.");
  c.def("count", &PyTieredOffload::count, nb::arg("keys"), "Counts a lookup of the keys for store_threshold. lookup() counts, too.");
  c.def("discard", &PyTieredOffload::discard, nb::arg("key"),
        "Like OffloadManager.discard(), for host memory. A copy in the folder stays.");
  c.def_prop_ro("num_slots", &PyTieredOffload::num_slots);
  c.def("prepare_load", &PyTieredOffload::prepare_load, nb::arg("keys"), "Like OffloadManager.prepare_load().");
  c.def("complete_load", &PyTieredOffload::complete_load, nb::arg("keys"), "Like OffloadManager.complete_load().");
  c.def("touch", &PyTieredOffload::touch, nb::arg("keys"), "Like OffloadManager.touch().");
  c.def("use", &PyTieredOffload::use, nb::arg("keys"), "Like OffloadManager.use().");
  c.def("prepare_store", &PyTieredOffload::prepare_store, nb::arg("keys"),
        "Like OffloadManager.prepare_store(), but returns (keys, slots, numbers, evicted keys). After a block is copied\n"
        "into its slot, its number must be passed to mark_written().");
  c.def("complete_store", &PyTieredOffload::complete_store, nb::arg("keys"), nb::arg("success") = true,
        "Like OffloadManager.complete_store().");
  c.def("take_events", &PyTieredOffload::take_events, "Like OffloadManager.take_events(), for host memory.");
  c.def("stats", &PyTieredOffload::stats,
        "Returns totals since the start: blocks and bytes written to the folder and read from it, and failures.");

  nb::class_<PyBlockCopier> copier(
      m, "BlockCopier",
      "Copies blocks between a KV cache in host memory and slots of a tier, on a separate thread, in the order of submission.");
  copier.def(nb::init<std::vector<Pages>, std::vector<Pages>, Marks>(), nb::arg("device"), nb::arg("host"), nb::arg("written"),
             "device, host: one array per tensor, with one row per page. Both sides have the same page size in bytes. written: see "
             "TieredOffload.");
  copier.def("submit", &PyBlockCopier::submit, nb::arg("id"), nb::arg("to_host"), nb::arg("device_pages"), nb::arg("host_pages"),
             nb::arg("slots") = Numbers(), nb::arg("numbers") = Numbers(), nb::arg("tensors") = std::vector<std::uint32_t>(),
             "Queues a copy and returns immediately. slots, numbers: after all pages are copied, each number is written to the\n"
             "entry of its slot in `written`. tensors: indices of the tensors in copy order; []: all. ValueError if a page,\n"
             "slot or tensor does not exist, or if parallel lists differ in length.");
  copier.def("take_over", &PyBlockCopier::take_over, nb::arg("to_host"),
             "Returns the copies in this direction that have ended since the last call: [(id, bytes, seconds)].");
  copier.def("wait", &PyBlockCopier::wait, nb::arg("ids"), "Returns when none of these copies is queued or in progress.");

  m.def("mark_written", &mark_written, nb::arg("written"), nb::arg("slots"), nb::arg("numbers"),
        "Marks blocks as copied: writes each number to the entry of its slot in `written`. A reader that sees the number\n"
        "also sees the block's bytes. ValueError if a slot does not exist, or if the lists differ in length.");
}

}  // namespace quire::python
