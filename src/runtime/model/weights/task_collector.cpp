// Takes each tensor that a decoder needs, after a check of its shape and type, and refuses all remaining tensors. The file is not trusted;
// its headers are checked here, before its data is read.
#include "runtime/model/weights/task_collector.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/dequant.h"
#include "format/quote.h"

namespace quire {
namespace {

std::string shape_text(const TensorView& view) {
  return view.num_dims < 2 ? fmt::format("[{}]", view.columns) : fmt::format("[{}, {}]", view.rows, view.columns);
}

}  // namespace

TaskCollector::TaskCollector(const ModelFile& file, std::vector<TensorView> tensors, std::string error_prefix)
    : file_(file), error_prefix_(error_prefix.empty() ? fmt::format("a {} decoder", file.config().architecture) : std::move(error_prefix)) {
  for (TensorView& view : tensors) {
    is_quantised_ |= view.quantised != nullptr;
    std::string name = view.name;
    unused_.emplace(std::move(name), std::move(view));
  }
}

void TaskCollector::matrix(TensorRole role, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out,
                           std::uint32_t expert, bool may_reorder) {
  if (auto view = take(role, layer, 2, rows, columns, expert)) tasks_.push_back({std::move(*view), &out, nullptr, may_reorder});
}

// Changes the shape of a tensor if its number of values stays the same.
void TaskCollector::flatten(const std::string& name, std::uint32_t rows, std::uint32_t columns) {
  const auto found = unused_.find(name);
  if (found == unused_.end() || found->second.rows * found->second.columns != std::uint64_t{rows} * columns) return;
  found->second.rows = rows;
  found->second.columns = columns;
}

void TaskCollector::convolution(const std::string& name, std::uint32_t outputs, std::uint32_t columns, Linear& out, bool has_bias) {
  flatten(name + ".weight", outputs, columns);
  linear(name, outputs, columns, out, has_bias);
}

void TaskCollector::taps(const std::string& name, std::uint32_t outputs, std::uint32_t inputs, std::uint32_t taps, Linear& out) {
  flatten(name + ".weight", outputs, inputs * taps);
  if (auto view = take(name + ".weight", 2, outputs, inputs * taps))
    tasks_.push_back({std::move(*view), &out.matrix, nullptr, false, RowSelection{.taps = taps}});
  vector(name + ".bias", outputs, out.bias);
}

void TaskCollector::floats(TensorRole role, std::uint32_t layer, std::uint32_t count, std::vector<float>& out) {
  floats(file_.name_of(role, layer), count, out);
}

void TaskCollector::floats(const std::string& name, std::uint32_t count, std::vector<float>& out) {
  const auto found = unused_.find(name);
  const bool is_flat = found == unused_.end() || found->second.rows * found->second.columns != count;
  const std::uint64_t rows = is_flat ? 1 : found->second.rows;
  if (auto view = take(name, is_flat ? 1 : 0, rows, static_cast<std::uint32_t>(count / rows)))
    tasks_.push_back({std::move(*view), nullptr, &out});
}

void TaskCollector::stacked(TensorRole role, std::uint32_t layer, std::uint32_t columns, std::span<const StackedPart> parts,
                            bool may_reorder) {
  std::uint64_t rows = 0;
  for (const StackedPart& part : parts) rows += part.rows;
  auto view = take(role, layer, 2, rows, columns);
  if (!view) return;
  const std::size_t row_size = view->data.size() / rows;
  for (const StackedPart& part : parts) {
    TensorView own = *view;
    own.rows = part.rows;
    // For quantised data in another layout, `data` only gives the amount of work of the part.
    own.data = view->data.first(part.rows * row_size);
    view->data = view->data.subspan(own.data.size());
    view->first_row += part.rows;
    tasks_.push_back({std::move(own), part.matrix, nullptr, may_reorder});
  }
}

void TaskCollector::stacked(const std::string& name, std::uint32_t rows, std::uint32_t columns, std::span<Linear* const> parts) {
  const auto count = static_cast<std::uint32_t>(parts.size());
  if (auto view = take(name + ".weight", 2, std::uint64_t{count} * rows, columns))
    for_slices(*view, count, [&](TensorView slice, std::size_t i) { tasks_.push_back({std::move(slice), &parts[i]->matrix, nullptr}); });
  auto view = take(name + ".bias", 1, 1, count * rows);
  if (!view) return;
  const std::size_t bytes = view->data.size() / count;
  view->columns = rows;
  for (std::size_t i = 0; i < count; ++i) {
    TensorView slice = *view;
    slice.data = view->data.subspan(i * bytes, bytes);
    tasks_.push_back({std::move(slice), nullptr, &parts[i]->bias});
  }
}

void TaskCollector::transposed(TensorRole role, std::uint32_t layer, std::uint32_t inputs, std::uint32_t outputs,
                               std::span<const std::vector<PackedMatrix*>> parts) {
  const auto step = static_cast<std::uint32_t>(parts.front().size());
  const auto found = unused_.find(file_.name_of(role, layer));
  const bool in_rows = found != unused_.end() && found->second.quantised != nullptr;
  auto view = in_rows ? take(role, layer, 2, std::uint64_t{step} * outputs * parts.size(), inputs)
                      : take(role, layer, 2, std::uint64_t{inputs} * parts.size(), step * outputs);
  if (!view) return;
  for_slices(*view, parts.size(), [&](const TensorView& slice, std::size_t i) {
    for (std::uint32_t first = 0; first < step; ++first)
      tasks_.push_back({slice, parts[i][first], nullptr, false, RowSelection{first, step, !in_rows}});
  });
}

void TaskCollector::stacked_vectors(TensorRole role, std::uint32_t layer, std::uint32_t size,
                                    std::span<const std::vector<std::vector<float>*>> parts) {
  const auto step = static_cast<std::uint32_t>(parts.front().size());
  auto view = take(role, layer, 2, parts.size(), step * size);
  if (!view) return;
  for_slices(*view, parts.size(), [&](const TensorView& slice, std::size_t i) {
    for (std::uint32_t first = 0; first < step; ++first)
      tasks_.push_back({slice, nullptr, parts[i][first], false, RowSelection{first, step}});
  });
}

void TaskCollector::heads(TensorRole role, std::uint32_t layer, std::uint32_t columns, std::uint32_t num_transposed,
                          std::uint32_t num_plain, std::span<PackedMatrix> transposed, std::span<PackedMatrix> plain) {
  auto view = take(role, layer, 2, std::uint64_t{num_transposed + num_plain} * plain.size(), columns);
  if (!view) return;
  for_slices(*view, plain.size(), [&](TensorView slice, std::size_t head) {
    const std::size_t row_size = slice.data.size() / slice.rows;
    TensorView above = slice, below = std::move(slice);
    above.rows = num_transposed;
    above.data = above.data.first(num_transposed * row_size);
    below.rows = num_plain;
    below.data = below.data.subspan(num_transposed * row_size);
    below.first_row += num_transposed;
    tasks_.push_back({std::move(above), &transposed[head], nullptr, false, RowSelection{.transposed = true}});
    tasks_.push_back({std::move(below), &plain[head], nullptr});
  });
}

Result<std::vector<PackTask>> TaskCollector::finish() {
  refuse_unused();
  if (error_) return std::unexpected(std::move(*error_));
  return std::move(tasks_);
}

std::optional<TensorView> TaskCollector::take(const std::string& name, std::uint32_t dims, std::uint64_t rows, std::uint32_t columns) {
  if (error_) return std::nullopt;
  const auto found = unused_.find(name);
  if (found == unused_.end()) {
    error_ = Error{ErrorCode::corrupt, name, "the model does not contain this tensor", "download the model again"};
    return std::nullopt;
  }
  TensorView view = std::move(found->second);
  unused_.erase(found);
  if (view.rows != rows || view.columns != columns || (dims == 1 && view.num_dims != 1)) {
    const std::string wanted = dims == 1 ? fmt::format("[{}]", columns) : fmt::format("[{}, {}]", rows, columns);
    error_ = Error{ErrorCode::corrupt, name, fmt::format("has shape {}, but the config requires {}", shape_text(view), wanted),
                   "use the config that belongs to the weights"};
    return std::nullopt;
  }
  if (auto format = unpacked_format(view.type); !format && view.quantised == nullptr) {
    error_ = std::move(format.error());
    error_->field = name;
    return std::nullopt;
  }
  return view;
}

bool TaskCollector::is_draft_layer_tensor(std::string_view name) const {
  const ModelConfig& c = file_.config();
  for (std::uint32_t i = 0; i < c.num_draft_layers; ++i)
    for (const char* prefix : {"model.layers.", "blk."})
      if (name.starts_with(fmt::format("{}{}.", prefix, c.num_layers + i))) return true;
  return false;
}

bool TaskCollector::is_bias_of_zero(const TensorView& view) const {
  if (!view.name.ends_with(".bias") || !is_quantised_) return false;
  std::vector<std::byte> bytes(view.data.size());
  return file_.read(view.data, bytes) && std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

void TaskCollector::refuse_unused() {
  if (error_) return;
  for (const auto& [name, view] : unused_) {
    if (is_optional_tensor(name) || is_bias_of_zero(view) || is_draft_layer_tensor(name)) continue;
    error_ = Error{ErrorCode::unsupported, in_quotes(name), error_prefix_ + " does not use this tensor",
                   "use a model of a supported architecture, without adapters"};
    return;
  }
}

}  // namespace quire
