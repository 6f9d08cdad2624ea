//! Messages to bytes and back, with errors that say whose they are.
//!
//! tonic's own codec calls a message that cannot be read an error of the server. It is one of the caller.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Sends `T`, reads `U`.
#[derive(Debug)]
pub(super) struct Messages<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Messages<T, U> {
    fn default() -> Messages<T, U> {
        Messages(PhantomData)
    }
}

/// One direction of [`Messages`].
#[derive(Debug)]
pub(super) struct One<T>(PhantomData<T>);

impl<T, U> Codec for Messages<T, U>
where
    T: Message + 'static,
    U: Message + Default + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = One<T>;
    type Decoder = One<U>;

    fn encoder(&mut self) -> One<T> {
        One(PhantomData)
    }

    fn decoder(&mut self) -> One<U> {
        One(PhantomData)
    }
}

impl<T: Message> Encoder for One<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let no_room = |error: prost::EncodeError| Status::unavailable(error.to_string());
        item.encode(to).map_err(no_room)
    }
}

impl<U: Message + Default> Decoder for One<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        read(from).map(Some)
    }
}

/// Reads a message.
///
/// # Errors
/// That it is none.
pub(super) fn read<U: Message + Default>(from: impl Buf) -> Result<U, Status> {
    U::decode(from).map_err(|error| {
        Status::invalid_argument(format!(
            "the message cannot be read: {error}; send it as the protocol file has it"
        ))
    })
}
