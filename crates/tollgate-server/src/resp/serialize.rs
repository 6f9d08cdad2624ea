//! Serializer of views: structures and maps become maps, options nil or their value.
//!
//! Only what the views of this server need is supported; anything else is an error and a defect.

use std::fmt::{self, Display};

use serde::ser::{self, Impossible, Serialize};

use super::reply::Reply;

/// Serializes a value into a reply.
pub(super) struct Serializer<'r, 'o>(&'r mut Reply<'o>);

impl<'r, 'o> Serializer<'r, 'o> {
    pub(super) fn new(reply: &'r mut Reply<'o>) -> Serializer<'r, 'o> {
        Serializer(reply)
    }
}

/// A value that is not supported.
#[derive(Debug)]
pub(super) struct SerializeError(String);

impl Display for SerializeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SerializeError {}

impl ser::Error for SerializeError {
    fn custom<T: Display>(what: T) -> SerializeError {
        SerializeError(what.to_string())
    }
}

/// The error for values of this kind.
fn unsupported<T>(what: &str) -> Result<T, SerializeError> {
    Err(SerializeError(format!("{what} cannot be written here")))
}

macro_rules! unsupported {
    ($($name:ident($($type:ty),*) $what:literal;)*) => {
        $(fn $name(self, $(_: $type),*) -> Result<(), SerializeError> {
            unsupported($what)
        })*
    };
}

impl<'r, 'o> ser::Serializer for Serializer<'r, 'o> {
    type Ok = ();
    type Error = SerializeError;
    type SerializeSeq = Self;
    type SerializeTuple = Impossible<(), SerializeError>;
    type SerializeTupleStruct = Impossible<(), SerializeError>;
    type SerializeTupleVariant = Impossible<(), SerializeError>;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Impossible<(), SerializeError>;

    fn serialize_bool(self, value: bool) -> Result<(), SerializeError> {
        self.0.boolean(value);
        Ok(())
    }

    fn serialize_i8(self, number: i8) -> Result<(), SerializeError> {
        self.serialize_i64(number.into())
    }

    fn serialize_i16(self, number: i16) -> Result<(), SerializeError> {
        self.serialize_i64(number.into())
    }

    fn serialize_i32(self, number: i32) -> Result<(), SerializeError> {
        self.serialize_i64(number.into())
    }

    fn serialize_i64(self, number: i64) -> Result<(), SerializeError> {
        self.0.integer(number);
        Ok(())
    }

    fn serialize_u8(self, count: u8) -> Result<(), SerializeError> {
        self.serialize_u64(count.into())
    }

    fn serialize_u16(self, count: u16) -> Result<(), SerializeError> {
        self.serialize_u64(count.into())
    }

    fn serialize_u32(self, count: u32) -> Result<(), SerializeError> {
        self.serialize_u64(count.into())
    }

    fn serialize_u64(self, count: u64) -> Result<(), SerializeError> {
        self.0.count(count);
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), SerializeError> {
        self.0.text(text);
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, text: &T) -> Result<(), SerializeError> {
        self.0.text(&text.to_string());
        Ok(())
    }

    fn serialize_none(self) -> Result<(), SerializeError> {
        self.0.nil();
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), SerializeError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), SerializeError> {
        self.serialize_none()
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), SerializeError> {
        value.serialize(self)
    }

    fn serialize_seq(self, items: Option<usize>) -> Result<Self, SerializeError> {
        match items {
            Some(items) => self.0.array(items),
            None => return unsupported("a list of unknown length"),
        }
        Ok(self)
    }

    fn serialize_map(self, pairs: Option<usize>) -> Result<Self, SerializeError> {
        match pairs {
            Some(pairs) => self.0.map(pairs),
            None => return unsupported("a map of unknown length"),
        }
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, fields: usize) -> Result<Self, SerializeError> {
        self.0.map(fields);
        Ok(self)
    }

    unsupported! {
        serialize_f32(f32) "a fraction";
        serialize_f64(f64) "a fraction";
        serialize_char(char) "a character";
        serialize_bytes(&[u8]) "raw bytes";
        serialize_unit_struct(&'static str) "an empty structure";
        serialize_unit_variant(&'static str, u32, &'static str) "a variant";
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), SerializeError> {
        unsupported("a variant")
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, SerializeError> {
        unsupported("a tuple")
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, SerializeError> {
        unsupported("a tuple")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, SerializeError> {
        unsupported("a variant")
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, SerializeError> {
        unsupported("a variant")
    }
}

impl ser::SerializeSeq for Serializer<'_, '_> {
    type Ok = ();
    type Error = SerializeError;

    fn serialize_element<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SerializeError> {
        value.serialize(Serializer(self.0))
    }

    fn end(self) -> Result<(), SerializeError> {
        Ok(())
    }
}

impl ser::SerializeMap for Serializer<'_, '_> {
    type Ok = ();
    type Error = SerializeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), SerializeError> {
        key.serialize(Serializer(self.0))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SerializeError> {
        value.serialize(Serializer(self.0))
    }

    fn end(self) -> Result<(), SerializeError> {
        Ok(())
    }
}

impl ser::SerializeStruct for Serializer<'_, '_> {
    type Ok = ();
    type Error = SerializeError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), SerializeError> {
        self.0.text(name);
        value.serialize(Serializer(self.0))
    }

    fn end(self) -> Result<(), SerializeError> {
        Ok(())
    }
}
