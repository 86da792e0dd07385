#pragma once
// The tensors of a Whisper folder (WhisperForConditionalGeneration): collected by their names, and what the file keeps in another form than
// the passes read, put into that form.
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "runtime/model/weights/task_collector.h"

namespace quire {

// Stays where it is from collect() to finish(): the tensors are packed into it in between.
class WhisperTensors {
 public:
  void collect(const ModelConfig& config, TaskCollector& collector, DecoderWeights& out);
  // When all tensors have been packed.
  void finish();

 private:
  // A norm's biases, which go behind its weights.
  struct Norm {
    std::vector<float>* weights;
    std::vector<float> biases;
  };
  void norm(TaskCollector& collector, const std::string& name, std::uint32_t size, std::vector<float>& out);
  void layer(TaskCollector& collector, const std::string& name, const LayerConfig& config, LayerWeights& out);

  std::deque<Norm> norms_;
};

}  // namespace quire
