#pragma once
// A KV connector written in Python. What it raises comes out of the call of the core that asked it, once that is over: until then it is
// asked nothing more, and is taken to have nothing to say.
#include <nanobind/nanobind.h>

#include "quire/connector.h"

namespace quire::python {

namespace nb = nanobind;

class PyConnector final : public Connector {
 public:
  explicit PyConnector(nb::object connector) : connector_(std::move(connector)) {}

  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void planned(const StepPlan& plan) override;
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override;
  void completed(const TransferCompletion& completion) override;
  void sent(RequestId request) override;
  void step_output() override;
  bool reset() override;

  // What it has raised since the last time. What the call would have returned is an attribute of the exception.
  void raise_if_failed(const char* name, const nb::object& result);

 private:
  template <class Call>
  void ask(Call&& call);

  nb::object connector_;
  nb::object failure_;  // an exception
};

}  // namespace quire::python
