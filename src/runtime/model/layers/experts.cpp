// A mixture of experts. Rows are grouped by expert, so that an expert's weights are read once for all its rows, and not at all if no row
// uses the expert. The experts of a row depend only on this row, and their products behave like all products (kernel.h). Results are added
// in the order in which the row chose its experts. Other rows of a pass therefore do not change a row's bits. Called by the decoder like
// every sublayer, with the same phases.
#include <algorithm>
#include <array>
#include <iterator>

#include "runtime/model/layers/expert_choice.h"
#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/lora_experts.h"

namespace quire {
namespace {

class ExpertsFeedForward final : public FeedForwardSublayer {
 public:
  ExpertsFeedForward(const LayerConfig& config, const LayerWeights& weights, const std::vector<float>* next_norm)
      : config_(config), weights_(weights), next_norm_(next_norm) {}

  void run(Pass& pass) const override {
    for (std::uint32_t first = 0; first < pass.rows; first += kFeedForwardRows) {
      const std::uint32_t count = std::min(kFeedForwardRows, pass.rows - first);
      route(pass, first, count);
      group(pass, count);
      gather(pass, first);
      const LoraExperts adapted(pass, first);
      if (adapted.any()) project_inputs(pass, adapted);
      for (std::uint32_t done = 0; done < pass.workspace.experts.num_parts; done += pass.workspace.experts.num_active) {
        bring(pass, done);
        gate_and_up(pass, adapted);
        if (adapted.any()) project_inner(pass, adapted);
        down(pass, adapted);
      }
      combine(pass, first, count);
    }
  }

 private:
  [[nodiscard]] std::uint32_t width_of(std::uint32_t expert) const {
    return expert == config_.num_experts ? config_.shared_expert_size : config_.expert_size;
  }
  [[nodiscard]] float* stream_of(const Pass& pass, const ExpertPart& part) const {
    return pass.workspace.experts.stream + std::size_t{part.first} * config_.hidden_size;
  }
  [[nodiscard]] std::size_t inner_begin(const ExpertPart& part) const {
    return std::size_t{part.first} * std::max(config_.expert_size, config_.shared_expert_size);
  }
  [[nodiscard]] Activations input_of(const Pass& pass, const ExpertPart& part) const {
    return pass.activations(stream_of(pass, part), part.count, config_.hidden_size, pass.workspace.experts.in_codes.subspan(part.in_at));
  }
  [[nodiscard]] Activations inner_of(const Pass& pass, const ExpertPart& part) const {
    const ExpertPairs& pairs = pass.workspace.experts;
    return pass.activations(pairs.gate + inner_begin(part), part.count, width_of(part.expert), pairs.inner_codes.subspan(part.inner_at));
  }

  // Numbers the units of all parts consecutively, and distributes them over threads: body(part, unit). A part has count(part) units, at
  // least one.
  template <class Count, class Body>
  static void for_units(Pass& pass, Count count, Body body) {
    const std::span<ExpertPart> parts = pass.workspace.experts.active();
    std::uint32_t total = 0;
    for (ExpertPart& part : parts) {
      part.first_unit = total;
      total += count(part);
    }
    pass.pool.parallel_for(total, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      auto part = std::prev(std::ranges::upper_bound(parts, begin, {}, &ExpertPart::first_unit));
      for (std::uint32_t unit = begin; unit < end; ++unit) {
        while (std::next(part) != parts.end() && unit >= std::next(part)->first_unit) ++part;
        body(*part, unit - part->first_unit);
      }
    });
  }

  // Returns how many panels of an expert's product form one unit.
  static std::uint32_t grain(const Pass& pass, const PackedMatrix& matrix, std::size_t panel_bytes, const ExpertPart& part) {
    return pass.panel_grain(matrix.num_panels(), panel_bytes, part.count);
  }
  static std::uint32_t num_grains(std::uint32_t panels, std::uint32_t grain) { return (panels + grain - 1) / grain; }

