#pragma once
// Reads JSON schemas as Ollama does.
#include <boost/json/value.hpp>

namespace quire {

// Forbids further properties in each object that lists its properties and does not mention others. Ollama's grammars allow only the listed
// properties. JSON Schema allows others, which a small model may invent without end. Does not change a schema that combines several schemas
// for one object (allOf). Recurses as deep as the schema is nested.
void close_objects(boost::json::value& schema);

}  // namespace quire
