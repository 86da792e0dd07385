#pragma once
// The tensors of a Whisper folder (WhisperForConditionalGeneration). They are collected by their names, and converted to the form that
// passes read.
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "runtime/model/weights/task_collector.h"

namespace quire {

// Must stay in place from collect() to finish(), because tensors are packed into it in between.
class WhisperTensors {
 public:
  void collect(const ModelConfig& config, TaskCollector& collector, DecoderWeights& out);
  // Called when all tensors have been packed.
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
