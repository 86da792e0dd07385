#pragma once
// A KV connector written in Python. If one of its methods raises, the exception is raised when the core's call has ended. Until then the
// connector is not called again, and default answers are used.
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

  // Raises the connector's exception, if a method has raised one. The result of the core's call becomes the exception's attribute `name`.
  void raise_if_failed(const char* name, const nb::object& result);

 private:
  template <class Call>
  void ask(Call&& call);

  nb::object connector_;
  nb::object failure_;  // exception that a method of the connector raised
};

}  // namespace quire::python
