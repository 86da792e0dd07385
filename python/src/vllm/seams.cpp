#include "vllm/seams.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string_view>

#include "errors.h"
#include "vllm/bridge.h"
#include "vllm/fast.h"

namespace quire::python {
namespace {

// Returns a tuple of lists of block ids, one list per cache group.
nb::object block_ids(GroupBlocks groups) {
  nb::object out = fast::steal(PyTuple_New(static_cast<Py_ssize_t>(groups.size())));
  for (std::size_t group = 0; group < groups.size(); ++group)
    PyTuple_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(group), fast::list(groups[group]).release().ptr());
  return out;
}

}  // namespace

CoreSeams Seams::of_core() {
  const BridgeOptions& options = bridge_.options();
  return {options.has_connector ? this : nullptr, options.has_encoder_connector ? this : nullptr, options.has_grammar ? this : nullptr,
          options.detects_tools ? this : nullptr};
}

ExternalMatch Seams::match(const RequestView& request, std::uint32_t num_local_tokens) {
  const nb::object answer = bridge_.options().hooks.attr("match")(bridge_.refreshed(request), num_local_tokens);
  if (!nb::isinstance<nb::tuple>(answer) || nb::len(answer) != 2)
    throw nb::type_error("get_num_new_matched_tokens() must return (int | None, bool)");
  ExternalMatch match;
  match.load_async = nb::cast<bool>(nb::bool_(nb::handle(answer[1])));
  if (!nb::handle(answer[0]).is_none()) match.num_tokens = nb::cast<std::uint32_t>(answer[0]);
  return match;
}

void Seams::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  bridge_.options().hooks.attr("allocated")(bridge_.refreshed(request), block_ids(blocks), num_external_tokens);
}

bool Seams::finished(const RequestView& request, GroupBlocks blocks) {
  const nb::object answer = bridge_.options().hooks.attr("finished")(bridge_.refreshed(request), block_ids(blocks));
  RequestRecord* record = bridge_.find(request.id);
  record->kv_transfer_params = nb::handle(answer[1]).is_none() ? nb::object() : nb::object(answer[1]);
  return nb::cast<bool>(nb::bool_(nb::handle(answer[0])));
}

void Seams::planned(const StepPlan& plan) {
  bridge_.send_plan_to_connector(plan);
}

void Seams::order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) {
  nb::list names;
  for (const RequestId id : finishing) names.append(bridge_.find(id)->name);
  const auto orders = nb::cast<nb::tuple>(bridge_.options().hooks.attr("order_failed")(names, num_async));
  const auto take = [&](nb::handle ordered, std::span<RequestId> ids) {
    std::size_t at = 0;
    for (nb::handle name : ordered) ids[at++] = bridge_.lookup(name)->id;
  };
  take(orders[0], finishing);
  take(orders[1], reported);
}

void Seams::step_output() {
  bridge_.refresh_running();
  bridge_.options().hooks.attr("step_output")();
}

bool Seams::reset() {
  return nb::cast<bool>(bridge_.options().hooks.attr("reset")());
}

bool Seams::has(std::string_view identifier) {
  return nb::cast<bool>(nb::bool_(bridge_.options().hooks.attr("encoder_has")(identifier)));
}

void Seams::allocated(const RequestView& request, std::uint32_t index) {
  bridge_.options().hooks.attr("encoder_allocated")(bridge_.refreshed(request), index);
}

bool Seams::ready(RequestId id) {
  return nb::cast<bool>(bridge_.options().hooks.attr("grammar_ready")(bridge_.find(id)->request));
}

bool Seams::failed(RequestId id) {
  return nb::cast<bool>(bridge_.options().hooks.attr("grammar_failed")(bridge_.find(id)->request));
}

bool Seams::should_advance(const RequestView& request) {
  return nb::cast<bool>(nb::bool_(bridge_.options().hooks.attr("grammar_should_advance")(bridge_.refreshed(request))));
}

bool Seams::accept(RequestId id, std::span<const TokenId> tokens) {
  const nb::object request = bridge_.options().uses_grammar_manager ? bridge_.refreshed(id) : bridge_.find(id)->request;
  return nb::cast<bool>(nb::bool_(bridge_.options().hooks.attr("grammar_accept")(request, fast::list(tokens))));
}

std::uint32_t Seams::count_valid(RequestId id, std::span<const TokenId> drafts) {
  const nb::object request = bridge_.options().uses_grammar_manager ? bridge_.refreshed(id) : bridge_.find(id)->request;
  return nb::cast<std::uint32_t>(bridge_.options().hooks.attr("grammar_count_valid")(request, fast::list(drafts)));
}

std::string Seams::tool_of(const RequestView& request) {
  return nb::cast<std::string>(bridge_.options().hooks.attr("tool_of")(bridge_.refreshed(request)));
}

}  // namespace quire::python
