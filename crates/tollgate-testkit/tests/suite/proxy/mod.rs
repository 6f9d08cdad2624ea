//! Every fault of the proxy, seen by a plain client of a real server.

mod client;
mod lasting;
mod once;
