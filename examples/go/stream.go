// Streams two answers at the same time from Go, through quire/quire.h.
//
//	CGO_CFLAGS="$(pkg-config --cflags quire)" CGO_LDFLAGS="$(pkg-config --libs quire)" go build -o stream .
//	./stream MODEL.gguf "Name three rivers." "Name three lakes."
package main

/*
#cgo LDFLAGS: -lquire_c
#include <stdlib.h>
#include <quire/quire.h>
*/
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"
)

// failure returns the error of a call and frees its handle. A nil handle is no error.
func failure(handle *C.quire_error) error {
	if handle == nil {
		return nil
	}
	defer C.quire_error_free(handle)
	return errors.New(C.GoString(C.quire_error_message(handle)))
}

// Engine is a loaded model. Goroutines may share it.
type Engine struct{ handle *C.quire_engine }

// Load loads a model. Options are flags of `quire serve`.
func Load(model string, options map[string]any) (*Engine, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	path, flags := C.CString(model), C.CString(string(text))
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(flags))
	var engine *C.quire_engine
	var handle *C.quire_error
	C.quire_engine_load(path, flags, &engine, &handle)
	if err := failure(handle); err != nil {
		return nil, err
	}
	return &Engine{engine}, nil
}

// Close stops the engine.
func (engine *Engine) Close() { C.quire_engine_free(engine.handle) }

// Stream submits a request and passes each piece of its text to `take`.
func (engine *Engine) Stream(route string, body map[string]any, take func(text string)) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	path, content := C.CString(route), C.CString(string(text))
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(content))
	var request *C.quire_request
	var handle *C.quire_error
	C.quire_submit(engine.handle, path, content, &request, &handle)
	if err := failure(handle); err != nil {
		return err
	}
	defer C.quire_request_free(request)
	for {
		output := C.quire_output{struct_size: C.sizeof_quire_output}
		code := C.quire_poll(request, -1, &output, &handle)
		if code != C.QUIRE_OK {
			return failure(handle)
		}
		take(C.GoStringN(output.text, C.int(output.text_size)))
	}
}

func run(model string, questions []string) error {
	if C.quire_c_version() < C.QUIRE_C_VERSION {
		return errors.New("libquire_c is older than quire.h")
	}
	engine, err := Load(model, map[string]any{"max-model-len": 2048})
	if err != nil {
		return err
	}
	defer engine.Close()
	answers, failures := make([]strings.Builder, len(questions)), make([]error, len(questions))
	var all sync.WaitGroup
	for i, question := range questions {
		all.Add(1)
		go func(i int, question string) {
			defer all.Done()
			body := map[string]any{
				"messages":    []map[string]string{{"role": "user", "content": question}},
				"max_tokens":  48,
				"temperature": 0,
				"stream":      true,
			}
			failures[i] = engine.Stream("/v1/chat/completions", body, func(text string) { answers[i].WriteString(text) })
		}(i, question)
	}
	all.Wait()
	for i, question := range questions {
		fmt.Printf("%s\n%s\n", question, answers[i].String())
	}
	return errors.Join(failures...)
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: stream MODEL.gguf QUESTION...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
