// The C API of quire: load a model, submit requests, read their answers. C11 and later, and C++.
//
// Link with libquire_c (pkg-config quire, or quire::c in CMake). docs/c_api.md has an introduction, and says what is stable.
//
// - Requests and answers are the JSON of the HTTP API of `quire serve` (docs/openapi.json), and options are the flags of `quire serve`.
// - Text is UTF-8 and ends with a zero byte. The caller keeps what it passes in; the library copies it before the function returns.
// - Every function may be called on any thread, also while another thread uses the same handle.
// - No function throws, exits or handles signals. Invariants of the library are the exception: if one is broken, the process aborts.
// - A handle is a number in the form of a pointer, not an address, and each number is used once. The library therefore always detects a
//   handle that is null, freed or of another kind, and returns QUIRE_INVALID_HANDLE.
// - A function whose last parameter is `error` stores an error there if it returns an error code, which the caller must free; otherwise it
//   stores NULL. `error` may be NULL. Errors belong to a call and not to a thread, so they work in languages that move their threads.
// - Do not use a handle in a process made by fork(): the threads of the engine exist in the parent only.
#ifndef QUIRE_QUIRE_H_
#define QUIRE_QUIRE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_C_API __attribute__((visibility("default")))

// The version of this header. It grows by one when a function, a code or a member is added.
#define QUIRE_C_VERSION 1

// Returns QUIRE_C_VERSION of the library. A program needs a library with at least the version of the header that it was compiled with.
QUIRE_C_API int quire_c_version(void);

// Returns the version of quire, "0.1.0". Static.
QUIRE_C_API const char* quire_version(void);

// A model with its KV cache, scheduler and threads. Created by quire_engine_load().
typedef struct quire_engine quire_engine;
// A submitted request and its answer. Created by quire_submit().
typedef struct quire_request quire_request;
// The reason why a call failed. Freed by quire_error_free().
typedef struct quire_error quire_error;

// The result of a call. The codes from QUIRE_INVALID_ARGUMENT to QUIRE_INTERNAL are errors. Later versions may add codes.
typedef enum quire_code {
  QUIRE_OK = 0,
  QUIRE_INVALID_ARGUMENT = 1,  // an argument, an option or a field of the request must be changed
  QUIRE_NOT_FOUND = 2,         // no such file, model, adapter, request or route
  QUIRE_UNSUPPORTED = 3,       // valid, but not supported by this build or model
  QUIRE_TOO_LARGE = 4,         // over a limit
  QUIRE_OVERLOADED = 5,        // too many requests wait; try again later
  QUIRE_CORRUPT = 6,           // a file is inconsistent or truncated
  QUIRE_IO = 7,                // an operation of the operating system or of the engine failed
  QUIRE_SHUTTING_DOWN = 8,     // the engine is being freed, or was freed
  QUIRE_UNAVAILABLE = 9,       // this engine has too much work; another one may have less
  QUIRE_INVALID_HANDLE = 10,   // a handle is null, was freed, or is of another kind
  QUIRE_OUT_OF_MEMORY = 11,    // no error is stored for this code
  QUIRE_INTERNAL = 12,         // an error of the library that has no other code
  QUIRE_TIMEOUT = 13,          // nothing new within the timeout; call again
  QUIRE_END = 14,              // the answer is complete, and all its outputs have been returned
  QUIRE_CANCELLED = 15         // quire_cancel() ended the answer, and all its outputs before have been returned
} quire_code;

// ---- Errors ----

// Returns the whole message: the option or the field, the problem, and what to do. Valid until the error is freed. If `error` is not a
// valid handle, returns a text that says so.
QUIRE_C_API const char* quire_error_message(const quire_error* error);

// Returns the option ("--max-num-seqs") or the field of the request ("temperature") that the error is about, or "". Valid until the error
// is freed. If `error` is not a valid handle, returns "".
QUIRE_C_API const char* quire_error_field(const quire_error* error);

// Frees the error. NULL is allowed. Returns QUIRE_OK or QUIRE_INVALID_HANDLE.
QUIRE_C_API quire_code quire_error_free(quire_error* error);

// ---- Engines ----

// Loads a model and starts its engine. Blocks until the model is loaded: seconds for large models.
//
// model: path of a GGUF file or of a Hugging Face folder.
// options: NULL, or a JSON object whose keys are flags of `quire serve` without the dashes: {"max-num-seqs": 8, "kv-cache-memory": "2GiB"}.
//   A value is what follows the flag; true and false turn a flag on and off; an array repeats the flag. `quire serve --help` states
//   defaults and units, with one difference: "log-level" is "warn". Log lines go to stderr. Flags about connections, clients and keys
//   ("port", "api-key", ...) are refused, because there is no server.
// engine: receives the handle, or NULL if the call fails. Freed with quire_engine_free().
// Errors: QUIRE_INVALID_ARGUMENT (an option), QUIRE_NOT_FOUND, QUIRE_CORRUPT or QUIRE_UNSUPPORTED (the model), QUIRE_IO.
QUIRE_C_API quire_code quire_engine_load(const char* model, const char* options, quire_engine** engine, quire_error** error);

// Stops the engine and frees its memory. Requests that still run are aborted: the next quire_poll() of such a request returns
// QUIRE_SHUTTING_DOWN after the outputs so far. Requests must still be freed. Blocks until the threads of the engine have ended. NULL is
// allowed. Returns QUIRE_OK or QUIRE_INVALID_HANDLE.
QUIRE_C_API quire_code quire_engine_free(quire_engine* engine);

