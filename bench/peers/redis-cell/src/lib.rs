//! Nothing: what counts is that its one dependency is built beside it.
