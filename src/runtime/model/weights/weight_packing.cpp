// Reads and packs tensors, several at a time: tasks are independent and run on any thread in any order. The memory of a source is released
// piece by piece, so that loading never holds a model twice.
#include "runtime/model/weights/weight_packing.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/kernel/numeric_family.h"
#include "runtime/model/packed/packed_folder.h"
#include "runtime/model/weights/huge_pages.h"
#include "runtime/model/weights/weight_formats.h"

namespace quire {
namespace {

// A task, and the number of its matrix.
struct NumberedTask {
  const PackTask* task;
  std::uint32_t number;
};

// Returns the tasks with the largest first, so that no thread begins a large task when the others have finished.
std::vector<NumberedTask> in_order(const std::vector<PackTask>& tasks) {
  std::vector<NumberedTask> order;
  order.reserve(tasks.size());
  std::uint32_t number = 0;
  for (const PackTask& task : tasks) order.push_back({&task, task.matrix != nullptr ? number++ : 0});
  std::ranges::sort(order, std::ranges::greater{},
                    [](const NumberedTask& one) { return std::pair(one.task->source.data.size(), one.number); });
  return order;
}

std::uint32_t num_matrices(const std::vector<PackTask>& tasks) {
  return static_cast<std::uint32_t>(std::ranges::count_if(tasks, [](const PackTask& task) { return task.matrix != nullptr; }));
}

std::uint64_t estimated_bytes(const std::vector<PackTask>& tasks) {
  std::uint64_t sum = 0;
  for (const PackTask& task : tasks)
    if (task.matrix != nullptr) sum += estimate_packed_bytes(task.source) / task.selection.step;
  return sum;
}

// Returns the key of the file of packed weights: a digest of the model's files, of the parts that are packed, and of how they are packed.
Sha256Digest key_of(const ModelFile& file, const std::vector<PackTask>& tasks) {
  std::string text = fmt::format("packed 2\nkernels {}\nfiles {}\n", kNumericFamily, file.identity());
  for (const PackTask& task : tasks) {
    if (task.matrix == nullptr) continue;
    text += fmt::format("{} {} {} {} {} {} {} {} {}\n", task.source.name, task.source.first_row, task.source.rows, task.source.columns,
                        task.selection.first, task.selection.step, task.selection.transposed, task.selection.taps, task.may_reorder);
    if (task.quantise != WeightQuantisation::none) text += fmt::format("quantised {}\n", static_cast<int>(task.quantise));
  }
  return Sha256::of(std::as_bytes(std::span(text)));
}

// Returns the memory of freed packed copies to the system; the allocator would keep it.
void trim_heap() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

bool has_shape_of(const PackedEntry& entry, const PackTask& task) {
  const TensorView& source = task.source;
  const std::uint64_t rows = (task.selection.transposed ? source.columns : source.rows) / task.selection.step;
  return entry.shape.rows == rows && entry.shape.columns == (task.selection.transposed ? source.rows : source.columns);
}

class Packing {
 public:
  Packing(const ModelFile& file, const std::vector<PackTask>& tasks, const PackingOptions& options)
      : file_(file),
        order_(in_order(tasks)),
        num_matrices_(num_matrices(tasks)),
        estimated_bytes_(estimated_bytes(tasks)),
        options_(options) {
    if (keeps()) open(tasks);
  }