// Stores a JSON object with the engine's counters and gauges in `json`, which the caller frees with quire_string_free(). It has the keys
// of Engine.stats() in Python: "num_running" and "num_waiting" (requests), "num_blocks" and "num_free_blocks" (KV cache), "prompt_tokens",
// "prefix_cache_hits" (tokens), ... Later versions may add keys. Errors: QUIRE_INVALID_HANDLE.
QUIRE_C_API quire_code quire_stats(quire_engine* engine, char** json, quire_error** error);

// ---- Requests ----

// Submits a request. Returns when its prompt is tokenized and the engine has accepted or refused it; the answer is computed from then on,
// whether it is read or not.
//
// path: the path of a route of the HTTP API: "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", ...
// body: the JSON body of the route, for the method POST. NULL: the method is GET. "": POST without a body.
//   A prompt of /v1/completions is text or an array of token ids. With "stream": true, outputs arrive as they are computed; otherwise one
//   output per choice arrives at the end. With "return_token_ids": true, outputs have token ids.
// request: receives the handle, or NULL if the call fails. Freed with quire_request_free().
// Errors: QUIRE_INVALID_ARGUMENT (a field of the body), QUIRE_NOT_FOUND (the route, the model), QUIRE_UNSUPPORTED, QUIRE_TOO_LARGE,
// QUIRE_OVERLOADED, QUIRE_UNAVAILABLE, QUIRE_SHUTTING_DOWN, QUIRE_INVALID_HANDLE.
QUIRE_C_API quire_code quire_submit(quire_engine* engine, const char* path, const char* body, quire_request** request, quire_error** error);

// A part of an answer. Pointers are valid until the next quire_poll() of the request, and until it is freed.
typedef struct quire_output {
  size_t struct_size;        // set by the caller: sizeof(quire_output). Later versions add members at the end.
  const char* json;          // the whole event of the stream, or the whole body; NULL if it is not JSON
  const char* text;          // new text of the choice; never NULL. Of routes without choices: "" with JSON, else the body
  size_t text_size;          // bytes in `text`, without its zero byte. Text may contain zero bytes.
  const int32_t* token_ids;  // token ids of `text`, if the request has "return_token_ids"; else NULL
  size_t num_token_ids;
  const char* finish_reason;  // "stop", "length", "tool_calls", ... with the last output of the choice; NULL: the choice continues
  uint32_t choice;            // index of the choice; 0 unless the request has "n" or several prompts
  uint32_t reserved;          // 0
} quire_output;

// Initializes a quire_output: quire_output output = QUIRE_OUTPUT_INIT;
#define QUIRE_OUTPUT_INIT {sizeof(quire_output), NULL, NULL, 0, NULL, 0, NULL, 0, 0}

// Takes the next output. If no output is ready, waits for `timeout_ms` milliseconds; 0 returns immediately, and a negative value waits
// without a limit. Outputs are buffered until they are taken. Returns QUIRE_OK (*output is set), QUIRE_TIMEOUT, QUIRE_END, QUIRE_CANCELLED,
// or an error: QUIRE_SHUTTING_DOWN, QUIRE_INVALID_HANDLE, QUIRE_INVALID_ARGUMENT (output is NULL, or its struct_size is not set), or the
// error with which the request failed after it was accepted, for example QUIRE_INVALID_ARGUMENT for a grammar that does not compile.
QUIRE_C_API quire_code quire_poll(quire_request* request, int64_t timeout_ms, quire_output* output, quire_error** error);

// Waits until the answer has ended, so that quire_poll() returns all its outputs and then its end without waiting. `timeout_ms` as above.
// Returns QUIRE_OK, QUIRE_TIMEOUT or QUIRE_INVALID_HANDLE.
QUIRE_C_API quire_code quire_wait(quire_request* request, int64_t timeout_ms, quire_error** error);

// Ends the answer, and frees its blocks of the KV cache at the next step. Does nothing if the answer has ended. Returns immediately; a
// quire_poll() that waits on another thread then returns QUIRE_CANCELLED. Returns QUIRE_OK or QUIRE_INVALID_HANDLE.
QUIRE_C_API quire_code quire_cancel(quire_request* request, quire_error** error);

// Returns the id of the answer, as in its JSON: "chatcmpl-...", "cmpl-...". "" for other routes, NULL if the handle is not valid. Valid
// until the request is freed.
QUIRE_C_API const char* quire_request_id(quire_request* request);

// Explains why the request waited, which prompt tokens were not cached and why, and why it was preempted (docs/explain.md). Also for
// requests that wait, run or have ended. Stores a JSON object in `json`, which the caller frees with quire_string_free(). Errors:
// QUIRE_UNSUPPORTED (a route without an answer id; explanations are off), QUIRE_NOT_FOUND (the request ended too long ago),
// QUIRE_SHUTTING_DOWN, QUIRE_INVALID_HANDLE.
QUIRE_C_API quire_code quire_explain(quire_request* request, char** json, quire_error** error);

// Frees the request, and cancels it if it has not ended. NULL is allowed. Returns QUIRE_OK or QUIRE_INVALID_HANDLE.
QUIRE_C_API quire_code quire_request_free(quire_request* request);

// Frees a string that a function of this API has stored. NULL is allowed.
QUIRE_C_API void quire_string_free(char* string);

#ifdef __cplusplus
}
#endif

#endif  // QUIRE_QUIRE_H_
