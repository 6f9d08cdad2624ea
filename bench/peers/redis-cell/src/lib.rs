//! An empty crate, which makes Cargo build its one dependency: the module redis-cell.