  Result<PackedWeights> run(ThreadPool& pool) {
    std::uint64_t total = 1;
    for (const NumberedTask& one : order_) total += one.task->source.data.size();
    std::atomic<std::uint64_t> done{0};
    const auto caller = std::this_thread::get_id();
    pool.parallel_for(static_cast<std::uint32_t>(order_.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      for (std::uint32_t i = begin; i < end && !has_failed_; ++i) {
        if (Result<void> made = make(order_[i]); !made) return fail_with(std::move(made.error()));
        const std::uint64_t so_far = done.fetch_add(order_[i].task->source.data.size()) + order_[i].task->source.data.size();
        if (options_.progress != nullptr && std::this_thread::get_id() == caller)
          options_.progress(static_cast<double>(so_far) / static_cast<double>(total));
      }
    });
    if (error_) return std::unexpected(*std::move(error_));
    if (is_damaged_) rewrite_damaged_file(pool);
    if (Result<void> finished = finish(); !finished) return std::unexpected(std::move(finished.error()));
    share(pool);
    if (error_) return std::unexpected(*std::move(error_));
    gather(false, pool);
    if (options_.progress != nullptr) options_.progress(1.0);
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool keeps() const { return options_.kept != nullptr && !options_.kept->cache_folder.empty(); }
  [[nodiscard]] bool streams() const {
    return std::ranges::any_of(order_, [](const NumberedTask& one) { return one.task->is_streamed; });
  }

  void open(const std::vector<PackTask>& tasks) {
    result_.key = key_of(file_, tasks);
    auto found = find_packed(*options_.kept, result_.key);
    if (found && fits(*found)) {
      result_.file = *std::move(found);
      return map();
    }
    if (!found && found.error().code != ErrorCode::not_found) note(found.error());
    begin_writing();
  }

  [[nodiscard]] bool fits(const PackedFile& file) const {
    return file.size() == num_matrices_ && std::ranges::all_of(order_, [&](const NumberedTask& one) {
             return one.task->matrix == nullptr || has_shape_of(file.entry(one.number), *one.task);
           });
  }

  void begin_writing() {
    auto writer = begin_packed(*options_.kept, result_.key, num_matrices_, estimated_bytes_);
    if (writer)
      writer_ = *std::move(writer);
    else
      abandon_packed_file(std::move(writer.error()));
  }

  Result<void> make(const NumberedTask& one) {
    const PackTask& task = *one.task;
    if (task.vector != nullptr) return pack_vector(file_, task.source, task.selection, *task.vector);
    if (result_.file) {
      if (task.is_streamed) {
        *task.matrix = result_.file->entry(one.number).shape;
        return {};
      }
      const Result<void> read = take(one);
      if (read) return {};
      const std::lock_guard lock(mutex_);
      if (!is_damaged_) note(read.error());
      is_damaged_ = true;
    }
    if (auto packed = pack_matrix(file_, task.source, task.selection, task.may_reorder, *task.matrix, task.quantise); !packed)
      return packed;
    if (writer_ == nullptr || has_stopped_writing_) return {};
    if (Result<void> written = writer_->write(one.number, *task.matrix); !written) abandon_packed_file(std::move(written.error()));
    if (task.is_streamed) task.matrix->storage = {};
    return {};
  }

  void map() {
    if (!result_.file) return;
    const Result<void> mapped = result_.file->map();
    is_mapped_ = mapped.has_value();
    if (!mapped) note(mapped.error());
  }

  // Uses weights from the cached file instead of the packed copies, also if this start has written the file. If the system has no huge
  // pages for the file, matrices stay copies, because small pages make passes slower.
  void share(ThreadPool& pool) {
    if (has_written_) {
      map();
      if (!is_mapped_) return;
      reload_all(pool);
      trim_heap();
    }
    const PackedFile* const file = result_.file ? &*result_.file : nullptr;
    if (!is_mapped_ || file == nullptr) return;
    bool is_good = file->is_in_huge_pages();
    if (!is_good) {
      gather(true, pool);
      is_good = file->is_in_huge_pages();
    }
    if (!is_good && file->reread()) {
      reload_all(pool);
      is_good = file->is_in_huge_pages();
    }
    if (is_good && !streams()) file->lock();
    if (is_good) return;
    is_mapped_ = false;
    reload_all(pool);
  }

  void reload_all(ThreadPool& pool) {
    pool.parallel_for(static_cast<std::uint32_t>(order_.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      for (std::uint32_t i = begin; i < end; ++i)
        if (order_[i].task->matrix != nullptr && !order_[i].task->is_streamed) reload_matrix(order_[i]);
    });
  }

  void reload_matrix(const NumberedTask& one) {
    const PackTask& task = *one.task;
    const Result<void> taken = take(one);
    if (taken) return;
    if (auto packed = pack_matrix(file_, task.source, task.selection, task.may_reorder, *task.matrix, task.quantise); !packed)
      fail_with(std::move(packed.error()));
    const std::lock_guard lock(mutex_);
    note(taken.error());
  }

  // Takes a matrix from the cached file, as a view of the map or as a copy.
  Result<void> take(const NumberedTask& one) {
    if (!result_.file)
      return fail(ErrorCode::not_found, "weights_cache", "does not contain a file for this model", "the weights are packed again");
    return is_mapped_ ? result_.file->view(one.number, *one.task->matrix) : result_.file->read(one.number, *one.task->matrix);
  }

  void gather(bool mapped, ThreadPool& pool) {
    std::vector<MemoryRange> ranges;
    for (const NumberedTask& one : order_)
      if (const PackedMatrix* matrix = one.task->matrix; matrix != nullptr && matrix->storage.is_mapped() == mapped)
        ranges.push_back({reinterpret_cast<const std::byte*>(matrix->storage.data()), matrix->storage.size()});
    gather_in_huge_pages(std::move(ranges), pool);
  }

  // Replaces the damaged file by a file of its intact matrices and the matrices that were packed again. Other processes that have the
  // damaged file open can still use its intact matrices. If matrices are streamed, and so not in memory, the next start writes the new
  // file.
  void rewrite_damaged_file(ThreadPool& pool) {
    remove_packed(*options_.kept, result_.key);
    if (streams()) return;
    begin_writing();
    if (writer_ == nullptr) return;
    pool.parallel_for(static_cast<std::uint32_t>(order_.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      for (std::uint32_t i = begin; i < end && !has_stopped_writing_; ++i) {
        if (order_[i].task->matrix == nullptr) continue;
        if (Result<void> written = writer_->write(order_[i].number, *order_[i].task->matrix); !written)
          abandon_packed_file(std::move(written.error()));
      }
    });
  }

  Result<void> finish() {
    if (writer_ != nullptr && !has_stopped_writing_) {
      auto finished = writer_->finish();
      has_written_ = finished && fits(*finished);
      if (!finished)
        abandon_packed_file(std::move(finished.error()));
      else if (has_written_)
        result_.file = *std::move(finished);
    }
    writer_.reset();
    if (error_) return std::unexpected(*std::move(error_));
    return {};
  }

  void note(const Error& error) { result_.notes.push_back(error.to_string()); }

  // Stops writing the file. Serving continues without the file, unless experts must be read from it.
  void abandon_packed_file(Error error) {
    has_stopped_writing_ = true;
    if (streams()) return fail_with(std::move(error));
    const std::lock_guard lock(mutex_);
    note(error);
  }

  void fail_with(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    has_failed_ = true;
  }

  const ModelFile& file_;
  std::vector<NumberedTask> order_;
  std::uint32_t num_matrices_;
  std::uint64_t estimated_bytes_;
  const PackingOptions& options_;
  PackedWeights result_;
  std::unique_ptr<PackedFileWriter> writer_;
  std::atomic<bool> has_failed_{false}, has_stopped_writing_{false};
  std::mutex mutex_;  // protects the members below, and the notes
  bool is_damaged_ = false;
  bool is_mapped_ = false, has_written_ = false;  // changed only by the calling thread
  std::optional<Error> error_;
};

}  // namespace

Result<PackedWeights> pack_weights(const ModelFile& file, const std::vector<PackTask>& tasks, ThreadPool& pool,
                                   const PackingOptions& options) {
  return Packing(file, tasks, options).run(pool);
}

Result<void> repack(const ModelFile& file, const std::vector<PackTask>& tasks, const Sha256Digest& key, std::uint32_t number,
                    PackedMatrix& matrix) {
  if (key_of(file, tasks) != key) return fail(ErrorCode::io, "model", "has changed since it was loaded", "restart the server");
  for (const NumberedTask& one : in_order(tasks))
    if (one.task->matrix != nullptr && one.number == number)
      return pack_matrix(file, one.task->source, one.task->selection, one.task->may_reorder, matrix, one.task->quantise);
  return fail(ErrorCode::io, "model", "does not contain this matrix", "restart the server");
}

}  // namespace quire
