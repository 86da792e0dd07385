// Views for other code: refreshed requests, names of requests, block ids.
#include <nanobind/stl/string.h>

#include <array>

#include "vllm/bridge.h"
#include "vllm/fast.h"

namespace quire::python {

nb::object Bridge::refreshed(const RequestView& view) {
  RequestRecord* record = records_.find(view.id);
  if (record->session && view.num_prompt_tokens != record->num_prompt_tokens)
    take_session_input(*record, view);
  else
    request_mirror_.update(*record, view);
  return record->request;
}

nb::object Bridge::refreshed(RequestId id) {
  RequestRecord* record = records_.find(id);
  const auto view = core_->view(id);
  return view ? refreshed(*view) : record->request;
}

void Bridge::refresh_if_held(RequestRecord& record) {
  constexpr Py_ssize_t kNumBridgeReferences = 2;  // references of the record and of the dict
  if (record.request.is_valid() && Py_REFCNT(record.request.ptr()) > kNumBridgeReferences) refreshed(record.id);
}

void Bridge::refresh_running() {
  requests();
}

nb::dict Bridge::requests() {
  records_.for_each([&](RequestRecord& record) {
    if (!record.request.is_valid()) return;
    refreshed(record.id);
  });
  return requests_;
}

nb::object Bridge::request(nb::handle name) {
  RequestRecord* record = lookup(name);
  return record == nullptr ? nb::none() : refreshed(record->id);
}

bool Bridge::is_prefill_chunk(nb::handle name) const {
  const RequestRecord* record = lookup(name);
  const auto view = record == nullptr ? std::nullopt : core_->view(record->id);
  return view && view->is_prefill_chunk;
}

nb::set Bridge::finished_names() {
  nb::set out;
  records_.for_each([&](const RequestRecord& record) {
    if (record.finished && !record.is_listed_in_plan) out.add(record.name);
  });
  return out;
}

nb::list Bridge::names_of(std::span<const RequestId> ids) const {
  nb::list out;
  for (const RequestId id : ids)
    if (const RequestRecord* record = records_.find(id)) out.append(record->name);
  return out;
}

nb::list Bridge::queue_names(int which) const {
  std::array<std::vector<RequestId>, 3> queues;
  core_->queues(queues[0], queues[1], queues[2]);
  return names_of(queues.at(static_cast<std::size_t>(which)));
}

nb::list Bridge::last_step_names() const {
  return last_scheduled_.is_valid() ? nb::list(last_scheduled_) : nb::list();
}

nb::object Bridge::block_ids(nb::handle name) const {
  const RequestRecord* record = lookup(name);
  nb::object out = fast::steal(PyTuple_New(num_groups_));
  for (std::uint32_t group = 0; group < num_groups_; ++group) {
    const auto blocks = record == nullptr ? std::span<const BlockId>{} : core_->blocks(record->id, group);
    PyTuple_SET_ITEM(out.ptr(), group, fast::list(blocks).release().ptr());
  }
  return out;
}

}  // namespace quire::python
