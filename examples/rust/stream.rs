//! Streams an answer from Rust, with hand-written bindings of quire/quire.h and no crate.
//!   rustc --edition 2021 stream.rs -L LIBRARY_FOLDER -l quire_c
//!   ./stream MODEL.gguf "Name three rivers."
use std::ffi::{c_char, c_int, CStr, CString};
use std::io::Write;
use std::ptr::{null, null_mut};

/// The declarations of quire/quire.h that this program uses, in version 1.
mod ffi {
    use super::{c_char, c_int};

    pub const OK: c_int = 0;
    pub const END: c_int = 14;
    pub const C_VERSION: c_int = 1;

    #[repr(C)]
    pub struct Engine {
        _private: [u8; 0],
    }
    #[repr(C)]
    pub struct Request {
        _private: [u8; 0],
    }
    #[repr(C)]
    pub struct Error {
        _private: [u8; 0],
    }
    #[repr(C)]
    pub struct Output {
        pub struct_size: usize,
        pub json: *const c_char,
        pub text: *const c_char,
        pub text_size: usize,
        pub token_ids: *const i32,
        pub num_token_ids: usize,
        pub finish_reason: *const c_char,
        pub choice: u32,
        pub reserved: u32,
    }

    extern "C" {
        pub fn quire_c_version() -> c_int;
        pub fn quire_error_message(error: *const Error) -> *const c_char;
        pub fn quire_error_free(error: *mut Error) -> c_int;
        pub fn quire_engine_load(model: *const c_char, options: *const c_char, engine: *mut *mut Engine, error: *mut *mut Error) -> c_int;
        pub fn quire_engine_free(engine: *mut Engine) -> c_int;
        pub fn quire_submit(
            engine: *mut Engine,
            path: *const c_char,
            body: *const c_char,
            request: *mut *mut Request,
            error: *mut *mut Error,
        ) -> c_int;
        pub fn quire_poll(request: *mut Request, timeout_ms: i64, output: *mut Output, error: *mut *mut Error) -> c_int;
        pub fn quire_explain(request: *mut Request, json: *mut *mut c_char, error: *mut *mut Error) -> c_int;
        pub fn quire_request_free(request: *mut Request) -> c_int;
        pub fn quire_string_free(string: *mut c_char);
    }
}

/// Calls `call` with a place for an error. Returns the code, or the message of the error.
fn checked(call: impl FnOnce(*mut *mut ffi::Error) -> c_int) -> Result<c_int, String> {
    let mut error = null_mut();
    let code = call(&mut error);
    if error.is_null() {
        return Ok(code);
    }
    // SAFETY: the message is valid until the error is freed, and this function owns the error.
    let message = unsafe { CStr::from_ptr(ffi::quire_error_message(error)) }.to_string_lossy().into_owned();
    unsafe { ffi::quire_error_free(error) };
    Err(message)
}

fn c_text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "the text has a zero byte".to_string())
}

/// A loaded model. Handles may be used on any thread.
struct Engine(*mut ffi::Engine);
unsafe impl Send for Engine {}
unsafe impl Sync for Engine {}

impl Engine {
    /// `options`: a JSON object with flags of `quire serve`.
    fn load(model: &str, options: &str) -> Result<Engine, String> {
        let (model, options) = (c_text(model)?, c_text(options)?);
        let mut engine = null_mut();
        checked(|error| unsafe { ffi::quire_engine_load(model.as_ptr(), options.as_ptr(), &mut engine, error) })?;
        Ok(Engine(engine))
    }

    fn submit(&self, path: &str, body: &str) -> Result<Request, String> {
        let (path, body) = (c_text(path)?, c_text(body)?);
        let mut request = null_mut();
        checked(|error| unsafe { ffi::quire_submit(self.0, path.as_ptr(), body.as_ptr(), &mut request, error) })?;
        Ok(Request(request))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        unsafe { ffi::quire_engine_free(self.0) };
    }
}

/// A request and its answer. Dropping it cancels the request.
struct Request(*mut ffi::Request);
unsafe impl Send for Request {}

impl Request {
    /// Waits for the next piece of text; None: the answer is complete.
    fn next(&mut self) -> Result<Option<String>, String> {
        let mut output = ffi::Output {
            struct_size: std::mem::size_of::<ffi::Output>(),
            json: null(),
            text: null(),
            text_size: 0,
            token_ids: null(),
            num_token_ids: 0,
            finish_reason: null(),
            choice: 0,
            reserved: 0,
        };
        match checked(|error| unsafe { ffi::quire_poll(self.0, -1, &mut output, error) })? {
            // SAFETY: the text is valid until the next call, which needs this &mut self.
            ffi::OK => Ok(Some(unsafe { CStr::from_ptr(output.text) }.to_string_lossy().into_owned())),
            ffi::END => Ok(None),
            code => Err(format!("code {code}")),
        }
    }

    fn explain(&self) -> Result<String, String> {
        let mut json = null_mut();
        checked(|error| unsafe { ffi::quire_explain(self.0, &mut json, error) })?;
        // SAFETY: the string is valid until it is freed.
        let text = unsafe { CStr::from_ptr(json) }.to_string_lossy().into_owned();
        unsafe { ffi::quire_string_free(json) };
        Ok(text)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        unsafe { ffi::quire_request_free(self.0) };
    }
}

fn run(model: &str, question: &str) -> Result<(), String> {
    if unsafe { ffi::quire_c_version() } < ffi::C_VERSION {
        return Err("libquire_c is older than these bindings".to_string());
    }
    let engine = Engine::load(model, r#"{"max-model-len": 2048}"#)?;
    let quoted = question.replace('\\', "\\\\").replace('"', "\\\"");
    let body = format!(
        r#"{{"messages": [{{"role": "user", "content": "{quoted}"}}], "max_tokens": 48, "temperature": 0, "stream": true}}"#
    );
    let mut request = engine.submit("/v1/chat/completions", &body)?;
    while let Some(text) = request.next()? {
        print!("{text}");
        std::io::stdout().flush().map_err(|error| error.to_string())?;
    }
    println!("\n{}", request.explain()?);
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.len() != 3 {
        eprintln!("usage: stream MODEL.gguf QUESTION");
        std::process::exit(2);
    }
    if let Err(message) = run(&arguments[1], &arguments[2]) {
        eprintln!("{message}");
        std::process::exit(1);
    }
}
