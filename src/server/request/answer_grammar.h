#pragma once
// Builds the grammar that constrains a chat's answer: tool calls, and the output form that the client has requested.
#include "quire/base/error.h"

namespace quire {

struct CompletionRequest;
class ServedModel;

// Sets `request.form` so that required calls are made and each call has the model's format. The client's form applies to answers without
// tool calls, after the reasoning. Called when it is known whether the prompt ends within a reasoning part. Errors: the form cannot be
// combined with tools.
[[nodiscard]] Result<void> constrain_answer(CompletionRequest& request, const ServedModel& model, bool one_call_spelling);

}  // namespace quire
