//! Decisions in the lane of common requests: the same questions, the same answers, written straight into
//! what goes to the client.
//!
//! Only what ends well is answered here: a question that is understood, a proxy that tells its request as
//! it should. Everything else is declined before anything was taken, and gets its explanation from the
//! other files of this door. A test holds the two ways of answering against each other.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use hyper::StatusCode;
use tollgate::policy::fields::{
    Field, PROBLEM_TYPE, fields, problem as explain, push_number, status,
};
use tollgate::policy::{Answer, Headers};
use tollgate::{Clock, Moment};

use super::answer::push_answer;
use super::ask::{Ask, read};
use super::auth::{Told, delay};
use super::problems::push_problem;
use super::{Decisions, Route, is_auth_method, route};
use crate::date::date;
use crate::engine::{Door, Epoch};
use crate::listen::brisk::{Brisk, Plain, Sheets};

/// Headers as the parser found them.
struct Parsed<'a>(&'a [httparse::Header<'a>]);

impl Headers for Parsed<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        for header in self.0 {
            if header.name.len() == name.len() && header.name.eq_ignore_ascii_case(name) {
                each(header.value);
            }
        }
    }
}

impl Decisions {
    pub(super) fn brisk(&self, request: &Plain<'_>, peer: IpAddr, sheets: &mut Sheets) -> Brisk {
        let (path, query) = match request.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (request.target, None),
        };
        match (request.method, route(path, query)) {
            ("POST", Route::Check) if is_json(request.headers) => {
                self.brisk_check(request.body, sheets)
            }
            // An answer to HEAD has no body, whatever it says.
            (method, Route::Auth { nginx })
                if method != "HEAD" && is_auth_method(method) && is_short(request.target) =>
            {
                let told = Told {
                    method,
                    headers: &Parsed(request.headers),
                    peer,
                    nginx,
                };
                self.brisk_auth(&told, sheets)
            }
            _ => Brisk::Declined,
        }
    }

    fn brisk_check(&self, body: &[u8], sheets: &mut Sheets) -> Brisk {
        let Ok(ask) = read::<Ask<'_>>(body) else {
            return Brisk::Declined;
        };
        let epoch = self.engine.epoch();
        if epoch.gate.store().is_some() {
            return Brisk::Declined;
        }
        let Ok((answer, reserved)) = self.decide_here(Door::Http, &epoch, &ask, true) else {
            return Brisk::Declined;
        };
        let body = |text: &mut String| push_answer(text, &epoch, &answer, reserved, None);
        let status = status(&answer);
        write(
            sheets,
            &epoch,
            &answer,
            status,
            None,
            Some("application/json"),
            body,
        );
        Brisk::Answered
    }

    fn brisk_auth(&self, told: &Told<'_>, sheets: &mut Sheets) -> Brisk {
        let epoch = self.engine.epoch();
        if epoch.gate.store().is_some() {
            return Brisk::Declined;
        }
        let Ok(answer) = self.ask_for(&epoch, told) else {
            return Brisk::Declined;
        };
        let begun = sheets.out.len();
        let truth = status(&answer);
        let is_refused = !answer.is_admitted();
        // nginx is told 403 for every refusal.
        let (status, truth) = match is_refused && told.nginx {
            true => (403, Some(truth)),
            false => (truth, None),
        };
        let explained = is_refused && epoch.gate.policy().answers.problem;
        let body = |text: &mut String| {
            if explained {
                explain(&epoch.gate, &answer, text);
            }
        };
        let media = explained.then_some(PROBLEM_TYPE);
        write(sheets, &epoch, &answer, status, truth, media, body);
        match delay(&answer) {
            None => Brisk::Answered,
            Some(delay) => Brisk::Later {
                delay,
                answer: sheets.out.split_off(begun),
                stopping: unserved(delay, told.nginx, epoch.gate.clock().now()),
            },
        }
    }
}

fn is_json(headers: &[httparse::Header<'_>]) -> bool {
    let mut is_json = true;
    Parsed(headers).visit("content-type", &mut |value| {
        is_json &= super::says_json(value);
    });
    is_json
}

fn is_short(target: &str) -> bool {
    target.len() <= super::URI_BYTES
}

/// Writes a whole answer: its fields first into the scratch, to know how long the body is.
fn write(
    sheets: &mut Sheets,
    epoch: &Epoch,
    answer: &Answer,
    status: u16,
    truth: Option<u16>,
    media: Option<&str>,
    body: impl FnOnce(&mut String),
) {
    let Sheets { out, scratch } = sheets;
    let mut parts: [(Field, Range<usize>); Field::ALL.len()] =
        std::array::from_fn(|_| (Field::CacheControl, 0..0));
    let mut count = 0;
    scratch.clear();
    fields(&epoch.gate, answer, scratch, &mut |field, part| {
        if let Some(place) = parts.get_mut(count) {
            *place = (field, part);
            count += 1;
        }
    });
    let begins = scratch.len();
    body(scratch);
    out.reserve(scratch.len() + 512);
    push_status(out, status);
    if let Some(media) = media {
        push_field(out, "content-type", media.as_bytes());
    }
    for (field, part) in parts.iter().take(count) {
        let value = scratch.get(part.clone()).unwrap_or_default();
        push_field(out, field.name(), value.as_bytes());
    }
    if let Some(truth) = truth {
        push_count(out, "x-tollgate-status", u64::from(truth));
    }
    let body = scratch.get(begins..).unwrap_or_default();
    finish(out, body.as_bytes(), answer.issued);
}

/// The answer to a request whose turn did not come before the server stopped.
#[cold]
fn unserved(delay: Duration, nginx: bool, now: Moment) -> Vec<u8> {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut body = String::new();
    let detail = "the server is stopping before this request's turn came; try again";
    push_problem(&mut body, status, detail);
    let mut out = Vec::new();
    push_status(&mut out, if nginx { 403 } else { status.as_u16() });
    push_field(&mut out, "content-type", PROBLEM_TYPE.as_bytes());
    push_field(&mut out, "cache-control", b"no-store");
    let seconds = tollgate::Span::from(delay).as_secs_ceil().max(1);
    push_count(&mut out, "retry-after", seconds);
    if nginx {
        push_count(&mut out, "x-tollgate-status", u64::from(status.as_u16()));
    }
    finish(&mut out, body.as_bytes(), now);
    out
}

fn push_status(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(match status {
        200 => b"HTTP/1.1 200 OK\r\n",
        429 => b"HTTP/1.1 429 Too Many Requests\r\n",
        403 => b"HTTP/1.1 403 Forbidden\r\n",
        422 => b"HTTP/1.1 422 Unprocessable Entity\r\n",
        400 => b"HTTP/1.1 400 Bad Request\r\n",
        _ => b"HTTP/1.1 503 Service Unavailable\r\n",
    });
}

fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn push_count(out: &mut Vec<u8>, name: &str, count: u64) {
    let mut digits = String::with_capacity(20);
    push_number(&mut digits, count);
    push_field(out, name, digits.as_bytes());
}

fn finish(out: &mut Vec<u8>, body: &[u8], now: Moment) {
    push_count(out, "content-length", body.len() as u64);
    push_field(out, "date", &date(now.as_nanos() / 1_000_000_000));
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}
