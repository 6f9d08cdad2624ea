//! A response before it is written.
//!
//! A handler fills a [`ResponseBuffer`]. The fast path appends it to the unwritten bytes of its connection; for hyper it
//! becomes a response. The fast path reuses one buffer, so a response allocates nothing there.

use std::ops::Range;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::date::{http_date, http_date_now};

/// Buffers larger than this are given back after a response.
const KEPT_BYTES: usize = 64 * 1024;

/// Status, fields and body of one response.
#[derive(Debug)]
pub(crate) struct ResponseBuffer {
    status: u16,
    media: Option<&'static str>,
    /// The values of the fields, one behind the other.
    values: String,
    fields: Vec<(&'static str, Range<usize>)>,
    body: Vec<u8>,
    /// When it was made, in seconds since 1970, if a clock was read for it.
    second: Option<u64>,
}

impl Default for ResponseBuffer {
    fn default() -> ResponseBuffer {
        ResponseBuffer {
            status: 200,
            media: None,
            values: String::new(),
            fields: Vec::new(),
            body: Vec::new(),
            second: None,
        }
    }
}

impl ResponseBuffer {
    /// Begins another response. Nothing of the last one is left but its memory.
    pub(crate) fn reset(&mut self) {
        self.status = 200;
        self.media = None;
        self.values.clear();
        self.fields.clear();
        self.body.clear();
        self.body.shrink_to(KEPT_BYTES);
        self.second = None;
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        self.status = status;
    }

    /// Sets the media type of the body.
    pub(crate) fn set_media(&mut self, media: &'static str) {
        self.media = Some(media);
    }

    /// Dates the response, so that no clock is read for it.
    pub(crate) fn set_second(&mut self, second: u64) {
        self.second = Some(second);
    }

    /// Forgets when it was made: it is dated when it is written.
    pub(crate) fn clear_second(&mut self) {
        self.second = None;
    }

    /// Adds a field with a number.
    pub(crate) fn push_number(&mut self, name: &'static str, number: u64) {
        self.push_field(name, itoa::Buffer::new().format(number));
    }

    /// Adds a field. Names are in lower case.
    pub(crate) fn push_field(&mut self, name: &'static str, value: &str) {
        let begins = self.values.len();
        self.values.push_str(value);
        self.fields.push((name, begins..self.values.len()));
    }

    /// Adds fields whose values `write` puts behind those that are there, and names with their places.
    pub(crate) fn push_fields(
        &mut self,
        write: impl FnOnce(&mut String, &mut dyn FnMut(&'static str, Range<usize>)),
    ) {
        let ResponseBuffer { values, fields, .. } = self;
        write(values, &mut |name, place| fields.push((name, place)));
    }

    /// The body, to be written.
    pub(crate) fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }

    /// Writes a body of text in place of the one that is there.
    pub(crate) fn write_text(&mut self, write: impl FnOnce(&mut String)) {
        self.body.clear();
        // An empty body is text, so this keeps its memory.
        let mut text = String::from_utf8(std::mem::take(&mut self.body)).unwrap_or_default();
        write(&mut text);
        self.body = text.into_bytes();
    }

    /// Appends the whole response as HTTP/1.1. To `HEAD` the body is not sent, but its length is.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>, is_head: bool) {
        out.reserve(self.values.len() + self.body.len() + 512);
        push_status(out, self.status);
        if let Some(media) = self.media {
            push_field(out, "content-type", media.as_bytes());
        }
        for (name, place) in &self.fields {
            let value = self.values.get(place.clone()).unwrap_or_default();
            push_field(out, name, value.as_bytes());
        }
        let mut digits = itoa::Buffer::new();
        let length = digits.format(self.body.len());
        push_field(out, "content-length", length.as_bytes());
        push_field(
            out,
            "date",
            &self.second.map_or_else(http_date_now, http_date),
        );
        out.extend_from_slice(b"\r\n");
        if !is_head {
            out.extend_from_slice(&self.body);
        }
    }

    /// The response as hyper takes it.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.body));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
        let mut headers = HeaderMap::with_capacity(self.fields.len() + 3);
        if let Some(media) = self.media {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        }
        let values = Bytes::from(self.values);
        for (name, place) in self.fields {
            if let Ok(value) = HeaderValue::from_maybe_shared(values.slice(place)) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        *response.headers_mut() = headers;
        response
    }
}

fn push_status(out: &mut Vec<u8>, status: u16) {
    let common: &[u8] = match status {
        200 => b"HTTP/1.1 200 OK\r\n",
        429 => b"HTTP/1.1 429 Too Many Requests\r\n",
        403 => b"HTTP/1.1 403 Forbidden\r\n",
        _ => {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            let reason = status.canonical_reason().unwrap_or_default();
            for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
            return;
        }
    };
    out.extend_from_slice(common);
}

/// Appends a field line.
pub(crate) fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> ResponseBuffer {
        let mut response = ResponseBuffer::default();
        response.set_status(422);
        response.set_media("text/plain");
        response.set_second(0);
        response.push_field("retry-after", "7");
        response.write_text(|text| text.push_str("later"));
        response
    }

    #[test]
    fn a_response_is_written_with_its_length_and_without_its_body_to_head() {
        let head = "HTTP/1.1 422 Unprocessable Entity\r\ncontent-type: text/plain\r\nretry-after: 7\r\n\
                    content-length: 5\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
        let mut out = Vec::new();
        response().append_to(&mut out, false);
        assert_eq!(out, format!("{head}later").as_bytes());
        out.clear();
        response().append_to(&mut out, true);
        assert_eq!(out, head.as_bytes());
    }

    #[test]
    fn nothing_of_a_response_is_left_in_the_next() {
        let mut used = response();
        used.reset();
        used.set_second(0);
        let mut fresh = ResponseBuffer::default();
        fresh.set_second(0);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        used.append_to(&mut one, false);
        fresh.append_to(&mut other, false);
        assert_eq!(one, other);
    }

    #[test]
    fn hyper_gets_the_same_response() {
        let response = response().into_response();
        assert_eq!(response.status(), 422);
        assert_eq!(response.headers()["retry-after"], "7");
        assert_eq!(response.headers()["content-type"], "text/plain");
    }
}
