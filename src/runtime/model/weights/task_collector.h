#pragma once
// Collects which tensors of a file are needed, and the weights into which they are packed. Called while a model is loaded, on one thread,
// before the tensors are packed (weight_packing.h).
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

// Collects packing tasks and keeps the first error. finish() returns an error if tensors of the file were not taken.
class TaskCollector {
 public:
  // `error_prefix`: name of the reader in errors about tensors that were not taken; empty: a decoder of the file's architecture.
  TaskCollector(const ModelFile& file, std::vector<TensorView> tensors, std::string error_prefix = {});

  void matrix(TensorRole role, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out, std::uint32_t expert = 0,
              bool may_reorder = false);
  void vector(TensorRole role, std::uint32_t layer, std::uint32_t size, std::vector<float>& out) {
    if (auto view = take(role, layer, 1, 1, size)) tasks_.push_back({std::move(*view), nullptr, &out});
  }
  // Takes a matrix of floats, which becomes [columns][rows].
  void table(TensorRole role, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns, std::vector<float>& out) {
    if (auto view = take(role, layer, 2, rows, columns))
      tasks_.push_back({std::move(*view), nullptr, &out, false, RowSelection{.transposed = true}});
  }
  // Takes a matrix by its name in the file.
  void matrix(const std::string& name, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out) {
    if (auto view = take(name, 2, rows, columns)) tasks_.push_back({std::move(*view), &out, nullptr});
  }
  // Takes a matrix that the file stores as [columns][rows].
  void transposed(const std::string& name, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out) {
    if (auto view = take(name, 2, columns, rows))
      tasks_.push_back({std::move(*view), &out, nullptr, false, RowSelection{.transposed = true}});
  }
  void vector(const std::string& name, std::uint32_t size, std::vector<float>& out) {
    if (auto view = take(name, 1, 1, size)) tasks_.push_back({std::move(*view), nullptr, &out});
  }
  void linear(const std::string& name, std::uint32_t rows, std::uint32_t columns, Linear& out, bool has_bias = true) {
    matrix(name + ".weight", rows, columns, out.matrix);
    if (has_bias) vector(name + ".bias", rows, out.bias);
  }
  // Takes the matrix of a convolution. The values of an output are adjacent in the file, in any shape.
  void convolution(const std::string& name, std::uint32_t outputs, std::uint32_t columns, Linear& out, bool has_bias = true);
  // Like convolution(), but with `taps` values per input, which are packed as [taps][inputs].
  void taps(const std::string& name, std::uint32_t outputs, std::uint32_t inputs, std::uint32_t taps, Linear& out);
  void floats(const std::string& name, std::uint32_t count, std::vector<float>& out);
  // Takes `count` floats of any shape.
  void floats(TensorRole role, std::uint32_t layer, std::uint32_t count, std::vector<float>& out);
  void vector_if(bool present, TensorRole role, std::uint32_t layer, std::uint32_t size, std::vector<float>& out) {
    if (present) vector(role, layer, size, out);
  }
  void linear(TensorRole role, TensorRole bias_role, bool has_bias, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns,
              Linear& out) {
    matrix(role, layer, rows, columns, out.matrix, 0, true);
    vector_if(has_bias, bias_role, layer, rows, out.bias);
  }
  // Takes several matrices that the file stores in one tensor, with their rows one after another.
  void stacked(TensorRole role, std::uint32_t layer, std::uint32_t columns, std::span<const StackedPart> parts, bool may_reorder = false);
  // Takes transposed matrices from one tensor of the file. The tensor has parts.size() matrices, one after another. The outputs of the
  // matrices in parts[i] alternate in the columns of the tensor's i-th matrix. A quantised tensor is not transposed: the outputs alternate
  // in the rows.
  void transposed(TensorRole role, std::uint32_t layer, std::uint32_t inputs, std::uint32_t outputs,
                  std::span<const std::vector<PackedMatrix*>> parts);
  // Takes vectors that the file stores as the rows of one matrix. In each row, the elements of several vectors may alternate.
  void stacked_vectors(TensorRole role, std::uint32_t layer, std::uint32_t size, std::span<const std::vector<std::vector<float>*>> parts);
  // Takes matrices of `rows` rows each, with their biases, which the file stores as one matrix of this name.
  void stacked(const std::string& name, std::uint32_t rows, std::uint32_t columns, std::span<Linear* const> parts);
  // Takes the matrices of heads, which the file stores in one tensor. For each head, the tensor has num_transposed rows for a transposed
  // matrix, and then num_plain rows for a plain matrix.
  void heads(TensorRole role, std::uint32_t layer, std::uint32_t columns, std::uint32_t num_transposed, std::uint32_t num_plain,
             std::span<PackedMatrix> transposed, std::span<PackedMatrix> plain);
  [[nodiscard]] bool has(const std::string& name) const { return unused_.contains(name); }
  [[nodiscard]] bool has(TensorRole role, std::uint32_t layer = 0) const { return unused_.contains(file_.name_of(role, layer)); }

  Result<std::vector<PackTask>> finish();

 private:
  std::optional<TensorView> take(const std::string& name, std::uint32_t dims, std::uint64_t rows, std::uint32_t columns);
  std::optional<TensorView> take(TensorRole role, std::uint32_t layer, std::uint32_t dims, std::uint64_t rows, std::uint32_t columns,
                                 std::uint32_t expert = 0) {
    return take(file_.name_of(role, layer, expert), dims, rows, columns);
  }

  [[nodiscard]] bool is_draft_layer_tensor(std::string_view name) const;

  // Calls body(slice, index) for `count` equal parts of a matrix's rows.
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

  // Returns whether a tensor may remain unused. Tied models may repeat the output matrix, and old exports contain the table of frequencies.
  // Cross-encoders contain two rows of the output matrix, and some models contain the layers of a draft model.
  static bool is_optional_tensor(std::string_view name) {
    return name == "lm_head.weight" || name == "proj_out.weight" || name == "cls.output.weight" || name.starts_with("mtp.") ||
           name.ends_with(".rotary_emb.inv_freq");
  }

  void flatten(const std::string& name, std::uint32_t rows, std::uint32_t columns);

  // Returns whether the tensor is a bias of zeros, which older versions of AutoGPTQ wrote for every matrix.
  [[nodiscard]] bool is_bias_of_zero(const TensorView& view) const;

  void refuse_unused();

  const ModelFile& file_;
  std::string error_prefix_;
  std::unordered_map<std::string, TensorView> unused_;
  bool is_quantised_ = false;  // some of the tensors are quantised
  std::vector<PackTask> tasks_;
  std::optional<Error> error_;
};

}  // namespace quire
