#pragma once
// The grammar that holds a chat's answer to calls of tools and to the form that the client wants.
#include "quire/base/error.h"

namespace quire {

struct CompletionRequest;
class ServedModel;

// Sets request.form so that calls that must come do, and that one which has begun keeps its form. What the client has said of the form of
// an answer holds where no tool is called, and behind what the model thinks first. To be called when it is known whether the prompt ends in
// a thought. Errors: a form that cannot be had together with tools.
[[nodiscard]] Result<void> constrain_answer(CompletionRequest& request, const ServedModel& model, bool one_call_spelling);

}  // namespace quire
