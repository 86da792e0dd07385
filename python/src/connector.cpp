// Binds quire.Connector, whose methods the core calls, and the list to which a connector adds transfers.
#include "connector.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "errors.h"
#include "module.h"
#include "plan.h"

namespace quire::python {
namespace {

// Valid only during plan_transfers().
class PyTransferList {
 public:
  explicit PyTransferList(TransferList& list) : list_(&list) {}
  void close() { list_ = nullptr; }

  std::optional<std::uint64_t> add(std::uint64_t request, TransferDirection direction, const std::vector<std::uint32_t>& blocks,
                                   const std::vector<std::uint64_t>& places, TransferNeed need, std::uint32_t group, std::uint32_t tier) {
    if (list_ == nullptr) raise_state("transfers: the plan is complete; call add() only in plan_transfers()");
    if (blocks.empty() || blocks.size() != places.size()) throw nb::value_error("places: must have one entry per block, and at least one");
    std::vector<BlockId> ids;
    ids.reserve(blocks.size());
    for (const std::uint32_t block : blocks) ids.push_back(BlockId{block});
    const auto id = list_->add({.id = {},
                                .request = RequestId{request},
                                .direction = direction,
                                .need = need,
                                .group = group,
                                .tier = tier,
                                .blocks = ids,
                                .places = places});
    return id ? std::optional(id->value) : std::nullopt;
  }

 private:
  TransferList* list_;
};

nb::list blocks_of(GroupBlocks groups) {
  nb::list lists;
  for (const auto& blocks : groups) lists.append(list_of_ids(blocks));
  return lists;
}

}  // namespace

template <class Call>
void PyConnector::ask(Call&& call) {
  if (failure_.is_valid()) return;
  try {
    call();
  } catch (const nb::python_error& error) {
    failure_ = nb::borrow(error.value());
  } catch (const std::exception& error) {  // the result cannot be converted
    failure_ = nb::borrow(PyExc_TypeError)(error.what());
  }
}

void PyConnector::raise_if_failed(const char* name, const nb::object& result) {
  if (!failure_.is_valid()) return;
  const nb::object failure = std::exchange(failure_, nb::object());
  nb::setattr(failure, name, result);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(failure.ptr())), failure.ptr());
  throw nb::python_error();
}

ExternalMatch PyConnector::match(const RequestView& request, std::uint32_t num_local_tokens) {
  ExternalMatch match{.num_tokens = 0, .load_async = false};
  ask([&] {
    const nb::object answer = connector_.attr("match")(to_python(request), num_local_tokens);
    if (!nb::isinstance<nb::tuple>(answer) || nb::len(answer) != 2) throw nb::type_error("match() must return (int | None, bool)");
    const bool load_async = nb::cast<bool>(answer[1]);
    if (nb::handle(answer[0]).is_none()) {
      match = {.num_tokens = std::nullopt, .load_async = false};
      return;
    }
    const auto num_tokens = nb::cast<std::uint32_t>(answer[0]);
    if (num_local_tokens + num_tokens > request.tokens.size()) throw nb::value_error("match(): returned more tokens than the request has");
    match = {.num_tokens = num_tokens, .load_async = load_async};
  });
  return match;
}

void PyConnector::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  ask([&] { connector_.attr("allocated")(to_python(request), blocks_of(blocks), num_external_tokens); });
}

bool PyConnector::finished(const RequestView& request, GroupBlocks blocks) {
  bool keeps = false;
  ask([&] { keeps = nb::cast<bool>(nb::bool_(nb::object(connector_.attr("finished")(to_python(request), blocks_of(blocks))))); });
  return keeps;
}

void PyConnector::planned(const StepPlan& plan) {
  ask([&] { connector_.attr("planned")(to_python(plan)); });
}

void PyConnector::plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) {
  ask([&] {
    const nb::object list = nb::cast(PyTransferList(transfers));
    try {
      connector_.attr("plan_transfers")(list);
    } catch (...) {
      nb::cast<PyTransferList&>(list).close();
      throw;
    }
    nb::cast<PyTransferList&>(list).close();
  });
}

void PyConnector::completed(const TransferCompletion& completion) {
  ask([&] {
    connector_.attr("completed")(completion.transfer.value, completion.outcome == TransferOutcome::done,
                                 list_of_ids(completion.bad_blocks));
  });
}

void PyConnector::sent(RequestId request) {
  ask([&] { connector_.attr("sent")(request.value); });
}

void PyConnector::step_output() {
  ask([&] { connector_.attr("step_output")(); });
}

bool PyConnector::reset() {
  bool done = false;
  ask([&] { done = nb::cast<bool>(connector_.attr("reset")()); });
  return done;
}

void bind_connector(nb::module_& m) {
  nb::enum_<TransferDirection>(m, "TransferDirection", "Direction of a transfer.")
      .value("LOAD", TransferDirection::load, "Fills the blocks.")
      .value("STORE", TransferDirection::store, "Reads what earlier steps have written to the blocks.");
  nb::enum_<TransferNeed>(m, "TransferNeed", "The work that must not begin before a transfer is over.")
      .value("NOTHING", TransferNeed::nothing, "No work: a store, or a load that its request waits for.")
      .value("STEP", TransferNeed::step, "The forward pass of the plan.")
      .value("LAYER_BY_LAYER", TransferNeed::layer_by_layer, "Layer i of the forward pass needs layer i of the blocks.");
  nb::class_<PyTransferList>(m, "TransferList", "Adds a connector's transfers to a plan. Usable only during plan_transfers().")
      .def("add", &PyTransferList::add, nb::arg("request"), nb::arg("direction"), nb::arg("blocks"), nb::arg("places"),
           nb::arg("need") = TransferNeed::nothing, nb::arg("group") = 0, nb::arg("tier") = 0,
           "Adds a transfer to the plan and returns its id. Returns None if max_open_transfers transfers are open, or if a\n"
           "store must wait for a load that the step in flight needs; the connector may ask again with the next plan.\n"
           "request: id of a request in the core. blocks: block ids. places: the slot of each block, in the connector's own\n"
           "numbers. RuntimeError outside of plan_transfers(); ValueError if blocks is empty or places has another length.");
}

}  // namespace quire::python
