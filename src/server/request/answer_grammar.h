#pragma once
// The grammar that constrains a chat's answer: tool calls, and the form that the client has requested.
#include "quire/base/error.h"

namespace quire {

struct CompletionRequest;
class ServedModel;

// Sets `request.form` so that required calls are made, and a call that has begun keeps its format. The client's form applies where no tool
// is called, and after the model's reasoning. Called when it is known whether the prompt ends in a reasoning part. Errors: the form is not
// possible together with tools.
[[nodiscard]] Result<void> constrain_answer(CompletionRequest& request, const ServedModel& model, bool one_call_spelling);

}  // namespace quire
