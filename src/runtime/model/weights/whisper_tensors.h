#pragma once
// Collects the tensors of a Whisper folder (WhisperForConditionalGeneration) by their names, and converts them to the form that passes
// read.
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "runtime/model/weights/task_collector.h"

namespace quire {

// The object must not be moved between collect() and finish(), because tensors are packed into it.
class WhisperTensors {
 public:
  void collect(const ModelConfig& config, TaskCollector& collector, DecoderWeights& out);
  // Appends the biases of norms to their weights. Called when all tensors have been packed.
  void finish();

 private:
  // The biases of a norm, which are appended to its weights.
  struct Norm {
    std::vector<float>* weights;
    std::vector<float> biases;
  };
  void norm(TaskCollector& collector, const std::string& name, std::uint32_t size, std::vector<float>& out);
  void layer(TaskCollector& collector, const std::string& name, const LayerConfig& config, LayerWeights& out);

  std::deque<Norm> norms_;
};

}  // namespace quire
