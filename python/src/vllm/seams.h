#pragma once
// Implements the core's interfaces with vLLM's connector, encoder connector, grammar and tokenizer. Calls with a `RequestView` refresh the
// Python request first.
#include "quire/connector.h"
#include "quire/core.h"

namespace quire::python {

class Bridge;

class Seams final : public Connector, public EncoderConnector, public Grammar, public ToolNamer {
 public:
  explicit Seams(Bridge& bridge) : bridge_(bridge) {}
  [[nodiscard]] CoreSeams of_core();

  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void planned(const StepPlan& plan) override;
  void order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) override;
  void step_output() override;
  bool reset() override;

  bool has(std::string_view identifier) override;
  void allocated(const RequestView& request, std::uint32_t index) override;

  bool ready(RequestId id) override;
  bool failed(RequestId id) override;
  bool should_advance(const RequestView& request) override;
  bool accept(RequestId id, std::span<const TokenId> tokens) override;
  std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) override;

  std::string tool_of(const RequestView& request) override;

 private:
  Bridge& bridge_;
};

}  // namespace quire::python
