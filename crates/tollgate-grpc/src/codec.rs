//! A tonic codec for protobuf messages whose decode errors are `INVALID_ARGUMENT`.
//!
//! tonic's own codec reports a message that cannot be decoded as an error of the server.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec as TonicCodec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Encodes `T`, decodes `U`.
#[derive(Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Codec<T, U> {
        Codec(PhantomData)
    }
}

/// One direction of [`Codec`].
#[derive(Debug)]
pub struct Direction<T>(PhantomData<T>);

impl<T, U> TonicCodec for Codec<T, U>
where
    T: Message + 'static,
    U: Message + Default + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Direction<T>;
    type Decoder = Direction<U>;

    fn encoder(&mut self) -> Direction<T> {
        Direction(PhantomData)
    }

    fn decoder(&mut self) -> Direction<U> {
        Direction(PhantomData)
    }
}

impl<T: Message> Encoder for Direction<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let no_room = |error: prost::EncodeError| Status::unavailable(error.to_string());
        item.encode(to).map_err(no_room)
    }
}

impl<U: Message + Default> Decoder for Direction<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        decode(from).map(Some)
    }
}

/// Decodes a message.
///
/// # Errors
/// `INVALID_ARGUMENT` if the bytes are no such message.
pub(crate) fn decode<U: Message + Default>(from: impl Buf) -> Result<U, Status> {
    U::decode(from).map_err(|error| {
        Status::invalid_argument(format!(
            "the message cannot be decoded: {error}; encode it as the protocol file says"
        ))
    })
}
