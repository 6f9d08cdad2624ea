//! HTTP/2 frame by frame, as no well-behaved client sends them.

mod bodies;
mod floods;
mod flow;
mod frames;
mod heads;
mod raw;
mod shutdown;
