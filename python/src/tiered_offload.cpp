// quire.TieredOffload and quire.BlockCopier: host memory over a folder, and copies between that memory and a KV cache that lies in host
// memory too. Nothing here holds the GIL while a disk or a thread is waited for.
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
#include "offload_names.h"
#include "quire/block_copier.h"

namespace quire::python {
namespace {

// A row for each block or slot.
using Pages = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Marks = nb::ndarray<std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = std::vector<std::uint64_t>;

TieredOffloadOptions options_of(std::uint32_t num_slots, const std::vector<Pages>& pages, const std::vector<Marks>& written,
                                const nb::bytes& fingerprint) {
  TieredOffloadOptions options;
  options.host.num_slots = num_slots;
  for (const Pages& one : pages) {
    if (one.shape(0) < num_slots) throw nb::value_error("pages: each tensor needs a row for each slot");
    options.pages.push_back({.begin = reinterpret_cast<std::byte*>(one.data()), .page_bytes = one.shape(1)});
  }
  for (const Marks& one : written) {
    if (one.shape(0) < num_slots) throw nb::value_error("written: each worker needs a number for each slot");
    options.written.push_back(one.data());
  }
  if (written.empty()) throw nb::value_error("written: there is no worker; give the numbers of at least one");
  if (fingerprint.size() != options.fingerprint.size()) throw nb::value_error("fingerprint: give 32 bytes");
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

  std::optional<std::uint32_t> lookup(const Names& names) { return tiers().lookup(keys_of(names)); }
  nb::bytes find(const Names& names) { return places_of(tiers().find(keys_of(names))); }
  bool bring_up(const Names& names) { return tiers().bring_up(keys_of(names)); }
  void count(const Names& names) { tiers().count(keys_of(names)); }
  bool discard(const nb::bytes& name) { return tiers().discard(key_of(name)); }
  std::uint32_t num_slots() { return tiers().num_slots(); }
  Slots prepare_load(const Names& names) { return numbers_of(value_or_raise(tiers().prepare_load(keys_of(names)))); }
  void complete_load(const Names& names) { value_or_raise(tiers().complete_load(keys_of(names))); }
  void touch(const Names& names) { tiers().touch(keys_of(names)); }
  void use(const Names& names) { tiers().use(keys_of(names)); }
  std::optional<std::tuple<Names, Slots, Numbers, Names>> prepare_store(const Names& names) {
    const auto store = tiers().prepare_store(keys_of(names));
    if (!store) return std::nullopt;
    return std::tuple(names_of(store->keys), numbers_of(store->slots), Numbers(store->numbers.begin(), store->numbers.end()),
                      names_of(store->evicted));
  }
  void complete_store(const Names& names, bool success) { tiers().complete_store(keys_of(names), success); }
  std::vector<std::tuple<Names, bool>> take_events() {
    std::vector<std::tuple<Names, bool>> events;
    events.reserve(tiers().num_events());
    for (std::size_t i = 0; i < tiers().num_events(); ++i) events.emplace_back(names_of(tiers().event(i).keys), tiers().event(i).removed);
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

  std::vector<Pages> pages_;  // keep the memory
  std::vector<Marks> written_;
  std::unique_ptr<TieredOffload> tiers_;
};

class PyBlockCopier {
 public:
  PyBlockCopier(std::vector<Pages> device, std::vector<Pages> host, Marks written)
      : device_(std::move(device)), host_(std::move(host)), written_(std::move(written)) {
    if (device_.size() != host_.size()) throw nb::value_error("host: give a tensor for each of device");
    std::vector<CopiedTensor> tensors;
    for (std::size_t i = 0; i < device_.size(); ++i) {
      const std::size_t bytes = device_[i].shape(1);
      if (bytes == 0 || host_[i].shape(1) != bytes) throw nb::value_error("host: its pages have as many bytes as those of device");
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
      throw nb::value_error("pages, slots, tensors: lists of one length with numbers of pages and slots that there are");
  }
  std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> take_over(bool to_host) {
    std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> over;
    for (const CopyOver& one : copier_->take_over(to_host)) over.emplace_back(one.id, one.bytes, one.seconds);
    return over;
  }
  void wait(const Numbers& ids) {
    const nb::gil_scoped_release released;
    copier_->wait(ids);
  }

 private:
  std::vector<Pages> device_, host_;  // keep the memory
  Marks written_;
  std::unique_ptr<BlockCopier> copier_;
};

void mark_written(const Marks& written, const Numbers& slots, const Numbers& numbers) {
  if (slots.size() != numbers.size()) throw nb::value_error("numbers: give one for each slot");
  for (const std::uint64_t slot : slots)
    if (slot >= written.shape(0)) throw nb::value_error("slots: there is no such slot");
  for (std::size_t i = 0; i < slots.size(); ++i) __atomic_store_n(written.data() + slots[i], numbers[i], __ATOMIC_RELEASE);
}

}  // namespace

void bind_tiered_offload(nb::module_& m) {
  nb::class_<PyTieredOffload> c(m, "TieredOffload",
                                "OffloadManager over a folder: what is stored in host memory is written to the folder behind it, and what "
                                "only the folder has comes up\n"
                                "before lookup counts it. No call waits for the disk. Not thread-safe.");
  c.def(nb::init<std::uint32_t, std::vector<Pages>, std::vector<Marks>, std::string, std::uint64_t, const nb::bytes&, const std::string&,
                 std::int64_t, std::int64_t, bool, std::uint64_t>(),
        nb::arg("num_slots"), nb::arg("pages"), nb::arg("written"), nb::arg("folder"), nb::arg("budget_bytes"), nb::arg("fingerprint"),
        nb::arg("policy") = "lru", nb::arg("store_threshold") = 0, nb::arg("max_tracked_keys") = 64'000, nb::arg("enable_events") = false,
        nb::arg("bytes_per_second") = 0,
        "pages: what a slot has in each tensor of each worker, a row per slot. written: by worker, for each slot the number of what was\n"
        "copied there last. budget_bytes: of everything in the folder. fingerprint: 32 bytes of all that a block's bytes depend on beside "
        "its\n"
        "name. ValueError for an option out of range, and for a folder that is in use, another model's, or cannot be written.");
  c.def("close", &PyTieredOffload::close, "What is being written is finished, and the folder is free for others.");
  c.def("lookup", &PyTieredOffload::lookup, nb::arg("keys"),
        "How many of the keys, from the first one on, can be loaded from host memory; None: ask again, some are on their way up.");
  c.def("find", &PyTieredOffload::find, nb::arg("keys"), kPlacesDoc);
  c.def("bring_up", &PyTieredOffload::bring_up, nb::arg("keys"),
        "Those that only the folder has come up, from the first one on, as many as find room. Whether any of the keys are on their way.");
  c.def("count", &PyTieredOffload::count, nb::arg("keys"), "For store_threshold: they were asked for. lookup does that, too.");
  c.def("discard", &PyTieredOffload::discard, nb::arg("key"), "As OffloadManager's, of host memory: what the folder has stays.");
  c.def_prop_ro("num_slots", &PyTieredOffload::num_slots);
  c.def("prepare_load", &PyTieredOffload::prepare_load, nb::arg("keys"), "As OffloadManager's.");
  c.def("complete_load", &PyTieredOffload::complete_load, nb::arg("keys"), "As OffloadManager's.");
  c.def("touch", &PyTieredOffload::touch, nb::arg("keys"), "As OffloadManager's.");
  c.def("use", &PyTieredOffload::use, nb::arg("keys"), "As OffloadManager's.");
  c.def(
      "prepare_store", &PyTieredOffload::prepare_store, nb::arg("keys"),
      "As OffloadManager's, with a number for each slot behind the slots: what mark_written writes when the block has been copied there.");
  c.def("complete_store", &PyTieredOffload::complete_store, nb::arg("keys"), nb::arg("success") = true, "As OffloadManager's.");
  c.def("take_events", &PyTieredOffload::take_events, "As OffloadManager's: of host memory.");
  c.def("stats", &PyTieredOffload::stats,
        "Counts from the start: blocks and bytes written to the folder and read from it, and what failed.");

  nb::class_<PyBlockCopier> copier(m, "BlockCopier",
                                   "Copies between a KV cache in host memory and slots, on a thread of its own, in the order of coming.");
  copier.def(nb::init<std::vector<Pages>, std::vector<Pages>, Marks>(), nb::arg("device"), nb::arg("host"), nb::arg("written"),
             "device, host: for each tensor a row per page, of the same bytes on both sides.");
  copier.def(
      "submit", &PyBlockCopier::submit, nb::arg("id"), nb::arg("to_host"), nb::arg("device_pages"), nb::arg("host_pages"),
      nb::arg("slots") = Numbers(), nb::arg("numbers") = Numbers(), nb::arg("tensors") = std::vector<std::uint32_t>(),
      "Returns at once. slots, numbers: what is marked as written when all is copied. tensors: by number, in the order in which they are\n"
      "copied; []: all. ValueError for a page, slot or tensor that is not there.");
  copier.def("take_over", &PyBlockCopier::take_over, nb::arg("to_host"),
             "Those that have ended since the last time: [(id, bytes, seconds)].");
  copier.def("wait", &PyBlockCopier::wait, nb::arg("ids"), "Returns when none of these is waiting or being copied.");

  m.def("mark_written", &mark_written, nb::arg("written"), nb::arg("slots"), nb::arg("numbers"),
        "Tells that blocks have been copied to the slots: who sees a number there sees the block's bytes.");
}

}  // namespace quire::python