  void route(Pass& pass, std::uint32_t first, std::uint32_t count) const {
    const ExpertPairs& pairs = pass.workspace.experts;
    const std::size_t stride = std::size_t{config_.num_experts} + 1;
    const Activations x = pass.stream_input().slice(first, count);
    const std::array products{Product{&weights_.router, pairs.scores, stride},
                              Product{&weights_.shared_weight, pairs.scores + config_.num_experts, stride}};
    const bool is_weighed = has_shared() && config_.has_shared_expert_gate;
    pass.multiply(std::span(products).first(is_weighed ? 2 : 1), x);
    const ExpertRouting routing = ExpertRouting::of(config_, weights_.choice_bias);
    const std::size_t per_row = config_.parts_per_token();
    pass.for_rows(count, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) {
        float* scores = pairs.scores + row * stride;
        if (!weights_.router_bias.empty()) pass.kernels.add(scores, weights_.router_bias.data(), config_.num_experts);
        ChosenExpert* chosen = pairs.chosen + row * per_row;
        choose_experts({scores, config_.num_experts}, routing, {chosen, config_.experts_per_token});
        pass.record_experts(first + row, {chosen, config_.experts_per_token});
        if (has_shared())
          chosen[config_.experts_per_token] = {config_.num_experts, is_weighed ? shared_share(scores[config_.num_experts]) : 1.0F};
      }
    });
  }

  // Sorts the pairs by expert, and within an expert by row.
  void group(Pass& pass, std::uint32_t count) const {
    ExpertPairs& pairs = pass.workspace.experts;
    const std::size_t per_row = config_.parts_per_token();
    const std::span<const ChosenExpert> chosen(pairs.chosen, count * per_row);
    const std::span<std::uint32_t> ends(pairs.ends, std::size_t{config_.num_experts} + 1);
    std::ranges::fill(ends, 0);
    for (const ChosenExpert& one : chosen) ++ends[one.expert];
    pairs.num_parts = 0;
    ExpertPart next;
    for (std::uint32_t expert = 0; expert < ends.size(); ++expert) {
      next.expert = expert;
      next.count = ends[expert];
      ends[expert] = next.first;
      if (next.count == 0) continue;
      pairs.parts[pairs.num_parts++] = next;
      next.first += next.count;
      next.in_at += code_bytes(pass, next.count, config_.hidden_size);
      next.inner_at += code_bytes(pass, next.count, width_of(expert));
    }
    pairs.first_active = 0;
    pairs.num_active = pairs.num_parts;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      pairs.places[i] = ends[chosen[i].expert]++;
      pairs.rows[pairs.places[i]] = static_cast<std::uint32_t>(i / per_row);
    }
  }

  // Loads the expert weights of the parts from `first` on, as many as fit into memory together, and makes these parts active.
  static void bring(Pass& pass, std::uint32_t first) {
    ExpertPairs& pairs = pass.workspace.experts;
    pairs.first_active = first;
    pairs.num_active = pairs.num_parts - first;
    if (pass.stored_experts == nullptr) return;
    for (std::uint32_t part = first; part < pairs.num_parts; ++part) pairs.ends[part] = pairs.parts[part].expert;
    const std::span<const std::uint32_t> wanted(pairs.ends + first, pairs.num_active);
    pairs.num_active = static_cast<std::uint32_t>(pass.stored_experts->hold(pass.layer, wanted, pass.pool));
  }

  static std::size_t code_bytes(const Pass& pass, std::uint32_t rows, std::uint32_t columns) {
    return columns % kGroupColumns == 0 ? activation_scratch_bytes(pass.mode, rows, columns) : 0;
  }

  // Calls body(part, begin, end) for tiles of a part's rows. No two threads share a tile.
  template <class Body>
  static void for_tiles(Pass& pass, Body body) {
    for_units(
        pass, [](const ExpertPart& part) { return (part.count + kRowTile - 1) / kRowTile; },
        [&](const ExpertPart& part, std::uint32_t tile) {
          const std::uint32_t begin = tile * kRowTile;
          body(part, begin, std::min(begin + kRowTile, part.count));
        });
  }

  void gather(Pass& pass, std::uint32_t first) const {
    const ExpertPairs& pairs = pass.workspace.experts;
    const std::size_t width = config_.hidden_size;
    for_tiles(pass, [&](const ExpertPart& part, std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t i = begin; i < end; ++i) {
        const std::uint32_t pair = part.first + i;
        std::copy_n(pass.workspace.input + (first + pairs.rows[pair]) * width, width, pairs.stream + pair * width);
      }
      pass.kernels.prepare(input_of(pass, part), begin, end);
    });
  }

  void project_inputs(Pass& pass, const LoraExperts& adapted) const {
    for_tiles(pass, [&](const ExpertPart& part, std::uint32_t begin, std::uint32_t end) {
      adapted.project(part, &ExpertAdapter::gate, 0, stream_of(pass, part), config_.hidden_size, begin, end);
      adapted.project(part, &ExpertAdapter::up, 1, stream_of(pass, part), config_.hidden_size, begin, end);
    });
  }

  void project_inner(Pass& pass, const LoraExperts& adapted) const {
    for_tiles(pass, [&](const ExpertPart& part, std::uint32_t begin, std::uint32_t end) {
      const float* inner = pass.workspace.experts.gate + inner_begin(part);
      adapted.project(part, &ExpertAdapter::down, 0, inner, width_of(part.expert), begin, end);
    });
  }

  // Computes gate and up. The same thread computes the same panels of both products, then joins them and prepares the result.
  void gate_and_up(Pass& pass, const LoraExperts& adapted) const {
    const ExpertPairs& pairs = pass.workspace.experts;
    const auto panels_at_once = [&](const ExpertPart& part) {
      const ExpertWeights& expert = weights_.experts[part.expert];
      return grain(pass, expert.gate, expert.gate.panel_bytes + expert.up.panel_bytes, part);
    };
    for_units(
        pass, [&](const ExpertPart& part) { return num_grains(weights_.experts[part.expert].gate.num_panels(), panels_at_once(part)); },
        [&](const ExpertPart& part, std::uint32_t unit) {
          const ExpertWeights& expert = weights_.experts[part.expert];
          const std::size_t width = width_of(part.expert);
          const std::uint32_t begin = unit * panels_at_once(part);
          const std::uint32_t end = std::min(begin + panels_at_once(part), expert.gate.num_panels());
          float* gate = pairs.gate + inner_begin(part);
          float* up = pairs.up + inner_begin(part);
          const Activations x = input_of(pass, part);
          pass.kernels.matmul(expert.gate, x, gate, width, begin, end);
          if (expert.up.rows > 0) pass.kernels.matmul(expert.up, x, up, width, begin, end);
          adapted.add(part, &ExpertAdapter::gate, 0, gate, width, begin, end);
          adapted.add(part, &ExpertAdapter::up, 1, up, width, begin, end);
          const std::uint32_t from = begin * kPanelRows;
          const auto count = static_cast<std::uint32_t>(std::min(std::size_t{end} * kPanelRows, width) - from);
          for (std::size_t at = from; at < part.count * width; at += width) {
            if (!expert.gate_bias.empty()) pass.kernels.add(gate + at, expert.gate_bias.data() + from, count);
            if (!expert.up_bias.empty()) pass.kernels.add(up + at, expert.up_bias.data() + from, count);
            pass.activate(gate + at, up + at, count);
          }
          const Activations inner = inner_of(pass, part);
          if (inner.mode != ActivationMode::f32)
            pass.kernels.prepare_groups(inner, 0, part.count, from / kGroupColumns, (from + count) / kGroupColumns);
        });
  }

  void down(Pass& pass, const LoraExperts& adapted) const {
    const auto panels_at_once = [&](const ExpertPart& part) {
      const PackedMatrix& matrix = weights_.experts[part.expert].down;
      return grain(pass, matrix, matrix.panel_bytes, part);
    };
    for_units(
        pass, [&](const ExpertPart& part) { return num_grains(weights_.experts[part.expert].down.num_panels(), panels_at_once(part)); },
        [&](const ExpertPart& part, std::uint32_t unit) {
          const PackedMatrix& matrix = weights_.experts[part.expert].down;
          const std::uint32_t begin = unit * panels_at_once(part);
          const std::uint32_t end = std::min(begin + panels_at_once(part), matrix.num_panels());
          pass.kernels.matmul(matrix, inner_of(pass, part), stream_of(pass, part), config_.hidden_size, begin, end);
          adapted.add(part, &ExpertAdapter::down, 0, stream_of(pass, part), config_.hidden_size, begin, end);
        });
  }

  // Adds the experts' results of each row. The rows of a chunk (at most kFeedForwardRows) overwrite the stream and input of these rows,
  // which no other chunk reads.
  void combine(Pass& pass, std::uint32_t first, std::uint32_t count) const {
    const ExpertPairs& pairs = pass.workspace.experts;
    const std::uint32_t width = config_.hidden_size;
    const std::size_t per_row = config_.parts_per_token();
    pass.for_rows(count, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) {
        float* sum = pass.workspace.input + std::size_t{first + row} * width;
        std::fill_n(sum, width, 0.0F);
        for (std::size_t i = row * per_row; i < (row + 1) * per_row; ++i) {
          float* made = pairs.stream + std::size_t{pairs.places[i]} * width;
          const std::vector<float>& bias = weights_.experts[pairs.chosen[i].expert].down_bias;
          if (!bias.empty()) pass.kernels.add(made, bias.data(), width);
          pass.kernels.scale(made, pairs.chosen[i].weight, width);
          pass.kernels.add(sum, made, width);
        }
      }
      pass.add_to_stream({}, weights_.ffn_post_norm, next_norm_, first + begin, first + end);
    });
  }

  [[nodiscard]] bool has_shared() const { return config_.shared_expert_size > 0; }

  LayerConfig config_;
  const LayerWeights& weights_;
  const std::vector<float>* next_norm_;
};

}  // namespace

std::unique_ptr<const FeedForwardSublayer> make_experts(const LayerConfig& config, const LayerWeights& weights,
                                                        const std::vector<float>* next_norm) {
  return std::make_unique<ExpertsFeedForward>(config, weights, next_norm);
}

}  // namespace quire
