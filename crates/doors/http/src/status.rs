//! The statuses this door answers with.

/// An HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u16);

macro_rules! statuses {
    ($($name:ident = $code:literal $phrase:literal;)*) => {
        #[allow(missing_docs)]
        impl Status {
            $( pub const $name: Self = Self($code); )*

            /// Returns the phrase that stands beside it.
            pub fn phrase(self) -> &'static str {
                match self.0 { $( $code => $phrase, )* _ => "" }
            }
        }
    };
}

statuses! {
    OK = 200 "OK";
    CREATED = 201 "Created";
    ACCEPTED = 202 "Accepted";
    NO_CONTENT = 204 "No Content";
    PARTIAL_CONTENT = 206 "Partial Content";
    MULTI_STATUS = 207 "Multi-Status";
    MOVED = 301 "Moved Permanently";
    SEE_OTHER = 303 "See Other";
    NOT_MODIFIED = 304 "Not Modified";
    BAD_REQUEST = 400 "Bad Request";
    UNAUTHORIZED = 401 "Unauthorized";
    FORBIDDEN = 403 "Forbidden";
    NOT_FOUND = 404 "Not Found";
    METHOD_NOT_ALLOWED = 405 "Method Not Allowed";
    TIMEOUT = 408 "Request Timeout";
    CONFLICT = 409 "Conflict";
    GONE = 410 "Gone";
    PRECONDITION_FAILED = 412 "Precondition Failed";
    TOO_LARGE = 413 "Content Too Large";
    TARGET_TOO_LONG = 414 "URI Too Long";
    UNSUPPORTED_TYPE = 415 "Unsupported Media Type";
    RANGE_NOT_SATISFIABLE = 416 "Range Not Satisfiable";
    EXPECTATION_FAILED = 417 "Expectation Failed";
    MISDIRECTED = 421 "Misdirected Request";
    LOCKED = 423 "Locked";
    FAILED_DEPENDENCY = 424 "Failed Dependency";
    TOO_MANY = 429 "Too Many Requests";
    FIELDS_TOO_LARGE = 431 "Request Header Fields Too Large";
    INTERNAL = 500 "Internal Server Error";
    NOT_IMPLEMENTED = 501 "Not Implemented";
    BAD_GATEWAY = 502 "Bad Gateway";
    UNAVAILABLE = 503 "Service Unavailable";
    GATEWAY_TIMEOUT = 504 "Gateway Timeout";
    VERSION = 505 "HTTP Version Not Supported";
    NO_SPACE = 507 "Insufficient Storage";
    LOOP = 508 "Loop Detected";
}

impl Status {
    /// Returns the number.
    pub const fn code(self) -> u16 {
        self.0
    }
}
