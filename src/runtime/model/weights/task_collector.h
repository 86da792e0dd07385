#pragma once
// What of a file's tensors is wanted, and where it goes: collected while a model is loaded, on one thread, and then packed
// (weight_packing.h).
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/base/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/weight_packing.h"
#include "runtime/model/weights/weights.h"

namespace quire {

struct StackedPart {
  std::uint32_t rows;
  PackedMatrix* matrix;
};

// Collects what is to be packed and remembers the first error; at the end it says which tensors of the file nobody has asked for.
class TaskCollector {
 public:
  // `who`: as errors call what has no use for a tensor; empty: a decoder of the file's architecture.
  TaskCollector(const ModelFile& file, std::vector<TensorView> tensors, std::string who = {});

  void matrix(TensorRole role, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out, std::uint32_t expert = 0,
              bool may_reorder = false);
  void vector(TensorRole role, std::uint32_t layer, std::uint32_t size, std::vector<float>& out) {
    if (auto view = take(role, layer, 1, 1, size)) tasks_.push_back({std::move(*view), nullptr, &out});
  }
  // Floats, which become [columns][rows].
  void table(TensorRole role, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns, std::vector<float>& out) {
    if (auto view = take(role, layer, 2, rows, columns)) tasks_.push_back({std::move(*view), nullptr, &out, false, Picked{.turned = true}});
  }
  // By the name in the file.
  void matrix(const std::string& name, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out) {
    if (auto view = take(name, 2, rows, columns)) tasks_.push_back({std::move(*view), &out, nullptr});
  }
  // Which the file has as [columns][rows].
  void turned(const std::string& name, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out) {
    if (auto view = take(name, 2, columns, rows)) tasks_.push_back({std::move(*view), &out, nullptr, false, Picked{.turned = true}});
  }
  void vector(const std::string& name, std::uint32_t size, std::vector<float>& out) {
    if (auto view = take(name, 1, 1, size)) tasks_.push_back({std::move(*view), nullptr, &out});
  }
  void linear(const std::string& name, std::uint32_t rows, std::uint32_t columns, Linear& out, bool has_bias = true) {
    matrix(name + ".weight", rows, columns, out.matrix);
    if (has_bias) vector(name + ".bias", rows, out.bias);
  }
  // A convolution's: the values of an output lie side by side, whatever their shape.
  void convolution(const std::string& name, std::uint32_t outputs, std::uint32_t columns, Linear& out, bool has_bias = true);
  // The same with `taps` values for each input, which become [taps][inputs].
  void taps(const std::string& name, std::uint32_t outputs, std::uint32_t inputs, std::uint32_t taps, Linear& out);
  void floats(const std::string& name, std::uint32_t count, std::vector<float>& out);
  // So many floats, whatever their shape.
  void floats(TensorRole role, std::uint32_t layer, std::uint32_t count, std::vector<float>& out);
  void vector_if(bool present, TensorRole role, std::uint32_t layer, std::uint32_t size, std::vector<float>& out) {
    if (present) vector(role, layer, size, out);
  }
  void linear(TensorRole role, TensorRole bias_role, bool has_bias, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns,
              Linear& out) {
    matrix(role, layer, rows, columns, out.matrix, 0, true);
    vector_if(has_bias, bias_role, layer, rows, out.bias);
  }
  // Several matrices that the file keeps as one, one below the other.
  void stacked(TensorRole role, std::uint32_t layer, std::uint32_t columns, std::span<const StackedPart> parts, bool may_reorder = false);
  // Of several, one below the other, each turned, whose outputs take turns in the file's columns: parts[i] are the matrices of the i-th.
  // What is quantised is not turned, and has them in its rows.
  void turned(TensorRole role, std::uint32_t layer, std::uint32_t inputs, std::uint32_t outputs,
              std::span<const std::vector<PackedMatrix*>> parts);
  // Vectors that the file keeps as the rows of one matrix, or as the elements of its rows in turns.
  void stacked_vectors(TensorRole role, std::uint32_t layer, std::uint32_t size, std::span<const std::vector<std::vector<float>*>> parts);
  // By the name in the file, each of so many rows, with their biases.
  void stacked(const std::string& name, std::uint32_t rows, std::uint32_t columns, std::span<Linear* const> parts);
  // For each head rows that are turned, above rows as they lie.
  void heads(TensorRole role, std::uint32_t layer, std::uint32_t columns, std::uint32_t num_turned, std::uint32_t num_plain,
             std::span<PackedMatrix> turned, std::span<PackedMatrix> plain);
  [[nodiscard]] bool has(const std::string& name) const { return unused_.contains(name); }
  [[nodiscard]] bool has(TensorRole role, std::uint32_t layer = 0) const { return unused_.contains(file_.name_of(role, layer)); }

  Result<std::vector<PackTask>> finish();

 private:
  std::optional<TensorView> take(const std::string& name, std::uint32_t dims, std::uint64_t rows, std::uint32_t columns);
  std::optional<TensorView> take(TensorRole role, std::uint32_t layer, std::uint32_t dims, std::uint64_t rows, std::uint32_t columns,
                                 std::uint32_t expert = 0) {
    return take(file_.name_of(role, layer, expert), dims, rows, columns);
  }

  [[nodiscard]] bool is_of_draft_layer(std::string_view name) const;

  // Equal parts of a matrix, one below the other.
  template <class Body>
  static void for_slices(const TensorView& view, std::size_t count, Body body) {
    const std::size_t bytes = view.data.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      TensorView slice = view;
      slice.rows = view.rows / count;
      slice.data = view.data.subspan(i * bytes, bytes);
      slice.first_row = view.first_row + i * slice.rows;
      body(std::move(slice), i);
    }
  }

  // Tied models may carry the output matrix a second time, old exports the table of frequencies, those that judge pairs of texts two rows
  // of the output matrix, and some a draft model of their own, whose layers are not asked.
  static bool may_be_left_out(std::string_view name) {
    return name == "lm_head.weight" || name == "proj_out.weight" || name == "cls.output.weight" || name.starts_with("mtp.") ||
           name.ends_with(".rotary_emb.inv_freq");
  }

  void flatten(const std::string& name, std::uint32_t rows, std::uint32_t columns);

  // As AutoGPTQ once wrote it beside every matrix.
  [[nodiscard]] bool is_bias_of_zero(const TensorView& view) const;

  void refuse_unused();

  const ModelFile& file_;
  std::string who_;
  std::unordered_map<std::string, TensorView> unused_;
  bool is_quantised_ = false;  // some of them are
  std::vector<PackTask> tasks_;
  std::optional<Error> error_;
};

}  // namespace quire
